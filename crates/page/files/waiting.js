// Why an answer has not begun: its place in the queue, when it is predicted to begin, who is ahead, or when it is asked again.

import { callJson } from './api.js';
import { duration, el, fill } from './dom.js';
import { StreamList } from './lanes.js';

const LOOK_EACH_MS = 700;
const list = new StreamList();

/** @type {WeakMap<import('./generation.js').Generation, HTMLElement>} */
const cards = new WeakMap();

/** The card of a generation; it keeps itself up to date while it is shown. @param {import('./generation.js').Generation} generation @returns {HTMLElement} */
export function waitingCard(generation) {
  const there = cards.get(generation);
  if (there) return there;
  const card = el('div', { class: 'waiting' });
  cards.set(generation, card);
  void keepUp(card, generation);
  return card;
}

/** @param {HTMLElement} card @param {import('./generation.js').Generation} generation */
async function keepUp(card, generation) {
  fill(card, el('span', { class: 'dots', 'aria-hidden': 'true' }), 'Waiting for the first token…');
  while (generation.connection !== 'done' && generation.message.parts.length === (generation.message.skipped ?? 0)) {
    await new Promise((resolve) => setTimeout(resolve, generation.retryAt ? 200 : LOOK_EACH_MS));
    fill(card, ...(await reasonLines(generation)));
  }
  cards.delete(generation);
}

/** @param {import('./generation.js').Generation} generation */
async function reasonLines(generation) {
  if (generation.retryAt) {
    const left = Math.max(0, generation.retryAt - performance.now());
    return [
      el('strong', {}, `Asked again in ${duration(left)}`),
      el('progress', { max: '1', value: String(1 - left / generation.retryMs), 'aria-label': 'Time until the next attempt' }),
      el('p', {}, `The server is full: ${generation.detail}. It has promised a place after that time, and this page keeps the promise for you.`),
    ];
  }
  const id = generation.reader?.id;
  if (!id) {
    const isOffline = generation.connection === 'offline' || generation.connection === 'broken';
    return [el('strong', {}, isOffline ? 'No connection' : 'Sent'), el('p', {}, isOffline ? `Trying again. ${generation.detail}` : 'The server has not answered yet.')];
  }
  const describing = describingText(generation.answer.images, generation.imageCount);
  if (describing) return [el('strong', {}, describing), el('p', {}, 'The model reads text only.')];
  const stream = await callJson('GET', `/v1/streams/${id}`).catch(() => null);
  if (!stream) return [el('strong', {}, 'Waiting'), el('p', {}, generation.detail)];
  return streamLines(stream, await queueAhead(stream));
}

/**
 * The image that another model is describing, or nothing.
 * @param {string[]} states By the numbers of the images. @param {number} count Images of the request; 0: not known.
 */
export function describingText(states, count) {
  const at = states.indexOf('describing');
  const of = count > at ? ` of ${count}` : '';
  return at < 0 ? '' : `Describing image ${at + 1}${of}…`;
}

/** Streams that wait before this one, as far as the key may see them. @param {any} stream */
export async function queueAhead(stream) {
  if (stream.state !== 'queued' || !(stream.position > 1)) return [];
  const all = await list.read().catch(() => /** @type {any[]} */ ([]));
  return all.filter((other) => other.id !== stream.id && other.position && other.position < stream.position);
}

/** What a description says about waiting. @param {any} stream @param {any[]} ahead */
export function streamLines(stream, ahead) {
  if (stream.state === 'queued' && !stream.position) {
    return [el('strong', {}, `Waiting for the model ${stream.model}`), el('p', {}, 'A model that is not in memory is loaded first.'), modelState(stream.model)];
  }
  if (stream.state === 'queued') {
    const lines = [el('strong', {}, `Number ${stream.position} in the queue`)];
    const wait = stream.predicted_wait_ms;
    lines.push(el('p', {}, typeof wait === 'number' ? `Predicted start in ${duration(wait)}.` : 'No prediction yet: nothing has ended since the queue began.'));
    lines.push(el('p', {}, aheadText(stream, ahead)));
    return lines;
  }
  if (stream.state === 'prefilling') {
    const percent = stream.prompt_tokens ? Math.round((stream.prompt_done / stream.prompt_tokens) * 100) : 0;
    return [
      el('strong', {}, `Reading the prompt: ${percent} %`),
      el('progress', { max: '100', value: String(percent), 'aria-label': 'Prompt tokens computed' }),
      el('p', {}, `${stream.prompt_done} of ${stream.prompt_tokens} tokens, ${stream.cached_tokens} from the cache.`),
    ];
  }
  const why = stream.parked ? `Parked: ${PARKED[stream.parked] ?? stream.parked}` : `State: ${stream.state}`;
  return [el('strong', {}, why)];
}

/** Why streams are parked. */
export const PARKED = /** @type {Record<string, string>} */ ({
  credit: 'its reader has not read',
  detached: 'it has no reader',
  pages: 'no KV cache pages are free',
  paused: 'paused by request',
  place: 'its slot serves another request',
});

/** Streams that are ahead, by class and key. @param {any} stream @param {any[]} ahead */
export function aheadText(stream, ahead) {
  const others = stream.position - 1;
  if (others === 0) return 'The next free slot is yours.';
  const classes = new Map();
  for (const other of ahead) {
    // Keys are named to administrators only.
    const name = other.key ? `${other.priority} of ${other.key}` : other.priority;
    classes.set(name, (classes.get(name) ?? 0) + 1);
  }
  const seen = [...classes].map(([name, count]) => `${count} ${name}`).join(', ');
  const hidden = others - ahead.length;
  const unseen = hidden > 0 ? `${hidden} of other keys` : '';
  return `Ahead of you (class ${stream.priority}): ${[seen, unseen].filter(Boolean).join('; ')}.`;
}

/** @param {string} model */
function modelState(model) {
  const line = el('p', {});
  callJson('GET', '/v1/loading/progress').then((report) => {
    if (report.model === model && report.percent !== null) line.textContent = `${report.state}, ${report.percent ?? 0} %`;
  }, () => {});
  return line;
}
