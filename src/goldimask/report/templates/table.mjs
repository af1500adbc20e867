// Tables and facts.

import { scrolling } from './controls.mjs';
import { el } from './dom.mjs';
import { num } from './format.mjs';

/** @import { Cell, TableData } from './types' */

const LONG = 36; // letters from which on a cell may take several lines

/** @param {Cell | undefined} value */
const shown = (value) => (typeof value === 'number' ? num(value) : String(value ?? '–'));

/**
 * `left` columns hold text, the others numbers; the row `on` is marked.
 * @param {string} caption
 * @param {string[]} columns
 * @param {(Cell | Node)[][]} rows
 * @param {{ left?: number, on?: number }} [options]
 */
export const table = (caption, columns, rows, { left = 1, on } = {}) => {
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
  const body = rows.map((row, r) => el('tr', { class: on === r && 'on' }, row.map(cell)));
  const grid = el('table', {}, el('thead', {}, el('tr', {}, titles)), el('tbody', {}, body));
  const box = el(
    'div',
    { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': caption || 'table' },
    grid,
  );
  return el(
    'div',
    { class: 'titled' },
    caption && el('p', { class: 'soft', text: caption }),
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
