// The river: one lane for each stream, drawn on a canvas, and the same as a table for those who read.

import { apiKey, call, reasonOf } from './api.js';
import { Lanes, STATES, StreamList, labelOf, laneColors } from './lanes.js';
import { breakPanel, loadControls } from './break_panel.js';
import { button, color, el, fill } from './dom.js';
import { RiverCanvas, rowPixels } from './river_canvas.js';
import { EventParser } from './sse.js';

const POLL_MS = 400;
/** Pixels of the canvas in one of the page. */
const SCALE_MAX = 2;
/** Rows of the table. */
const ROWS_MAX = 100;
const FEED_RETRY_MS = 2000;

export class RiverView {
  #lanes = new Lanes();
  #isShown = false;
  #abort = new AbortController();
  #list = new StreamList();
  #rows = -1;
  #scale = 0;
  #scrollTop = 0;
  #back = '';
  /** @type {RiverCanvas} */
  #picture;

  /** @param {import('./chat_view.js').ChatView} chat Whose answers “Break it” acts on. */
  constructor(chat) {
    this.chat = chat;
    /** @type {HTMLElement | null} Made once. */
    this.breakPanel = null;
    this.canvas = el('canvas', { class: 'river', role: 'img', 'aria-label': 'Lanes of all streams; the table below says the same' });
    this.#picture = new RiverCanvas(this.canvas, POLL_MS);
    this.space = el('div', {}, this.canvas);
    this.holder = el('div', { class: 'river-holder', hidden: true, tabindex: '0', 'aria-label': 'River' }, this.space);
    this.opener = button('Break it', () => this.#toggleBreak(), { 'aria-expanded': 'false' });
    this.side = el('div', { hidden: true });
    this.summary = el('p', { class: 'summary', role: 'status' });
    this.table = el('tbody', {});
    this.root = el('section', { class: 'view river-view', 'aria-label': 'River' },
      el('div', { class: 'bar' }, el('h1', {}, 'River'), this.opener, this.summary), this.side,
      el('details', { class: 'quiet' }, el('summary', {}, 'What this shows'),
        el('p', {}, 'A lane is a stream. A mark is a frame with tokens that the socket took, a gap is a stall, and its color says whose. ',
          'The bar at the right is the credit: it sinks as tokens go out and rises when they are acknowledged; an empty one parks the stream. ',
          'With your key you see your own streams, with the scope admin all.')),
      el('ul', { class: 'legend' }, ...STATES.map(([state, name]) => el('li', {}, el('i', { class: `dot ${state}` }), name))),
      this.holder,
      el('div', { class: 'bar' }, loadControls(() => this.chat.conversation.model)),
      el('details', { class: 'lane-table', open: false }, el('summary', {}, 'As a table'),
        el('table', {}, el('thead', {}, el('tr', {}, ...['Stream', 'Model', 'State', 'Tokens', 'Credit'].map((name) => el('th', { scope: 'col' }, name)))), this.table)));
    this.canvas.addEventListener('click', (/** @type {MouseEvent} */ event) => {
      const lane = this.#lanes.all[Math.floor((event.offsetY + this.#scrollTop) / (rowPixels(this.#scale) / this.#scale))];
      if (lane) location.hash = `#stream/${lane.id}`;
    });
    this.holder.addEventListener('scroll', () => {
      this.#scrollTop = this.holder.scrollTop;
    }, { passive: true });
    new ResizeObserver(() => {
      this.#rows = -1;
    }).observe(this.holder);
  }

  #toggleBreak() {
    this.side.hidden = !this.side.hidden;
    this.opener.setAttribute('aria-expanded', String(!this.side.hidden));
    fill(this.side, (this.breakPanel ??= breakPanel(this.chat)));
  }

  show() {
    if (this.#isShown) return;
    this.#isShown = true;
    this.#abort = new AbortController();
    this.#takeColors();
    void this.#poll(this.#abort.signal);
    void this.#followFeed(this.#abort.signal);
    this.#frame();
  }

  hide() {
    this.#isShown = false;
    this.#abort.abort();
  }

  /** The page's colors, which may become others while the river is shown. */
  #takeColors() {
    const back = color('front');
    if (back === this.#back) return;
    this.#back = back;
    this.#picture.setColors(laneColors());
  }

  /** @param {AbortSignal} signal */
  async #poll(signal) {
    while (!signal.aborted) {
      this.#takeColors();
      try {
        const known = new Set(this.#lanes.all.map((lane) => lane.id));
        // Ended streams are read once more, so that their lanes end.
        const streams = await this.#list.read({ signal, isAwaited: (id) => known.has(id) });
        this.#lanes.takeList(streams, performance.now());
        this.#showSummary('');
      } catch (error) {
        if (!signal.aborted) this.#showSummary(reasonOf(error));
      }
      this.#showTable();
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
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

  #frame = () => {
    if (!this.#isShown) return;
    const rows = this.#lanes.all.length;
    const scale = Math.min(SCALE_MAX, devicePixelRatio || 1);
    if (rows !== this.#rows || scale !== this.#scale) this.#fit(rows, scale);
    this.#picture.draw(this.#lanes, performance.now(), this.#scrollTop);
    requestAnimationFrame(this.#frame);
  };

  /** The canvas is as large as what is in sight of the lanes. @param {number} rows @param {number} scale */
  #fit(rows, scale) {
    [this.#rows, this.#scale] = [rows, scale];
    this.holder.hidden = rows === 0;
    if (rows === 0) return;
    const height = (rows * rowPixels(scale)) / scale;
    this.space.style.height = `${height}px`;
    this.#picture.resize(this.space.clientWidth, Math.min(height, this.holder.clientHeight), scale);
  }
}
