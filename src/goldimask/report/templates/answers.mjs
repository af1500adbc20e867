// What several methods answered to the same problem, side by side.

import { firstRows, groupsOf, shared } from './cells_model.mjs';
import { list } from './controls.mjs';
import { button, clear, el, verdict } from './dom.mjs';

/** @import { AnswerLine, AnswersData, Problem } from './types' */

/** @param {Problem} problem */
const told = ({ item, rows }) => {
  const right = rows.filter(([, correct]) => correct).length;
  return `${item}: ${right} of ${rows.length} right`;
};

/** @param {AnswerLine} line */
const pane = ([cell, correct, extracted, steps, text]) => {
  const { row, seed } = shared.cells[cell];
  const which = seed === null ? '' : ` (seed ${seed})`;
  return el(
    'div',
    { class: 'panel', 'data-answer': row },
    el('h3', {}, row, el('small', { class: 'soft', text: which })),
    el('p', {}, verdict(correct), ` answer ${extracted ?? 'none'}, ${steps} steps`),
    el('pre', { dir: 'auto', tabindex: 0, text }),
  );
};

/** @param {HTMLElement} box @param {AnswersData} data */
export const drawAnswers = (box, { problems, start }) => {
  const groups = groupsOf(problems);
  /** @type {Problem[]} */
  let here = [];
  let at = 0;
  /** @type {string[]} */
  let on = [];
  const items = el('select', { 'aria-label': 'problem' });
  const chips = el('div', { class: 'group', role: 'group', 'aria-label': 'methods' });
  const panes = el('div', { class: 'models' });

  const showPanes = () => {
    const lines = here[at].rows.filter(([cell]) => on.includes(shared.cells[cell].row));
    clear(panes, lines.map(pane));
  };
  const showChips = () => {
    const rows = here[at].rows.map(([cell]) => shared.cells[cell].row);
    if (!rows.some((row) => on.includes(row))) on = firstRows(rows, start);
    const toggles = rows.map((row) => {
      const toggle = button({ 'aria-pressed': String(on.includes(row)), text: row }, () => {
        on = on.includes(row) ? on.filter((name) => name !== row) : [...on, row];
        toggle.setAttribute('aria-pressed', String(on.includes(row)));
        showPanes();
      });
      return toggle;
    });
    clear(chips, toggles);
    showPanes();
  };
  /** @param {number} next */
  const go = (next) => {
    at = (next + here.length) % here.length;
    items.value = String(at);
    showChips();
  };
  /** @param {number} i */
  const open = (i) => {
    const { panel, task } = groups[i];
    here = problems.filter((problem) => problem.panel === panel && problem.task === task);
    clear(
      items,
      here.map((problem, value) => el('option', { value, text: told(problem) })),
    );
    go(0);
  };
  items.addEventListener('change', () => go(Number(items.value)));
  const names = groups.map(({ panel, task }) => [panel, task].filter(Boolean).join(': '));
  box.append(
    el(
      'div',
      { class: 'row filters' },
      list('panel and task', names, open),
      items,
      button({ text: '← previous' }, () => go(at - 1)),
      button({ text: 'next →' }, () => go(at + 1)),
    ),
    chips,
    panes,
  );
  open(0);
};
