// Replay of a decode: models side by side under one slider, with confidence, threshold and tokens
// per step.

import { drawnFigure } from './chart.mjs';
import { list, scrolling, slider } from './controls.mjs';
import { button, clear, el, verdict, word } from './dom.mjs';
import {
  decodeFacts,
  lastStep,
  playFrom,
  replayFigures,
  replayState,
  sharedAxes,
} from './replay_model.mjs';

/** @import { Decode, DecodeGroup, DecodesData, TokenTable, Verdict } from './types' */
/** @import { Axes } from './replay_model.mjs' */

const TICK = 350; // milliseconds that Play stays at a step
const TALL = 700; // tokens from which on a canvas scrolls

/** @param {HTMLElement} box @param {DecodesData} data */
export const drawDecodes = (box, { groups }) => {
  const host = el('div');
  /** @param {number} i */
  const show = (i) => clear(host, replay(groups[i]));
  if (groups.length > 1) {
    const names = groups.map((_, i) => `prompt ${i + 1} of ${groups.length}`);
    box.append(el('div', { class: 'row noprint' }, list('Prompt', names, show)));
  }
  box.append(show(0));
};

/** @param {DecodeGroup} group */
const replay = ({ prompt, models }) => {
  const axes = sharedAxes(models);
  const panes = models.map((model) => pane(model, axes));
  const last = lastStep(models);
  let timer = 0;
  /** @param {number} k */
  const go = (k) => panes.forEach((one) => one.show(k));
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = 'Play';
  };
  const start = () => {
    let k = playFrom(steps.value(), last);
    play.textContent = 'Pause';
    timer = window.setInterval(() => {
      if (!play.isConnected || k > last) {
        stop();
        return;
      }
      steps.set(k);
      go(k);
      k += 1;
    }, TICK);
  };
  const play = button({ text: 'Play' }, () => (timer ? stop() : start()));
  const steps = slider(
    'step',
    last,
    last,
    (k) => `${k} of ${last}`,
    (k) => {
      stop();
      go(k);
    },
  );
  go(last);
  return [
    promptPanel(prompt),
    el('div', { class: 'row noprint' }, play, steps.box),
    legend(models),
    el(
      'div',
      { class: 'models' },
      panes.map((one) => one.box),
    ),
  ];
};

/** @param {TokenTable} prompt */
const promptPanel = ({ vocab, index }) => {
  const tokens = index.map((v) =>
    el('span', { class: `tok prompt${vocab[v].special ? ' special' : ''}` }, word(vocab[v].runs)),
  );
  const canvas = canvasOf(tokens.length, {});
  canvas.append(...tokens);
  return el('div', { class: 'panel' }, el('h3', { text: 'Prompt' }), scrolling(canvas));
};

/**
 * Whole where that is possible.
 * @param {number} length
 * @param {Record<string, string>} attrs
 */
const canvasOf = (length, attrs) =>
  el('div', { class: length > TALL ? 'canvas tall' : 'canvas', ...attrs });

/** What the edges and fillings of tokens mean. @param {Decode[]} models */
const legend = (models) => {
  const taus = [...new Set(models.flatMap(({ tau }) => tau ?? []))];
  const tau = taus.length === 1 ? `τ = ${taus[0]}` : 'its τ';
  /** @type {[string, string, string][]} */
  const entries = [
    ['open', 'masked', 'still masked'],
    ['new', 'token', 'written in this step'],
  ];
  if (taus.length) {
    entries.push(['sure', 'token', `confidence at least ${tau} when written`]);
    entries.push(['low', 'token', `below ${tau}: the most confident of its step, written anyway`]);
  }
  entries.push(['end', '·', 'another token of the same kind, such as end of text']);
  const keys = entries.map(([kind, text, meaning]) =>
    el(
      'span',
      { class: 'key' },
      el('span', { class: `cell ${kind}` }, el('span', { class: 'word', text })),
      meaning,
    ),
  );
  return el('div', { class: 'row', 'data-legend': 'tokens' }, keys);
};

/**
 * One model: its facts, its response and its charts; `show` moves it to a step.
 * @param {Decode} model
 * @param {Axes} axes
 */
const pane = (model, axes) => {
  const cells = model.canvas.index.map((_, i) => cell(model, i));
  const label = `Response of ${model.label}`;
  const canvas = canvasOf(cells.length, { role: 'group', 'aria-label': label });
  canvas.append(...cells.flatMap((node, i) => [...blockMark(model, i), node]));
  const place = el('p', { class: 'soft', 'aria-live': 'off' });
  const charts = el('div', { class: 'grid' });
  const box = el(
    'div',
    { class: 'panel', 'data-model': model.label },
    el('h3', { text: model.label }),
    el('div', { class: 'soft', text: decodeFacts(model) }),
    model.verdict && answer(model.verdict),
    !model.complete &&
      el('div', { class: 'bad', text: 'stopped before every position was filled' }),
    place,
    scrolling(canvas),
    charts,
  );
  /** @param {number} k */
  const show = (k) => {
    const state = replayState(model, k);
    state.cells.forEach((now, i) => {
      cells[i].className = now.class;
      cells[i].title = now.title;
    });
    place.textContent = state.text;
    clear(
      charts,
      replayFigures(model, k, axes).map((figure) => drawnFigure(figure).box),
    );
  };
  return { box, show };
};

/**
 * @param {Decode} model
 * @param {number} i
 */
const cell = ({ canvas: { vocab, index } }, i) => {
  // of a run of end tokens the first one says it
  const again = vocab[index[i]].special && index[i] === index[i - 1];
  const shown = again ? el('span', { class: 'word', text: '·' }) : word(vocab[index[i]].runs);
  return el('span', { class: 'cell' }, shown);
};

/**
 * The name of a block before its first cell.
 * @param {Decode} model
 * @param {number} i
 */
const blockMark = ({ block, length }, i) => {
  if (!block || block >= length || i % block !== 0) return [];
  return [el('span', { class: 'cell block', text: `block ${i / block + 1}` })];
};

/** @param {Verdict} found */
const answer = ({ correct, extracted, answer: expected }) => {
  const wanted = expected === undefined || expected === null ? '' : `, expected ${expected}`;
  return el('div', {}, verdict(correct), ` answer ${extracted ?? 'none'}${wanted}`);
};
