// One stream opened: its replay, its bytes in every format, and what can be changed while it runs.

import { callJson, reasonOf } from './api.js';
import { announce, button, color, duration, el, field, fill } from './dom.js';
import { MarkdownView } from './markdown_view.js';
import { Recording } from './recording.js';
import { StreamReader } from './stream_reader.js';
import { queueAhead, streamLines } from './waiting.js';
import { wireFormats } from './wire_formats.js';

const LOOK_MS = 1000;
const SPEEDS = [1, 2, 5, 10, 20];

export class StreamView {
  /** @param {import('./store.js').ConversationStore} store */
  constructor(store) {
    this.store = store;
    this.root = el('section', { class: 'view stream-view', 'aria-label': 'Stream' });
    /** @type {StreamReader | null} */
    this.reader = null;
    this.#abort = new AbortController();
  }

  #abort;

  /** @param {string} id */
  async show(id) {
    this.hide();
    this.#abort = new AbortController();
    const facts = el('div', { class: 'facts' });
    const replay = new Replay();
    const controls = el('div', {});
    const text = el('div', { class: 'panel' }, replay.root);
    const formats = el('div', { class: 'panel' });
    fill(this.root, el('div', { class: 'bar' }, el('h1', {}, 'Stream ', el('code', {}, id.slice(0, 12)))), facts, controls, text, formats);
    try {
      const stream = await callJson('GET', `/v1/streams/${encodeURIComponent(id)}`);
      fill(controls, controlPanel(id));
      fill(formats, wireFormats(id));
      void this.#keepFacts(facts, id, this.#abort.signal);
      await this.#read(id, stream, replay);
    } catch (error) {
      fill(facts, el('div', { class: 'error', role: 'alert' }, reasonOf(error)));
    }
  }

  hide() {
    this.#abort.abort();
    this.reader?.stop();
    this.reader = null;
  }

  /** Attaches to the stream: from the beginning, and then as it grows. @param {string} id @param {any} stream @param {Replay} replay */
  async #read(id, stream, replay) {
    // Tokens that no chat of this browser has read have no times: an even pace of the measured time is shown for them.
    const past = {
      tokens: stream.completion_tokens, meanMs: stream.measures?.inter_token_ms?.mean ?? 20, firstMs: stream.timings_ms?.first_token ?? 0,
      times: this.store.timesOf(stream.id),
    };
    const recording = new Recording(past);
    replay.play(recording);
    this.reader = new StreamReader({
      open: null, id, onEvent: (event) => recording.add(event, performance.now()), onState: (state) => replay.setState(state),
    });
    await this.reader.run();
    recording.isWhole = true;
  }

  /** @param {HTMLElement} facts @param {string} id @param {AbortSignal} signal */
  async #keepFacts(facts, id, signal) {
    while (!signal.aborted) {
      const stream = await callJson('GET', `/v1/streams/${encodeURIComponent(id)}`, { signal }).catch(() => null);
      if (!stream) return;
      const isWaiting = stream.state === 'queued' || stream.state === 'prefilling';
      fill(facts, factList(stream), isWaiting ? el('div', { class: 'waiting' }, ...streamLines(stream, await queueAhead(stream))) : null);
      if (stream.state === 'ended') return;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }
}

