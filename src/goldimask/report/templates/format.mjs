// Numbers and tokens as text.

/** @import { Run } from './types' */

/**
 * Four significant digits, as in the data; whole numbers stay whole.
 * @param {number | null | undefined} x
 */
export const num = (x, digits = 4) => {
  if (x === null || x === undefined || Number.isNaN(x)) return '–';
  if (Number.isInteger(x)) return String(x);
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return x.toExponential(2).replace('e-', 'e−');
  return String(Number(x.toPrecision(digits))).replace(/^-/, '−');
};

/**
 * A number that carries few digits, and stays a number.
 * @param {number} x
 */
export const rounded = (x, digits = 3) => Number(x.toPrecision(digits));

/** @param {number | null | undefined} x */
export const percent = (x) => (x === null || x === undefined ? '–' : `${(100 * x).toFixed(1)} %`);

/**
 * A signed difference; better is green and marked by an arrow, so that colour is not alone.
 * @param {number} delta
 * @param {number} digits
 * @param {boolean} moreIsBetter
 * @returns {{ text: string, class: 'up' | 'down' | null }}
 */
export const change = (delta, digits, moreIsBetter) => {
  const size = Math.abs(delta).toFixed(digits);
  if (Number(size) === 0) return { text: `±${size}`, class: null };
  const better = delta > 0 === moreIsBetter;
  return { text: `${delta > 0 ? '▲ +' : '▼ −'}${size}`, class: better ? 'up' : 'down' };
};

/**
 * An attention mass in the four characters above a token.
 * @param {number} mass
 */
export const tinyMass = (mass) => {
  if (mass < 0.001) return '<.001';
  return String(Number(mass.toFixed(mass < 0.1 ? 3 : 2))).replace(/^0/, '');
};

/**
 * A token for a screen reader.
 * @param {Run[]} runs
 */
export const spoken = (runs) => runs.map((run) => (run[0] === 't' ? run[1] : run[2])).join(' ');
