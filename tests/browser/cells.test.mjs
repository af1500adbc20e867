import assert from 'node:assert/strict';
import test from 'node:test';

import {
  chosen,
  firstRows,
  groupsOf,
  matches,
  meanLine,
  overlayCharts,
  panelOf,
  valuesOf,
} from '../../src/goldimask/report/templates/cells_model.mjs';
import { curveFigures } from '../../src/goldimask/report/templates/curve_figures.mjs';

const cell = (row, seed, average, more = {}) => ({
  row,
  seed,
  average,
  label: `${row}-${seed}`,
  backbone: 'a',
  corpus: 'c',
  state: 'done',
  error: '',
  ...more,
});
const cells = [
  cell('vanilla', 10, 50),
  cell('goldimask-d', 2, 75),
  cell('vanilla', 2, null, { state: 'failed', error: 'out of memory' }),
  cell('gift', 2, 60, { backbone: 'b' }),
];
const average = (c) => c.average;

test('values are listed once, seeds by size', () => {
  assert.deepEqual(valuesOf(cells, 'row'), ['vanilla', 'goldimask-d', 'gift']);
  assert.deepEqual(valuesOf(cells, 'seed'), ['2', '10']);
});

test('filters and words must all match', () => {
  assert.deepEqual(
    cells.map((c) => matches(c, { row: 'vanilla', seed: '2' })),
    [false, false, true, false],
  );
  assert.equal(matches(cells[2], { text: 'MEMORY failed' }), true);
  assert.equal(matches(cells[2], { text: 'memory done' }), false);
  assert.equal(matches(cells[0], {}), true);
});

test('cells are sorted both ways, those without a value last', () => {
  assert.deepEqual(chosen(cells, {}, average, false), [0, 3, 1, 2]);
  assert.deepEqual(chosen(cells, {}, average, true), [1, 3, 0, 2]);
  assert.deepEqual(
    chosen(cells, {}, (c) => c.row, false),
    [3, 1, 0, 2],
  );
  assert.deepEqual(
    chosen(cells, { backbone: 'a' }, () => null, false),
    [0, 1, 2],
  );
});

test('a mean line is over the steps that all runs have', () => {
  const lines = [
    [
      [1, 2],
      [2, 4],
      [3, 9],
    ],
    [
      [2, 6],
      [1, 0],
    ],
  ];
  assert.deepEqual(meanLine(lines), [
    [1, 1],
    [2, 5],
  ]);
  assert.deepEqual(meanLine([[[1, 2]], [[3, 4]]]), [
    [1, 2],
    [3, 4],
  ]);
});

test('a chart for each panel, a line for each method or each run', () => {
  const data = {
    measures: { loss: 'training loss' },
    grids: [
      [10, 20],
      [10, 30],
    ],
    lines: [
      [0, 'loss', 0, [1, 2]],
      [2, 'loss', 0, [3, 4]],
      [1, 'loss', 1, [5, 6]],
      [3, 'loss', 0, [7, 8]],
      [0, 'other', 0, [9, 9]],
    ],
  };
  const charts = overlayCharts(data, cells, [0, 1, 2, 3], 'loss', true);
  assert.deepEqual(
    charts.map((c) => [c.name, c.lines.map((line) => line.name)]),
    [
      ['a / c', ['vanilla', 'goldimask-d']],
      ['b / c', ['gift']],
    ],
  );
  assert.deepEqual(charts[0].lines[0].points, [
    [10, 2],
    [20, 3],
  ]);
  const every = overlayCharts(data, cells, [0, 2], 'loss', false);
  assert.equal(every[0].lines.length, 2);
  const [figure] = curveFigures(every, ['gift', 'vanilla']);
  assert.deepEqual(
    figure.legend.map((x) => x.name),
    ['vanilla'],
  );
  assert.match(figure.legend[0].class, /^s1/); // the second of all methods, drawn alone
});

test('problems are grouped, and begin with the rows asked for', () => {
  const problems = [
    { panel: 'p', task: 't' },
    { panel: 'p', task: 't' },
    { panel: 'q', task: 't' },
  ];
  assert.equal(groupsOf(problems).length, 2);
  assert.deepEqual(firstRows(['a', 'b', 'c'], ['c', 'x']), ['c']);
  assert.deepEqual(firstRows(['a', 'b', 'c'], []), ['a', 'b']);
  assert.equal(panelOf({ backbone: 'a', corpus: '' }), 'a');
});
