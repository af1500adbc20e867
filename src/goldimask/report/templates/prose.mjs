// Paragraphs and links to neighbouring files.

import { el } from './dom.mjs';

const MANY = 24; // links that are shown unfolded
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
  const listed = el('ul', {}, items);
  const many = items.length > MANY && el('summary', { text: `${items.length} files` });
  box.append(many ? el('details', {}, many, listed) : listed);
};
