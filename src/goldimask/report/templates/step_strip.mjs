// The token strip: one box per token, coloured by state; a list box for keyboard and screen reader.

import { scrolling } from './controls.mjs';
import { el, word } from './dom.mjs';
import { tinyMass } from './format.mjs';
import { tokenLabel } from './step_model.mjs';

/** @import { StepGroup } from './types' */
/** @import { StepView } from './step_model.mjs' */
/** @typedef {ReturnType<typeof tokenBox>} TokenBox */

const LABEL = 'Tokens of the example. Arrow keys move, Enter holds, Escape lets go.';
const LONG = 1000; // tokens from which on lines are kept short
const LINE = 150;
/** @type {Record<string, number>} */
const JUMPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 };

/**
 * A strip without states: `show` paints a view after `k` reveals. `onlook` hears which token is
 * looked at, -1 for none.
 * @param {StepGroup} group
 * @param {(i: number) => void} onlook
 */
export const tokenStrip = (group, onlook) => {
  const { prompt, index } = group.tokens;
  const boxes = index.map((_, i) => tokenBox(group, i));
  const shape = boxes.length > LONG ? 'strip tall' : 'strip';
  const strip = el('div', { class: shape, role: 'listbox', 'aria-label': LABEL });
  strip.append(...lines(group, boxes));
  /** @type {StepView | null} */
  let view = null;
  let k = 0;
  let held = -1;
  let active = Math.min(prompt, boxes.length - 1);

  /** @param {number} i */
  const look = (i) => {
    for (const node of strip.querySelectorAll('.self, .lit')) node.classList.remove('self', 'lit');
    const links = view && i >= 0 ? view.links(i, k) : [];
    if (i >= 0) boxes[i].node.classList.add('self');
    for (const [j, attention] of links) {
      boxes[j].node.classList.add('lit');
      boxes[j].node.dataset.a = tinyMass(attention);
    }
    strip.classList.toggle('look', links.length > 0);
    onlook(i);
  };
  /** @param {number} i */
  const hold = (i) => {
    if (held >= 0) boxes[held].node.setAttribute('aria-selected', 'false');
    held = held === i ? -1 : i;
    if (held >= 0) boxes[held].node.setAttribute('aria-selected', 'true');
    look(i);
  };
  const release = () => {
    if (held >= 0) hold(held);
    look(-1);
  };
  /** The one token that the tab key reaches. @param {number} i */
  const activate = (i) => {
    boxes[active].node.tabIndex = -1;
    active = i;
    boxes[active].node.tabIndex = 0;
  };
  /** @param {number} i */
  const focus = (i) => {
    activate(Math.max(0, Math.min(boxes.length - 1, i)));
    boxes[active].node.focus();
  };

  strip.addEventListener('pointerover', (event) => {
    const i = tokenAt(event);
    if (held < 0 && event.pointerType === 'mouse' && i >= 0) look(i);
  });
  strip.addEventListener('pointerleave', () => {
    if (held < 0 && !strip.contains(document.activeElement)) look(-1);
  });
  strip.addEventListener('focusin', (event) => {
    const i = tokenAt(event);
    if (i < 0) return;
    activate(i);
    if (held < 0) look(i);
  });
  strip.addEventListener('click', (event) => {
    const i = tokenAt(event);
    if (i < 0) return;
    focus(i);
    hold(i);
  });
  strip.addEventListener('keydown', (event) => {
    const jump = JUMPS[event.key];
    if (jump) focus(active + jump);
    else if (event.key === 'Home') focus(0);
    else if (event.key === 'End') focus(boxes.length - 1);
    else if (event.key === 'Enter' || event.key === ' ') hold(active);
    else if (event.key === 'Escape') release();
    else return;
    event.preventDefault();
  });

  /** @param {StepView} next @param {number} step */
  const show = (next, step) => {
    const edge = k >= next.last !== step >= next.last;
    const whole = view !== next || edge;
    const changed = next.record.order.slice(Math.min(k, step), Math.max(k, step));
    view = next;
    k = step;
    for (const i of whole ? index.keys() : changed) paint(boxes[i], next, k, i);
    look(held);
  };

  if (boxes.length) activate(active);
  return { box: scrolling(strip), show };
};

/**
 * @param {StepGroup} group
 * @param {number} i
 */
const tokenBox = ({ tokens }, i) => {
  const [rank, bar] = [el('span', { class: 'rank' }), el('i')];
  const [before, after] = [el('b'), el('i')];
  const node = el(
    'span',
    { class: 'tok', role: 'option', tabindex: -1, 'data-i': i, 'aria-selected': 'false' },
    rank,
    el('span', { class: 'bar' }, bar),
    word(tokens.vocab[tokens.index[i]].runs),
    el('span', { class: 'pp' }, before, after),
  );
  return { node, rank, bar, before, after };
};

/**
 * Lines of tokens: the browser skips the layout of lines that are out of sight. A newline ends one,
 * and so does the prompt.
 * @param {StepGroup} group
 * @param {TokenBox[]} boxes
 */
const lines = ({ tokens }, boxes) => {
  const long = boxes.length > LONG;
  /** @type {HTMLElement[]} */
  const out = [];
  let room = 0;
  boxes.forEach(({ node }, i) => {
    if (!room) out.push(el('div', { class: long ? 'tokens far' : 'tokens', role: 'presentation' }));
    if (!room) room = long ? LINE : Infinity;
    out[out.length - 1].append(node);
    room -= 1;
    const { runs } = tokens.vocab[tokens.index[i]];
    if (i === tokens.prompt - 1 || runs.some((run) => run[2] === 'newline')) room = 0;
  });
  return out;
};

/**
 * The state of one token after `k` reveals.
 * @param {TokenBox} box
 * @param {StepView} view
 * @param {number} k
 * @param {number} i
 */
const paint = ({ node, rank, bar, before, after }, view, k, i) => {
  const state = view.state(i, k);
  const target = state === 'target' ? view.target(i) : null;
  const p = view.measured(i).before;
  node.className = `tok ${state}${view.token(i).special ? ' special' : ''}`;
  node.setAttribute('aria-label', tokenLabel(view, k, i));
  rank.textContent = state === 'revealed' && view.record.ordered ? String(view.choice(i)) : '';
  before.hidden = p === null;
  if (p !== null) before.style.left = tick(p);
  if (target) {
    bar.style.height = `${(100 * target.weight) / view.top}%`;
    after.style.left = tick(target.after);
  }
};

/** @param {number} p */
const tick = (p) => `calc(${(100 * p).toFixed(1)}% - 1px)`;

/** The token that an event is about; -1 for none. @param {Event} event */
const tokenAt = (event) => {
  const node = event.target instanceof Element ? event.target.closest('.tok') : null;
  return node instanceof HTMLElement ? Number(node.dataset.i) : -1;
};