/** @param {any} stream */
function factList(stream) {
  const { measures } = stream;
  const ended = stream.choices?.map((/** @type {any} */ choice) => choice.detail ?? choice.end).filter(Boolean).join(', ');
  const rows = [
    ['State', stream.parked ? `${stream.state}: ${stream.parked}` : ended ? `ended: ${ended}` : stream.state],
    ['Model', stream.model],
    ['Format', stream.dialect],
    ['Class', stream.priority],
    ...(stream.key ? [['Key', stream.key]] : []),
    ['Tokens', `${stream.prompt_tokens} prompt (${stream.cached_tokens} cached), ${stream.completion_tokens} answer`],
    ['Queue', measures.queue_wait_ms === null ? '–' : duration(measures.queue_wait_ms)],
    ['First token', stream.timings_ms.first_token === null ? '–' : duration(stream.timings_ms.first_token)],
    ['Engine', measures.inter_token_ms ? `${measures.inter_token_ms.mean.toFixed(1)} ms between tokens, ${measures.inter_token_ms.max.toFixed(0)} at most` : '–'],
    ['Reader', measures.socket.frames ? `${measures.socket.frames} frames, waited ${duration(measures.socket.stall_ms)}` : 'none'],
    ['Parked', `${measures.parks} times, ${duration(measures.stall_ms)}`],
    ['Durable', stream.durable ? 'yes' : 'no'],
  ];
  return el('dl', {}, ...rows.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}

/** @param {string} id @returns {HTMLElement} */
function controlPanel(id) {
  const path = `/v1/streams/${encodeURIComponent(id)}`;
  const told = el('p', { class: 'quiet', role: 'status' });
  /** @param {string} what @param {() => Promise<any>} act */
  const tell = async (what, act) => {
    try {
      await act();
      told.textContent = `${what}: done`;
    } catch (error) {
      told.textContent = `${what}: ${reasonOf(error)}`;
    }
    announce(told.textContent);
  };
  const control = (/** @type {any} */ body) => callJson('POST', `${path}/control`, { body });
  const temperature = el('input', { type: 'number', min: '0', max: '2', step: '0.1', value: '0.7' });
  const words = el('input', { type: 'text', placeholder: ' In short:', dir: 'auto' });
  return el('div', { class: 'panel' }, el('h2', {}, 'While it runs'),
    el('div', { class: 'row wrap' },
      button('Pause', () => void tell('Pause', () => callJson('POST', `${path}/pause`, { body: {} }))),
      button('Resume', () => void tell('Resume', () => callJson('POST', `${path}/resume`, { body: {} }))),
      button('End thinking', () => void tell('End thinking', () => control({ end_thinking: true }))),
      button('Cancel', () => void tell('Cancel', () => callJson('DELETE', path)), { class: 'stop' })),
    el('div', { class: 'row wrap' },
      field('Temperature', temperature), button('Set', () => void tell('Temperature', () => control({ temperature: Number(temperature.value) }))),
      field('Text put into the answer', words), button('Inject', () => void tell('Inject', () => control({ text: words.value })))), told);
}

/** The replay of a recording: a slider over its tokens, at 1 to 20 times the speed. */
class Replay {
  constructor() {
    this.at = 0;
    this.speed = 1;
    this.isPlaying = true;
    this.slider = el('input', { type: 'range', min: '0', max: '1', step: '1', value: '0', 'aria-label': 'Time of the replay', on: { input: () => this.#seek(Number(this.slider.value)) } });
    this.playButton = button('Pause the replay', () => this.#toggle());
    this.speeds = el('select', { 'aria-label': 'Speed', on: { change: () => this.#setSpeed(Number(this.speeds.value)) } },
      ...SPEEDS.map((speed) => el('option', { value: String(speed) }, `${speed}×`)), el('option', { value: 'Infinity', selected: true }, 'live'));
    this.speed = Infinity;
    this.note = el('p', { class: 'quiet' });
    this.strip = el('canvas', { class: 'strip', height: '36', role: 'img', 'aria-label': 'Tokens over time' });
    this.text = el('div', { class: 'markdown', dir: 'auto' });
    this.reasoning = el('div', { class: 'markdown reasoning-text', dir: 'auto' });
    this.root = el('div', {}, el('h2', {}, 'Replay'), el('div', { class: 'row wrap' }, this.playButton, this.speeds, this.slider), this.strip, this.note, this.reasoning, this.text);
  }

  /** @param {Recording} recording */
  play(recording) {
    this.recording = recording;
    this.views = { content: new MarkdownView(this.text), reasoning: new MarkdownView(this.reasoning) };
    this.last = performance.now();
    this.at = 0;
    this.#frame();
  }

  /** @param {string} state */
  setState(state) {
    this.state = state;
  }

  #toggle() {
    this.isPlaying = !this.isPlaying;
    if (this.isPlaying && this.recording && this.at >= this.recording.length) this.at = 0;
    this.playButton.textContent = this.isPlaying ? 'Pause the replay' : 'Play';
  }

  /** @param {number} speed */
  #setSpeed(speed) {
    this.speed = speed;
    const isAtEnd = this.recording !== undefined && this.at >= this.recording.length;
    if (speed !== Infinity && isAtEnd) this.at = 0;
    if (!this.isPlaying) this.#toggle();
  }

  /** @param {number} ms */
  #seek(ms) {
    this.at = ms;
    this.isPlaying = false;
    this.playButton.textContent = 'Play';
  }

  #frame() {
    requestAnimationFrame((now) => {
      if (!this.root.isConnected || !this.recording || !this.views) return;
      const passed = now - (this.last ?? now);
      this.last = now;
      const { length } = this.recording;
      if (this.isPlaying) this.at = Math.min(length, this.speed === Infinity ? length : this.at + passed * this.speed);
      this.slider.max = String(Math.max(1, Math.ceil(length)));
      if (document.activeElement !== this.slider || this.isPlaying) this.slider.value = String(this.at);
      const { content, reasoning, tokens } = this.recording.textAt(this.at);
      this.views.content.show(content);
      this.views.reasoning.show(reasoning);
      this.note.textContent = `${duration(this.at)} of ${duration(length)}, ${tokens} tokens. ${this.recording.note}`;
      this.#drawStrip(length);
      this.#frame();
    });
  }

  /** @param {number} length */
  #drawStrip(length) {
    const { strip } = this;
    const width = strip.clientWidth || 300;
    if (strip.width !== width) strip.width = width;
    const context = /** @type {CanvasRenderingContext2D} */ (strip.getContext('2d'));
    context.clearRect(0, 0, width, 36);
    context.fillStyle = color('running');
    for (const time of this.recording?.times() ?? []) context.fillRect((time / Math.max(1, length)) * (width - 2), 6, 1, 24);
    context.fillStyle = color('text');
    context.fillRect((this.at / Math.max(1, length)) * (width - 2), 0, 2, 36);
  }
}
