// What a stream sent, with times: the ones at which this page received it, and an even pace for what was there before.

/** Events of a recording; of a longer one the first ones are shown at once. */
export const EVENTS_MAX = 200_000;

/** @typedef {{time: number, text: string, kind: 'content' | 'reasoning', tokens: number}} Entry */

export class Recording {
  /** @type {Entry[]} */
  #entries = [];
  #begun = 0;
  #pastTokens;
  #meanMs;
  #firstMs;
  isWhole = false;

  /** @param {{tokens: number, meanMs: number, firstMs: number}} past Tokens from before the page looked, and their measured pace. */
  constructor(past) {
    this.#pastTokens = past.tokens;
    this.#meanMs = past.meanMs;
    this.#firstMs = past.firstMs;
  }

  /** Milliseconds from the opening to the last event. */
  get length() {
    return this.#entries.at(-1)?.time ?? 0;
  }

  /** How true the times are. */
  get note() {
    return this.#pastTokens > 0
      ? `The first ${this.#pastTokens} tokens came before this page looked: their pace is the engine’s mean, ${this.#meanMs.toFixed(1)} ms a token.`
      : 'The times are those at which this page received the tokens.';
  }

  /** @param {any} event An event of `native.job`. @param {number} now */
  add(event, now) {
    if (event.type !== 'token' && event.type !== 'tool_args' && event.type !== 'tool_call') return;
    if (event.choice || this.#entries.length >= EVENTS_MAX) return;
    const tokens = (event.i ?? 0) + (event.n ?? 1);
    const text = event.t ?? (event.name ? `\n\n**${event.name}** ` : '');
    const kind = event.kind === 'reasoning' ? 'reasoning' : 'content';
    this.#entries.push({ time: this.#timeOf(tokens, now), text, kind, tokens });
  }

  /** @param {number} tokens @param {number} now */
  #timeOf(tokens, now) {
    const pastEnd = this.#firstMs + this.#pastTokens * this.#meanMs;
    if (tokens <= this.#pastTokens) return this.#firstMs + tokens * this.#meanMs;
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
