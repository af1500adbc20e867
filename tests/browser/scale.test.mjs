import assert from 'node:assert/strict';
import { test } from 'node:test';
import { curveFigures } from '../../src/goldimask/report/templates/curve_figures.mjs';
import {
  bandPath,
  barBox,
  frame,
  horizontalPath,
  linePath,
  range,
  series,
  ticks,
  verticalPath,
} from '../../src/goldimask/report/templates/scale.mjs';

const UNIT = { min: 0, max: 1, label: '' };
const square = frame({ x: UNIT, y: UNIT, width: 156, height: 142 }); // 100 by 100 inside

test('a range is never without width', () => {
  assert.deepEqual(range({ min: 1, max: 2 }), [1, 2]);
  assert.deepEqual(range({ min: 3, max: 3 }), [2.5, 3.5]);
  assert.deepEqual(range({ min: Infinity, max: -Infinity }), [0, 1]);
});

test('ticks are round and inside', () => {
  assert.deepEqual(
    ticks(0, 1, 5).map((x) => Number(x.toFixed(9))),
    [0, 0.2, 0.4, 0.6, 0.8, 1],
  );
  assert.deepEqual(ticks(-3, 17, 4), [0, 5, 10, 15]);
  assert.deepEqual(ticks(2, 2), [2]);
  for (const [min, max] of [
    [0.013, 0.27],
    [-1e-7, 3e-7],
    [0, 123456],
    [-50, -3],
  ]) {
    const found = ticks(min, max);
    const slack = (max - min) * 1e-5;
    assert(found.length >= 2 && found.length <= 6, String(found));
    assert(
      found.every((x) => x >= min - slack && x <= max + slack),
      String(found),
    );
  }
});

test('places are linear, y grows upwards', () => {
  assert.deepEqual([square.X(0), square.X(1)], [46, 146]);
  assert.deepEqual([square.Y(0), square.Y(1)], [108, 8]);
});

test('paths', () => {
  assert.equal(
    linePath(square, [
      [0, 0],
      [0.5, 1],
    ]),
    'M46.0 108.0L96.0 8.0',
  );
  assert.equal(
    bandPath(square, [
      [0, 0, 0.5],
      [1, 0, 1],
    ]),
    'M46.0 58.0L146.0 8.0L146.0 108.0L46.0 108.0Z',
  );
  assert.equal(horizontalPath(square, 0.5), 'M46 58H146');
});

test('a vertical rule stays inside the chart', () => {
  assert.equal(verticalPath(square, 0.5), 'M96 8V108');
  assert.equal(verticalPath(square, 9), 'M146 8V108');
});

test('bars stand on zero and leave a gap', () => {
  const f = frame({ x: { min: 0, max: 10, label: '' }, y: UNIT, width: 156, height: 142 });
  assert.deepEqual(barBox(f, [5, 0.5]), { x: 91.5, y: 58, width: 9, height: 50 });
});

test('six lines have six styles', () => {
  assert.equal(new Set(Array.from({ length: 18 }, (_, i) => series(i))).size, 18);
  assert.equal(series(0), 's0 ');
});

const chart = (lines, more = {}) => ({ name: 'loss', lines, ...more });

test('a run keeps its style where another one is missing', () => {
  const a = {
    name: 'a',
    points: [
      [1, 2],
      [2, 1],
    ],
  };
  const b = {
    name: 'b',
    points: [
      [1, 3],
      [2, 2],
    ],
  };
  const [both, one] = curveFigures([chart([a, b]), chart([b])]);
  assert.equal(both.legend[1].class, one.legend[0].class);
  assert.equal(both.chart.label, 'loss by step: a from 2 to 1; b from 3 to 2');
  assert.deepEqual([both.chart.x.min, both.chart.x.max], [1, 2]);
  assert(both.chart.y.min < 1 && both.chart.y.max > 3);
  assert.deepEqual(both.chart.layers[0].points, []);
});

test('a line of one point, and a sweep, show their points', () => {
  const one = { name: 'a', points: [[1, 2]] };
  assert.equal(curveFigures([chart([one])])[0].chart.layers[0].points.length, 1);
  const two = {
    name: 'a',
    points: [
      [1, 2],
      [2, 2],
    ],
  };
  const swept = curveFigures([chart([two], { markers: true, x: 'tau', y: 'loss' })])[0].chart;
  assert.equal(swept.layers[0].points.length, 2);
  assert.deepEqual([swept.x.label, swept.y.label], ['tau', '']); // the title says it already
});

test('a chart without points is still a chart', () => {
  const [figure] = curveFigures([chart([{ name: 'a', points: [] }])]);
  assert.equal(figure.chart.label, 'loss by step: ');
});
