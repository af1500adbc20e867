import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  decodeFacts,
  lastStep,
  playFrom,
  replayFigures,
  replayState,
  sharedAxes,
  writtenAt,
} from '../../src/goldimask/report/templates/replay_model.mjs';

const model = {
  ...{ label: 'x', decoder: 'threshold', tau: 0.9, block: 2, length: 4, steps: 2, complete: true },
  canvas: {
    vocab: [
      { id: 1, runs: [['t', 'a']] },
      { id: 2, runs: [['t', '<|end|>']], special: true },
    ],
    index: [0, 0, 0, 1],
  },
  trace: [
    { step: 1, block: 0, positions: [1, 0], confidence: [0.95, 0.5] },
    { step: 2, block: 1, positions: [2, 3], confidence: [0.9, 0.99] },
  ],
  verdict: null,
};
const classes = (k, m = model) => replayState(m, k).cells.map((cell) => cell.class);

test('before the first step everything is masked', () => {
  assert.deepEqual(classes(0), ['cell open', 'cell open', 'cell open', 'cell open special']);
  const state = replayState(model, 0);
  assert.equal(state.text, 'step 0 of 2: 0 of 4 tokens, 0 new');
  assert.equal(state.cells[0].title, 'masked');
});

test('a step writes its positions, sure or not', () => {
  assert.deepEqual(classes(1).slice(0, 3), ['cell low new', 'cell sure new', 'cell open']);
  const state = replayState(model, 1);
  assert.equal(state.text, 'step 1 of 2: 2 of 4 tokens, 2 new, block 1');
  assert.equal(state.cells[1].title, 'step 1, confidence 0.95');
});

test('what was written stays, the end token is marked', () => {
  assert.deepEqual(classes(2), [
    'cell low',
    'cell sure',
    'cell sure new',
    'cell sure new special end',
  ]);
});

test('under the slider of a longer decode it stands still', () => {
  assert.equal(replayState(model, 5).text, 'step 2 of 2: 4 of 4 tokens, 0 new');
  assert(!classes(5).some((name) => name.includes('new')));
});

test('without a threshold no token is sure or unsure', () => {
  const plain = { ...model, tau: null };
  assert.deepEqual(classes(1, plain).slice(0, 2), ['cell new', 'cell new']);
  assert.equal(decodeFacts(plain), 'threshold · 2 steps · 2 tokens a step');
  assert.equal(replayFigures(plain, 1, sharedAxes([plain]))[1].chart.layers.length, 2);
});

test('positions that were never written stay masked', () => {
  const torn = { ...model, trace: model.trace.slice(0, 1) };
  assert.equal(writtenAt(torn).size, 2);
  assert.equal(replayState(torn, 2).text, 'step 2 of 2: 2 of 4 tokens, 0 new');
  assert.equal(classes(2, torn)[2], 'cell open');
});

test('play goes on, and begins again at the end', () => {
  assert.equal(lastStep([model, { ...model, steps: 7 }]), 7);
  assert.equal(lastStep([]), 1);
  assert.equal(playFrom(3, 7), 3);
  assert.equal(playFrom(7, 7), 0);
});

test('figures count tokens and show confidence', () => {
  assert.equal(decodeFacts(model), 'threshold · τ = 0.9 · 2 steps · 2 tokens a step');
  const [counts, confidence] = replayFigures(model, 1, sharedAxes([model]));
  assert.deepEqual(counts.chart.layers[0].bars, [
    [1, 2],
    [2, 2],
  ]);
  assert.deepEqual(
    confidence.chart.layers[0].points.map((dot) => dot.class),
    ['target', 'target', 'revealed', 'revealed'],
  );
  assert.deepEqual(confidence.chart.layers[2], { horizontal: 0.9, note: 'τ = 0.9' });
  assert.equal(confidence.chart.y.min, 0.45);
});

test('models of one prompt share their axes', () => {
  const slow = { ...model, steps: 9, trace: [{ ...model.trace[0], confidence: [0.2, 0.3] }] };
  const axes = sharedAxes([model, slow]);
  for (const one of [model, slow]) {
    const [counts, confidence] = replayFigures(one, 1, axes);
    assert.deepEqual(counts.chart.x, { min: 0, max: 9.5, label: 'step' });
    assert.equal(counts.chart.y.max, 2);
    assert.equal(confidence.chart.y.min, 0.15000000000000002);
  }
});
