// The models of the server, and the way to another one: pick, pull, chat.

import { call, callJson, readLines, reasonOf } from './api.js';
import { announce, button, el, field, fill } from './dom.js';
import { TOY, otherUse } from './models.js';

/** Names that the server knows, with the size of the download. */
const OFFERED = /** @type {[string, string, string][]} */ ([
  ['qwen3:0.6b', '0.6 GB', 'small and quick, reasons'],
  ['qwen3.5:0.8b', '0.8 GB', 'small, newer'],
  ['llama3.2:1b', '0.8 GB', 'a good start on two cores'],
  ['qwen3:1.7b', '1.8 GB', 'reasons, calls tools'],
  ['qwen3:4b', '2.5 GB', 'the best of these'],
]);
const LOADING_EACH_MS = 1000;

export class ModelsView {
  #isShown = false;

  /** @param {import('./models.js').ModelList} models @param {(model: string) => void} chatWith */
  constructor(models, chatWith) {
    this.models = models;
    this.chatWith = chatWith;
    this.list = el('div', { class: 'cards' });
    this.pulls = el('div', {});
    this.name = el('input', { type: 'text', placeholder: 'qwen3:4b, or hf.co/OWNER/NAME:Q4_K_M', spellcheck: 'false', autocapitalize: 'off' });
    this.root = el('section', { class: 'view models', 'aria-label': 'Models' },
      el('div', { class: 'bar' }, el('h1', {}, 'Models')), this.list,
      el('div', { class: 'panel' }, el('h2', {}, 'Get a model'),
        el('p', { class: 'quiet' }, 'Fetched by the server from Hugging Face, with checked hashes; a download that breaks off goes on.'),
        el('div', { class: 'cards' }, ...OFFERED.map(([name, size, what]) => el('div', { class: 'card' },
          el('strong', {}, name), el('span', { class: 'quiet' }, `${size}, ${what}`), button('Pull', () => void this.#pull(name), { 'aria-label': `Pull ${name}` })))),
        el('div', { class: 'row wrap' }, field('Another one', this.name), button('Pull', () => void this.#pull(this.name.value.trim()))), this.pulls));
    models.addEventListener('change', () => this.#isShown && this.#render());
  }

  async show() {
    this.#isShown = true;
    this.#render();
    while (this.#isShown) {
      await this.models.refresh();
      await this.#showLoading();
      await new Promise((resolve) => setTimeout(resolve, LOADING_EACH_MS));
    }
  }

  hide() {
    this.#isShown = false;
  }

  #render() {
    const error = this.models.error ? el('div', { class: 'error', role: 'alert' }, this.models.error) : null;
    fill(this.list, error, ...this.models.all.map((model) => el('div', { class: 'card', 'data-model': model.id },
      el('strong', {}, model.id),
      el('span', { class: 'quiet' }, [model.state ?? 'in memory', model.max_model_len ? `context of ${model.max_model_len} tokens` : '', model.id === TOY ? 'the built-in toy' : '', model.capabilities?.includes('vision') ? 'vision' : '', otherUse(model)].filter(Boolean).join(', ')),
      el('progress', { max: '100', hidden: true, 'aria-label': `Loading ${model.id}` }),
      otherUse(model) ? null : button('Chat', () => this.chatWith(model.id), { 'aria-label': `Chat with ${model.id}` }))));
  }

  async #showLoading() {
    const report = await callJson('GET', '/v1/loading/progress').catch(() => null);
    if (!report || report.percent === null || report.percent === undefined || report.percent >= 100) return;
    for (const card of this.list.children) {
      const bar = card.querySelector('progress');
      if (card.dataset.model !== report.model || !bar) continue;
      bar.hidden = false;
      bar.value = report.percent;
    }
  }

  /** @param {string} name */
  async #pull(name) {
    if (!name) return;
    const status = el('span', { role: 'status' }, 'asking');
    const bar = el('progress', { max: '1', value: '0', 'aria-label': `Download of ${name}` });
    const abort = new AbortController();
    const stop = button('Stop', () => abort.abort());
    const row = el('div', { class: 'card pull' }, el('strong', {}, name), bar, status, stop);
    this.pulls.append(row);
    try {
      const response = await call('POST', '/api/pull', { body: { model: name }, signal: abort.signal });
      let last = '';
      await readLines(response, (line) => {
        if (line.error) throw new Error(line.error);
        last = line.status;
        if (line.total) bar.value = (line.completed ?? 0) / line.total;
        status.textContent = line.total ? `${line.status}: ${megabytes(line.completed ?? 0)} of ${megabytes(line.total)}` : line.status;
      });
      if (last !== 'success') throw new Error('the download broke off; pull again to go on');
      announce(`${name} is here`);
      await this.models.refresh();
      stop.replaceWith(button('Chat with it', () => this.chatWith(name), { class: 'primary' }));
    } catch (error) {
      status.textContent = abort.signal.aborted ? 'stopped; pull again to go on' : reasonOf(error);
      stop.replaceWith(button('Pull again', () => { row.remove(); void this.#pull(name); }));
    }
  }
}

/** @param {number} bytes */
function megabytes(bytes) {
  return `${Math.round(bytes / 1e6)} MB`;
}
