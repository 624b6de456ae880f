// The lanes of the river: what the lists and the feed say about each stream, as segments of states and ticks over time.

import { callJson } from './api.js';
import { color } from './dom.js';

export const LANES_MAX = 1000;
/** Ticks and segments of a lane that are kept: those of the window of time that is drawn. */
export const TICKS_MAX = 400;
export const SEGMENTS_MAX = 100;
/** Time for which an ended stream keeps its lane. */
const ENDED_KEPT_MS = 20_000;
/** Silence of a running stream that is a stall: this many mean times between its tokens, and at least this long. */
const STALL_FACTOR = 6;
const STALL_MIN_MS = 400;

/**
 * @typedef {'queued' | 'prefilling' | 'running' | 'credit' | 'detached' | 'pages' | 'paused' | 'place' | 'ended' | 'failed'} LaneState
 * @typedef {object} Lane
 * @property {string} id
 * @property {string} model
 * @property {string} priority
 * @property {LaneState} state
 * @property {number} position
 * @property {number} prefill Percent of the prompt that is computed.
 * @property {number} tokens
 * @property {number} frames Frames that the socket took.
 * @property {number} credit Part of the credit window that is left, from 0 to 1; 1 without a window.
 * @property {number} meanMs Mean time between two tokens, 0 if unknown.
 * @property {string} end
 * @property {boolean} isAttached Whether a client reads it.
 * @property {number} seenAt
 * @property {number} lastTickAt
 * @property {number} endedAt
 * @property {{time: number, count: number}[]} ticks
 * @property {{time: number, state: LaneState}[]} segments
 */

/** States of lanes, and their names in the legend. */
export const STATES = /** @type {[LaneState, string][]} */ ([
  ['queued', 'queued'], ['prefilling', 'prefill'], ['running', 'running'], ['credit', 'parked: reader'], ['detached', 'detached'],
  ['pages', 'parked: pages'], ['place', 'parked: slot'], ['paused', 'paused'], ['ended', 'ended'], ['failed', 'failed'],
]);
const FAILED_ENDS = new Set(['failed', 'timed_out', 'deadline', 'lost', 'refused']);

export class Lanes {
  /** @type {Map<string, Lane>} */
  #lanes = new Map();
  /** The lanes in their order, as of the version. @type {Lane[]} */
  #rows = [];
  #isOrdered = true;
  /** Counts whatever moves rows, or changes the past of one: a lane that comes, ends or goes, late frames of an ended one. */
  version = 0;
  /** Counts lists and events. */
  changes = 0;

  /** Open ones in the order of opening, then ended ones, the latest first. Nobody changes the array. @returns {readonly Lane[]} */
  get all() {
    if (!this.#isOrdered) {
      const lanes = [...this.#lanes.values()];
      const ended = lanes.filter((lane) => lane.endedAt > 0).sort((a, b) => b.endedAt - a.endedAt);
      this.#rows = [...lanes.filter((lane) => lane.endedAt === 0), ...ended];
      this.#isOrdered = true;
    }
    return this.#rows;
  }

  #disorder() {
    this.#isOrdered = false;
    this.version += 1;
  }

  /** Descriptions of streams, as `/v1/streams` has them. @param {any[]} streams @param {number} now */
  takeList(streams, now) {
    for (const stream of streams) this.#takeStream(stream, now);
    this.#forget(now);
    this.changes += 1;
  }

  /** A lane also for a stream that has ended, which lists leave out. @param {any} stream @param {number} now @returns {Lane} */
  add(stream, now) {
    const lane = newLane(stream, now);
    this.#lanes.set(stream.id, lane);
    this.#disorder();
    return lane;
  }

  /** A change, as `/v1/streams/feed` has it. @param {any} event @param {number} now */
  takeEvent(event, now) {
    const lane = this.#lanes.get(event.stream);
    if (!lane) return;
    const state = stateOfEvent(event);
    if (state) this.#setState(lane, state, now, event.detail ?? event.end ?? '');
    this.changes += 1;
  }

  /** @param {any} stream @param {number} now */
  #takeStream(stream, now) {
    let lane = this.#lanes.get(stream.id);
    const state = stateOfStream(stream);
    if (!lane) {
      if (state === 'ended' || state === 'failed' || this.#lanes.size >= LANES_MAX) return;
      lane = this.add(stream, now);
    }
    const frames = stream.measures?.socket?.frames ?? 0;
    const grown = frames > lane.frames ? frames - lane.frames : 0;
    // A stream without a reader has no frames: its tokens are the ticks.
    const count = grown || (frames === lane.frames ? Math.max(0, stream.completion_tokens - lane.tokens) : 0);
    if (count > 0) {
      lane.ticks.push({ time: lane.endedAt || now, count });
      if (lane.ticks.length > TICKS_MAX) lane.ticks.shift();
      lane.lastTickAt = now;
      if (lane.endedAt) this.#disorder();
    }
    lane.frames = frames;
    lane.tokens = stream.completion_tokens;
    lane.position = stream.position ?? 0;
    lane.prefill = stream.prompt_tokens ? Math.round((100 * stream.prompt_done) / stream.prompt_tokens) : 0;
    lane.meanMs = stream.measures?.inter_token_ms?.mean ?? 0;
    lane.credit = creditOf(stream);
    lane.isAttached = stream.attached !== false;
    lane.seenAt = now;
    this.#setState(lane, state, now, endOf(stream));
  }

