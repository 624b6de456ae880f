// One prompt, several models or settings, under each other: when the tokens came, and what they say.

import { applyEvent, newAnswer, textOf } from './answer.js';
import { call, reasonOf } from './api.js';
import { button, color, duration, el, field, fill } from './dom.js';
import { MarkdownView } from './markdown_view.js';
import { StreamReader } from './stream_reader.js';

/** A browser has six connections to a server, and other tabs need some. */
const LANES_MAX = 4;
const CHOICES_MAX = 8;

export class CompareView {
  /** @type {Run[]} */
  #runs = [];

  /** @param {import('./models.js').ModelList} models */
  constructor(models) {
    this.models = models;
    this.prompt = el('textarea', { rows: '3', value: 'Tell me about rivers.', dir: 'auto' });
    this.settings = el('div', { class: 'lane-settings' });
    this.results = el('div', { class: 'compare-results' });
    this.choices = el('input', { type: 'number', min: '1', max: String(CHOICES_MAX), value: '1' });
    this.tokens = el('input', { type: 'number', min: '1', max: '4096', value: '128' });
    this.root = el('section', { class: 'view compare', 'aria-label': 'Compare' },
      el('div', { class: 'bar' }, el('h1', {}, 'Compare')),
      el('div', { class: 'panel' }, field('Prompt', this.prompt), this.settings,
        el('div', { class: 'row wrap' },
          field('Tokens', this.tokens), field('Choices of each (n)', this.choices),
          button('Add a lane', () => this.#addLane('1')), button('Run', () => this.run(), { class: 'primary' }),
          button('Stop', () => this.stop()))),
      this.results);
  }

  show() {
    if (this.settings.children.length === 0) ['0', '1'].forEach((temperature) => this.#addLane(temperature));
  }

  hide() {}

  /** @param {string} temperature */
  #addLane(temperature) {
    if (this.settings.children.length >= LANES_MAX) return;
    const models = this.models.chatting.map((model) => el('option', { value: model.id }, this.models.label(model.id)));
    const row = el('div', { class: 'row wrap lane-setting' },
      field('Model', el('select', {}, ...models)),
      field('Temperature', el('input', { type: 'number', min: '0', max: '2', step: '0.1', value: temperature })),
      button('Remove', () => row.remove(), { 'aria-label': 'Remove this lane' }));
    this.settings.append(row);
  }

  run() {
    this.stop();
    const n = Math.min(CHOICES_MAX, Math.max(1, Number(this.choices.value) || 1));
    this.#runs = [...this.settings.children].map((row) => {
      const [model, temperature] = [row.querySelector('select').value, Number(row.querySelector('input').value)];
      return new Run({ model, temperature, n, max_tokens: Number(this.tokens.value) || 128, prompt: this.prompt.value });
    });
    fill(this.results, ...this.#runs.map((run) => run.root));
    const begun = performance.now();
    const runs = this.#runs;
    for (const run of runs) void run.start(begun);
    const draw = () => {
      const longest = Math.max(1000, ...runs.map((run) => run.lastAt));
      runs.forEach((run) => run.draw(longest));
      if (runs === this.#runs && runs.some((run) => !run.isDone)) requestAnimationFrame(draw);
    };
    draw();
  }

  stop() {
    this.#runs.forEach((run) => run.stop());
  }
}

/** One lane: a request with `n` choices. */
class Run {
  isDone = false;
  lastAt = 0;

  /** @param {{model: string, temperature: number, n: number, max_tokens: number, prompt: string}} request */
  constructor(request) {
    this.request = request;
    this.answers = Array.from({ length: request.n }, () => newAnswer());
    this.times = this.answers.map(() => /** @type {number[]} */ ([]));
    this.measures = el('span', { class: 'measures' });
    this.canvas = el('canvas', { class: 'strip', height: String(14 * request.n + 8), role: 'img', 'aria-label': 'Tokens over time' });
    this.error = el('div', { class: 'error', role: 'alert', hidden: true });
    const texts = this.answers.map(() => el('div', { class: 'markdown choice', dir: 'auto' }));
    this.views = texts.map((text) => new MarkdownView(text));
    this.root = el('article', { class: 'panel run' },
      el('header', {}, el('strong', {}, `${request.model} · temperature ${request.temperature}`), this.measures),
      this.canvas, this.error, el('div', { class: 'fan' }, ...texts));
  }

  /** @param {number} begun */
  async start(begun) {
    const { model, temperature, n, max_tokens, prompt } = this.request;
    const body = { model, temperature, n, max_tokens, stream: true, messages: [{ role: 'user', content: prompt }] };
    this.reader = new StreamReader({
      open: async (signal) => {
        const opened = await call('POST', '/v1/chat/completions', { body, signal, headers: { 'x-stream-resumable': '1' } });
        await opened.body?.cancel();
        const id = opened.headers.get('x-stream-id') ?? '';
        return call('GET', `/v1/streams/${id}/events?dialect=native.job&govern=1`, { signal });
      },
      govern: true,
      onEvent: (event) => this.#take(event, performance.now() - begun),
    });
    try {
      await this.reader.run();
    } catch (error) {
      this.error.hidden = false;
      this.error.textContent = reasonOf(error);
    }
    this.isDone = true;
  }

  stop() {
    if (this.isDone) return;
    const id = this.reader?.id;
    if (id) void call('DELETE', `/v1/streams/${id}`).catch(() => {});
    else this.reader?.stop();
  }

  /** @param {any} event @param {number} at */
  #take(event, at) {
    const choice = event.choice ?? 0;
    const answer = this.answers[choice];
    if (!answer) return;
    applyEvent(answer, event, Date.now());
    if (event.type !== 'token') return;
    for (let one = 0; one < (event.n ?? 1); one += 1) this.times[choice].push(at);
    this.lastAt = Math.max(this.lastAt, at);
    this.views[choice].show(textOf(answer.parts, 'content'));
  }

  /** @param {number} longest Milliseconds over the width. */
  draw(longest) {
    const first = Math.min(...this.times.map((times) => times[0] ?? Infinity));
    const gaps = this.times.flatMap((times) => times.slice(1).map((time, at) => time - times[at])).sort((a, b) => a - b);
    const mean = gaps.reduce((sum, gap) => sum + gap, 0) / Math.max(1, gaps.length);
    const facts = [Number.isFinite(first) ? `first token ${duration(first)}` : 'waiting'];
    if (gaps.length > 0) facts.push(`between tokens ${mean.toFixed(1)} ms, 95 % under ${gaps[Math.floor(gaps.length * 0.95)].toFixed(0)} ms`);
    facts.push(`${this.answers.reduce((sum, answer) => sum + answer.tokens, 0)} tokens`);
    this.measures.textContent = facts.join(' · ');
    const { canvas } = this;
    if (canvas.width !== canvas.clientWidth) canvas.width = canvas.clientWidth || 300;
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    context.clearRect(0, 0, canvas.width, canvas.height);
    this.times.forEach((times, choice) => {
      const top = 4 + choice * 14;
      context.fillStyle = color('line');
      context.fillRect(0, top + 5, canvas.width, 1);
      context.fillStyle = color('running');
      for (const time of times) context.fillRect((time / longest) * (canvas.width - 2), top, 1.5, 11);
      context.fillStyle = color('prefilling');
      if (times.length > 0) context.fillRect((times[0] / longest) * (canvas.width - 2), top - 1, 3, 13);
    });
  }
}
