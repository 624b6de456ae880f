// One answer while it is generated: the request, its reader, the message that it becomes.

import { applyEvent, newAnswer } from './answer.js';
import { ApiError, call, callJson, reasonOf } from './api.js';
import { imageCount, newId, requestMessages, pathTo, textOf } from './conversation.js';
import { asImageSource, contentOf, imagesOf } from './images.js';
import { StreamReader } from './stream_reader.js';
import { noteTime } from './recording.js';

/** @typedef {import('./conversation.js').Conversation} Conversation */
/** @typedef {import('./conversation.js').Message} Message */

/** Time between two saves of a message that grows. */
const SAVE_MS = 1000;
/** Answer tokens of a continued message without `max_tokens`. */
const CONTINUED_TOKENS = 1024;
const HEADERS = { 'x-stream-resumable': '1', 'x-stream-acks': 'explicit' };

export class Generation extends EventTarget {
  /** @type {'connecting' | 'open' | 'broken' | 'offline' | 'done' | 'rejected'} */
  connection = 'connecting';
  /** When a rejected request is sent again, by `performance.now()`, and how long that was from the rejection on. */
  retryAt = 0;
  retryMs = 0;
  /** What the server says while nothing is generated: the progress of a load. */
  comment = '';
  /** Why it waits or failed. */
  detail = '';
  #isStopped = false;
  #isContinued = false;
  #savedAt = 0;
  #isFirst = true;

  /** @param {import('./store.js').ConversationStore} store @param {Conversation} conversation @param {Message} message @param {import('./breaker.js').Breaker} breaker */
  constructor(store, conversation, message, breaker) {
    super();
    this.store = store;
    this.conversation = conversation;
    this.message = message;
    this.breaker = breaker;
    this.answer = newAnswer(message.parts, message.skipped ?? 0);
    this.answer.cursor = message.cursor ?? null;
    this.begunAt = performance.now();
    /** @type {StreamReader | null} */
    this.reader = null;
  }

  /** Generates the message; `isContinued`: from the text that it has. @param {{isContinued?: boolean}} [options] */
  async start({ isContinued = false } = {}) {
    this.#isContinued = isContinued;
    Object.assign(this.message, {
      isOpen: true, end: null, error: null, stream: undefined, cursor: null, job: `page-${newId()}`, skipped: this.message.parts.length,
      begun: Date.now(), times: [],
    });
    this.answer.base = this.message.parts.length;
    await this.#save();
    await this.#run((signal) => this.#open(signal));
  }

  /** Reads on after a reload of the page. */
  async resume() {
    this.#isFirst = false;
    if (!this.message.cursor) {
      this.message.parts.length = this.message.skipped ?? 0;
      this.message.times = [];
    }
    await this.#run(this.message.stream ? null : (signal) => this.#open(signal));
  }

  /** Images of the request; 0: the tab that sent it was reloaded. */
  get imageCount() {
    return imageCount(this.conversation, this.message.parent);
  }

  /** Cancels the stream at the server. */
  async stop() {
    this.#isStopped = true;
    this.retryAt = 0;
    const id = this.reader?.id;
    if (id) await callJson('DELETE', `/v1/streams/${id}`).catch(() => {});
    else this.reader?.stop();
    this.breaker.setPace('full');
  }

  /** @param {((signal: AbortSignal) => Promise<Response>) | null} open */
  async #run(open) {
    this.store.written.add(this.conversation.id);
    try {
      await this.#readAll(open);
    } catch (error) {
      this.#fail(error);
    } finally {
      this.message.isOpen = false;
      // A stream that had ended when it was stopped is gone, and says no more.
      if (this.#isStopped) Object.assign(this.message, { error: null, end: this.message.end ?? 'CANCELLED' });
      this.message.cursor = this.answer.cursor;
      this.connection = 'done';
      await this.#save();
      this.store.written.delete(this.conversation.id);
      this.dispatchEvent(new Event('change'));
      this.dispatchEvent(new Event('end'));
    }
  }

  /** @param {((signal: AbortSignal) => Promise<Response>) | null} open */
  async #readAll(open) {
    for (;;) {
      const reader = this.#newReader(open);
      const unfollow = this.breaker.follow(() => reader.cut());
      try {
        await reader.run();
        return;
      } catch (error) {
        const mayRetry = error instanceof ApiError && error.isTransient && !reader.id && !this.#isStopped;
        if (!mayRetry) throw error;
        await this.#waitForRetry(error);
        if (this.#isStopped) return;
      } finally {
        unfollow();
      }
    }
  }

