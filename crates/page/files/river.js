// The river: one lane for each stream, drawn on a canvas, and the same as a table for those who read.

import { apiKey, call, callJson } from './api.js';
import { LANES_MAX, Lanes, labelOf, stallOf } from './lanes.js';
import { color, el, fill } from './dom.js';
import { loadControls } from './break_panel.js';
import { EventParser } from './sse.js';

const POLL_MS = 400;
const WINDOW_MS = 30_000;
const LANE_PX = 26;
const LABEL_PX = 210;
const CREDIT_PX = 64;
/** Rows of the table. */
const ROWS_MAX = 100;
const FEED_RETRY_MS = 2000;
const STATES = /** @type {[import('./lanes.js').LaneState, string][]} */ ([
  ['queued', 'queued'], ['prefilling', 'prefill'], ['running', 'running'], ['credit', 'parked: reader'], ['detached', 'detached'],
  ['pages', 'parked: pages'], ['place', 'parked: slot'], ['paused', 'paused'], ['ended', 'ended'], ['failed', 'failed'],
]);

export class RiverView {
  #lanes = new Lanes();
  #isShown = false;
  #abort = new AbortController();
  #firstCursor = 0;
  /** @type {Record<string, string>} */
  #colors = {};

  constructor() {
    this.canvas = el('canvas', { class: 'river', role: 'img', 'aria-label': 'Lanes of all streams; the table below says the same' });
    this.holder = el('div', { class: 'river-holder', tabindex: '0', 'aria-label': 'River' }, this.canvas);
    this.summary = el('p', { class: 'summary', role: 'status' });
    this.table = el('tbody', {});
    this.root = el('section', { class: 'view river-view', 'aria-label': 'River' },
      el('div', { class: 'bar' }, el('h1', {}, 'River'), this.summary),
      el('details', { class: 'quiet' }, el('summary', {}, 'What this shows'),
        el('p', {}, 'A lane is a stream. A mark is a frame with tokens that the socket took, a gap is a stall, and its color says whose. ',
          'The bar at the right is the credit: it sinks as tokens go out and rises when they are acknowledged; an empty one parks the stream. ',
          'With your key you see your own streams, with the scope admin all.')),
      el('ul', { class: 'legend' }, ...STATES.map(([state, name]) => el('li', {}, el('i', { class: `dot ${state}` }), name))),
      this.holder,
      el('div', { class: 'bar' }, loadControls(() => '')),
      el('details', { class: 'lane-table', open: false }, el('summary', {}, 'As a table'),
        el('table', {}, el('thead', {}, el('tr', {}, ...['Stream', 'Model', 'State', 'Tokens', 'Credit'].map((name) => el('th', { scope: 'col' }, name)))), this.table)));
    this.canvas.addEventListener('click', (/** @type {MouseEvent} */ event) => {
      const lane = this.#lanes.all[Math.floor(event.offsetY / LANE_PX)];
      if (lane) location.hash = `#stream/${lane.id}`;
    });
  }

  show() {
    if (this.#isShown) return;
    this.#isShown = true;
    this.#abort = new AbortController();
    this.#colors = Object.fromEntries(['text', 'quiet', 'line', ...STATES.map(([state]) => state)].map((name) => [name, color(name)]));
    void this.#poll(this.#abort.signal);
    void this.#followFeed(this.#abort.signal);
    this.#frame();
  }

  hide() {
    this.#isShown = false;
    this.#abort.abort();
  }

  /** @param {AbortSignal} signal */
  async #poll(signal) {
    while (!signal.aborted) {
      try {
        const streams = await this.#listStreams(signal);
        this.#lanes.takeList(streams, performance.now());
        this.#showSummary('');
      } catch (error) {
        if (!signal.aborted) this.#showSummary(error instanceof Error ? error.message : String(error));
      }
      this.#showTable();
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** The streams from the first one on that has not ended. @param {AbortSignal} signal */
  async #listStreams(signal) {
    const all = [];
    for (let after = this.#firstCursor; all.length < LANES_MAX; ) {
      const page = await callJson('GET', `/v1/streams?limit=100&after=${after}`, { signal });
      all.push(...page.data);
      if (!page.has_more) break;
      after = page.next;
    }
    const firstOpen = all.findIndex((stream) => stream.state !== 'ended');
    const before = firstOpen < 0 ? all.length - 1 : firstOpen - 1;
    const known = new Set(this.#lanes.all.map((lane) => lane.id));
    // Ended streams are read once more, so that their lanes end.
    if (before >= 0 && all.slice(0, before + 1).every((stream) => !known.has(stream.id))) this.#firstCursor = all[before].cursor;
    return all;
  }

  /** @param {AbortSignal} signal */
  async #followFeed(signal) {
    while (!signal.aborted) {
      try {
        const response = await call('GET', '/v1/streams/feed', { signal });
        const reader = /** @type {ReadableStream<any>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
        const parser = new EventParser();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          for (const event of parser.push(value)) this.#lanes.takeEvent(JSON.parse(event.data), performance.now());
        }
      } catch {
        // The lists say the same, a little later.
      }
      await new Promise((resolve) => setTimeout(resolve, FEED_RETRY_MS));
    }
  }

  /** @param {string} error */
  #showSummary(error) {
    const lanes = this.#lanes.all;
    const count = (/** @type {string[]} */ ...states) => lanes.filter((lane) => states.includes(lane.state)).length;
    const parked = count('credit', 'detached', 'pages', 'place', 'paused');
    const whose = apiKey.get() ? ' of this key, or of all with the scope admin' : '';
    fill(this.summary, error || (lanes.length === 0
      ? `No streams now${whose}. Ask something in the chat, or start a load below.`
      : `${lanes.length} streams: ${count('running')} running, ${count('prefilling')} prefilling, ${count('queued')} queued, ${parked} parked`));
  }

  #showTable() {
    if (!this.table.parentElement?.parentElement?.open) return;
    const now = performance.now();
    fill(this.table, ...this.#lanes.all.slice(0, ROWS_MAX).map((lane) => el('tr', {},
      el('td', {}, el('a', { href: `#stream/${lane.id}` }, lane.id.slice(0, 8))), el('td', {}, lane.model), el('td', {}, labelOf(lane, now)),
      el('td', {}, String(lane.tokens)), el('td', {}, `${Math.round(lane.credit * 100)} %`))));
  }

