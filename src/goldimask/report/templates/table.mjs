// Tables and facts.

import { scrolling } from './controls.mjs';
import { el } from './dom.mjs';
import { num } from './format.mjs';

/** @import { Cell, TableData, TablesData } from './types' */

const TALL = 45; // rows, beyond which a table of a report scrolls by itself
const LONG = 36; // letters from which on a cell may take several lines

/** @param {Cell | undefined} value */
const shown = (value) => (typeof value === 'number' ? num(value) : String(value ?? '–'));

/**
 * `left` columns hold text, the others numbers; the row `on` is marked; a row of one cell is the
 * head of those below it.
 * @param {string} caption
 * @param {string[]} columns
 * @param {(Cell | Node)[][]} rows
 * @param {{ left?: number, on?: number, tall?: boolean }} [options]
 * @param {boolean} [shownCaption]
 */
export const table = (caption, columns, rows, { left = 1, on, tall } = {}, shownCaption = true) => {
  const titles = columns.map((text, i) =>
    el('th', { scope: 'col', text, class: i < left && 'text' }),
  );
  /** @param {Cell | Node} value @param {number} i */
  const cell = (value, i) => {
    const node = i === 0 ? el('th', { scope: 'row' }) : el('td', { class: i < left && 'text' });
    node.append(value instanceof Node ? value : shown(value));
    if ((node.textContent ?? '').length > LONG) node.classList.add('long');
    return node;
  };
  /** @param {(Cell | Node)[]} row @param {number} r */
  const line = (row, r) =>
    row.length === 1 && columns.length > 1
      ? el('tr', {}, el('th', { class: 'head', colspan: columns.length, text: String(row[0]) }))
      : el('tr', { class: on === r && 'on' }, row.map(cell));
  const head = el('thead', {}, el('tr', {}, titles));
  const box = el(
    'div',
    {
      class: tall ? 'scroll tall' : 'scroll',
      tabindex: 0,
      role: 'group',
      'aria-label': caption || 'table',
    },
    el('table', {}, head, el('tbody', {}, rows.map(line))),
  );
  return el(
    'div',
    { class: 'titled' },
    caption && shownCaption && el('p', { class: 'soft', text: caption }),
    scrolling(box),
  );
};

/**
 * Names with their values in one flowing line.
 * @param {[string, Cell][]} pairs
 */
export const facts = (pairs) =>
  el(
    'dl',
    { class: 'facts' },
    pairs.map(([name, value]) =>
      el('div', {}, el('dt', { text: name }), el('dd', { 'data-fact': name, text: shown(value) })),
    ),
  );

/** @param {HTMLElement} box @param {TableData} data */
export const drawTable = (box, data) =>
  box.append(table(data.caption, data.columns, data.rows, { left: data.left || 1 }));

/**
 * Tables one below the other, folded where they are many.
 * @param {HTMLElement} box
 * @param {TablesData} data
 */
export const drawTables = (box, { tables }) =>
  box.append(
    ...tables.map((data) => {
      const { title, note, columns, rows, left, open } = data;
      const drawn = table(
        title,
        columns,
        rows,
        { left: left || 1, tall: rows.length > TALL },
        false,
      );
      return el(
        'details',
        { open, class: 'fold' },
        el('summary', {}, el('h3', { text: title })),
        note && el('p', { class: 'note', text: note }),
        drawn,
      );
    }),
  );
