// Times at which an answer's tokens came, kept with its message: a replay has the true pace, also after a reload.

/** Tokens of a message whose times are kept. */
export const TIMES_MAX = 20_000;

/** Notes the time of all tokens up to this one that have none yet. @param {number[]} times Milliseconds from the request to each token. @param {number} tokens @param {number} ms */
export function noteTime(times, tokens, ms) {
  const time = Math.max(Math.round(ms), times.at(-1) ?? 0);
  while (times.length < Math.min(tokens, TIMES_MAX)) times.push(time);
}

/** Whether a file has times, or none. @param {any} times */
export function areTimes(times) {
  return times === undefined || (Array.isArray(times) && times.length <= TIMES_MAX && times.every(Number.isFinite));
}
