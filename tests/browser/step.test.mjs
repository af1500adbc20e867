import assert from 'node:assert/strict';
import { test } from 'node:test';
import { stepFigures } from '../../src/goldimask/report/templates/step_figures.mjs';
import {
  priority,
  stepChoices,
  stepFacts,
  stepView,
  support,
  tokenFacts,
  tokenLabel,
} from '../../src/goldimask/report/templates/step_model.mjs';
import { comparison, lanePaths, mean } from '../../src/goldimask/report/templates/step_summary.mjs';

// prompt 0 1, visible 2, revealed 4 then 3, targets 5 6
const record = {
  ...{ method: 'goldimask-d', t: 0.45, rho: 0.3, length: 5, loss: 1.5, n_eff: 1.8, cap: 10 },
  ...{ probe: 0, order: [4, 3], ordered: true, gains: [0.4, 0.1] },
  ...{ targets: [5, 6], after: [0.5, 0.25], weight: [2, 1], support: [0.3, 0.2] },
  supporters: [
    [3, 0.2, 4, 0.1],
    [4, 0.2],
  ],
  objective: {
    ...{ own: true, priority: 'p(1-p)^3', a: 1, b: 3, support: 'saturating', s0: 0.05, value: 0.5 },
    paths: {
      k: [0, 1, 2],
      own: [0, 0.4, 0.5],
      mean: [0, 0.2, 0.3],
      low: [0, 0.1, 0.2],
      high: [0, 0.3, 0.4],
      draws: 24,
    },
  },
};
const plain = {
  ...{ ...record, method: 'vanilla', probe: 1, order: [], ordered: false, gains: null },
  ...{ targets: [3, 4, 5, 6], after: [0.5, 0.5, 0.5, 0.5], weight: [1, 1, 1, 1] },
  ...{ support: null, supporters: null, objective: null, cap: null },
};
const group = {
  example: '7',
  tokens: {
    vocab: [
      { id: 9, runs: [['t', 'a']] },
      { id: 8, runs: [['m', '⏎', 'newline']], special: true },
    ],
    index: [0, 0, 0, 1, 0, 0, 0],
    prompt: 2,
  },
  probes: [
    { masked: [3, 4, 5, 6], before: [0.2, 0.4, 0.25, null], entropy: null },
    { masked: [3, 4, 5, 6], before: null, entropy: null },
  ],
  records: [record, plain, { ...record, t: 0.2 }],
};
const view = stepView(group, record);
const vanilla = stepView(group, plain);
const states = (v, k) => group.tokens.index.map((_, i) => v.state(i, k));
const [P, V, C, R, T] = ['prompt', 'visible', 'candidate', 'revealed', 'target'];

test('candidates become revealed one by one, at the end the rest are targets', () => {
  assert.deepEqual(states(view, 0), [P, P, V, C, C, C, C]);
  assert.deepEqual(states(view, 1), [P, P, V, C, R, C, C]);
  assert.deepEqual(states(view, 2), [P, P, V, R, R, T, T]);
  assert.deepEqual(states(vanilla, 0), [P, P, V, T, T, T, T]);
});

test('links go both ways, strongest first, and only after the last reveal', () => {
  assert.deepEqual(view.links(5, 2), [
    [3, 0.2],
    [4, 0.1],
  ]);
  assert.deepEqual(view.links(4, 2), [
    [6, 0.2],
    [5, 0.1],
  ]);
  assert.deepEqual(view.links(3, 2), [[5, 0.2]]);
  for (const i of [0, 2, 3, 4, 5]) assert.deepEqual(view.links(i, 1), []);
  assert.deepEqual(vanilla.links(5, 0), []);
});

test('measures of a position', () => {
  assert.deepEqual(view.measured(5), { before: 0.25, entropy: null });
  assert.deepEqual(view.measured(6), { before: null, entropy: null }); // forgotten
  assert.deepEqual(view.measured(0), { before: null, entropy: null });
  assert.deepEqual(view.target(6), { after: 0.25, weight: 1, mass: 0.2 });
  assert.equal(view.target(4), null);
  assert.deepEqual([view.top, view.last, view.choice(3)], [2, 2, 2]);
});

test('the curves of the paper', () => {
  assert.equal(priority({ a: 1, b: 3 }, 0.5), 0.0625);
  assert.equal(support({ support: 'saturating', s0: 0.05 }, 0.05), 0.5);
  assert.equal(support({ support: 'linear', s0: 0.05 }, 0.3), 0.3);
  const tables = [
    [
      [0, 0.5, 1],
      [0, 2, 1],
    ],
    [
      [0, 1],
      [0, 1],
    ],
  ];
  const shape = { a: 1, b: 3, support: 'table', s0: 0.05, tables };
  assert.deepEqual(
    [0, 0.25, 0.5, 0.75, 1].map((p) => priority(shape, p)),
    [0, 1, 2, 1.5, 1],
  );
  assert.equal(support(shape, 0.25), 0.25);
});

