// The lane of the answer that is read badly, beside the buttons that do it: its credit sinks, it is parked, and it goes on. Without
// an answer there is a button that asks for one.

import { callJson } from './api.js';
import { duration, el, fill } from './dom.js';
import { Lanes, labelOf } from './lanes.js';
import { RiverCanvas, rowPixels } from './river_canvas.js';
import { laneColors } from './river_colors.js';

const POLL_MS = 300;
const SCALE_MAX = 2;

export class BreakLane {
  #lanes = new Lanes();
  #id = '';
  #isDrawn = false;

  /** @param {() => string} running Id of the stream that is read; empty without one. @param {HTMLElement} ask Asks for an answer; shown while there is none. */
  constructor(running, ask) {
    this.running = running;
    this.ask = ask;
    this.canvas = el('canvas', { class: 'river', hidden: true, role: 'img', 'aria-label': 'Lane of the answer; the line below says the same' });
    this.picture = new RiverCanvas(this.canvas, POLL_MS);
    this.line = el('p', { class: 'summary' });
    this.root = el('div', { class: 'break-lane' }, this.canvas, this.line);
    this.#showNone();
    void this.#keepUp();
  }

  async #keepUp() {
    for (;;) {
      if (this.root.isConnected) await this.#look().catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** There is no lane: no canvas, but a way to one. */
  #showNone() {
    this.canvas.hidden = true;
    fill(this.line, 'No answer of the chat is being generated. ', this.ask);
  }

  async #look() {
    // An answer that has ended keeps its lane until the next one.
    const id = this.running() || this.#id;
    if (!id) return;
    if (id !== this.#id) [this.#id, this.#lanes] = [id, new Lanes()];
    const stream = await callJson('GET', `/v1/streams/${id}`);
    this.#lanes.takeList([stream], performance.now());
    const [lane] = this.#lanes.all;
    if (!lane) {
      this.#id = '';
      this.#showNone();
      return;
    }
    const { parks, stall_ms: stalled } = stream.measures;
    const times = parks > 0 ? ` · parked ${parks}×, ${duration(stalled)} in all` : '';
    fill(this.line, el('strong', {}, labelOf(lane, performance.now())), ` · credit ${Math.round(lane.credit * 100)} % · ${lane.tokens} tokens${times}`);
    if (!this.#isDrawn) this.#begin();
  }

  #begin() {
    this.#isDrawn = true;
    this.canvas.hidden = false;
    const scale = Math.min(SCALE_MAX, devicePixelRatio || 1);
    this.picture.setColors(laneColors());
    this.picture.resize(this.root.clientWidth, rowPixels(scale) / scale, scale);
    this.#frame();
  }

  #frame = () => {
    this.#isDrawn = this.root.isConnected && this.#lanes.all.length > 0;
    if (!this.#isDrawn) return;
    this.picture.draw(this.#lanes, performance.now(), 0);
    requestAnimationFrame(this.#frame);
  };
}
