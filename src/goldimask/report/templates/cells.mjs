// The table of cells: lists that filter, headings that sort.

import { FIELDS, chosen, keep, shared, valuesOf } from './cells_model.mjs';
import { scrolling } from './controls.mjs';
import { button, clear, el } from './dom.mjs';
import { num } from './format.mjs';
import { isNeighbour } from './prose.mjs';

/** @import { CampaignCell, CellsData } from './types' */
/** @import { Filter } from './cells_model.mjs' */
/**
 * @typedef {{ name: string, text?: boolean, digits?: number,
 *   value: (cell: CampaignCell) => any }} Column
 */

/**
 * @param {string[]} tasks
 * @returns {Column[]}
 */
const columnsOf = (tasks) => [
  { name: 'method', text: true, value: (cell) => cell.row },
  { name: 'backbone', text: true, value: (cell) => cell.backbone },
  { name: 'corpus', text: true, value: (cell) => cell.corpus },
  { name: 'seed', value: (cell) => cell.seed },
  { name: 'state', text: true, value: (cell) => cell.state },
  ...tasks.map((name, i) => ({
    name,
    digits: 1,
    value: (/** @type {CampaignCell} */ cell) => cell.scores[i],
  })),
  { name: 'average', digits: 1, value: (cell) => cell.average },
  { name: 'steps', digits: 1, value: (cell) => cell.calls },
  { name: 'held-out loss', value: (cell) => cell.loss },
  { name: 'hours', value: (cell) => cell.hours },
];

/** @param {CampaignCell} cell @param {Column} column */
const shownCell = (cell, { name, text, digits, value }) => {
  const found = value(cell);
  if (name === 'method') return el('th', { scope: 'row', text: found });
  const node = el('td', { class: text && 'text', text: text ? found : figure(found, digits) });
  if (name === 'state') {
    node.textContent = '';
    node.append(el('span', { class: `state ${stateClass(found)}`, text: found }));
    if (cell.progress) node.append(el('small', { text: ` ${cell.progress}` }));
    if (cell.error) node.append(el('small', { class: 'error', text: cell.error }));
  }
  return node;
};

/** @param {number | null} value @param {number} [digits] */
const figure = (value, digits) =>
  value !== null && digits !== undefined ? value.toFixed(digits) : num(value, 3);

/** @param {string} state */
const stateClass = (state) => {
  if (state === 'done' || state === 'evaluated') return 'good';
  return state === 'failed' ? 'bad' : 'soft';
};

/** @param {CampaignCell} cell */
const pagesCell = ({ pages }) =>
  el(
    'td',
    { class: 'text' },
    pages
      .filter(({ href }) => isNeighbour(href))
      .map(({ href, text }) => el('a', { href, title: text, text: text.split('/').pop() })),
  );

/** @param {HTMLElement} box @param {CellsData} data */
export const drawCells = (box, { tasks, cells }) => {
  shared.cells = cells;
  const columns = columnsOf(tasks);
  /** @type {Filter} */
  const filter = {};
  let [by, down] = [-1, false];
  const body = el('tbody');
  const count = el('output', { class: 'soft' });

  const refresh = () => {
    const value = by < 0 ? () => null : columns[by].value;
    const kept = chosen(cells, filter, value, down);
    clear(
      body,
      kept.map((i) =>
        el('tr', {}, [...columns.map((c) => shownCell(cells[i], c)), pagesCell(cells[i])]),
      ),
    );
    count.textContent = `${kept.length} of ${cells.length} cells`;
    heads.forEach((head, i) =>
      head.setAttribute('aria-sort', i === by ? (down ? 'descending' : 'ascending') : 'none'),
    );
    keep(kept);
  };
  const heads = columns.map(({ name, text }, i) => {
    const sort = button({ class: 'sort', text: name }, () => {
      [by, down] = [i, by === i ? !down : !text];
      refresh();
    });
    return el('th', { scope: 'col', class: text && 'text' }, sort);
  });
  const lists = FIELDS.flatMap((field) => {
    const values = valuesOf(cells, field);
    if (values.length < 2) return [];
    const name = field === 'row' ? 'method' : field;
    const options = [el('option', { value: '', text: `every ${name}` })];
    options.push(...values.map((text) => el('option', { value: text, text })));
    const pick = el('select', { 'aria-label': name }, options);
    pick.addEventListener('change', () => {
      filter[field] = pick.value;
      refresh();
    });
    return [pick];
  });
  const search = el('input', { type: 'search', 'aria-label': 'search', placeholder: 'search' });
  search.addEventListener('input', () => {
    filter.text = search.value;
    refresh();
  });
  const last = el('th', { scope: 'col', class: 'text', text: 'pages' });
  const head = el('thead', {}, el('tr', {}, [...heads, last]));
  box.append(
    el('div', { class: 'row filters' }, [...lists, search, count]),
    scrolling(
      el(
        'div',
        { class: 'scroll tall', tabindex: 0, role: 'group', 'aria-label': 'cells' },
        el('table', { class: 'cells' }, head, body),
      ),
    ),
  );
  refresh();
};
