// Which models chat, and what a new conversation suggests with one.
//
// Promise (The web page): the page offers models that write text only, with suggestions that fit the model.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { call, reasonOf } from '../../files/api.js';
import { ModelList, TOY, otherUse } from '../../files/models.js';
import { suggestions } from '../../files/welcome.js';

test('models for embeddings and reranking do not chat', () => {
  const models = new ModelList();
  models.all = [{ id: 'a', kind: 'text' }, { id: 'e', kind: 'embedding' }, { id: 'r', kind: 'rerank' }, { id: 'of an older server' }];
  assert.deepEqual(models.chatting.map((model) => model.id), ['a', 'of an older server']);
  assert.deepEqual(models.all.map(otherUse), ['', 'for embeddings', 'ranks documents', '']);
});

test('suggestions fit the model', () => {
  const toy = suggestions(TOY, { id: TOY, thinking: true });
  assert.ok(toy.includes('Tell me about rivers.'));
  const [plain, reasoning] = [suggestions('a', undefined), suggestions('b', { thinking: true })];
  for (const real of [plain, reasoning]) assert.ok(!real.some((text) => toy.includes(text)), real.join());
  assert.notDeepEqual(plain, reasoning);
});

test('a failed request is told in words', async (context) => {
  globalThis.sessionStorage ??= { getItem: () => null };
  context.mock.method(globalThis, 'fetch', async () => { throw new TypeError('Failed to fetch'); });
  await assert.rejects(call('GET', '/v1/models'), (error) => reasonOf(error) === 'the server cannot be reached');
  const aborted = new DOMException('aborted', 'AbortError');
  context.mock.method(globalThis, 'fetch', async () => { throw aborted; });
  await assert.rejects(call('GET', '/v1/models'), (error) => error === aborted);
});
