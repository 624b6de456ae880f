// Markdown to nodes, while the text still grows. The law: however a text is cut into pieces, the nodes are those of the
// whole text. Blocks that no later text can change are kept; only the last ones are parsed again.

import { parseInline } from './markdown_inline.js';

/**
 * @typedef {import('./markdown_inline.js').Inline} Inline
 * @typedef {{tag: 'code-block', language: string, text: string}} CodeBlock
 * @typedef {{tag: string, attrs?: Record<string, string>, children: (Block | Inline)[]}} TextBlock
 * @typedef {CodeBlock | TextBlock} Block
 * @typedef {{block: Block, next: number, isFinal: boolean}} ReadBlock
 */

/** Nesting of lists and quotes; deeper ones are text. */
const DEPTH_MAX = 12;
/** Columns of a table. */
const COLUMNS_MAX = 64;

const BLANK = /^\s*$/;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const ITEM_IN_TEXT = /^ {0,3}(?:[-*+]|1[.)])[ \t]+\S/;
const DELIMITER_ROW = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

export class Markdown {
  #final = /** @type {Block[]} */ ([]);
  #open = '';

  /** @param {string} piece */
  push(piece) {
    this.#open += piece;
  }

  /** All nodes, and how many of the first ones no later text can change. */
  nodes() {
    this.#settle();
    return { nodes: [...this.#final, ...parseBlocks(linesOf(this.#open), 0)], finalCount: this.#final.length };
  }

  /** Moves blocks that are final out of the text that is parsed again. */
  #settle() {
    const lines = linesOf(this.#open);
    // The last line may still grow.
    lines.pop();
    let [at, settled] = [0, 0];
    while (at < lines.length) {
      if (BLANK.test(lines[at])) {
        at += 1;
        continue;
      }
      const read = readBlock(lines, at, 0);
      if (!read.isFinal) break;
      this.#final.push(read.block);
      at = read.next;
      settled = at;
    }
    if (settled > 0) this.#open = this.#open.slice(lengthOfLines(this.#open, settled));
  }
}

/** The nodes of a whole text. @param {string} text */
export function parseMarkdown(text) {
  return parseBlocks(linesOf(text), 0);
}

/** @param {string} text */
function linesOf(text) {
  return text.split('\n').map((line) => (line.endsWith('\r') ? line.slice(0, -1) : line));
}

/** @param {string} text @param {number} count */
function lengthOfLines(text, count) {
  let at = 0;
  for (let line = 0; line < count; line += 1) at = text.indexOf('\n', at) + 1;
  return at;
}

/** @param {string[]} lines @param {number} depth */
function parseBlocks(lines, depth) {
  /** @type {Block[]} */
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (BLANK.test(lines[at])) {
      at += 1;
      continue;
    }
    const read = readBlock(lines, at, depth);
    blocks.push(read.block);
    at = read.next;
  }
  return blocks;
}

/** The block that begins in a line that is not blank. @param {string[]} lines @param {number} at @param {number} depth @returns {ReadBlock} */
function readBlock(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return readFence(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) {
    const block = { tag: `h${heading[1].length}`, children: parseInline((heading[2] ?? '').trim().replace(/(^| )#+$/, '').trimEnd()) };
    return { block, next: at + 1, isFinal: true };
  }
  if (RULE.test(line)) return { block: { tag: 'hr', children: [] }, next: at + 1, isFinal: true };
  if (depth < DEPTH_MAX) {
    if (QUOTE.test(line)) return readQuote(lines, at, depth);
    const item = ITEM.exec(line);
    if (item) return readList(lines, at, depth, item);
  }
  if (isTableAt(lines, at)) return readTable(lines, at);
  return readParagraph(lines, at, depth);
}

/** @param {string[]} lines @param {number} at @param {RegExpExecArray} fence @returns {ReadBlock} */
function readFence(lines, at, fence) {
  const indent = indentOf(lines[at]);
  const close = new RegExp(`^ {0,3}\\${fence[1][0]}{${fence[1].length},}[ \\t]*$`);
  let next = at + 1;
  while (next < lines.length && !close.test(lines[next])) next += 1;
  const isClosed = next < lines.length;
  const text = lines.slice(at + 1, next).map((line) => dedent(line, indent)).join('\n');
  const language = fence[2].trim().split(/\s/)[0];
  return { block: { tag: 'code-block', language, text }, next: isClosed ? next + 1 : next, isFinal: isClosed };
}

/** @param {string[]} lines @param {number} at @param {number} depth @returns {ReadBlock} */
function readQuote(lines, at, depth) {
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next])) next += 1;
  const inner = lines.slice(at, next).map((line) => line.replace(QUOTE, ''));
  const block = { tag: 'blockquote', children: parseBlocks(inner, depth + 1) };
  return { block, next, isFinal: next < lines.length };
}

/** @param {string[]} lines @param {number} at @param {number} depth @param {RegExpExecArray} first @returns {ReadBlock} */
function readList(lines, at, depth, first) {
  const isOrdered = /\d/.test(first[2]);
  const kind = first[2].at(-1);
  /** @type {Block[]} */
  const items = [];
  let next = at;
  while (next < lines.length) {
    const marker = ITEM.exec(lines[next]);
    if (!marker || marker[2].at(-1) !== kind || RULE.test(lines[next])) break;
    const end = endOfItem(lines, next);
    items.push(readItem(lines.slice(next, end), marker, depth));
    next = end;
  }
  /** @type {TextBlock} */
  const block = { tag: isOrdered ? 'ol' : 'ul', children: items };
  const start = Number.parseInt(first[2], 10);
  if (isOrdered && start !== 1) block.attrs = { start: String(start) };
  return { block, next, isFinal: next < lines.length };
}

/** The line after an item: the next one that is neither blank, nor indented, nor a continued paragraph. @param {string[]} lines @param {number} at */
function endOfItem(lines, at) {
  let next = at + 1;
  let afterBlank = false;
  for (; next < lines.length; next += 1) {
    const line = lines[next];
    if (BLANK.test(line)) {
      afterBlank = true;
      continue;
    }
    if (indentOf(line) >= 2) {
      afterBlank = false;
      continue;
    }
    if (afterBlank || ITEM.test(line) || interrupts(line)) break;
  }
  return next;
}

/** @param {string[]} lines @param {RegExpExecArray} marker @param {number} depth @returns {Block} */
function readItem(lines, marker, depth) {
  const width = Math.min(marker[0].length, marker[1].length + marker[2].length + 4);
  const inner = [lines[0].slice(marker[0].length), ...lines.slice(1).map((line) => dedent(line, width))];
  const task = /^\[([ xX])\][ \t]+/.exec(inner[0]);
  if (task) inner[0] = inner[0].slice(task[0].length);
  const blocks = parseBlocks(inner, depth + 1);
  const [head, ...rest] = blocks;
  /** @type {(Block | Inline)[]} */
  const children = head && head.tag === 'p' && 'children' in head ? [...head.children, ...rest] : blocks;
  if (task) children.unshift({ tag: 'span', attrs: { class: 'task' }, children: [task[1] === ' ' ? '☐ ' : '☑ '] });
  return { tag: 'li', children };
}

/** @param {string[]} lines @param {number} at */
function isTableAt(lines, at) {
  const hasRow = lines[at].includes('|') && at + 1 < lines.length;
  return hasRow && lines[at + 1].includes('-') && DELIMITER_ROW.test(lines[at + 1]) && cellsOf(lines[at]).length === cellsOf(lines[at + 1]).length;
}

/** @param {string[]} lines @param {number} at @returns {ReadBlock} */
function readTable(lines, at) {
  const sides = cellsOf(lines[at + 1]).map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : ''));
  /** @param {string} line @param {string} tag */
  const row = (line, tag) => {
    const cells = cellsOf(line);
    const children = sides.map((side, column) => ({
      tag, ...(side && { attrs: { class: side } }), children: parseInline(cells[column] ?? ''),
    }));
    return { tag: 'tr', children };
  };
  let next = at + 2;
  while (next < lines.length && lines[next].includes('|') && !BLANK.test(lines[next])) next += 1;
  const body = lines.slice(at + 2, next).map((line) => row(line, 'td'));
  const children = [{ tag: 'thead', children: [row(lines[at], 'th')] }, { tag: 'tbody', children: body }];
  return { block: { tag: 'table', children }, next, isFinal: next < lines.length };
}

