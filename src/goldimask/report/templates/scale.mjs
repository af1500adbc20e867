// From values to places on a chart: ranges, ticks, axes, paths.

/** @import { Chart, Point } from './types' */
/** @typedef {ReturnType<typeof frame>} Frame */

/** @param {number[]} list */
export const low = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);

/** @param {number[]} list */
export const high = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);

/**
 * Both ends of an axis; never a range without width.
 * @param {{ min: number, max: number }} axis
 * @returns {[number, number]}
 */
export const range = ({ min, max }) => {
  if (!Number.isFinite(min) || !Number.isFinite(max)) return [0, 1];
  return max > min ? [min, max] : [min - 0.5, max + 0.5];
};

/**
 * Round values between two ends, about `count` of them.
 * @param {number} min
 * @param {number} max
 */
export const ticks = (min, max, count = 4) => {
  const raw = (max - min) / count;
  if (!(raw > 0)) return [min];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5].find((m) => m * power >= raw * 0.999) ?? 10);
  const out = [];
  for (let x = Math.ceil(min / step - 1e-9) * step; x <= max + step * 1e-6; x += step) {
    out.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  }
  return out;
};

/**
 * The two axes of a chart: `X` and `Y` give the place of a value.
 * @param {Pick<Chart, 'x' | 'y' | 'width' | 'height'>} chart
 */
export const frame = ({ x, y, width = 360, height = 210 }) => {
  const [left, right, top, bottom] = [46, width - 10, 8, height - 34];
  const [x0, x1] = range(x);
  const [y0, y1] = range(y);
  /** @param {number} value */
  const X = (value) => left + ((value - x0) / (x1 - x0)) * (right - left);
  /** @param {number} value */
  const Y = (value) => bottom - ((value - y0) / (y1 - y0)) * (bottom - top);
  return { width, height, left, right, top, bottom, x0, x1, y0, y1, X, Y };
};

/**
 * @param {Frame} f
 * @param {Point[]} points
 */
export const linePath = (f, points) =>
  `M${points.map(([x, y]) => `${f.X(x).toFixed(1)} ${f.Y(y).toFixed(1)}`).join('L')}`;

/**
 * The area between two lines over the same places.
 * @param {Frame} f
 * @param {[x: number, low: number, high: number][]} band
 */
export const bandPath = (f, band) => {
  const up = band.map(([x, , most]) => /** @type {Point} */ ([x, most]));
  const down = band.map(([x, least]) => /** @type {Point} */ ([x, least])).reverse();
  return `${linePath(f, [...up, ...down])}Z`;
};

/**
 * A vertical rule, held inside the chart.
 * @param {Frame} f
 * @param {number} x
 */
export const verticalPath = (f, x) =>
  `M${f.X(Math.max(f.x0, Math.min(f.x1, x)))} ${f.top}V${f.bottom}`;

/**
 * @param {Frame} f
 * @param {number} y
 */
export const horizontalPath = (f, y) => `M${f.left} ${f.Y(y)}H${f.right}`;

/**
 * The rectangle of a bar that stands on zero.
 * @param {Frame} f
 * @param {Point} bar
 */
export const barBox = (f, [x, y]) => {
  const room = (f.right - f.left) / Math.max(1, f.x1 - f.x0) - 1;
  const width = Math.max(1, Math.min(14, room));
  const height = Math.max(0, f.Y(0) - f.Y(y));
  return { x: f.X(x) - width / 2, y: f.Y(Math.max(0, y)), width, height };
};

/**
 * Eighteen line styles; neighbours differ in colour and in dash.
 * @param {number} i
 */
export const series = (i) => `s${i % 6} ${['', 'dash', 'dot'][(i + Math.floor(i / 6)) % 3]}`;
