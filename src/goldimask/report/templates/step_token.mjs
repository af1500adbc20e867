// What stands beside the tokens: the one that is looked at, and whom it is connected with.

import { el, word } from './dom.mjs';
import { num } from './format.mjs';
import { tokenFacts } from './step_model.mjs';
import { facts } from './table.mjs';

/** @import { StepView } from './step_model.mjs' */

const MOST = 12; // links listed
const INVITATION =
  'Point at a token, tap it, or move there with the arrow keys: a target shows which revealed ' +
  'tokens it attends to, a revealed token shows whom it supports.';

/**
 * The token `i` after `k` reveals; an invitation when no token is looked at (-1).
 * @param {StepView} view
 * @param {number} k
 * @param {number} i
 */
export const lookAt = (view, k, i) => {
  if (i < 0) return [el('p', { class: 'soft', text: INVITATION })];
  const head = el('h3', {}, word(view.token(i).runs));
  return [head, facts(tokenFacts(view, k, i)), ...linksOf(view, k, i)];
};

/**
 * @param {StepView} view
 * @param {number} k
 * @param {number} i
 */
const linksOf = (view, k, i) => {
  const state = view.state(i, k);
  const links = view.links(i, k);
  if (!links.length) {
    const silent = (state === 'target' || state === 'revealed') && !view.record.supporters;
    return silent ? [el('p', { class: 'soft', text: 'This method measures no attention.' })] : [];
  }
  const title =
    state === 'target'
      ? 'Revealed tokens it attends to most:'
      : 'Targets that count it among their strongest supporters:';
  const items = links.slice(0, MOST).map(([j, attention]) => {
    const text = ` ${j} · attention ${num(attention, 3)}`;
    return el('li', {}, word(view.token(j).runs), el('small', { text }));
  });
  const more = links.length - MOST;
  return [
    el('div', { class: 'soft', text: title }),
    el('ol', {}, items),
    more > 0 && el('small', { class: 'soft', text: `and ${more} more` }),
  ];
};
