// The streams of the server, from the first one on that has not ended: those before it are read once.

import { callJson } from './api.js';
import { LANES_MAX } from './lanes.js';

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