/** @param {string} line */
function cellsOf(line) {
  const inner = line.trim().replace(/^\|/, '').replace(/(^|[^\\])\|$/, '$1');
  return inner.split(/(?<!\\)\|/).slice(0, COLUMNS_MAX).map((cell) => cell.trim().replace(/\\\|/g, '|'));
}

/** @param {string[]} lines @param {number} at @param {number} depth @returns {ReadBlock} */
function readParagraph(lines, at, depth) {
  let next = at + 1;
  while (next < lines.length && !BLANK.test(lines[next]) && !(depth < DEPTH_MAX && interrupts(lines[next])) && !isTableAt(lines, next)) next += 1;
  // The first line of a table looks like text until the line after it is complete.
  const text = lines.slice(at, next).map((line) => line.trim()).join('\n');
  const isFinal = next < lines.length && (BLANK.test(lines[next]) || interrupts(lines[next]) || next + 1 < lines.length);
  return { block: { tag: 'p', children: parseInline(text) }, next, isFinal };
}

/** Whether a line ends the paragraph before it. @param {string} line */
function interrupts(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM_IN_TEXT.test(line);
}

/** @param {string} line */
function indentOf(line) {
  let columns = 0;
  for (const char of line) {
    if (char === ' ') columns += 1;
    else if (char === '\t') columns += 4;
    else break;
  }
  return columns;
}

/** @param {string} line @param {number} columns */
function dedent(line, columns) {
  let at = 0;
  while (columns > 0 && at < line.length && (line[at] === ' ' || line[at] === '\t')) {
    columns -= line[at] === '\t' ? 4 : 1;
    at += 1;
  }
  return line.slice(at);
}
