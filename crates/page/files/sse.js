// Server-sent events, parsed from pieces of any size: however the text is cut, the events are the same.

/**
 * @typedef {object} SseEvent
 * @property {string} data Lines of `data:`, joined by newlines.
 * @property {string} id The last `id:` so far; empty before the first.
 * @property {string} type The event's name; `message` without one.
 */

/** Characters of one event; a longer one is an error, so that no server fills the tab's memory. */
export const EVENT_CHARS_MAX = 4 << 20;

export class EventParser {
  #line = '';
  #data = /** @type {string[]} */ ([]);
  #chars = 0;
  #type = '';
  #id = '';
  #afterReturn = false;
  #atStart = true;
  /** Milliseconds of the last `retry:`, if there was one. @type {number | null} */
  retry = null;
  /** The last comment: a keep-alive or the progress of a load. */
  comment = '';

  /**
   * @param {string} piece
   * @returns {SseEvent[]} The events that are complete with this piece.
   */
  push(piece) {
    /** @type {SseEvent[]} */
    const events = [];
    let at = 0;
    if (this.#atStart && piece.length > 0) {
      this.#atStart = false;
      if (piece.charCodeAt(0) === 0xfeff) at = 1;
    }
    while (at < piece.length) {
      if (this.#afterReturn) {
        this.#afterReturn = false;
        if (piece[at] === '\n') {
          at += 1;
          continue;
        }
      }
      const end = nextBreak(piece, at);
      this.#line += piece.slice(at, end);
      this.#chars += end - at;
      if (this.#chars > EVENT_CHARS_MAX) {
        throw new Error(`an event of the stream is longer than ${EVENT_CHARS_MAX} characters`);
      }
      if (end === piece.length) break;
      this.#afterReturn = piece[end] === '\r';
      at = end + 1;
      const line = this.#line;
      this.#line = '';
      this.#take(line, events);
    }
    return events;
  }

  /** @param {string} line @param {SseEvent[]} events */
  #take(line, events) {
    if (line === '') {
      if (this.#data.length > 0) {
        events.push({ data: this.#data.join('\n'), id: this.#id, type: this.#type || 'message' });
      }
      this.#data = [];
      this.#type = '';
      this.#chars = 0;
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) {
      this.comment = line.slice(1).trim();
      return;
    }
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'data') this.#data.push(value);
    else if (field === 'event') this.#type = value;
    else if (field === 'id' && !value.includes('\0')) this.#id = value;
    else if (field === 'retry' && /^\d+$/.test(value)) this.retry = Number(value);
  }
}

/** @param {string} text @param {number} from */
function nextBreak(text, from) {
  for (let at = from; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === 10 || code === 13) return at;
  }
  return text.length;
}
