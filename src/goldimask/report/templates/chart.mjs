// Small SVG charts: lines, bands, bars, points, rules on two linear axes.

import { el, svg } from './dom.mjs';
import { num } from './format.mjs';
import {
  bandPath,
  barBox,
  frame,
  horizontalPath,
  linePath,
  ticks,
  verticalPath,
} from './scale.mjs';

/** @import { Chart, Dot, Figure, Layer } from './types' */
/** @import { Frame } from './scale.mjs' */

/**
 * A figure with title and legend; `moveRule` moves the vertical rule of its chart.
 * @param {Figure} figure
 */
export const drawnFigure = ({ title, note, chart, legend }) => {
  const { image, moveRule } = drawnChart(chart);
  const caption = el('figcaption', { text: title }, note && el('small', { text: ` ${note}` }));
  const box = el('figure', { class: 'panel' }, caption, image, legend && legendOf(legend));
  return { box, moveRule };
};

/** @param {Chart} chart */
const drawnChart = (chart) => {
  const f = frame(chart);
  const image = svg('svg', {
    viewBox: `0 0 ${f.width} ${f.height}`,
    role: 'img',
    'aria-label': chart.label,
  });
  image.append(...axes(f, chart), ...chart.layers.flatMap((layer) => drawnLayer(f, layer)));
  const rule = image.querySelector('[data-rule]');
  /** @param {number} x */
  const moveRule = (x) => rule?.setAttribute('d', verticalPath(f, x));
  return { image, moveRule };
};

/**
 * Horizontal lines with their values, values below, and the names of both axes.
 * @param {Frame} f
 * @param {Chart} chart
 */
const axes = (f, { x, y }) => [
  ...ticks(f.y0, f.y1).flatMap((value) => [
    svg('path', { class: 'axis', d: horizontalPath(f, value) }),
    label(num(value, 3), 'end', { x: f.left - 5, y: f.Y(value) + 4 }),
  ]),
  ...ticks(f.x0, f.x1, 5).map((value) =>
    label(num(value, 3), 'middle', { x: f.X(value), y: f.bottom + 15 }),
  ),
  label(x.label, 'middle', { x: (f.left + f.right) / 2, y: f.height - 3 }),
  label(y.label, 'middle', { transform: `translate(11 ${(f.bottom + f.top) / 2}) rotate(-90)` }),
];

/**
 * @param {string} text
 * @param {'start' | 'middle' | 'end'} anchor
 * @param {Record<string, number | string>} place
 */
const label = (text, anchor, place) => svg('text', { ...place, 'text-anchor': anchor, text });

/**
 * @param {Frame} f
 * @param {Layer} layer
 */
const drawnLayer = (f, { line, band, bars, points, vertical, horizontal, note, ...layer }) => {
  /** @type {SVGElement[]} */
  const out = [];
  if (line?.length) {
    out.push(svg('path', { class: `line ${layer.class ?? ''}`, d: linePath(f, line) }));
  }
  if (band?.length) out.push(svg('path', { class: 'band', d: bandPath(f, band) }));
  for (const bar of bars ?? []) out.push(svg('rect', { class: layer.class, ...barBox(f, bar) }));
  for (const point of points ?? []) out.push(drawnDot(f, point));
  if (vertical !== undefined) {
    out.push(svg('path', { class: 'rule', 'data-rule': 'x', d: verticalPath(f, vertical) }));
  }
  if (horizontal !== undefined) {
    out.push(svg('path', { class: 'rule', d: horizontalPath(f, horizontal) }));
    const y = f.Y(horizontal);
    const place = { class: 'halo', x: f.left + 3, y: y + (f.bottom - y > 16 ? 13 : -4) };
    if (note) out.push(label(note, 'start', place));
  }
  return out;
};

/**
 * @param {Frame} f
 * @param {Dot} dot
 */
const drawnDot = (f, { x, y, i, r = 3.2, ...dot }) =>
  svg('circle', {
    class: `pt ${dot.class ?? ''}`,
    cx: f.X(x).toFixed(1),
    cy: f.Y(y).toFixed(1),
    r,
    'data-i': i,
  });

/** @param {{ name: string, class: string }[]} entries */
const legendOf = (entries) =>
  el(
    'div',
    { class: 'legend' },
    entries.map((entry) => {
      const line = svg('path', { class: `line ${entry.class}`, d: 'M1 5H27' });
      const image = svg('svg', { viewBox: '0 0 28 10', 'aria-hidden': 'true' }, line);
      return el('span', {}, image, entry.name);
    }),
  );
