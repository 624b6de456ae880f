// Elements without HTML text: no string of a server or a model is ever parsed as markup.

/** Properties; everything else is an attribute. */
const PROPERTIES = new Set(['value', 'checked', 'disabled', 'hidden', 'selected', 'textContent', 'tabIndex', 'open', 'indeterminate']);

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes] `on` is an object of listeners; `null` and `false` are left out.
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {any}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (PROPERTIES.has(name)) {
      /** @type {any} */ (node)[name] = value;
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? '' : String(value));
    }
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

/** @param {string} label @param {() => void} act @param {Record<string, any>} [attributes] */
export function button(label, act, attributes = {}) {
  return el('button', { type: 'button', on: { click: act }, ...attributes }, label);
}

/** A labeled control. @param {string} label @param {HTMLElement} control @param {string} [hint] */
export function field(label, control, hint) {
  return el('label', { class: 'field' }, el('span', { class: 'field-label' }, label), control, hint ? el('small', {}, hint) : null);
}

/** @param {Element} node @param {...(Node | string | null | undefined | false)} children */
export function fill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined && child !== false).map((child) => /** @type {any} */ (child)));
}

/** Tells screen readers. @param {string} text */
export function announce(text) {
  const region = document.getElementById('announcements');
  if (region) region.textContent = text;
}

/** Colors of the page for a canvas. @param {string} name */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}
