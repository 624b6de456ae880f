// The lanes of the river on a canvas. Time moves to the left by whole pixels, so a frame moves the picture that is there and draws
// the newest part only: the columns since the last frame, and those that one reading of the lists may still have changed.
// Everything is drawn anew where rows move: a lane comes, ends or leaves, the list is scrolled, or the size changes.

import { labelOf, stallOf } from './lanes.js';

const LANE_PX = 26;
/** Time that is in sight. */
export const WINDOW_MS = 30_000;
const LABEL_PX = 210;
const NARROW_PX = 560;
const NARROW_LABEL_PX = 96;
const CREDIT_PX = 64;
/** Time after which labels are looked at again even if nothing was heard: a silence becomes a stall. */
const LABELS_EACH_MS = 250;
/** Pixels from one mark to the next, so that they can be told apart. */
const MARK_STEP_PX = 2;

/** Height of a row on the canvas. @param {number} scale Pixels of the canvas in one of the page. */
export function rowPixels(scale) {
  return Math.round(LANE_PX * scale);
}

export class RiverCanvas {
  #drawnVersion = -1;
  #drawnChanges = -1;
  #drawnTop = -1;
  /** Column of the moment at the right end of the picture. */
  #column = 0;
  #labelsAt = 0;
  /** Labels and credits of the rows in sight, as they are drawn. @type {string[]} */
  #labels = [];
  /** @type {number[]} */
  #credits = [];
  #scale = 1;
  #rowHeight = LANE_PX;
  #left = 0;
  #right = 0;
  /** Columns in a millisecond. */
  #rate = 0;
  #isNarrow = false;

