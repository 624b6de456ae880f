// Ways to read badly: not at all, two tokens a second, a cut socket, no network. The server parks or detaches the
// stream, and goes on with it afterwards.

/** Tokens per second of a slow reader. */
export const SLOW_TOKENS_PER_S = 2;
const OFFLINE_MS = 5000;

/** @typedef {'full' | 'slow' | 'stopped'} Pace */

export class Breaker extends EventTarget {
  /** @type {Pace} */
  pace = 'full';
  offlineUntil = 0;
  #wakeUps = new Set();
  #cuts = /** @type {Set<() => void>} */ (new Set());

  /** Whether nothing is read on purpose. */
  get isHeld() {
    return this.pace !== 'full' || this.offlineUntil > performance.now();
  }

  /** @param {Pace} pace */
  setPace(pace) {
    this.pace = pace;
    this.#wake();
    this.dispatchEvent(new Event('change'));
  }

  /** Cuts the connection of each reader that uses this breaker. */
  cut() {
    this.#cuts.forEach((cut) => cut());
  }

  goOffline() {
    this.offlineUntil = performance.now() + OFFLINE_MS;
    this.cut();
    this.dispatchEvent(new Event('change'));
    setTimeout(() => {
      this.#wake();
      this.dispatchEvent(new Event('change'));
    }, OFFLINE_MS);
  }

  /** @param {() => void} cut @returns {() => void} Ends it. */
  follow(cut) {
    this.#cuts.add(cut);
    return () => this.#cuts.delete(cut);
  }

  /** Until the next event may be read. @param {AbortSignal} signal @param {number} [tokens] Tokens of the event. */
  async untilReading(signal, tokens = 1) {
    if (this.pace === 'slow' && tokens > 0) await this.#wait((tokens * 1000) / SLOW_TOKENS_PER_S, signal);
    while (this.pace === 'stopped' && !signal.aborted) await this.#wait(60_000, signal);
  }

  /** Until there is a network. @param {AbortSignal} signal */
  async untilOnline(signal) {
    while (performance.now() < this.offlineUntil && !signal.aborted) {
      await this.#wait(this.offlineUntil - performance.now(), signal);
    }
  }

  #wake() {
    this.#wakeUps.forEach((wake) => wake());
  }

  /** @param {number} ms @param {AbortSignal} signal */
  #wait(ms, signal) {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#wakeUps.delete(done);
        signal.removeEventListener('abort', done);
        resolve(undefined);
      };
      const timer = setTimeout(done, ms);
      this.#wakeUps.add(done);
      signal.addEventListener('abort', done);
    });
  }
}
