// What a reader moves: sliders, choices, lists, the theme.

import { button, el } from './dom.mjs';

/**
 * A labelled slider from 0 to `max`; `set` moves it from code.
 * @param {string} label
 * @param {number} max
 * @param {number} value
 * @param {(value: number) => string} show
 * @param {(value: number) => void} onchange
 */
export const slider = (label, max, value, show, onchange) => {
  const input = el('input', { type: 'range', min: 0, max: Math.max(0, max), step: 1 });
  const output = el('output');
  const refresh = () => {
    const text = show(Number(input.value));
    output.textContent = text;
    input.setAttribute('aria-valuetext', text);
  };
  input.value = String(value);
  input.addEventListener('input', () => {
    refresh();
    onchange(Number(input.value));
  });
  refresh();
  return {
    box: el('label', { class: 'slide' }, el('span', { text: label }), input, output),
    value: () => Number(input.value),
    /** @param {number} next @param {number} [most] */
    set: (next, most) => {
      if (most !== undefined) input.max = String(Math.max(0, most));
      input.value = String(next);
      input.disabled = Number(input.max) === 0;
      refresh();
    },
  };
};

/** @type {Record<string, number>} */
const MOVES = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/**
 * One of several: buttons with the keyboard of a radio group.
 * @param {string} label
 * @param {string[]} names
 * @param {number} chosen
 * @param {(i: number) => void} onchange
 */
export const choice = (label, names, chosen, onchange) => {
  /** @param {number} i */
  const mark = (i) =>
    buttons.forEach((node, j) => {
      node.setAttribute('aria-checked', String(i === j));
      node.tabIndex = i === j ? 0 : -1;
    });
  /** @param {number} i */
  const pick = (i) => {
    mark(i);
    onchange(i);
  };
  const buttons = names.map((name, i) => button({ role: 'radio', text: name }, () => pick(i)));
  const box = el('div', { class: 'group', role: 'radiogroup', 'aria-label': label }, buttons);
  box.addEventListener('keydown', (event) => {
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    const at = buttons.findIndex((node) => node === document.activeElement);
    const next = (at + move + buttons.length) % buttons.length;
    buttons[next].focus();
    pick(next);
  });
  mark(chosen);
  return { box, mark };
};

/**
 * One of a list that may be long.
 * @param {string} label
 * @param {string[]} names
 * @param {(i: number) => void} onchange
 */
export const list = (label, names, onchange) => {
  const options = names.map((text, value) => el('option', { value, text }));
  const pick = el('select', { 'aria-label': label }, options);
  pick.addEventListener('change', () => onchange(Number(pick.value)));
  return pick;
};

/**
 * A box that scrolls, with a line that says so while it holds more than it shows: above a wide
 * box, below a tall one.
 * @param {HTMLElement} box
 */
export const scrolling = (box) => {
  const hint = el('div', { class: 'more noprint', 'aria-hidden': 'true', hidden: true });
  const look = () => {
    const [wide, tall] = [box.scrollWidth - box.clientWidth, box.scrollHeight - box.clientHeight];
    hint.hidden = wide <= 1 && tall <= 1;
    hint.classList.toggle('above', wide > 1);
    const aside = wide - box.scrollLeft > 1 && 'more to the right: scroll →';
    const below = tall - box.scrollTop > 1 && 'more below: scroll ↓';
    hint.textContent = aside || below || '\u00a0';
  };
  box.addEventListener('scroll', look, { passive: true });
  const watch = new ResizeObserver(look);
  for (const node of [box, ...box.children]) watch.observe(node);
  return el('div', { class: 'scrolling' }, box, hint);
};

/** The button that changes between the light and the dark theme. */
export const themeButton = () => {
  const root = document.documentElement;
  const dark = () =>
    root.dataset.theme
      ? root.dataset.theme === 'dark'
      : matchMedia('(prefers-color-scheme: dark)').matches;
  const refresh = () => {
    node.textContent = dark() ? 'Light theme' : 'Dark theme';
  };
  const node = button({ class: 'noprint' }, () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
    refresh();
  });
  refresh();
  return node;
};
