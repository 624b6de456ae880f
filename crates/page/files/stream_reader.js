// A reader of one stream that goes on where it was: after a cut connection, a closed lid, a lost network, a restarted server.
//
// The first connection is the request that opens the stream, or a replay after a cursor; each later one continues after
// the last event that arrived. A reader acknowledges what it has read, so a reader that reads slowly parks its stream.

import { ApiError, call, reasonOf } from './api.js';
import { EventParser } from './sse.js';

const RETRY_FIRST_MS = 250;
const RETRY_MAX_MS = 5000;
/** Silence after which a connection is regarded as broken; the server sends a keep-alive every ten seconds. */
const SILENCE_MAX_MS = 35_000;
/** Silence after which a page that becomes visible connects again: the machine may have slept. */
const SUSPICIOUS_SILENCE_MS = 12_000;
/** Tokens after which they are acknowledged. */
const ACK_TOKENS = 12;
/** What follows the last event. */
const DONE = '[DONE]';

/**
 * @typedef {object} ReaderOptions
 * @property {((signal: AbortSignal) => Promise<Response>) | null} [open] The request that opens the stream.
 * @property {string} [id] Id of a stream that exists.
 * @property {string | null} [after] Cursor of the last event that is there already.
 * @property {string} [dialect]
 * @property {boolean} [govern] Whether this reader returns credit.
 * @property {boolean} [acknowledges]
 * @property {(event: any, at: {time: number, cursor: string}) => void} onEvent
 * @property {(id: string) => void} [onOpened]
 * @property {(text: string) => void} [onComment]
 * @property {(state: 'connecting' | 'open' | 'broken' | 'offline' | 'done', detail?: string) => void} [onState]
 * @property {import('./breaker.js').Breaker} [breaker]
 */

export class StreamReader {
  /** @param {ReaderOptions} options */
  constructor(options) {
    this.options = options;
    this.id = options.id ?? '';
    this.cursor = options.after ?? null;
    this.tokens = 0;
    this.connections = 0;
    this.isDone = false;
    this.#abort = new AbortController();
  }

  #abort;
  /** @type {AbortController | null} */
  #connection = null;
  #lastByte = 0;
  #acked = 0;
  #isAcking = false;
  #wakeUp = () => {};

  /** Reads to the end. Rejects with an {@link ApiError} that no later attempt can change. */
  async run() {
    const wake = () => this.#checkSilence(SUSPICIOUS_SILENCE_MS);
    window.addEventListener('online', wake);
    document.addEventListener('visibilitychange', wake);
    const timer = setInterval(() => this.#checkSilence(SILENCE_MAX_MS), 5000);
    try {
      await this.#runConnections();
    } finally {
      clearInterval(timer);
      window.removeEventListener('online', wake);
      document.removeEventListener('visibilitychange', wake);
      this.options.onState?.('done');
    }
  }

  /** Stops reading for good. The stream itself goes on. */
  stop() {
    this.#abort.abort();
    this.cut();
    this.#wakeUp();
  }

  /** Cuts the connection; the reader connects again. */
  cut() {
    this.#connection?.abort();
  }

  async #runConnections() {
    let pause = RETRY_FIRST_MS;
    while (!this.isDone && !this.#abort.signal.aborted) {
      const before = this.cursor;
      try {
        await this.options.breaker?.untilOnline(this.#abort.signal);
        await this.#connect();
      } catch (error) {
        if (this.#abort.signal.aborted || this.isDone) return;
        if (error instanceof ApiError && !error.isTransient) throw error;
        // A request that was rejected for want of capacity is the caller's to repeat.
        if (error instanceof ApiError && !this.id) throw error;
        if (!this.id && !this.#mayReopen(error)) throw error;
        pause = this.cursor === before ? Math.min(pause * 2, RETRY_MAX_MS) : RETRY_FIRST_MS;
        const wait = error instanceof ApiError && error.retryAfterMs ? Math.min(error.retryAfterMs, RETRY_MAX_MS) : pause;
        this.options.onState?.(navigator.onLine ? 'broken' : 'offline', reasonOf(error));
        await this.#sleep(wait);
        continue;
      }
      if (!this.isDone) await this.#sleep(this.cursor === before ? pause : RETRY_FIRST_MS);
    }
  }

  /** A request whose name is the job's may be sent again: the server has a job of a name once. @param {unknown} error */
  #mayReopen(error) {
    return this.options.open !== undefined && !(error instanceof ApiError);
  }

  async #connect() {
    const connection = new AbortController();
    this.#connection = connection;
    this.#lastByte = performance.now();
    this.connections += 1;
    this.options.onState?.('connecting');
    const response = await this.#request(connection.signal);
    if (response.status === 204) {
      this.isDone = true;
      return;
    }
    const id = response.headers.get('x-stream-id');
    if (id && id !== this.id) {
      this.id = id;
      this.options.onOpened?.(id);
    }
    this.options.onState?.('open');
    await this.#readBody(response, connection.signal);
  }

  /** @param {AbortSignal} signal */
  #request(signal) {
    if (!this.id && this.options.open) return this.options.open(signal);
    const query = new URLSearchParams({ dialect: this.options.dialect ?? 'native.job' });
    if (this.options.govern) query.set('govern', '1');
    /** @type {Record<string, string>} */
    const headers = this.cursor ? { 'last-event-id': this.cursor } : {};
    return call('GET', `/v1/streams/${encodeURIComponent(this.id)}/events?${query}`, { signal, headers });
  }

  /** @param {Response} response @param {AbortSignal} signal */
  async #readBody(response, signal) {
    if (!response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream(), { signal }).getReader();
    const parser = new EventParser();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        this.#lastByte = performance.now();
        const comment = parser.comment;
        const events = parser.push(value);
        if (parser.comment !== comment) this.options.onComment?.(parser.comment);
        for (const event of events) {
          const data = event.data === DONE ? null : JSON.parse(event.data);
          await this.options.breaker?.untilReading(signal, typeof data?.i === 'number' ? (data.n ?? 1) : 0);
          if (signal.aborted) return;
          this.#take(event, data);
          if (this.isDone) return;
        }
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  /** @param {import('./sse.js').SseEvent} event @param {any} data `null` at the end. */
  #take(event, data) {
    if (event.id) this.cursor = event.id;
    if (data === null) {
      this.isDone = true;
      return;
    }
    if (typeof data.i === 'number' && !data.choice) this.tokens = Math.max(this.tokens, data.i + (data.n ?? 1));
    this.options.onEvent(data, { time: Date.now(), cursor: event.id });
    this.#acknowledge();
  }

  #acknowledge() {
    const isDue = this.tokens >= this.#acked + ACK_TOKENS;
    if (!this.options.acknowledges || this.#isAcking || !isDue || !this.id) return;
    this.#isAcking = true;
    const index = this.tokens;
    const path = `/v1/streams/${encodeURIComponent(this.id)}/ack`;
    // A lost acknowledgement is made good by the next one.
    call('POST', path, { body: { index } })
      .then(() => (this.#acked = index), () => {})
      .finally(() => {
        this.#isAcking = false;
        this.#acknowledge();
      });
  }

  /** @param {number} max */
  #checkSilence(max) {
    if (this.options.breaker?.isHeld) return;
    if (performance.now() - this.#lastByte > max) this.cut();
    if (navigator.onLine) this.#wakeUp();
  }

  /** @param {number} ms */
  #sleep(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wakeUp = () => {
        clearTimeout(timer);
        resolve(undefined);
      };
    });
  }
}
