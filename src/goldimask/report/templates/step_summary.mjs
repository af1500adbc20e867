// The figures of a step, next to those of the other methods.

import { rounded } from './format.mjs';

/** @import { Cell } from './types' */
/** @import { StepView } from './step_model.mjs' */

const COLUMNS = [
  ...['method', 'masked', 'revealed', 'targets', 'F(R)', 'mean p before', 'mean p after'],
  ...['effective targets', 'largest weight', 'loss'],
];

/**
 * Columns and one row per method.
 * @param {StepView[]} views
 * @returns {{ columns: string[], rows: Cell[][] }}
 */
export const comparison = (views) => ({
  columns: COLUMNS,
  rows: views.map(({ record, probe, measured }) => [
    record.method,
    probe.masked.length,
    record.order.length,
    record.targets.length,
    record.objective && record.objective.value,
    mean(record.targets.map((i) => measured(i).before)),
    mean(record.after),
    record.n_eff,
    record.weight.length ? rounded(Math.max(...record.weight)) : null,
    record.loss,
  ]),
});

/**
 * The mean of what is known, to three digits.
 * @param {(number | null)[]} list
 */
export const mean = (list) => {
  const known = list.filter((x) => x !== null);
  return known.length ? rounded(known.reduce((a, b) => a + b, 0) / known.length) : null;
};

/**
 * One cell per token of the response, one path per state; a target is as high as its weight.
 * @param {StepView} view
 */
export const lanePaths = (view) => {
  const { prompt, index } = view.group.tokens;
  const paths = { visible: '', revealed: '', target: '', candidate: '' };
  for (let i = prompt; i < index.length; i += 1) {
    const state = view.state(i, view.last);
    if (state === 'prompt') continue;
    const target = state === 'target' ? view.target(i) : null;
    const share = target ? 0.25 + 0.75 * (target.weight / view.top) : 0.25;
    const size = state === 'visible' ? 0.08 : share;
    paths[state] += `M${i - prompt} ${(1 - size).toFixed(3)}h.9v${size.toFixed(3)}h-.9z`;
  }
  return { cells: Math.max(1, index.length - prompt), paths: Object.entries(paths) };
};
