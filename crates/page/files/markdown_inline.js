// Inline markdown: text to nodes. A node is a string, or an object with a tag and children; nothing here makes HTML.

/**
 * @typedef {string | Element} Inline
 * @typedef {{tag: string, attrs?: Record<string, string>, children: Inline[]}} Element
 */

/** Longer texts are shown as they are, so that one line of a megabyte costs no more than its length. */
export const INLINE_CHARS_MAX = 64 << 10;
/** Open emphasis at one time. */
const DEPTH_MAX = 32;
/** Characters in which the end of a link is looked for. */
const LINK_CHARS_MAX = 1000;
const SPECIAL = /[\\`*_~[!<\nhH]/g;
const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;

/** @param {string} text @returns {Inline[]} */
export function parseInline(text) {
  if (text.length > INLINE_CHARS_MAX) return [text];
  const frames = new Frames();
  let at = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const found = SPECIAL.exec(text);
    const next = found ? found.index : text.length;
    if (next > at) frames.add(text.slice(at, next));
    if (!found) break;
    at = takeSpecial(text, next, frames);
  }
  return frames.finish();
}

/** @param {string} text @param {number} at @param {Frames} frames @returns {number} */
function takeSpecial(text, at, frames) {
  const char = text[at];
  switch (char) {
    case '\\':
      if (at + 1 < text.length && /[!-/:-@[-`{-~]/.test(text[at + 1])) {
        frames.add(text[at + 1]);
        return at + 2;
      }
      break;
    case '\n':
      frames.add({ tag: 'br', children: [] });
      return at + 1;
    case '`':
      return takeCode(text, at, frames);
    case '!':
      if (text[at + 1] !== '[') break;
      return takeLink(text, at + 1, frames) ?? literal(frames, '!', at);
    case '[':
      return takeLink(text, at, frames) ?? literal(frames, '[', at);
    case '<': {
      const found = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/.exec(text.slice(at, at + LINK_CHARS_MAX));
      if (!found) break;
      frames.add(link(found[1], [found[1]]));
      return at + found[0].length;
    }
    case 'h':
    case 'H': {
      const url = at === 0 || !/[\p{L}\p{N}_]/u.test(text[at - 1]) ? bareUrl(text, at) : '';
      if (url === '') break;
      frames.add(link(url, [url]));
      return at + url.length;
    }
    default:
      return takeDelimiters(text, at, frames);
  }
  return literal(frames, char, at);
}

/** @param {Frames} frames @param {string} char @param {number} at */
function literal(frames, char, at) {
  frames.add(char);
  return at + 1;
}

/** @param {string} text @param {number} at */
function bareUrl(text, at) {
  const found = /^https?:\/\/[^\s<>"'`]+/i.exec(text.slice(at, at + LINK_CHARS_MAX));
  if (!found) return '';
  let url = found[0].replace(/[.,;:!?*_~\]]+$/, '');
  while (url.endsWith(')') && !url.includes('(')) url = url.slice(0, -1);
  return url.length > 'https://'.length ? url : '';
}

/** @param {string} text @param {number} at @param {Frames} frames */
function takeCode(text, at, frames) {
  let end = at;
  while (text[end] === '`') end += 1;
  const run = text.slice(at, end);
  for (let close = text.indexOf(run, end); close >= 0; ) {
    let after = close;
    while (text[after] === '`') after += 1;
    if (after - close === run.length) {
      let code = text.slice(end, close).replace(/\n/g, ' ');
      if (/^ .*[^ ].* $/.test(code)) code = code.slice(1, -1);
      frames.add({ tag: 'code', children: [code] });
      return after;
    }
    close = text.indexOf(run, after);
  }
  frames.add(run);
  return end;
}

