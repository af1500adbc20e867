// Training curves and sweeps as figures: one chart per measure, one line per run or method.

import { num } from './format.mjs';
import { high, low, series } from './scale.mjs';

/** @import { CurveChart, Dot, Figure } from './types' */

const SPOKEN = 12; // lines that the label of a chart tells one by one

/**
 * A run keeps its style in every chart, also where another one is missing; `names` in their order
 * fix the styles where not all of them are drawn.
 * @param {CurveChart[]} charts
 * @param {string[]} [names]
 * @returns {Figure[]}
 */
export const curveFigures = (charts, names) => {
  const drawn = new Set(charts.flatMap((chart) => chart.lines.map((line) => line.name)));
  return charts.map((chart) => curveFigure(chart, names ?? [...drawn]));
};

/**
 * @param {CurveChart} chart
 * @param {string[]} names
 * @returns {Figure}
 */
const curveFigure = (chart, names) => {
  const { name, lines, y = '' } = chart;
  const x = chart.x || 'step';
  const points = lines.flatMap((line) => line.points);
  const xs = points.map((point) => point[0]);
  const ys = points.map((point) => point[1]);
  const [min, max] = [low(ys), high(ys)];
  const pad = (max - min) * 0.06 || 0.05;
  const drawn = lines.map((line) => ({ ...line, style: names.indexOf(line.name) }));
  return {
    title: name,
    note: chart.note,
    chart: {
      width: 320,
      height: 190,
      label: `${name} by ${x}: ${lines
        .filter((l) => l.points.length)
        .slice(0, SPOKEN)
        .map(fromTo)
        .join('; ')}`,
      x: { min: low(xs), max: high(xs), label: x },
      y: { min: min - pad, max: max + pad, label: y === name ? '' : y },
      layers: drawn.map((line) => ({
        line: line.points,
        class: series(line.style),
        points: chart.markers || line.points.length === 1 ? dots(line) : [],
      })),
    },
    legend: [...new Map(drawn.map((line) => [line.name, line.style]))].map(([title, style]) => ({
      name: title,
      class: series(style),
    })),
  };
};

/** @param {CurveChart['lines'][number]} line */
const fromTo = ({ name, points }) =>
  `${name} from ${num(points[0][1])} to ${num(points[points.length - 1][1])}`;

/**
 * @param {{ points: [number, number][], style: number }} line
 * @returns {Dot[]}
 */
const dots = ({ points, style }) => points.map(([x, y]) => ({ x, y, class: `s-fill${style % 6}` }));
