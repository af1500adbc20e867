// The cells of a campaign: which are shown, in which order, and the curves of those.

/** @import { CampaignCell, CurveChart, OverlayData, Point, Problem } from './types' */
/** @typedef {'row' | 'backbone' | 'corpus' | 'seed' | 'state'} Field */
/** @typedef {Partial<Record<Field, string>> & { text?: string }} Filter */

/** @type {Field[]} */
export const FIELDS = ['row', 'backbone', 'corpus', 'seed', 'state'];

/**
 * The values of a field, in the order of the cells; numbers by size.
 * @param {CampaignCell[]} cells
 * @param {Field} field
 */
export const valuesOf = (cells, field) => {
  const found = [...new Set(cells.map((cell) => String(cell[field] ?? '')))].filter(Boolean);
  return field === 'seed' ? found.sort((a, b) => Number(a) - Number(b)) : found;
};

/**
 * @param {CampaignCell} cell
 * @param {Filter} filter
 */
export const matches = (cell, filter) => {
  if (!FIELDS.every((field) => !filter[field] || String(cell[field] ?? '') === filter[field])) {
    return false;
  }
  const words = (filter.text ?? '').toLowerCase().split(/\s+/).filter(Boolean);
  const said = [cell.label, cell.error, ...FIELDS.map((field) => cell[field] ?? '')];
  const text = said.join(' ').toLowerCase();
  return words.every((word) => text.includes(word));
};

/**
 * Places of the cells that a filter keeps, sorted by a value; what has none comes last.
 * @param {CampaignCell[]} cells
 * @param {Filter} filter
 * @param {(cell: CampaignCell) => string | number | null | undefined} value
 * @param {boolean} down
 */
export const chosen = (cells, filter, value, down) => {
  const kept = cells.flatMap((cell, i) => (matches(cell, filter) ? [i] : []));
  /** @param {number} a @param {number} b */
  const order = (a, b) => {
    const [x, y] = [value(cells[a]), value(cells[b])];
    const [noX, noY] = [x === null || x === undefined || x === '', y === null || y === undefined];
    if (noX || noY || y === '') return Number(noX) - Number(noY || y === '') || a - b;
    const sign =
      typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y));
    return (down ? -sign : sign) || a - b;
  };
  return kept.sort(order);
};

/**
 * Backbone and corpus.
 * @param {CampaignCell} cell
 */
export const panelOf = ({ backbone, corpus }) => [backbone, corpus].filter(Boolean).join(' / ');

/**
 * The mean of several lines at the steps that all of them have; at all steps if there are none.
 * @param {Point[][]} lines
 * @returns {Point[]}
 */
export const meanLine = (lines) => {
  /** @type {Map<number, number[]>} */
  const at = new Map();
  for (const [x, y] of lines.flat()) at.set(x, [...(at.get(x) ?? []), y]);
  const every = [...at].sort(([a], [b]) => a - b);
  const shared = every.filter(([, ys]) => ys.length === lines.length);
  return (shared.length ? shared : every).map(([x, ys]) => [
    x,
    ys.reduce((a, b) => a + b, 0) / ys.length,
  ]);
};

/**
 * A chart for each backbone and corpus, a line for each method (mean over seeds) or for each run.
 * @param {OverlayData} data
 * @param {CampaignCell[]} cells
 * @param {number[]} kept
 * @param {string} measure
 * @param {boolean} mean
 * @returns {CurveChart[]}
 */
export const overlayCharts = (data, cells, kept, measure, mean) => {
  const places = new Set(kept);
  /** @type {Map<string, Map<string, Point[][]>>} */
  const panels = new Map();
  for (const [cell, key, grid, values] of data.lines) {
    if (key !== measure || !places.has(cell)) continue;
    const rows = panels.get(panelOf(cells[cell])) ?? new Map();
    panels.set(panelOf(cells[cell]), rows);
    const points = values.map((y, i) => /** @type {Point} */ ([data.grids[grid][i], y]));
    rows.set(cells[cell].row, [...(rows.get(cells[cell].row) ?? []), points]);
  }
  return [...panels].map(([panel, rows]) => ({
    name: panel || data.measures[measure],
    y: data.measures[measure],
    lines: [...rows].flatMap(([name, lines]) =>
      (mean ? [meanLine(lines)] : lines).map((points) => ({ name, points })),
    ),
  }));
};

/**
 * Panel and task of each problem, once.
 * @param {Problem[]} problems
 */
export const groupsOf = (problems) => [
  ...new Map(problems.map(({ panel, task }) => [`${panel}\n${task}`, { panel, task }])).values(),
];

/**
 * The rows to begin with: those asked for that there are, else the first two.
 * @param {string[]} rows
 * @param {string[]} start
 */
export const firstRows = (rows, start) => {
  const known = start.filter((row) => rows.includes(row));
  return known.length ? known : rows.slice(0, 2);
};

/** What the sections of a page share: its cells, and which of them are kept. */
export const shared = {
  cells: /** @type {CampaignCell[]} */ ([]),
  kept: /** @type {number[]} */ ([]),
  listeners: /** @type {(() => void)[]} */ ([]),
};

/** @param {number[]} kept */
export const keep = (kept) => {
  shared.kept = kept;
  for (const listen of shared.listeners) listen();
};