  /** @param {HTMLCanvasElement} canvas @param {number} pollMs Time between two readings of the lists: marks of a reading are spread over it. */
  constructor(canvas, pollMs) {
    this.canvas = canvas;
    this.pollMs = pollMs;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { alpha: false }));
    /** @type {Record<string, string>} */
    this.colors = {};
  }

  /** @param {Record<string, string>} colors */
  setColors(colors) {
    this.colors = colors;
    this.#drawnVersion = -1;
  }

  /** @param {number} width @param {number} height @param {number} scale Pixels of the canvas in one of the page. */
  resize(width, height, scale) {
    const [across, down] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
    this.#drawnVersion = -1;
    this.#scale = scale;
    this.#rowHeight = rowPixels(scale);
    this.#isNarrow = width < NARROW_PX;
    this.#left = Math.round((this.#isNarrow ? NARROW_LABEL_PX : LABEL_PX) * scale);
    this.#right = Math.max(this.#left + 1, across - Math.round((CREDIT_PX + 12) * scale));
    this.#rate = (this.#right - this.#left) / WINDOW_MS;
    if (this.canvas.width !== across) this.canvas.width = across;
    if (this.canvas.height !== down) this.canvas.height = down;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
  }

  /** @param {import('./lanes.js').Lanes} lanes @param {number} now @param {number} scrollTop */
  draw(lanes, now, scrollTop) {
    const rows = lanes.all;
    const top = Math.round(scrollTop * this.#scale);
    const column = Math.floor(now * this.#rate);
    const moved = column - this.#column;
    const width = this.#right - this.#left;
    const isNew = lanes.version !== this.#drawnVersion || top !== this.#drawnTop || moved < 0;
    const isChanged = lanes.changes !== this.#drawnChanges;
    if (!isNew && !isChanged && moved === 0) return;
    // A mark of the next reading may begin as long before it as readings are apart.
    const dirty = isNew ? width : Math.min(width, moved + this.#span() + 1);
    if (dirty < width && moved > 0) {
      this.context.drawImage(this.canvas, this.#left + moved, 0, width - moved, this.canvas.height, this.#left, 0, width - moved, this.canvas.height);
    }
    this.#column = column;
    this.#fill(this.colors.front, isNew ? 0 : this.#right - dirty, 0, isNew ? this.canvas.width : dirty, this.canvas.height);
    const hasLabels = isNew || isChanged || now - this.#labelsAt >= LABELS_EACH_MS;
    const first = Math.floor(top / this.#rowHeight);
    const last = Math.min(rows.length, Math.ceil((top + this.canvas.height) / this.#rowHeight));
    for (let at = first; at < last; at += 1) {
      const middle = at * this.#rowHeight - top + Math.floor(this.#rowHeight / 2);
      this.#drawTimes(rows[at], middle, this.#right - dirty);
      if (hasLabels) this.#drawEnds(rows[at], at - first, middle, now, isNew);
    }
    if (hasLabels) this.#labelsAt = now;
    [this.#drawnVersion, this.#drawnChanges, this.#drawnTop] = [lanes.version, lanes.changes, top];
  }

  /** Columns between two readings. */
  #span() {
    return Math.max(1, Math.floor(this.pollMs * this.#rate));
  }

  /** Where a time is. @param {number} time */
  #x(time) {
    return this.#right - this.#column + Math.floor(time * this.#rate);
  }

  /** @param {string} style @param {number} x @param {number} y @param {number} width @param {number} height */
  #fill(style, x, y, width, height) {
    this.context.fillStyle = style;
    this.context.fillRect(x, y, width, height);
  }

  /** States and marks of a lane from a column on. @param {import('./lanes.js').Lane} lane @param {number} middle @param {number} begin */
  #drawTimes(lane, middle, begin) {
    const { context, colors } = this;
    const { segments, ticks } = lane;
    const half = Math.round(8 * this.#scale);
    let to = lane.endedAt ? Math.min(this.#right, this.#x(lane.endedAt)) : this.#right;
    for (let at = segments.length - 1; at >= 0 && to > begin; at -= 1) {
      const from = Math.max(begin, this.#x(segments[at].time));
      const { state } = segments[at];
      if (to > from && state !== 'ended' && state !== 'failed') {
        context.globalAlpha = state === 'running' ? 0.22 : 0.45;
        this.#fill(colors[state], from, middle - half, to - from, 2 * half);
      }
      to = Math.min(to, from);
    }
    context.globalAlpha = 1;
    const born = Math.max(begin, this.#x(segments[0].time));
    const width = Math.max(1, Math.round(this.#scale));
    for (let at = ticks.length - 1; at >= 0 && this.#x(ticks[at].time) + width > begin; at -= 1) this.#drawMarks(ticks[at], width, middle, born);
    if (lane.endedAt) this.#bar(colors[lane.state], this.#x(lane.endedAt) - Math.round(1.5 * this.#scale), Math.round(3 * this.#scale), middle, Math.round(10 * this.#scale), begin);
  }

  /** The frames of one reading, evenly over the time since the one before. @param {{time: number, count: number}} tick @param {number} width @param {number} middle @param {number} begin */
  #drawMarks(tick, width, middle, begin) {
    const span = this.#span();
    const end = this.#x(tick.time);
    const count = Math.min(tick.count, Math.max(1, Math.floor(span / (MARK_STEP_PX * this.#scale))));
    const half = Math.round(7 * this.#scale);
    for (let one = 0; one < count; one += 1) this.#bar(this.colors.running, end - Math.floor((one * span) / count), width, middle, half, begin);
  }

  /** A rectangle as far as it is between a column and the right end. @param {string} style @param {number} x @param {number} width @param {number} middle @param {number} half @param {number} begin */
  #bar(style, x, width, middle, half, begin) {
    const [from, to] = [Math.max(x, begin), Math.min(x + width, this.#right)];
    if (to > from) this.#fill(style, from, middle - half, to - from, 2 * half);
  }

  /** Draws the texts before and behind a lane, where they differ from those on the canvas. @param {import('./lanes.js').Lane} lane @param {number} row @param {number} middle @param {number} now @param {boolean} isNew */
  #drawEnds(lane, row, middle, now, isNew) {
    const label = labelOf(lane, now);
    if (isNew || label !== this.#labels[row]) {
      this.#labels[row] = label;
      this.#drawLabel(lane, label, middle, now);
    }
    if (isNew || lane.credit !== this.#credits[row]) {
      this.#credits[row] = lane.credit;
      this.#drawCredit(lane.credit, middle);
    }
  }

  /** @param {import('./lanes.js').Lane} lane @param {string} label @param {number} middle @param {number} now */
  #drawLabel(lane, label, middle, now) {
    const { context, colors } = this;
    const scale = this.#scale;
    this.#fill(colors.front, 0, middle - Math.floor(this.#rowHeight / 2), this.#left, this.#rowHeight);
    context.textBaseline = 'middle';
    context.font = `${12 * scale}px ui-monospace, monospace`;
    context.fillStyle = colors.text;
    context.fillText(lane.id.slice(0, 6), 4 * scale, middle);
    context.font = `${12 * scale}px system-ui, sans-serif`;
    context.fillStyle = stallOf(lane, now) ? colors[lane.state] : colors.quiet;
    context.fillText(this.#isNarrow ? label.slice(0, 7) : label, 56 * scale, middle, this.#left - 62 * scale);
  }

  /** @param {number} credit @param {number} middle */
  #drawCredit(credit, middle) {
    const { context, colors } = this;
    const scale = this.#scale;
    const left = this.#right + Math.round(12 * scale);
    const width = Math.round((CREDIT_PX - 8) * scale);
    this.#fill(colors.line, left, middle - Math.round(6 * scale), width, Math.round(12 * scale));
    this.#fill(colors.front, left + 1, middle - Math.round(6 * scale) + 1, width - 2, Math.round(12 * scale) - 2);
    context.globalAlpha = 0.8;
    this.#fill(credit < 0.25 ? colors.credit : colors.running, left + 2, middle - Math.round(4 * scale), Math.round((width - 4) * credit), Math.round(8 * scale));
    context.globalAlpha = 1;
  }
}
