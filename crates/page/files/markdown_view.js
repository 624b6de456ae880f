// Nodes of markdown as elements. Blocks that are final keep their elements, so that selections and scroll positions stay.

import { el } from './dom.js';
import { Markdown } from './markdown.js';

/** @typedef {import('./markdown.js').Block | import('./markdown_inline.js').Inline} MarkdownNode */

/** Time between two renderings, as a multiple of the time that the last one took. */
const PAUSE_FACTOR = 8;
const COPIED_MS = 1500;

/** Renders a growing text into an element. */
export class MarkdownView {
  #markdown = new Markdown();
  #shown = 0;
  #text = '';
  #waits = false;
  #took = 0;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
  }

  /** Shows a text, which usually is the last one and some more; a whole text at once. @param {string} text @param {boolean} isWhole */
  show(text, isWhole = false) {
    if (!text.startsWith(this.#text)) {
      this.#markdown = new Markdown();
      this.#text = '';
      this.#shown = 0;
      this.root.replaceChildren();
    }
    this.#markdown.push(text.slice(this.#text.length));
    this.#text = text;
    if (isWhole) this.render();
    if (isWhole || this.#waits) return;
    this.#waits = true;
    const render = () => {
      this.#waits = false;
      this.render();
    };
    // A hidden tab has no frames.
    if (this.#took > 4) setTimeout(render, this.#took * PAUSE_FACTOR);
    else if (document.hidden) setTimeout(render, 200);
    else requestAnimationFrame(render);
  }

  render() {
    const begun = performance.now();
    const { nodes, finalCount } = this.#markdown.nodes();
    patchChildren(this.root, nodes, this.#shown);
    this.#shown = finalCount;
    this.#took = performance.now() - begun;
  }
}

/** Makes the children of an element equal to these nodes, but for the first ones, which already are. @param {HTMLElement} parent @param {MarkdownNode[]} nodes @param {number} from */
export function patchChildren(parent, nodes, from = 0) {
  for (let at = from; at < nodes.length; at += 1) {
    const there = parent.childNodes[at];
    if (there && patchNode(there, nodes[at])) continue;
    const made = makeNode(nodes[at]);
    if (there) parent.replaceChild(made, there);
    else parent.appendChild(made);
  }
  while (parent.childNodes.length > nodes.length) parent.removeChild(/** @type {Node} */ (parent.lastChild));
}

/** Whether the element could be made equal to the node. @param {any} there @param {MarkdownNode} node @returns {boolean} */
function patchNode(there, node) {
  if (typeof node === 'string') {
    if (there.nodeType !== 3) return false;
    setText(there, node);
    return true;
  }
  if (there.nodeType !== 1 || there.dataset.key !== keyOf(node)) return false;
  if ('text' in node) setText(there.querySelector('pre').firstChild.firstChild, node.text);
  else patchChildren(there, node.children);
  return true;
}

/** @param {any} there A text node. @param {string} text */
function setText(there, text) {
  if (there.data === text) return;
  if (text.startsWith(there.data)) there.appendData(text.slice(there.data.length));
  else there.data = text;
}

/** What an element must have in common with a node. @param {Exclude<MarkdownNode, string>} node */
function keyOf(node) {
  if ('text' in node) return `code ${node.language}`;
  return [node.tag, ...Object.entries(node.attrs ?? {}).flat()].join(' ');
}

/** @param {MarkdownNode} node @returns {Node} */
function makeNode(node) {
  if (typeof node === 'string') return document.createTextNode(node);
  const made = 'text' in node ? makeCode(node) : el(node.tag, node.attrs);
  made.dataset.key = keyOf(node);
  if ('children' in node) patchChildren(made, node.children);
  return made;
}

/** @param {import('./markdown.js').CodeBlock} node */
function makeCode(node) {
  const text = document.createTextNode(node.text);
  const code = el('code', { dir: 'ltr' });
  code.appendChild(text);
  const copy = el('button', { type: 'button', class: 'copy', on: { click: () => copyText(text.data, copy) } }, 'Copy');
  return el('div', { class: 'code-block' },
    el('div', { class: 'code-head' }, el('span', {}, node.language || 'text'), copy), el('pre', { tabindex: '0' }, code));
}

/** @param {string} text @param {HTMLElement} control */
export async function copyText(text, control) {
  const label = control.textContent;
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copySelected(text);
    control.textContent = 'Copied';
  } catch {
    control.textContent = 'Cannot copy';
  }
  setTimeout(() => (control.textContent = label), COPIED_MS);
}

/** In pages without TLS there is no clipboard, but for what is selected. @param {string} text */
function copySelected(text) {
  const field = el('textarea', { value: text, class: 'visually-hidden' });
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand('copy');
  field.remove();
  if (!isCopied) throw new Error('the browser did not copy');
}
