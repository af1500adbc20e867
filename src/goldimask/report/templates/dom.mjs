// Elements. Data reaches the document through textContent and attributes only, never as markup.

/** @import { Run } from './types' */
/** @typedef {Node | string | null | undefined | false} Kid */
/** @typedef {string | number | boolean | null | undefined} Value */
/**
 * `text` becomes the text, a false or absent value no attribute, everything else an attribute.
 * @typedef {{ [name: string]: Value }} Attributes
 */

/**
 * An HTML element.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} [attrs]
 * @param {(Kid | Kid[])[]} kids
 * @returns {HTMLElementTagNameMap[K]}
 */
export const el = (tag, attrs = {}, ...kids) => fill(document.createElement(tag), attrs, kids);

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} [attrs]
 * @param {(Kid | Kid[])[]} kids
 * @returns {SVGElementTagNameMap[K]}
 */
export const svg = (tag, attrs = {}, ...kids) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attrs, kids);

/**
 * @template {Element} E
 * @param {E} node
 * @param {Attributes} attrs
 * @param {(Kid | Kid[])[]} kids
 * @returns {E}
 */
const fill = (node, attrs, kids) => {
  for (const [key, value] of Object.entries(attrs)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === 'text') node.textContent = String(value);
    else node.setAttribute(key, value === true ? '' : String(value));
  }
  for (const kid of kids.flat()) if (kid) node.append(kid);
  return node;
};

/**
 * Replace what an element holds.
 * @template {Element} E
 * @param {E} node
 * @param {(Kid | Kid[])[]} kids
 */
export const clear = (node, ...kids) => {
  node.replaceChildren();
  return fill(node, {}, kids);
};

/**
 * A button, also one that plays another role.
 * @param {Attributes} attrs
 * @param {() => void} onclick
 */
export const button = (attrs, onclick) => {
  const node = el('button', { type: 'button', ...attrs });
  node.addEventListener('click', onclick);
  return node;
};

/**
 * A token's runs: text as it is, marks for what has no shape of its own.
 * @param {Run[]} runs
 */
export const word = (runs) =>
  el(
    'bdi',
    { class: 'word' },
    runs.map((run) =>
      run[0] === 't'
        ? document.createTextNode(run[1])
        : el('span', { class: 'mark', text: run[1] }),
    ),
  );

/**
 * The right or wrong answer, in words and colour.
 * @param {boolean} correct
 */
export const verdict = (correct) =>
  el('span', { class: correct ? 'good' : 'bad', text: correct ? '✓ correct' : '✗ wrong' });
