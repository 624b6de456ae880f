// States of lanes, their names in the legend, and the page's colors for them.

import { color } from './dom.js';

export const STATES = /** @type {[import('./lanes.js').LaneState, string][]} */ ([
  ['queued', 'queued'], ['prefilling', 'prefill'], ['running', 'running'], ['credit', 'parked: reader'], ['detached', 'detached'],
  ['pages', 'parked: pages'], ['place', 'parked: slot'], ['paused', 'paused'], ['ended', 'ended'], ['failed', 'failed'],
]);

/** Colors by the names that the canvas uses. @returns {Record<string, string>} */
export function laneColors() {
  return Object.fromEntries(['front', 'text', 'quiet', 'line', ...STATES.map(([state]) => state)].map((name) => [name, color(name)]));
}