/** @param {string} text @param {number} at Place of the bracket. @param {Frames} frames @returns {number | null} */
function takeLink(text, at, frames) {
  const end = Math.min(text.length, at + LINK_CHARS_MAX);
  let depth = 0;
  let close = at;
  for (; close < end; close += 1) {
    const char = text[close];
    if (char === '\\') close += 1;
    else if (char === '[') depth += 1;
    else if (char === ']' && --depth === 0) break;
  }
  if (close >= end || text[close + 1] !== '(') return null;
  const target = /^\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(
    text.slice(close + 1, close + 1 + LINK_CHARS_MAX),
  );
  if (!target) return null;
  const label = text.slice(at + 1, close);
  const inner = depth < 2 && label.length < 500 && !label.includes('](') ? parseInline(label) : [label];
  frames.add(isSafe(target[1]) ? link(target[1], inner) : { tag: 'span', children: inner });
  return close + 1 + target[0].length;
}

/** Whether a link may be followed: no scripts, no data. @param {string} url */
export function isSafe(url) {
  return /^(https?:\/\/|mailto:)/i.test(url);
}

/** @param {string} url @param {Inline[]} children @returns {Element} */
function link(url, children) {
  return { tag: 'a', attrs: { href: url, rel: 'noopener noreferrer nofollow', target: '_blank' }, children };
}

/** @param {string} text @param {number} at @param {Frames} frames */
function takeDelimiters(text, at, frames) {
  const char = text[at];
  let end = at;
  while (text[end] === char) end += 1;
  const before = at === 0 ? ' ' : charBefore(text, at);
  const after = end >= text.length ? ' ' : String.fromCodePoint(/** @type {number} */ (text.codePointAt(end)));
  const [spaceBefore, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
  const [signBefore, signAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
  const left = !spaceAfter && (!signAfter || spaceBefore || signBefore);
  const right = !spaceBefore && (!signBefore || spaceAfter || signAfter);
  const inWord = char === '_';
  const canOpen = inWord ? left && (!right || signBefore) : left;
  const canClose = inWord ? right && (!left || signAfter) : right;
  frames.takeRun(char, end - at, canOpen, canClose);
  return end;
}

/** @param {string} text @param {number} at */
function charBefore(text, at) {
  const low = text.charCodeAt(at - 1);
  const isPair = at > 1 && low >= 0xdc00 && low <= 0xdfff;
  return isPair ? text.slice(at - 2, at) : text[at - 1];
}

/** Open emphasis, innermost last; the first frame is the text itself. */
class Frames {
  #frames = [{ char: '', count: 0, children: /** @type {Inline[]} */ ([]) }];

  /** @param {Inline} node */
  add(node) {
    const children = this.#frames[this.#frames.length - 1].children;
    const last = children.length - 1;
    if (typeof node === 'string' && typeof children[last] === 'string') children[last] += node;
    else children.push(node);
  }

  /** @param {string} char @param {number} count @param {boolean} canOpen @param {boolean} canClose */
  takeRun(char, count, canOpen, canClose) {
    while (count > 0 && canClose) {
      const at = this.#frames.findLastIndex((frame) => frame.char === char);
      if (at < 1) break;
      const open = this.#frames[at];
      const width = count >= 2 && open.count >= 2 ? 2 : 1;
      if (char === '~' && width < 2) break;
      while (this.#frames.length > at + 1) this.#abandon();
      const tag = char === '~' ? 'del' : width === 2 ? 'strong' : 'em';
      const node = { tag, children: open.children };
      open.count -= width;
      count -= width;
      if (open.count > 0) {
        open.children = [node];
      } else {
        this.#frames.pop();
        this.add(node);
      }
    }
    if (count === 0) return;
    if (canOpen && this.#frames.length <= DEPTH_MAX) this.#frames.push({ char, count, children: [] });
    else this.add(char.repeat(count));
  }

  /** The innermost emphasis was never closed: its delimiters are text. */
  #abandon() {
    const frame = this.#frames.pop();
    if (!frame) return;
    this.add(frame.char.repeat(frame.count));
    frame.children.forEach((child) => this.add(child));
  }

  finish() {
    while (this.#frames.length > 1) this.#abandon();
    return this.#frames[0].children;
  }
}
