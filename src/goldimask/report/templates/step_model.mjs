// One record, indexed by position. Its numbers are those of the StepOutput; nothing is recomputed
// but the curves of priority and support.

import { num, rounded, spoken } from './format.mjs';

/** @import { Cell, Curves, StepGroup, StepRecord, TokenState } from './types' */
/** @typedef {ReturnType<typeof stepView>} StepView */
/** @typedef {[position: number, attention: number]} Link */

/** @param {Curves} curves @param {number} p */
export const priority = ({ a, b, tables }, p) =>
  tables?.[0] ? between(tables[0], p) : p ** a * (1 - p) ** b;

/** @param {Pick<Curves, 'support' | 's0' | 'tables'>} curves @param {number} mass */
export const support = ({ support: kind, s0, tables }, mass) => {
  if (tables?.[1]) return between(tables[1], mass);
  return kind === 'linear' ? mass : mass / (mass + s0);
};

/** Linear between the points of a table. @param {number[][]} table @param {number} at */
const between = ([x, y], at) => {
  const right = Math.max(
    1,
    x.findIndex((edge) => edge >= Math.min(at, 1)),
  );
  const share = (Math.min(at, 1) - x[right - 1]) / (x[right] - x[right - 1]);
  return y[right - 1] + share * (y[right] - y[right - 1]);
};

/**
 * What the page asks about a record. `k` counts the tokens revealed so far: after the last of them
 * the rest of the candidates are targets.
 * @param {StepGroup} group
 * @param {StepRecord} record
 */
export const stepView = (group, record) => {
  const probe = group.probes[record.probe];
  const maskedAt = places(probe.masked);
  const targetAt = places(record.targets);
  const rankOf = places(record.order);
  const supporters = (record.supporters ?? []).map(pairs);
  const supported = reversed(record.targets, supporters);
  const last = record.order.length;

  /** @param {number} i @param {number} k @returns {TokenState} */
  const state = (i, k) => {
    if (i < group.tokens.prompt) return 'prompt';
    if (!maskedAt.has(i)) return 'visible';
    const rank = rankOf.get(i);
    if (rank !== undefined) return rank < k ? 'revealed' : 'candidate';
    return k >= last && targetAt.has(i) ? 'target' : 'candidate';
  };

  /** What the probe measured at a masked position. @param {number} i */
  const measured = (i) => {
    const j = maskedAt.get(i);
    if (j === undefined) return { before: null, entropy: null };
    return { before: probe.before?.[j] ?? null, entropy: probe.entropy?.[j] ?? null };
  };

  /** What a target carries. @param {number} i */
  const target = (i) => {
    const j = targetAt.get(i);
    if (j === undefined) return null;
    const mass = record.support?.[j] ?? null;
    return { after: record.after[j], weight: record.weight[j], mass };
  };

  /** Who is connected with a position. @param {number} i @param {number} k @returns {Link[]} */
  const links = (i, k) => {
    if (k < last) return [];
    const j = targetAt.get(i);
    return (j === undefined ? supported.get(i) : supporters[j]) ?? [];
  };

  return {
    ...{ group, record, probe, last, state, measured, target, links },
    /** @param {number} i */
    token: (i) => group.tokens.vocab[group.tokens.index[i]],
    /** Its place in the order of choice, from 1. @param {number} i */
    choice: (i) => (rankOf.get(i) ?? NaN) + 1,
    top: Math.max(1, ...record.weight.slice(0, 20000)), // the largest weight
  };
};

/** @param {number[]} list */
const places = (list) => new Map(list.map((position, i) => [position, i]));

/** @param {number[]} flat @returns {Link[]} */
const pairs = (flat) =>
  Array.from({ length: flat.length / 2 }, (_, j) => [flat[2 * j], flat[2 * j + 1]]);

/**
 * From the supporters of each target to the targets of each supporter, strongest first.
 * @param {number[]} targets
 * @param {Link[][]} supporters
 */
