// The list of streams behind the river and the queue: read in pages, from the first stream on that has not ended.
//
// Promise (The web page): an answer that waits shows its position and the requests before it; a rejected one counts
// down and is sent again; a download ends in a model that answers.
// Also held by `tools/page/view_checks.py :: queue_position`, `tools/page/view_checks.py :: retry_after`,
// `tools/page/view_checks.py :: pull`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StreamList } from '../../files/lanes.js';
import { queueAhead } from '../../files/waiting.js';

/** A server with these streams; notes what it is asked for. */
function serve(streams) {
  const asked = [];
  globalThis.sessionStorage = { getItem: () => null };
  globalThis.fetch = async (path) => {
    const after = Number(new URLSearchParams(path.split('?')[1]).get('after') ?? 0);
    asked.push(after);
    const later = streams.filter((stream) => stream.cursor > after);
    const data = later.slice(0, 100);
    return Response.json({ data, has_more: later.length > 100, next: data.at(-1)?.cursor ?? null });
  };
  return asked;
}

const streams = (count, open) => Array.from({ length: count }, (_, at) => ({ id: `s${at + 1}`, cursor: at + 1, state: open(at) ? 'queued' : 'ended' }));

test('ended streams before the first open one are read once', async () => {
  const asked = serve(streams(250, (at) => at >= 150));
  const list = new StreamList();
  assert.equal((await list.read()).length, 250);
  assert.deepEqual(asked, [0, 100, 200]);
  assert.equal((await list.read()).length, 100);
  assert.deepEqual(asked.slice(3), [150]);
});

test('an ended stream whose end is awaited is read again', async () => {
  const asked = serve(streams(5, (at) => at === 4));
  const list = new StreamList();
  await list.read({ isAwaited: (id) => id === 's2' });
  await list.read();
  await list.read();
  assert.deepEqual(asked, [0, 0, 4]);
});

test('those who wait before a stream are found behind pages of ended ones', async () => {
  const all = streams(130, (at) => at >= 120).map((stream) => ({ ...stream, position: stream.cursor > 120 ? stream.cursor - 120 : undefined }));
  serve(all);
  const ahead = await queueAhead(all[125]);
  assert.deepEqual(ahead.map((stream) => stream.id), ['s121', 's122', 's123', 's124', 's125']);
});
