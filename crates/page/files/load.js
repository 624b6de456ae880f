// A load generator: clients that ask one after another, each in its own stream.

import { ApiError, call, reasonOf } from './api.js';

export const LOAD_CLIENTS_MAX = 64;
const PROMPTS = ['Tell me about rivers.', 'Tell me a story about a fox.', 'Write about the sea and the wind.'];
const ANSWER_TOKENS = 200;
const LOOK_EACH_MS = 300;
const LOOK_EACH_MS_OF_A_CLIENT = 25;

export class LoadGenerator extends EventTarget {
  #abort = new AbortController();
  isRunning = false;
  #done = 0;
  #rejected = 0;
  #failed = '';
  #tokens = 0;
  #begun = 0;
  #lookEachMs = LOOK_EACH_MS;

  /** @param {string} model @param {number} clients */
  async start(model, clients) {
    this.#abort = new AbortController();
    [this.isRunning, this.#done, this.#rejected, this.#failed, this.#tokens, this.#begun] = [true, 0, 0, '', 0, performance.now()];
    const timer = setInterval(() => this.dispatchEvent(new Event('change')), 500);
    this.#lookEachMs = Math.max(LOOK_EACH_MS, clients * LOOK_EACH_MS_OF_A_CLIENT);
    await Promise.all(Array.from({ length: clients }, (_, at) => this.#client(model, at)));
    clearInterval(timer);
    this.isRunning = false;
    this.dispatchEvent(new Event('change'));
  }

  stop() {
    this.#abort.abort();
  }

  report() {
    if (!this.#begun) return '';
    const seconds = Math.max(0.001, (performance.now() - this.#begun) / 1000);
    const rate = this.isRunning ? `, ${(this.#tokens / seconds).toFixed(0)} tokens/s` : '';
    return `${this.#done} answers, ${this.#rejected} rejected${rate}${this.#failed && `, last failure: ${this.#failed}`}`;
  }

  /** @param {string} model @param {number} at */
  async #client(model, at) {
    const { signal } = this.#abort;
    while (!signal.aborted) {
      try {
        await this.#ask(model, PROMPTS[at % PROMPTS.length], signal);
        this.#done += 1;
      } catch (error) {
        if (signal.aborted) return;
        const wait = error instanceof ApiError ? (error.retryAfterMs ?? 1000) : 1000;
        if (error instanceof ApiError && error.isTransient) this.#rejected += 1;
        else this.#failed = reasonOf(error);
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }

  /** A job: it needs a connection for a moment only; a browser has six of them to a server. @param {string} model @param {string} prompt @param {AbortSignal} signal */
  async #ask(model, prompt, signal) {
    const body = { ...(model && { model }), messages: [{ role: 'user', content: prompt }], max_tokens: ANSWER_TOKENS, ignore_eos: true };
    const response = await call('POST', '/v1/jobs', { body, signal });
    const { job_id: name } = await response.json();
    const path = `/v1/jobs/${encodeURIComponent(name)}`;
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, this.#lookEachMs));
      if (signal.aborted) {
        void call('DELETE', path).catch(() => {});
        return;
      }
      const job = await (await call('GET', path, { signal })).json();
      if (job.ended_at || job.ending) {
        this.#tokens += job.tokens_out;
        return;
      }
    }
  }
}
