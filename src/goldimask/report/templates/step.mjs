// The one-step viewer: example, method, noise level, reveal step.

import { drawnFigure } from './chart.mjs';
import { choice, list, slider } from './controls.mjs';
import { clear, el } from './dom.mjs';
import { num } from './format.mjs';
import { comparisonTable, lanes } from './step_compare.mjs';
import { stepFigures } from './step_figures.mjs';
import { stepChoices, stepFacts, stepView } from './step_model.mjs';
import { tokenStrip } from './step_strip.mjs';
import { lookAt } from './step_token.mjs';
import { facts } from './table.mjs';

/** @import { StepGroup, StepsData, TokenState } from './types' */
/** @import { StepView } from './step_model.mjs' */

/** @param {HTMLElement} box @param {StepsData} data */
export const drawSteps = (box, data) => {
  const host = el('div');
  /** @param {number} i */
  const show = (i) => clear(host, stepGroup(data, data.groups[i]));
  if (data.groups.length > 1) {
    const names = data.groups.map((group, i) => `example ${i + 1} (${group.example})`);
    box.append(el('div', { class: 'row' }, list('Example', names, show)));
  }
  box.append(show(0));
};

/**
 * @param {StepsData} data
 * @param {StepGroup} group
 */
const stepGroup = (data, group) => {
  const { methods, times, ...first } = stepChoices(group, data.start);
  const viewOf = viewsOf(group);
  let { method, time } = first;
  let k = 0; // tokens revealed so far
  let looking = -1; // the token looked at
  let view = /** @type {StepView} */ (viewOf(methods[method], times[time]));
  /** @type {ReturnType<typeof drawnFigure>[]} */
  let figures = [];

  const summary = el('div');
  const detail = el('div', { class: 'panel look-at', 'aria-live': 'polite' });
  const charts = el('div', { class: 'grid' });
  const side = el('div', { class: 'panel' });
  const comparison = el('div', { class: 'row' });

  const drawDetail = () => clear(detail, lookAt(view, k, looking));
  const strip = tokenStrip(group, (i) => {
    looking = i;
    drawDetail();
    for (const dot of charts.querySelectorAll('.pt.self')) dot.classList.remove('self');
    for (const dot of charts.querySelectorAll(`.pt[data-i="${i}"]`)) dot.classList.add('self');
  });
  const methodChoice = choice('Method', methods, method, (m) => {
    method = m;
    show();
  });
  const timeSlider = slider(
    'noise level t',
    times.length - 1,
    time,
    (i) => num(times[i], 3),
    (i) => {
      time = i;
      show();
    },
  );
  const revealSlider = slider(
    'reveal',
    view.last,
    view.last,
    (i) => `${i} of ${view.last}`,
    (i) => {
      k = i;
      strip.show(view, k);
      updateCharts(charts, view, k);
      for (const figure of figures) figure.moveRule(k);
    },
  );

  /** Everything anew, for another method or noise level. */
  const show = () => {
    const next = viewOf(methods[method], times[time]);
    if (!next) {
      const text = `No step of ${methods[method]} at t = ${num(times[time])} is on this page.`;
      clear(summary, el('p', { class: 'note', text }));
      return;
    }
    view = next;
    k = view.last;
    revealSlider.set(k, view.last);
    strip.show(view, k);
    figures = stepFigures(view, k).map(drawnFigure);
    clear(
      charts,
      figures.map((figure) => figure.box),
    );
    clear(summary, facts(stepFacts(view)));
    drawOthers();
  };
  const drawOthers = () => {
    const views = methods.flatMap((name) => viewOf(name, times[time]) ?? []);
    const chosen = views.indexOf(view);
    /** @param {number} m */
    const pick = (m) => {
      method = methods.indexOf(views[m].record.method);
      methodChoice.mark(method);
      show();
      side.querySelectorAll('button')[m].focus();
    };
    clear(side, el('h3', { text: 'Side by side' }), lanes(views, chosen, pick));
    clear(comparison, comparisonTable(views, chosen));
  };

  const kept = `the ${data.supporters} strongest revealed tokens of each target`;
  const text = `Attention is kept for ${kept}; S is the whole mass. ${data.left_out}`;
  const note = el('p', { class: 'note', text });
  const sliders = [times.length > 1 && timeSlider.box, revealSlider.box];
  show();
  return [
    el('div', { class: 'row noprint' }, methodChoice.box),
    el('div', { class: 'row noprint' }, sliders),
    summary,
    legend(),
    el('div', { class: 'stage' }, el('div', {}, strip.box, note), detail),
    charts,
    side,
    comparison,
  ];
};

/**
 * The view of a method at a noise level, made once; null where the page holds no such step.
 * @param {StepGroup} group
 */
const viewsOf = (group) => {
  /** @type {Map<string, StepView | null>} */
  const made = new Map();
  /** @param {string} method @param {number} t */
  return (method, t) => {
    const key = `${t} ${method}`;
    const found = made.get(key);
    if (found !== undefined) return found;
    const record = group.records.find((r) => r.method === method && r.t === t);
    const view = record ? stepView(group, record) : null;
    made.set(key, view);
    return view;
  };
};

/**
 * Moving the reveal slider changes states, not the charts themselves.
 * @param {Element} charts
 * @param {StepView} view
 * @param {number} k
 */
const updateCharts = (charts, view, k) => {
  for (const dot of charts.querySelectorAll('.pt[data-i]')) {
    const self = dot.classList.contains('self') ? ' self' : '';
    const state = view.state(Number(dot.getAttribute('data-i')), k);
    dot.setAttribute('class', `pt ${state}${self}`);
  }
};

/** @type {[TokenState, string][]} */
const LEGEND = [
  ['prompt', 'prompt'],
  ['visible', 'visible'],
  ['candidate', 'candidate, masked'],
  ['revealed', 'revealed, with its place in the order'],
  ['target', 'target; bar above: weight; ticks below: p before (short) and after (long)'],
];

const legend = () =>
  el(
    'div',
    { class: 'row' },
    LEGEND.map(([state, text]) => {
      const sample = el('span', { class: 'word', text: 'token' });
      const token = el('span', { class: `tok ${state}`, 'aria-hidden': 'true' }, sample);
      return el('span', { class: 'key' }, token, text);
    }),
  );
