// Paragraphs, links to neighbouring files, samples of answers.

import { el, verdict } from './dom.mjs';

/** @import { Sample } from './types' */

const NEIGHBOUR = /^(\.\.\/)*[\w%][\w%./-]*\.(html|pdf|png|csv|tex|md|json)$/;

/**
 * Whether an address is a file near the page: no scheme, no host, a known ending.
 * @param {string} href
 */
export const isNeighbour = (href) => NEIGHBOUR.test(href);

/** @param {HTMLElement} box @param {{ paragraphs: string[] }} data */
export const drawProse = (box, data) =>
  box.append(...data.paragraphs.map((text) => el('p', { text })));

/** @param {HTMLElement} box @param {{ links: { href: string, text: string }[] }} data */
export const drawLinks = (box, data) => {
  const links = data.links.filter((link) => isNeighbour(link.href));
  const items = links.map(({ href, text }) => el('li', {}, el('a', { href, text })));
  box.append(el('ul', {}, items));
};

/** @param {HTMLElement} box @param {{ samples: Sample[] }} data */
export const drawSamples = (box, data) => {
  for (const { run, task, id, correct, extracted, steps, output } of data.samples) {
    const text = ` ${run} · ${task} · ${id} · answer ${extracted ?? 'none'} · ${steps} steps`;
    const summary = el('summary', {}, verdict(correct), text);
    box.append(
      el('details', { class: 'panel' }, summary, el('pre', { dir: 'auto', text: output })),
    );
  }
};
