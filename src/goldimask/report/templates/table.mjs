// Tables and facts.

import { el } from './dom.mjs';
import { num } from './format.mjs';

/** @import { Cell, TableData, TablesData } from './types' */

const LONG = 45; // rows, beyond which a table of a report scrolls by itself

/** @param {Cell | undefined} value */
const shown = (value) => (typeof value === 'number' ? num(value) : String(value ?? '–'));

/**
 * `left` columns hold text, the others numbers; the row `on` is marked; a row of one cell is the
 * head of those below it.
 * @param {string} caption
 * @param {string[]} columns
 * @param {(Cell | Node)[][]} rows
 * @param {{ left?: number, on?: number }} [options]
 * @param {boolean} [shownCaption]
 */
export const table = (caption, columns, rows, { left = 1, on } = {}, shownCaption = true) => {
  const titles = columns.map((text, i) =>
    el('th', { scope: 'col', text, class: i < left && 'text' }),
  );
  /** @param {Cell | Node} value @param {number} i */
  const cell = (value, i) => {
    const node = i === 0 ? el('th', { scope: 'row' }) : el('td', { class: i < left && 'text' });
    node.append(value instanceof Node ? value : shown(value));
    return node;
  };
  /** @param {(Cell | Node)[]} row @param {number} r */
  const line = (row, r) =>
    row.length === 1 && columns.length > 1
      ? el('tr', {}, el('th', { class: 'head', colspan: columns.length, text: String(row[0]) }))
      : el('tr', { class: on === r && 'on' }, row.map(cell));
  const body = rows.map(line);
  return el(
    'div',
    { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': caption || 'table' },
    el(
      'table',
      {},
      caption && shownCaption && el('caption', { text: caption }),
      el('thead', {}, el('tr', {}, titles)),
      el('tbody', {}, body),
    ),
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
      const drawn = table(title, columns, rows, { left: left || 1 }, false);
      if (rows.length > LONG) drawn.classList.add('tall');
      return el(
        'details',
        { open, class: 'fold' },
        el('summary', {}, el('h3', { text: title })),
        note && el('p', { class: 'note', text: note }),
        drawn,
      );
    }),
  );