  #frame() {
    if (!this.#isShown) return;
    requestAnimationFrame(() => {
      this.#draw(performance.now());
      this.#frame();
    });
  }

  /** @param {number} now */
  #draw(now) {
    const lanes = this.#lanes.all;
    const width = this.holder.clientWidth;
    const height = Math.max(1, lanes.length) * LANE_PX;
    const scale = Math.min(2, devicePixelRatio || 1);
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    // Only lanes that are in sight are drawn.
    const first = Math.floor(this.holder.scrollTop / LANE_PX);
    const last = Math.min(lanes.length, first + Math.ceil(this.holder.clientHeight / LANE_PX) + 1);
    for (let at = first; at < last; at += 1) this.#drawLane(context, lanes[at], at * LANE_PX, width, now);
  }

  /** @param {CanvasRenderingContext2D} context @param {import('./lanes.js').Lane} lane @param {number} top @param {number} width @param {number} now */
  #drawLane(context, lane, top, width, now) {
    const narrow = width < 560;
    const label = narrow ? 96 : LABEL_PX;
    const [left, right] = [label, width - CREDIT_PX - 12];
    const x = (/** @type {number} */ time) => right - ((now - time) / WINDOW_MS) * (right - left);
    const middle = top + LANE_PX / 2;
    const segments = lane.segments;
    const end = lane.endedAt || now;
    segments.forEach((segment, at) => {
      const from = Math.max(left, x(segment.time));
      const to = Math.min(right, x(segments[at + 1]?.time ?? end));
      if (to <= from || segment.state === 'ended' || segment.state === 'failed') return;
      context.globalAlpha = segment.state === 'running' ? 0.22 : 0.45;
      context.fillStyle = this.#colors[segment.state];
      context.fillRect(from, middle - 8, to - from, 16);
    });
    context.globalAlpha = 1;
    context.fillStyle = this.#colors.running;
    for (const tick of lane.ticks) {
      // The frames of one look stand beside each other over the time since the look before.
      const [to, step] = [x(tick.time), ((POLL_MS / WINDOW_MS) * (right - left)) / tick.count];
      for (let one = 0; one < Math.min(tick.count, 40); one += 1) {
        const at = to - one * Math.max(step, 1.6);
        if (at >= Math.max(left, x(segments[0].time)) && at <= right) context.fillRect(at, middle - 7, 1.2, 14);
      }
    }
    if (lane.endedAt && x(lane.endedAt) >= left) {
      context.fillStyle = this.#colors[lane.state];
      context.fillRect(x(lane.endedAt) - 1.5, middle - 10, 3, 20);
    }
    this.#drawLabel(context, lane, middle, label, now, narrow);
    this.#drawCredit(context, lane, middle, right + 12);
  }

  /** @param {CanvasRenderingContext2D} context @param {import('./lanes.js').Lane} lane @param {number} middle @param {number} label @param {number} now @param {boolean} narrow */
  #drawLabel(context, lane, middle, label, now, narrow) {
    context.textBaseline = 'middle';
    context.font = '12px ui-monospace, monospace';
    context.fillStyle = this.#colors.text;
    context.fillText(lane.id.slice(0, 6), 4, middle);
    context.font = '12px system-ui, sans-serif';
    context.fillStyle = stallOf(lane, now) ? this.#colors[lane.state] : this.#colors.quiet;
    const text = labelOf(lane, now);
    context.fillText(narrow ? text.slice(0, 7) : text, 56, middle, label - 62);
  }

  /** @param {CanvasRenderingContext2D} context @param {import('./lanes.js').Lane} lane @param {number} middle @param {number} left */
  #drawCredit(context, lane, middle, left) {
    context.strokeStyle = this.#colors.line;
    context.strokeRect(left + 0.5, middle - 5.5, CREDIT_PX - 8, 11);
    context.fillStyle = lane.credit < 0.25 ? this.#colors.credit : this.#colors.running;
    context.globalAlpha = 0.8;
    context.fillRect(left + 2, middle - 4, (CREDIT_PX - 11) * lane.credit, 8);
    context.globalAlpha = 1;
  }
}
