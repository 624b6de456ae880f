// An answer as it grows: events of a stream in the protocol `native.job`, added up.
// The parts depend on the events' order only, not on how they arrived.

/**
 * @typedef {{kind: 'reasoning' | 'content', text: string, from: number, to: number}} TextPart
 * @typedef {{kind: 'call', call: number, id: string, name: string, args: string, done: boolean, from: number, to: number}} CallPart
 * @typedef {TextPart | CallPart | import('./images.js').ImagePart} Part
 *
 * @typedef {object} Answer
 * @property {Part[]} parts
 * @property {'waiting' | 'queued' | 'running' | 'ended' | 'failed'} state
 * @property {number | null} position Position in the queue, from 1.
 * @property {number} tokens Tokens that this answer has.
 * @property {string | null} cursor Id of the last event.
 * @property {string | null} end Why it ended: `EOS`, `MAX_TOKENS`, ...
 * @property {{code: string, message: string} | null} error
 * @property {number | null} rate Tokens per second, as the server measured.
 * @property {number | null} decodeMs
 * @property {string} model
 * @property {number} base Parts that were there before: the text that this answer continues.
 * @property {string[]} images How far each image is that another model describes: `waiting`, `describing`, `described` or `failed`.
 */

/** @param {Part[]} [parts] Parts that are there already. @param {number} [base] @returns {Answer} */
export function newAnswer(parts = [], base = 0) {
  return {
    parts,
    base,
    state: 'waiting',
    position: null,
    tokens: 0,
    cursor: null,
    end: null,
    error: null,
    rate: null,
    decodeMs: null,
    model: '',
    images: [],
  };
}

/**
 * Adds an event. `now` is the time at which it arrived, in milliseconds since 1970.
 * @param {Answer} answer @param {any} event @param {number} now
 */
export function applyEvent(answer, event, now) {
  switch (event.type) {
    case 'queued':
      answer.state = 'queued';
      answer.position = event.position;
      break;
    case 'started':
      answer.state = 'running';
      answer.position = null;
      answer.model = event.model || answer.model;
      break;
    case 'token':
      addText(answer, event.kind === 'reasoning' ? 'reasoning' : 'content', event.t, now);
      count(answer, event);
      break;
    case 'image':
      answer.images[event.index] = event.state;
      break;
    case 'tool_call':
      answer.parts.push({
        kind: 'call', call: event.call, id: event.id, name: event.name, args: '', done: false, from: now, to: now,
      });
      count(answer, event);
      break;
    case 'tool_args':
    case 'tool_end': {
      const call = answer.parts.findLast((part) => part.kind === 'call' && part.call === event.call);
      if (call && call.kind === 'call') {
        call.args += event.t ?? '';
        call.done = event.type === 'tool_end';
        call.to = now;
      }
      count(answer, event);
      break;
    }
    case 'metrics':
      answer.rate = event.tokens_per_sec;
      answer.decodeMs = event.decode_time_ms;
      break;
    case 'end':
      answer.state = 'ended';
      answer.end = event.stop_reason;
      answer.decodeMs = event.decode_time_ms;
      answer.tokens = Math.max(answer.tokens, event.tokens_out ?? 0);
      if (event.decode_time_ms > 0 && event.tokens_out > 1) {
        answer.rate = ((event.tokens_out - 1) * 1000) / event.decode_time_ms;
      }
      break;
    case 'error':
      answer.state = 'failed';
      answer.error = errorOf(event);
      break;
  }
}

/** @param {any} event */
export function errorOf(event) {
  const error = typeof event.error === 'object' && event.error ? event.error : event;
  return { code: String(error.code ?? 'error'), message: String(error.message ?? error.code ?? 'the answer failed') };
}

/** @param {Answer} answer @param {'reasoning' | 'content'} kind @param {string} text @param {number} now */
function addText(answer, kind, text, now) {
  answer.state = 'running';
  answer.position = null;
  const last = answer.parts.length > answer.base ? answer.parts.at(-1) : undefined;
  if (last && last.kind === kind) {
    last.text += text;
    last.to = now;
  } else if (text !== '') {
    answer.parts.push({ kind, text, from: now, to: now });
  }
}

/** @param {Answer} answer @param {{i?: number, n?: number}} event */
function count(answer, event) {
  if (typeof event.i === 'number') answer.tokens = Math.max(answer.tokens, event.i + (event.n ?? 1));
}

/** The text of all parts of a kind. @param {Part[]} parts @param {'reasoning' | 'content'} kind */
export function textOf(parts, kind) {
  return parts.map((part) => (part.kind === kind ? part.text : '')).join('');
}

/** The tool calls of an answer. @param {Part[]} parts @returns {CallPart[]} */
export function callsOf(parts) {
  return /** @type {CallPart[]} */ (parts.filter((part) => part.kind === 'call'));
}