  /** @param {Lane} lane @param {LaneState} state @param {number} now @param {string} end */
  #setState(lane, state, now, end) {
    if (lane.state === 'ended' || lane.state === 'failed') return;
    if (state === 'ended' || state === 'failed') {
      lane.end = end;
      lane.endedAt = now;
      this.#disorder();
    }
    if (lane.state === state) return;
    lane.state = state;
    lane.segments.push({ time: now, state });
    if (lane.segments.length > SEGMENTS_MAX) lane.segments.shift();
  }

  /** @param {number} now */
  #forget(now) {
    for (const [id, lane] of this.#lanes) {
      const isOver = lane.endedAt > 0 && now - lane.endedAt > ENDED_KEPT_MS;
      const isGone = now - lane.seenAt > ENDED_KEPT_MS;
      if (!isOver && !isGone) continue;
      this.#lanes.delete(id);
      this.#disorder();
    }
  }
}

/** @param {any} stream @param {number} now @returns {Lane} */
function newLane(stream, now) {
  const state = stateOfStream(stream);
  return {
    id: stream.id, model: stream.model, priority: stream.priority, state, position: 0, prefill: 0,
    tokens: stream.completion_tokens, frames: stream.measures?.socket?.frames ?? 0, credit: 1, meanMs: 0, end: '',
    isAttached: true, seenAt: now, lastTickAt: now, endedAt: 0, ticks: [], segments: [{ time: now, state }],
  };
}

/** @param {any} stream @returns {LaneState} */
function stateOfStream(stream) {
  if (stream.state === 'ended') return FAILED_ENDS.has(endOf(stream)) || stream.refused ? 'failed' : 'ended';
  if (stream.state === 'paused') return 'paused';
  if (stream.state === 'parked') return stream.parked ?? 'pages';
  return stream.state;
}

/** @param {any} event @returns {LaneState | null} */
function stateOfEvent(event) {
  switch (event.type) {
    case 'started': return 'prefilling';
    case 'backpressure':
    case 'slow_consumer': return 'credit';
    case 'parked': return event.reason;
    case 'resumed': return 'running';
    case 'ended': return FAILED_ENDS.has(event.end) ? 'failed' : 'ended';
    default: return null;
  }
}

/** @param {any} stream */
function endOf(stream) {
  const ended = stream.choices?.find((/** @type {any} */ choice) => choice.end);
  return stream.refused ?? ended?.detail ?? ended?.end ?? '';
}

/** @param {any} stream */
function creditOf(stream) {
  if (!stream.credit_window) return 1;
  const ahead = Math.max(0, ...(stream.choices ?? []).map((/** @type {any} */ choice) => choice.unaccepted));
  return Math.max(0, 1 - ahead / stream.credit_window);
}

/** Whose it is that a lane stands still; empty if it does not. @param {Lane} lane @param {number} now */
export function stallOf(lane, now) {
  switch (lane.state) {
    case 'queued': return lane.position ? `queue: number ${lane.position}` : 'model is being loaded';
    case 'place': return 'queue: its slot serves another request';
    case 'credit': return lane.isAttached ? 'reader: does not read' : 'reader: there is none';
    case 'detached': return 'reader: gone';
    case 'pages': return 'engine: no free KV pages';
    case 'paused': return 'paused by request';
    case 'prefilling': return `engine: prompt ${lane.prefill} %`;
    case 'running': {
      const silence = now - lane.lastTickAt;
      return silence > Math.max(STALL_MIN_MS, lane.meanMs * STALL_FACTOR) + 600 ? 'engine: no token yet' : '';
    }
    default: return '';
  }
}

/** The streams of the server, from the first one on that has not ended: those before it are read once. */
export class StreamList {
  #firstCursor = 0;

  /** @param {{signal?: AbortSignal, isAwaited?: (id: string) => boolean}} [options] `isAwaited`: whether the end of a stream is still to be seen. @returns {Promise<any[]>} */
  async read({ signal, isAwaited = () => false } = {}) {
    const all = [];
    for (let after = this.#firstCursor; all.length < LANES_MAX; ) {
      const page = await callJson('GET', `/v1/streams?limit=100&after=${after}`, { signal });
      all.push(...page.data);
      if (!page.has_more) break;
      after = page.next;
    }
    const firstOpen = all.findIndex((stream) => stream.state !== 'ended');
    const before = firstOpen < 0 ? all.length - 1 : firstOpen - 1;
    if (before >= 0 && !all.slice(0, before + 1).some((stream) => isAwaited(stream.id))) this.#firstCursor = all[before].cursor;
    return all;
  }
}

/** What a lane's state is called. @param {Lane} lane @param {number} now */
export function labelOf(lane, now) {
  if (lane.state === 'ended' || lane.state === 'failed') return `ended: ${lane.end || 'stop'}`;
  return stallOf(lane, now) || (lane.isAttached ? 'running' : 'running, no reader');
}

/** Colors by the names that the canvas uses. @returns {Record<string, string>} */
export function laneColors() {
  return Object.fromEntries(['front', 'text', 'quiet', 'line', ...STATES.map(([state]) => state)].map((name) => [name, color(name)]));
}