const reversed = (targets, supporters) => {
  /** @type {Map<number, Link[]>} */
  const found = new Map();
  supporters.forEach((line, j) => {
    for (const [position, attention] of line) {
      if (!found.has(position)) found.set(position, []);
      found.get(position)?.push([targets[j], attention]);
    }
  });
  for (const list of found.values()) list.sort((a, b) => b[1] - a[1]);
  return found;
};

/**
 * The methods and noise levels of an example, and where the page opens: at the method `start` if it
 * is there, near t = 1/2, where the most can be seen.
 * @param {StepGroup} group
 * @param {string} start
 */
export const stepChoices = (group, start) => {
  const methods = [...new Set(group.records.map((record) => record.method))];
  const times = [...new Set(group.records.map((record) => record.t))].sort((a, b) => a - b);
  const own = group.records.filter((record) => record.method === start);
  const first = (own.length ? own : group.records).reduce((a, b) =>
    Math.abs(b.t - 0.5) < Math.abs(a.t - 0.5) ? b : a,
  );
  return { methods, times, method: methods.indexOf(first.method), time: times.indexOf(first.t) };
};

/**
 * The line of facts above the tokens.
 * @param {StepView} view
 * @returns {[string, Cell][]}
 */
export const stepFacts = ({ record, probe }) => [
  ['method', record.method],
  ['t', record.t],
  ['over-masking ρ', record.rho],
  ['supervisable L', record.length],
  ['masked |C|', probe.masked.length],
  ['revealed |R|', record.order.length],
  ['targets |S|', record.targets.length],
  ['F(R)', record.objective && record.objective.value],
  ['effective targets', record.n_eff],
  ['cap', record.cap],
  ['loss', record.loss],
];

/** @type {Record<TokenState, string>} */
const MEANING = {
  prompt: 'prompt',
  visible: 'visible: never masked',
  candidate: 'candidate: masked',
  revealed: 'revealed: given back as context',
  target: 'target: still masked, carries loss',
};

/**
 * What is known of one token.
 * @param {StepView} view
 * @param {number} k
 * @param {number} i
 */
export const tokenFacts = (view, k, i) => {
  const { objective, ordered, gains } = view.record;
  const state = view.state(i, k);
  const { before, entropy } = view.measured(i);
  const target = state === 'target' ? view.target(i) : null;
  /** @type {[string, Cell][]} */
  const facts = [
    ['position', i],
    ['state', MEANING[state]],
  ];
  if (before !== null) facts.push(['p before', before]);
  if (entropy !== null) facts.push(['entropy before', entropy]);
  if (target) {
    const { after, weight, mass } = target;
    facts.push(['p after', after]);
    if (before !== null) facts.push(['gain (nats)', rounded(Math.log(after / before))]);
    facts.push(['weight', weight]);
    if (mass !== null) facts.push(['support S', mass]);
    if (mass !== null && objective) facts.push(['φ(S)', rounded(support(objective, mass))]);
  }
  if (objective && before !== null) {
    facts.push(['priority λ', rounded(priority(objective, before))]);
  }
  if (state === 'revealed' && ordered) {
    facts.push(['choice', view.choice(i)]);
    if (gains) facts.push(['gain of F', gains[view.choice(i) - 1]]);
  }
  return facts;
};

/**
 * A token as a screen reader says it.
 * @param {StepView} view
 * @param {number} k
 * @param {number} i
 */
export const tokenLabel = (view, k, i) => {
  const state = view.state(i, k);
  const { before } = view.measured(i);
  const target = state === 'target' ? view.target(i) : null;
  const said = [String(i), spoken(view.token(i).runs), state];
  if (state === 'revealed' && view.record.ordered) said.push(`choice ${view.choice(i)}`);
  if (target) said.push(`probability after ${num(target.after)}`, `weight ${num(target.weight)}`);
  if ((target || state === 'candidate') && before !== null) {
    said.push(`probability before ${num(before)}`);
  }
  return said.join(', ');
};