  /** @param {((signal: AbortSignal) => Promise<Response>) | null} open */
  #newReader(open) {
    this.reader = new StreamReader({
      open,
      id: this.message.stream,
      after: this.message.cursor,
      govern: true,
      acknowledges: true,
      breaker: this.breaker,
      onOpened: (id) => {
        this.message.stream = id;
        void this.#save();
        this.dispatchEvent(new Event('change'));
      },
      onComment: (text) => this.#change({ comment: text }),
      onState: (connection, detail) => this.#change({ connection, detail: detail ?? '' }),
      onEvent: (event, at) => this.#take(event, at),
    });
    return this.reader;
  }

  /** @param {any} event @param {{time: number, cursor: string}} at */
  #take(event, at) {
    applyEvent(this.answer, event, at.time);
    if (at.cursor) this.answer.cursor = at.cursor;
    this.message.cursor = this.answer.cursor;
    const sinceBegin = performance.now() - this.begunAt;
    const measures = this.message.measures ?? { tokens: 0, rate: null, firstMs: null, totalMs: null };
    const isFirst = event.type === 'token' || event.type === 'tool_call';
    if (isFirst) measures.firstMs ??= sinceBegin;
    this.message.measures = { ...measures, tokens: this.answer.tokens, rate: this.answer.rate, totalMs: sinceBegin };
    noteTime((this.message.times ??= []), this.answer.tokens, at.time - (this.message.begun ?? this.message.time));
    if (this.answer.model) this.message.model = this.answer.model;
    this.message.end = this.answer.end;
    this.message.error = this.answer.error;
    if (performance.now() - this.#savedAt > SAVE_MS) void this.#save();
    this.dispatchEvent(new CustomEvent('event', { detail: event }));
    this.dispatchEvent(new Event('change'));
  }

  /** @param {AbortSignal} signal @returns {Promise<Response>} */
  async #open(signal) {
    const isAgain = !this.#isFirst;
    this.#isFirst = false;
    if (this.#isContinued) return this.#openContinued(signal);
    if (isAgain) {
      // The request may have arrived although its response did not.
      const path = `/v1/jobs/${this.message.job}/stream`;
      const there = await call('GET', path, { signal }).catch((error) => {
        if (error instanceof ApiError && error.status === 404) return null;
        throw error;
      });
      if (there) return there;
    }
    return call('POST', '/v1/inference', { body: this.#request(), headers: HEADERS, signal });
  }

  #request() {
    const { conversation, message } = this;
    const { system: _, tools, schema, ...options } = conversation.options;
    return {
      ...options,
      ...(conversation.model && { model: conversation.model }),
      ...(tools && { tools }),
      ...(schema && { response_format: { type: 'json_schema', json_schema: { name: 'answer', schema } } }),
      messages: requestMessages(conversation, message.parent),
      stream: true,
      job_id: message.job,
    };
  }

  /** The answer goes on after the text it has, which only one API can say. @param {AbortSignal} signal */
  async #openContinued(signal) {
    const { conversation, message } = this;
    const messages = pathTo(conversation, message.id).map((one) => ({ role: one.role, content: contentOf(imagesOf(one), textOf(one).trimEnd(), asImageSource) }));
    const { max_tokens, temperature, top_p, top_k } = conversation.options;
    const body = {
      model: conversation.model, stream: true, messages, max_tokens: max_tokens ?? CONTINUED_TOKENS, temperature, top_p, top_k,
      ...(conversation.system.trim() && { system: conversation.system }),
    };
    const opened = await call('POST', '/v1/messages', { body, headers: HEADERS, signal });
    const id = opened.headers.get('x-stream-id') ?? '';
    await opened.body?.cancel();
    return call('GET', `/v1/streams/${id}/events?dialect=native.job&govern=1`, { signal });
  }

  /** @param {ApiError} error */
  async #waitForRetry(error) {
    const ms = error.retryAfterMs ?? 1000;
    [this.retryAt, this.retryMs] = [performance.now() + ms, ms];
    this.#change({ connection: 'rejected', detail: error.message });
    while (this.retryAt > performance.now() && !this.#isStopped) {
      await new Promise((resolve) => setTimeout(resolve, Math.min(200, this.retryAt - performance.now())));
    }
    this.retryAt = 0;
  }

  /** @param {unknown} error */
  #fail(error) {
    if (this.#isStopped) return;
    const isGone = error instanceof ApiError && (error.status === 404 || error.status === 410) && this.message.stream;
    const code = error instanceof ApiError ? error.code : 'connection';
    const message = isGone
      ? 'the server has this stream no more; what had arrived is above. “Continue” or “Regenerate” asks again'
      : reasonOf(error);
    this.message.error = { code, message };
    this.answer.state = 'failed';
  }

  /** @param {Partial<Generation>} change */
  #change(change) {
    Object.assign(this, change);
    this.dispatchEvent(new Event('change'));
  }

  async #save() {
    this.#savedAt = performance.now();
    await this.store.save(this.conversation);
  }
}
