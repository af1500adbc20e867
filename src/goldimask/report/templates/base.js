'use strict';
// Helpers of every page. Data reaches the document through textContent and typed attributes only.
const GM = { kinds: {}, changed: [] };

GM.el = (tag, attrs, ...kids) => {
  const node = document.createElement(tag);
  return GM.fill(node, attrs, kids);
};
GM.svg = (tag, attrs, ...kids) => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  return GM.fill(node, attrs, kids);
};
GM.fill = (node, attrs, kids) => {
  for (const [key, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'text') node.textContent = String(value);
    else if (key === 'on') for (const [type, f] of Object.entries(value)) node.addEventListener(type, f);
    else node.setAttribute(key, value === true ? '' : String(value));
  }
  for (const kid of kids.flat()) if (kid !== null && kid !== undefined) node.append(kid);
  return node;
};
GM.clear = (node, ...kids) => { node.replaceChildren(...kids.flat().filter((k) => k != null)); return node; };

// Four significant digits, as in the data; whole numbers stay whole.
GM.num = (x, digits = 4) => {
  if (x === null || x === undefined || Number.isNaN(x)) return '–';
  if (Number.isInteger(x)) return String(x);
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return x.toExponential(2).replace('e-', 'e−');
  return String(Number(x.toPrecision(digits))).replace(/^-/, '−');
};
GM.percent = (x) => (x === null || x === undefined ? '–' : `${(100 * x).toFixed(1)} %`);

// A token's runs: text as it is, marks for what has no shape of its own.
GM.word = (runs) => {
  const node = GM.el('bdi', { class: 'word' });
  for (const run of runs) {
    node.append(run[0] === 't' ? document.createTextNode(run[1]) : GM.el('span', { class: 'mark', text: run[1] }));
  }
  return node;
};
GM.spoken = (runs) => runs.map((r) => (r[0] === 't' ? r[1] : r[2])).join(' ');

// A labelled slider; `set` moves it from code.
GM.slider = (label, max, value, show, onchange) => {
  const input = GM.el('input', { type: 'range', min: 0, max: Math.max(0, max), step: 1 });
  input.value = value;
  const output = GM.el('output');
  const refresh = () => {
    const text = show(Number(input.value));
    output.textContent = text;
    input.setAttribute('aria-valuetext', text);
  };
  input.addEventListener('input', () => { refresh(); onchange(Number(input.value)); });
  const box = GM.el('label', { class: 'slide' }, GM.el('span', { text: label }), input, output);
  refresh();
  return {
    box, input,
    set: (v, m) => { if (m !== undefined) input.max = Math.max(0, m); input.value = v; input.disabled = Number(input.max) === 0; refresh(); },
  };
};

// One of several: buttons with the keyboard of a radio group.
GM.choice = (label, names, chosen, onchange) => {
  const box = GM.el('div', { class: 'group', role: 'radiogroup', 'aria-label': label });
  const buttons = names.map((name, i) => GM.el('button', { type: 'button', role: 'radio', text: name, on: { click: () => pick(i) } }));
  const mark = (i) => buttons.forEach((b, j) => { b.setAttribute('aria-checked', String(i === j)); b.tabIndex = i === j ? 0 : -1; });
  const pick = (i) => { mark(i); onchange(i); };
  box.addEventListener('keydown', (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const i = (buttons.indexOf(document.activeElement) + move + buttons.length) % buttons.length;
    buttons[i].focus();
    pick(i);
  });
  box.append(...buttons);
  mark(chosen);
  return { box, mark };
};

GM.theme = () => {
  const dark = () => {
    const set = document.documentElement.dataset.theme;
    return set ? set === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  };
  const button = GM.el('button', { type: 'button', class: 'noprint' });
  const refresh = () => { button.textContent = dark() ? 'Light theme' : 'Dark theme'; };
  button.addEventListener('click', () => { document.documentElement.dataset.theme = dark() ? 'light' : 'dark'; refresh(); });
  refresh();
  return button;
};