test('the page opens at the start method, near t = 1/2', () => {
  const { methods, times, method, time } = stepChoices(group, 'vanilla');
  assert.deepEqual(
    [methods, times],
    [
      ['goldimask-d', 'vanilla'],
      [0.2, 0.45],
    ],
  );
  assert.deepEqual([methods[method], times[time]], ['vanilla', 0.45]);
  assert.equal(stepChoices(group, 'absent').method, 0);
});

test('facts of a target, of a revealed token, of a visible one', () => {
  const facts = (i, k) => Object.fromEntries(tokenFacts(view, k, i));
  assert.deepEqual(facts(5, 2), {
    ...{ position: 5, state: 'target: still masked, carries loss', 'p before': 0.25 },
    ...{ 'p after': 0.5, 'gain (nats)': 0.693, weight: 2, 'support S': 0.3, 'φ(S)': 0.857 },
    'priority λ': 0.105,
  });
  assert.equal(facts(3, 2).choice, 2);
  assert.equal(facts(3, 2)['gain of F'], 0.1);
  assert.equal(facts(3, 1).choice, undefined);
  assert.deepEqual(Object.keys(facts(2, 2)), ['position', 'state']);
});

test('a screen reader hears the same', () => {
  assert.equal(tokenLabel(view, 2, 3), '3, newline, revealed, choice 2');
  assert.equal(
    tokenLabel(view, 2, 5),
    '5, a, target, probability after 0.5, weight 2, probability before 0.25',
  );
  assert.equal(tokenLabel(view, 0, 5), '5, a, candidate, probability before 0.25');
  assert.equal(tokenLabel(view, 0, 0), '0, a, prompt');
});

test('the facts of a step, and of one without objective', () => {
  const facts = Object.fromEntries(stepFacts(view));
  assert.deepEqual([facts['masked |C|'], facts['revealed |R|'], facts['F(R)']], [4, 2, 0.5]);
  assert.equal(Object.fromEntries(stepFacts(vanilla))['F(R)'], null);
});

test('figures: all six with signals, none without', () => {
  const titles = stepFigures(view, 2).map((figure) => figure.title);
  assert.equal(titles.length, 6);
  assert.deepEqual(stepFigures(vanilla, 0), []);
  const [objective, gains, priorities, supports, changes, weights] = stepFigures(view, 1);
  assert.deepEqual(objective.chart.layers[3], { vertical: 1 });
  assert.deepEqual(gains.chart.layers[0].line, [
    [1, 0.4],
    [2, 0.1],
  ]);
  const candidates = priorities.chart.layers[1].points.map((dot) => [dot.i, dot.class]);
  assert.deepEqual(candidates, [
    [3, C],
    [4, R],
    [5, C],
  ]); // 6 was forgotten
  assert.deepEqual(
    supports.chart.layers[1].points.map((dot) => dot.x),
    [0.3, 0.2],
  );
  assert.deepEqual(changes.chart.layers[1].points, [{ i: 5, x: 0.25, y: 0.5, r: 7, class: T }]);
  assert.deepEqual(weights.chart.layers[0].points, [{ i: 5, x: 0.6931, y: 2, class: T }]);
});

test('the cap is a rule, named only inside the chart', () => {
  const capOf = (cap) => stepFigures(stepView(group, { ...record, cap }), 2)[5].chart.layers[1];
  assert.deepEqual(capOf(2), { horizontal: 2, note: 'cap 2' });
  assert.deepEqual(capOf(10), { horizontal: 2 * 1.06, note: '' });
  assert.deepEqual(capOf(null), {});
});

test('lanes: a cell per token of the response, as high as its weight', () => {
  const { cells, paths } = lanePaths(view);
  assert.equal(cells, 5);
  const found = Object.fromEntries(paths);
  assert.equal(found.visible, 'M0 0.920h.9v0.080h-.9z');
  assert.equal(found.target, 'M3 0.000h.9v1.000h-.9zM4 0.375h.9v0.625h-.9z');
  assert.equal(found.candidate, '');
});

test('the comparison has a cell per column', () => {
  const { columns, rows } = comparison([view, vanilla]);
  assert(rows.every((row) => row.length === columns.length));
  assert.deepEqual(rows[0], ['goldimask-d', 4, 2, 2, 0.5, 0.25, 0.375, 1.8, 2, 1.5]);
  assert.deepEqual(rows[1].slice(4, 7), [null, null, 0.5]);
  assert.equal(mean([]), null);
});
