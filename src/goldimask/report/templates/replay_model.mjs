// The state of a decode after each of its steps.

import { num } from './format.mjs';

/** @import { Decode, Figure, Layer } from './types' */

/**
 * How many steps the longest of several decodes takes.
 * @param {Decode[]} models
 */
export const lastStep = (models) => Math.max(1, ...models.map((model) => model.steps));

/**
 * The first step that Play shows: it goes on, and begins again at the end.
 * @param {number} k
 * @param {number} last
 */
export const playFrom = (k, last) => (k >= last ? 0 : k);

/**
 * What is said of a decode as a whole.
 * @param {Decode} model
 */
export const decodeFacts = ({ decoder, tau, steps, length }) =>
  [
    decoder,
    tau !== null && `τ = ${tau}`,
    `${steps} steps`,
    `${num(length / Math.max(1, steps), 3)} tokens a step`,
  ]
    .filter(Boolean)
    .join(' · ');

/**
 * When each position was written, and how sure the model was.
 * @param {Decode} model
 */
export const writtenAt = (model) =>
  new Map(
    model.trace.flatMap(({ step, positions, confidence }) =>
      positions.map((position, j) => [position, { step, confidence: confidence[j] }]),
    ),
  );

/**
 * Class and title of every cell after `k` steps, and a line that says where the decode is.
 * @param {Decode} model
 * @param {number} k
 */
export const replayState = (model, k) => {
  const { tau, canvas, steps, trace } = model;
  const written = writtenAt(model);
  const cells = canvas.index.map((v, i) => {
    const { special } = canvas.vocab[v];
    const at = written.get(i);
    if (!at || at.step > k)
      return { class: special ? 'cell open special' : 'cell open', title: 'masked' };
    const parts = [
      'cell',
      tau !== null && (at.confidence >= tau ? 'sure' : 'low'),
      at.step === k && 'new',
      special && 'special end',
    ];
    const title = `step ${at.step}, confidence ${num(at.confidence)}`;
    return { class: parts.filter(Boolean).join(' '), title };
  });
  const when = [...written.values()].map((at) => at.step);
  const done = when.filter((step) => step <= k).length;
  const fresh = when.filter((step) => step === k).length;
  const now = trace.find((commit) => commit.step === k);
  const block = now ? `, block ${now.block + 1}` : '';
  const place = `step ${Math.min(k, steps)} of ${steps}`;
  return { cells, text: `${place}: ${done} of ${cells.length} tokens, ${fresh} new${block}` };
};

/** @typedef {ReturnType<typeof sharedAxes>} Axes */

/**
 * The same axes for all models of a prompt, so that their charts compare.
 * @param {Decode[]} models
 */
export const sharedAxes = (models) => {
  const trace = models.flatMap((model) => model.trace);
  const least = trace.flatMap(({ confidence }) => confidence);
  const taus = models.flatMap(({ tau }) => tau ?? []);
  return {
    steps: lastStep(models) + 0.5,
    tokens: Math.max(1, ...trace.map(({ positions }) => positions.length)),
    least: Math.max(0, Math.min(0.9, ...taus, ...least) - 0.05),
  };
};

/**
 * Tokens and confidence, step by step, with a rule at `k`.
 * @param {Decode} model
 * @param {number} k
 * @param {Axes} axes
 * @returns {Figure[]}
 */
export const replayFigures = ({ trace, tau, steps, length }, k, axes) => {
  const x = { min: 0, max: axes.steps, label: 'step' };
  const counts = trace.map(({ positions }) => positions.length);
  const points = trace.flatMap(({ step, confidence }) =>
    confidence.map((y) => ({ x: step, y, r: 2.4, class: step === k ? 'target' : 'revealed' })),
  );
  /** @type {Layer[]} */
  const threshold = tau === null ? [] : [{ horizontal: tau, note: `τ = ${tau}` }];
  return [
    {
      title: 'Tokens a step',
      note: 'dashed: this step',
      chart: {
        label: `${length} tokens in ${steps} steps`,
        height: 150,
        x,
        y: { min: 0, max: axes.tokens, label: 'tokens' },
        layers: [
          { bars: trace.map(({ step }, j) => [step, counts[j]]), class: 'revealed' },
          { vertical: k },
        ],
      },
    },
    {
      title: 'Confidence when written',
      note: 'orange: this step',
      chart: {
        label: 'confidence of each token at the step that wrote it',
        height: 150,
        x,
        y: { min: axes.least, max: 1.04, label: 'confidence' },
        layers: [{ points }, { vertical: k }, ...threshold],
      },
    },
  ];
};
