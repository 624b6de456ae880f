// What a stream sent, with times: the ones at which this browser received it, and an even pace for tokens that it did not see.

/** Events of a recording; of a longer one the first ones are shown at once. */
export const EVENTS_MAX = 200_000;
/** Tokens of a message whose times are kept. */
export const TIMES_MAX = 20_000;

/** @typedef {{time: number, text: string, kind: 'content' | 'reasoning', tokens: number}} Entry */

export class Recording {
  /** @type {Entry[]} */
  #entries = [];
  #begun = 0;
  #pastTokens;
  #meanMs;
  #firstMs;
  #times;
  isWhole = false;

  /** @param {{tokens: number, meanMs: number, firstMs: number, times?: number[]}} past Tokens from before the page looked, their measured pace, and when they came if a chat of this browser has read them. */
  constructor(past) {
    this.#pastTokens = past.tokens;
    this.#meanMs = past.meanMs;
    this.#firstMs = past.firstMs;
    this.#times = past.times ?? [];
  }

  /** Milliseconds from the opening to the last event. */
  get length() {
    return this.#entries.at(-1)?.time ?? 0;
  }

  /** How true the times are. */
  get note() {
    return this.#pastTokens > this.#times.length
      ? `Tokens up to number ${this.#pastTokens} came before this page looked: their pace is the engine’s mean, ${this.#meanMs.toFixed(1)} ms a token.`
      : 'The times are those at which this browser received the tokens.';
  }

  /** Adds an entry for each token; the text of tokens that came in one frame is cut evenly. @param {any} event An event of `native.job`. @param {number} now */
  add(event, now) {
    if (event.type !== 'token' && event.type !== 'tool_args' && event.type !== 'tool_call') return;
    if (event.choice || this.#entries.length >= EVENTS_MAX) return;
    const [first, count] = [event.i ?? 0, event.n ?? 1];
    const chars = [...(event.t ?? (event.name ? `\n\n**${event.name}** ` : ''))];
    const kind = event.kind === 'reasoning' ? 'reasoning' : 'content';
    const pieces = Math.max(1, count);
    const cut = (/** @type {number} */ at) => Math.floor((at * chars.length) / pieces);
    for (let at = 1; at <= pieces; at += 1) {
      const tokens = first + Math.min(at, count);
      this.#entries.push({ time: this.#timeOf(tokens, now), text: chars.slice(cut(at - 1), cut(at)).join(''), kind, tokens });
    }
  }

  /** @param {number} tokens @param {number} now */
  #timeOf(tokens, now) {
    const known = this.#times[tokens - 1];
    if (known !== undefined) return Math.max(this.length, known);
    const isKnown = this.#times.length >= this.#pastTokens;
    const pastEnd = isKnown ? 0 : this.#firstMs + this.#pastTokens * this.#meanMs;
    if (tokens <= this.#pastTokens) return Math.max(this.length, this.#firstMs + tokens * this.#meanMs);
    this.#begun ||= now - Math.max(pastEnd, this.length);
    return Math.max(this.length, now - this.#begun);
  }

  /** @param {number} ms */
  textAt(ms) {
    let [content, reasoning, tokens] = ['', '', 0];
    for (const entry of this.#entries) {
      if (entry.time > ms) break;
      if (entry.kind === 'content') content += entry.text;
      else reasoning += entry.text;
      tokens = entry.tokens;
    }
    return { content, reasoning, tokens };
  }

  times() {
    return this.#entries.map((entry) => entry.time);
  }
}

/** Notes the time of all tokens up to this one that have none yet. @param {number[]} times Milliseconds from the request to each token. @param {number} tokens @param {number} ms */
export function noteTime(times, tokens, ms) {
  const time = Math.max(Math.round(ms), times.at(-1) ?? 0);
  while (times.length < Math.min(tokens, TIMES_MAX)) times.push(time);
}

/** Whether a file has times, or none. @param {any} times */
export function areTimes(times) {
  return times === undefined || (Array.isArray(times) && times.length <= TIMES_MAX && times.every(Number.isFinite));
}
