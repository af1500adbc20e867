// Builds the page from its data block.

import { themeButton } from './controls.mjs';
import { el } from './dom.mjs';

/** @import { Page } from './types' */
/**
 * Draws a section of one kind. Which data a kind has is known to Python, that writes both.
 * @typedef {(box: HTMLElement, data: any) => void} Drawing
 */

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
const place = (id) => {
  const node = document.getElementById(id);
  if (!node) throw new Error(`this page has no element '${id}'`);
  return node;
};

/**
 * `drawings` draws every kind of section that this page has.
 * @param {Record<string, Drawing>} drawings
 */
export const boot = (drawings) => {
  /** @type {Page} */
  const page = JSON.parse(place('data').textContent ?? '');
  const subtitle = page.subtitle && el('p', { class: 'soft', text: page.subtitle });
  place('top').append(el('div', {}, el('h1', { text: page.title }), subtitle), themeButton());
  page.sections.forEach((part, i) => {
    const id = `part-${i}`;
    const box = el(
      'section',
      { 'aria-labelledby': id, 'data-kind': part.kind },
      el('h2', { id, text: part.title }),
      part.note && el('p', { class: 'note', text: part.note }),
    );
    place('main').append(box);
    drawings[part.kind](box, part.data);
  });
  document.documentElement.dataset.ready = 'yes';
};
