// The lane of the answer that is read badly, next to the buttons that do it: its credit sinks, it is parked, and it resumes. Without
// an answer there is a button that asks for one.

import { callJson } from './api.js';
import { duration, el, fill } from './dom.js';
import { Lanes, labelOf, laneColors } from './lanes.js';
import { RiverCanvas, rowPixels } from './river_canvas.js';

const POLL_MS = 300;
const SCALE_MAX = 2;

export class BreakLane {
  #lanes = new Lanes();
  #id = '';
  /** The stream whose lane was shown until some time after its end. */
  #gone = '';
  #isDrawn = false;

  /** @param {() => string} latest Id of the latest answer's stream; empty without one. @param {HTMLElement} ask Asks for an answer; shown while there is none. */
  constructor(latest, ask) {
    this.latest = latest;
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
    const id = this.latest();
    if (!id || id === this.#gone) return;
    const stream = await callJson('GET', `/v1/streams/${id}`);
    if (id !== this.#id) {
      [this.#id, this.#lanes] = [id, new Lanes()];
      // The answer may have ended before the first look.
      this.#lanes.add({ ...stream, state: 'running', completion_tokens: 0 }, performance.now());
    }
    this.#lanes.takeList([stream], performance.now());
    const [lane] = this.#lanes.all;
    if (!lane) {
      this.#gone = id;
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
