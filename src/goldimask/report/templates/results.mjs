// The summary: gains over the first row, accuracy per task, all with their intervals.

import { el } from './dom.mjs';
import { change, percent } from './format.mjs';
import { facts, table } from './table.mjs';

/** @import { ResultRow, ResultsData } from './types' */

/** @param {HTMLElement} box @param {ResultsData} data */
export const drawResults = (box, { tasks, rows, facts: pairs }) => {
  const base = rows[0];
  const roles = [...new Set(rows.flatMap((row) => Object.keys(row.gains ?? {})))];
  const columns = [
    'model',
    ...roles.map((role) => `${role}: gain`),
    ...tasks,
    'decoding steps',
    'held-out loss',
  ];
  const lines = rows.map((row) => [
    row.name,
    ...roles.map((role) => gainCell(row, role)),
    ...tasks.map((task) => accuracyCell(row, base, task)),
    measureCell(row, base, 'steps', 1),
    measureCell(row, base, 'held_out', 4),
  ]);
  box.append(table(caption(base), columns, lines));
  const known = Object.entries(pairs);
  if (known.length) box.append(facts(known));
};

/**
 * What the table shows, and of how many problems.
 * @param {ResultRow} base
 */
export const caption = (base) => {
  const said = 'Accuracy with 95 % interval, change against the first row below it';
  const sizes = Object.values(base.tasks).flatMap((task) => task.n ?? []);
  if (!sizes.length) return said;
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  return `${said}; ${least === most ? least : `${least}–${most}`} problems a task`;
};

/**
 * Points over the first row on the same problems.
 * @param {ResultRow} row
 * @param {string} role
 */
const gainCell = (row, role) => {
  const gain = row.gains?.[role];
  if (!gain) return el('span', { text: '–' });
  const [value, low, high] = gain.map((x) => `${x < 0 ? '−' : '+'}${Math.abs(100 * x).toFixed(1)}`);
  return el(
    'span',
    { 'data-gain': `${row.name}/${role}` },
    el('strong', { text: value }),
    el('br'),
    el('small', { text: `${low} to ${high}` }),
  );
};

/**
 * @param {ResultRow} row
 * @param {ResultRow} base
 * @param {string} task
 */
const accuracyCell = (row, base, task) => {
  const { [task]: entry } = row.tasks;
  if (!entry) return el('span', { text: '–' });
  const name = `${row.name}/${task}`;
  const cell = el('span', {}, el('span', { 'data-accuracy': name, text: percent(entry.accuracy) }));
  if (entry.low !== undefined && entry.high !== undefined) {
    const interval = `${(100 * entry.low).toFixed(1)}–${(100 * entry.high).toFixed(1)}`;
    cell.append(el('br'), el('small', { text: interval }));
  }
  const before = base.tasks[task];
  if (row !== base && before) {
    cell.append(el('br'), el('small', change(100 * (entry.accuracy - before.accuracy), 1, true)));
  }
  return cell;
};

/**
 * A measure of which less is better.
 * @param {ResultRow} row
 * @param {ResultRow} base
 * @param {'steps' | 'held_out'} key
 * @param {number} digits
 */
const measureCell = (row, base, key, digits) => {
  const value = row[key];
  const before = base[key];
  if (value === null) return el('span', { text: '–' });
  const cell = el('span', { text: value.toFixed(digits) });
  if (row !== base && before !== null) {
    cell.append(el('br'), el('small', change(value - before, digits, false)));
  }
  return cell;
};
