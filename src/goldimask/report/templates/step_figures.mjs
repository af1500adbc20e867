// The charts of a step: the objective, its gains, priority, support, and what the reveal changed.

import { num, rounded } from './format.mjs';
import { priority, support } from './step_model.mjs';

/** @import { Dot, Figure, Layer, Point } from './types' */
/** @import { StepView } from './step_model.mjs' */

// the paper's curves, shown with methods that have none of their own
const PAPER = { a: 1, b: 3, support: 'saturating', s0: 0.05 };

/**
 * Those charts for which the method measured something.
 * @param {StepView} view
 * @param {number} k
 */
export const stepFigures = (view, k) =>
  [objectivePaths, choiceGains, priorities, supports, beforeAndAfter, weightsByGain]
    .map((figure) => figure(view, k))
    .filter((figure) => figure !== null);

/** @param {(x: number) => number} f @param {number} max @returns {Point[]} */
const curve = (f, max) =>
  Array.from({ length: 101 }, (_, j) => [(max * j) / 100, f((max * j) / 100)]);

/** @param {StepView} view @param {number} k @returns {Figure | null} */
const objectivePaths = ({ record }, k) => {
  const { objective, order, method } = record;
  if (!objective || !order.length) return null;
  const { own, mean, low, high, draws, k: steps } = objective.paths;
  /** @param {number[]} values @returns {Point[]} */
  const along = (values) => steps.map((step, j) => [step, values[j]]);
  const reached = `F reaches ${num(objective.value)}`;
  const chance = `random reveals reach ${num(mean[mean.length - 1])} on average`;
  return {
    title: 'Objective F',
    note: objective.own ? '' : '(not what this method maximises)',
    chart: {
      label: `${reached}; ${chance}`,
      x: { min: 0, max: order.length, label: 'tokens revealed' },
      y: { min: 0, max: Math.max(...own, ...high, 1e-9) * 1.05, label: 'F(R)' },
      layers: [
        { band: steps.map((step, j) => [step, low[j], high[j]]) },
        { line: along(mean), class: 's5 dash' },
        { line: along(own), class: 's0' },
        { vertical: k },
      ],
    },
    legend: [
      { name: method, class: 's0' },
      { name: `random, mean and 10–90 % of ${draws}`, class: 's5 dash' },
    ],
  };
};

/** @param {StepView} view @param {number} k @returns {Figure | null} */
const choiceGains = ({ record: { gains } }, k) => {
  if (!gains || !gains.length) return null;
  return {
    title: 'Gain of each choice',
    chart: {
      label: `marginal gains from ${num(gains[0])} to ${num(gains[gains.length - 1])}`,
      x: { min: 0, max: gains.length, label: 'choice' },
      y: {
        min: Math.min(0, ...gains),
        max: Math.max(...gains, 1e-9) * 1.05,
        label: 'marginal gain',
      },
      layers: [{ line: gains.map((gain, j) => [j + 1, gain]), class: 's0' }, { vertical: k }],
    },
  };
};

/** @param {StepView} view @param {number} k @returns {Figure | null} */
const priorities = (view, k) => {
  const { objective } = view.record;
  if (!view.probe.before) return null;
  const line = curve((p) => priority(objective ?? PAPER, p), 1);
  const points = view.probe.masked.flatMap((i) => {
    const x = view.measured(i).before;
    if (x === null) return [];
    return [{ i, x, y: priority(objective ?? PAPER, x), class: view.state(i, k) }];
  });
  return {
    title: 'Priority λ(p)',
    note: objective ? objective.priority : 'p(1-p)^3, the paper’s',
    chart: {
      label: `priority of ${points.length} candidates by their probability before the reveal`,
      x: { min: 0, max: 1, label: 'p before' },
      y: { min: 0, max: 1.05 * Math.max(...line.map((point) => point[1])), label: 'priority' },
      layers: [{ line, class: 's5' }, { points }],
    },
  };
};

/** @param {StepView} view @param {number} k @returns {Figure | null} */
const supports = (view, k) => {
  const { targets, support: masses, objective } = view.record;
  if (!masses || !targets.length) return null;
  const shape = objective ?? PAPER;
  const max = Math.max(0.1, ...masses) * 1.05;
  const points = targets.map((i, j) => {
    return { i, x: masses[j], y: support(shape, masses[j]), class: view.state(i, k) };
  });
  return {
    title: 'Support φ(S)',
    note: shape.support !== 'saturating' ? shape.support : `S / (S + ${shape.s0})`,
    chart: {
      label: `support of ${points.length} targets by the attention they pay to revealed tokens`,
      x: { min: 0, max, label: 'attention on revealed tokens, S' },
      y: { min: 0, max: support(shape, max) * 1.05, label: 'support' },
      layers: [{ line: curve((mass) => support(shape, mass), max), class: 's5' }, { points }],
    },
  };
};

/**
 * The targets whose probability before the reveal is known.
 * @param {StepView} view
 */
const changes = ({ record, measured }) =>
  record.targets.flatMap((i, j) => {
    const { before } = measured(i);
    return before === null ? [] : [{ i, before, after: record.after[j], weight: record.weight[j] }];
  });

/** @param {StepView} view @returns {Figure | null} */
const beforeAndAfter = (view) => {
  if (!view.probe.before || !view.record.targets.length) return null;
  const points = changes(view).map(({ i, before, after, weight }) => {
    return { i, x: before, y: after, r: 2 + 5 * Math.sqrt(weight / view.top), class: 'target' };
  });
  return {
    title: 'Probability before and after',
    note: 'size: weight',
    chart: {
      label: `probability of ${points.length} targets before and after the reveal`,
      x: { min: 0, max: 1, label: 'p before' },
      y: { min: 0, max: 1, label: 'p after' },
      layers: [
        {
          line: [
            [0, 0],
            [1, 1],
          ],
          class: 's5 dot',
        },
        { points },
      ],
    },
  };
};

/** @param {StepView} view @returns {Figure | null} */
const weightsByGain = (view) => {
  if (!view.probe.before || !view.record.targets.length) return null;
  /** @type {Dot[]} */
  const points = changes(view)
    .map(({ i, before, after, weight }) => {
      return { i, x: rounded(Math.log(after / before), 4), y: weight, class: 'target' };
    })
    .filter((point) => Number.isFinite(point.x));
  const gains = points.map((point) => point.x);
  return {
    title: 'Weight by gain',
    note: 'log p after − log p before',
    chart: {
      label: `weights of ${points.length} targets by their gain`,
      x: { min: Math.min(0, ...gains), max: Math.max(0.01, ...gains), label: 'gain (nats)' },
      y: { min: 0, max: Math.max(1, view.top) * 1.08, label: 'weight' },
      layers: [{ points }, capLayer(view)],
    },
  };
};

/**
 * The cap of the weights; named only where it is inside the chart.
 * @param {StepView} view
 * @returns {Layer}
 */
const capLayer = ({ record: { cap }, top }) => {
  if (!cap) return {};
  const edge = top * 1.06;
  return { horizontal: Math.min(cap, edge), note: cap <= edge ? `cap ${cap}` : '' };
};
