import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  change,
  num,
  percent,
  rounded,
  spoken,
  tinyMass,
} from '../../src/goldimask/report/templates/format.mjs';
import { isNeighbour } from '../../src/goldimask/report/templates/prose.mjs';
import { caption } from '../../src/goldimask/report/templates/results.mjs';

test('numbers carry four digits, whole ones stay whole', () => {
  assert.equal(num(0.123456), '0.1235');
  assert.equal(num(42), '42');
  assert.equal(num(0), '0');
  assert.equal(num(1234567.5), '1.23e+6');
  assert.equal(num(0.00001234), '1.23e−5');
  assert.equal(num(-0.5), '−0.5');
  assert.equal(num(2 / 3, 2), '0.67');
});

test('what is not known is a dash', () => {
  for (const x of [null, undefined, NaN]) assert.equal(num(x), '–');
  assert.equal(percent(null), '–');
});

test('shares', () => {
  assert.equal(percent(0.2549), '25.5 %');
  assert.equal(rounded(0.123456), 0.123);
  assert.equal(tinyMass(0.0004), '<.001');
  assert.equal(tinyMass(0.0131), '.013');
  assert.equal(tinyMass(0.128), '.13');
  assert.equal(tinyMass(1), '1');
});

test('a change is marked by sign, arrow and class', () => {
  assert.deepEqual(change(2.04, 1, true), { text: '▲ +2.0', class: 'up' });
  assert.deepEqual(change(-2.04, 1, true), { text: '▼ −2.0', class: 'down' });
  assert.deepEqual(change(-0.5, 1, false), { text: '▼ −0.5', class: 'up' });
  assert.deepEqual(change(-0.04, 1, true), { text: '±0.0', class: null });
});

test('a token is spoken by the names of its marks', () => {
  const runs = [
    ['m', '·', 'space'],
    ['t', 'the'],
  ];
  assert.equal(spoken(runs), 'space the');
});

test('links lead to neighbouring files only', () => {
  for (const href of ['a.html', '../runs/x/step.html', 'a%20b/c.pdf']) assert(isNeighbour(href));
  for (const href of ['javascript:x.html', '//host/a.html', '/a.html', 'http:a.html', 'a.exe']) {
    assert(!isNeighbour(href), href);
  }
});

test('the caption of the results counts the problems', () => {
  const base = (...sizes) => ({ tasks: Object.fromEntries(sizes.map((n, i) => [i, { n }])) });
  assert.match(caption(base(40, 40)), /; 40 problems a task$/);
  assert.match(caption(base(30, 40)), /; 30–40 problems a task$/);
  assert.match(caption(base(undefined)), /below it$/);
});
