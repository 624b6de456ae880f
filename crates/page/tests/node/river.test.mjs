// The picture of the river: what a frame adds to the one before is what drawing everything anew gives.
//
// Promise (The web page): the river as it grows frame by frame is the picture that is drawn at once.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Lanes } from '../../files/lanes.js';
import { RiverCanvas, WINDOW_MS, rowPixels } from '../../files/river_canvas.js';

const POLL_MS = 400;
const COLORS = Object.fromEntries(['front', 'text', 'quiet', 'line', 'queued', 'prefilling', 'running', 'credit', 'detached', 'pages', 'place', 'paused', 'ended', 'failed'].map((name) => [name, name]));

/** A canvas whose pixels are the colors that lie on each other there. Text is one pixel with the words. */
class FakeCanvas {
  style = {};
  rectangles = 0;
  #size = { width: 1, height: 1 };
  fillStyle = '';
  globalAlpha = 1;

  constructor() {
    this.#clear();
  }

  get width() {
    return this.#size.width;
  }

  set width(width) {
    this.#size.width = width;
    this.#clear();
  }

  get height() {
    return this.#size.height;
  }

  set height(height) {
    this.#size.height = height;
    this.#clear();
  }

  #clear() {
    this.pixels = Array.from({ length: this.height }, () => Array(this.width).fill(''));
  }

  getContext() {
    return this;
  }

  fillRect(x, y, width, height) {
    for (const number of [x, y, width, height]) assert.ok(Number.isInteger(number), `${x} ${y} ${width} ${height} are whole pixels`);
    this.rectangles += 1;
    for (const row of this.pixels.slice(Math.max(0, y), Math.max(0, y + height))) {
      for (let at = Math.max(0, x); at < Math.min(x + width, row.length); at += 1) {
        row[at] = this.globalAlpha === 1 ? this.fillStyle : `${row[at]}+${this.fillStyle}${this.globalAlpha}`;
      }
    }
  }

  fillText(text, x, y) {
    if (this.pixels[y]) this.pixels[y][Math.round(x)] = `“${text}” ${this.fillStyle}`;
  }

  drawImage(from, x, y, width, height, toX, toY) {
    assert.equal(from, this);
    assert.deepEqual([y, toY, height], [0, 0, this.height]);
    for (const row of this.pixels) row.splice(toX, width, ...row.slice(x, x + width));
  }
}

function picture(width, height, scale) {
  const made = new RiverCanvas(new FakeCanvas(), POLL_MS);
  made.setColors(COLORS);
  made.resize(width, height, scale);
  return made;
}

/** Random numbers from 0 to 1. */
function generator(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Streams that begin, run, wait for their readers, and end, as lists of `/v1/streams` have them. */
class Streams {
  #next = 0;
  all = [];

  constructor(random, count) {
    this.random = random;
    for (let at = 0; at < count; at += 1) this.#open();
  }

  #open() {
    this.#next += 1;
    const stream = { id: `stream-${this.#next}`, model: 'm', priority: 'normal', state: 'queued', position: 1, attached: true, credit_window: 100 };
    this.all.push({ ...stream, completion_tokens: 0, prompt_tokens: 10, prompt_done: 0, choices: [{ unaccepted: 0 }], measures: { socket: { frames: 0 } } });
  }

  list() {
    for (const stream of this.all) {
      const chance = this.random();
      if (stream.state === 'ended') continue;
      if (chance < 0.02) Object.assign(stream, { state: 'ended', choices: [{ unaccepted: 0, end: chance < 0.01 ? 'failed' : 'eos' }] });
      else if (chance < 0.1) Object.assign(stream, { state: 'parked', parked: 'credit' });
      else if (chance < 0.3) Object.assign(stream, { state: 'running' });
      if (stream.state !== 'running') continue;
      stream.measures.socket.frames += Math.floor(this.random() * 60);
      stream.choices[0].unaccepted = Math.floor(this.random() * 100);
    }
    if (this.random() < 0.1) this.#open();
    return structuredClone(this.all);
  }
}

test('a picture that grew frame by frame is the one that is drawn at once', () => {
  for (const [width, height, scale] of [[600, 60, 1], [600, 40, 2], [300, 70, 1.5]]) {
    const random = generator(width * scale);
    const streams = new Streams(random, 6);
    const lanes = new Lanes();
    const grown = picture(width, height, scale);
    let [now, top, read] = [5000, 0, 0];
    for (let frame = 0; frame < 400; frame += 1) {
      now += 8 + random() * 60;
      if (now - read > POLL_MS) {
        lanes.takeList(streams.list(), now - 1);
        read = now;
      }
      const some = streams.all[Math.floor(random() * streams.all.length)];
      if (random() < 0.05) lanes.takeEvent({ type: 'parked', reason: 'pages', stream: some.id }, now - 0.5);
      if (random() < 0.02) top = Math.floor(random() * 60);
      grown.draw(lanes, now, top);
      if (frame % 13) continue;
      const whole = picture(width, height, scale);
      whole.draw(lanes, now, top);
      // Labels are looked at a few times a second only; what is before and behind them must not differ.
      const left = Math.round((width < 560 ? 96 : 210) * scale);
      whole.canvas.pixels.forEach((row, y) => row.forEach((pixel, x) => {
        if (x >= left && pixel !== grown.canvas.pixels[y][x]) assert.fail(`${width} ${scale}, frame ${frame}, ${x} ${y}: ${grown.canvas.pixels[y][x]} in place of ${pixel}`);
      }));
    }
  }
});

test('a frame in which nothing is new draws nothing, and a usual one a small part of the picture', () => {
  const lanes = new Lanes();
  const streams = new Streams(generator(1), 200);
  const grown = picture(900, 26 * 20, 1);
  let now = 1000;
  for (; now < WINDOW_MS + 1000; now += POLL_MS) lanes.takeList(streams.list(), now);
  const rectangles = (/** @type {RiverCanvas} */ one, at) => {
    const before = one.canvas.rectangles;
    one.draw(lanes, at, 0);
    return one.canvas.rectangles - before;
  };
  const whole = rectangles(grown, now);
  assert.equal(rectangles(grown, now + 0.001), 0);
  const part = rectangles(grown, now + 90);
  assert.ok(part > 0 && part * 4 < whole, `${part} of ${whole}`);
});

test('rows have whole pixels', () => {
  assert.deepEqual([1, 1.25, 1.5, 2].map(rowPixels), [26, 33, 39, 52]);
});
