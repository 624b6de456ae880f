// Conversations as trees, and JSON that is not complete yet.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MESSAGES_MAX, addMessage, checkConversation, copyBranch, newConversation, pathTo, requestMessages, showBranch, siblingsOf, textOf } from '../../files/conversation.js';
import { checkJson } from '../../files/json_check.js';
import { readParameters } from '../../files/options_panel.js';

const text = (words) => [{ kind: 'content', text: words, from: 0, to: 0 }];

function sample() {
  const conversation = newConversation({ system: 'Be brief.' });
  const question = addMessage(conversation, { role: 'user', parts: text('Hi\n there'), time: 1 }, null);
  const answer = addMessage(conversation, { role: 'assistant', parts: text('Hello'), time: 2 }, question.id);
  return { conversation, question, answer };
}

test('an edited question is a branch beside the old one', () => {
  const { conversation, question, answer } = sample();
  const edited = addMessage(conversation, { role: 'user', parts: text('Ho'), time: 3 }, question.parent);
  assert.deepEqual(pathTo(conversation).map(textOf), ['Ho']);
  assert.deepEqual(siblingsOf(conversation, edited).map((one) => one.id), [question.id, edited.id]);
  showBranch(conversation, question.id);
  assert.equal(conversation.leaf, answer.id);
  assert.equal(conversation.title, 'Hi there');
  const copy = copyBranch(conversation, answer.id);
  assert.deepEqual(pathTo(copy).map(textOf), ['Hi\n there', 'Hello']);
  copy.messages[answer.id].parts[0].text = 'changed';
  assert.equal(textOf(answer), 'Hello', 'the copy is its own');
});

test('a request has the system prompt, the branch, tool calls and results', () => {
  const { conversation, question } = sample();
  const call = { kind: 'call', call: 0, id: 'c', name: 'add', args: '{"a":1}', done: true, from: 0, to: 0 };
  const answer = addMessage(conversation, { role: 'assistant', parts: [{ kind: 'reasoning', text: 'hm', from: 0, to: 0 }, ...text('See'), call] }, question.id);
  const result = addMessage(conversation, { role: 'tool', callId: 'c', parts: text('2') }, answer.id);
  assert.deepEqual(requestMessages(conversation, result.id), [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Hi\n there' },
    { role: 'assistant', content: 'See', tool_calls: [{ id: 'c', type: 'function', function: { name: 'add', arguments: '{"a":1}' } }] },
    { role: 'tool', tool_call_id: 'c', content: '2' },
  ]);
});

test('conversations have a bound, and damaged files an error', () => {
  const { conversation, answer } = sample();
  assert.deepEqual(checkConversation(JSON.parse(JSON.stringify(conversation))), conversation);
  const broken = [
    null, {}, { id: 'a', title: 'b' }, { ...conversation, messages: { x: { id: 'y' } } },
    { ...conversation, messages: { [answer.id]: { ...answer, parts: [{ kind: 'html' }] } } },
    { ...conversation, messages: { [answer.id]: { ...answer, role: 'root' } } },
  ];
  for (const value of broken) assert.throws(() => checkConversation(value), JSON.stringify(value));
  const circle = { ...conversation, leaf: 'x', messages: { x: { ...answer, id: 'x', parent: 'x' } } };
  assert.ok(pathTo(checkConversation(circle)).length <= MESSAGES_MAX + 1, 'a circle ends');
  for (let at = 2; at < MESSAGES_MAX; at += 1) addMessage(conversation, { role: 'user' }, null);
  assert.throws(() => addMessage(conversation, { role: 'user' }, null), /at most 2000/);
});

const SCHEMA = {
  type: 'object', required: ['name', 'age'],
  properties: { name: { type: 'string', maxLength: 5 }, age: { type: 'integer', maximum: 99 }, color: { enum: ['red', 'green'] }, tags: { type: 'array', items: { $ref: '#/$defs/tag' } } },
  $defs: { tag: { anyOf: [{ type: 'string' }, { type: 'null' }] } },
};

test('each beginning of a valid text may become valid', () => {
  const values = [{ name: 'Ada', age: 36, color: 'red', tags: ['a\n"\\', null] }, { name: 'é👍', age: 0 }];
  for (const value of values) {
    for (const json of [JSON.stringify(value), JSON.stringify(value, null, 2)]) {
      for (let end = 0; end < json.length; end += 1) {
        const verdict = checkJson(SCHEMA, json.slice(0, end));
        assert.equal(verdict.state, 'incomplete', `${json.slice(0, end)}: ${verdict.message}`);
      }
      assert.equal(checkJson(SCHEMA, json).state, 'valid');
    }
  }
});

test('a text that cannot become valid says where and why', () => {
  const rows = [
    ['{"name": 1', /\$\.name: integer, not string|valid so far/], ['{"name": 1,', /\$\.name: integer, not string/], ['{"name":"toolong', /longer than 5/], ['{"age": 100,', /more than 99/],
    ['{"color":"b', /not one of/], ['{"color":"red","x', /valid so far/], ['{"x":', /not a property/], ['{"x":1,', /not a property/], ['{"tags":[1,', /none of the 2/],
    ['{"name":"a","age":1.5}', /number, not integer/], ['{"name":"a"}', /age is missing/], ['[', /array, not object/], ['{"name":"a","age":1} x', /text after/], ['{name', /expected a name/],
    ['nul!', /unexpected/], ['{"a" 1', /expected :/], ['{"tags":["a" "b"', /expected , or \]/], [`${'['.repeat(80)}`, /nested deeper/],
  ];
  for (const [json, message] of rows) {
    const verdict = checkJson(SCHEMA, json);
    assert.match(verdict.message, message, json);
    assert.equal(verdict.state, verdict.message === 'valid so far' ? 'incomplete' : 'invalid', json);
  }
  assert.equal(checkJson(null, '12').state, 'incomplete');
  assert.equal(checkJson(null, '12', true).state, 'valid');
  assert.equal(checkJson(null, '{"a":', true).state, 'invalid');
});

test('the defaults of a model are the lines of its parameters', () => {
  const read = new Map(readParameters('num_ctx 512\ntemperature 0.6\nstop "a b"\n\nodd'));
  assert.deepEqual([...read], [['num_ctx', '512'], ['temperature', '0.6'], ['stop', '"a b"']]);
});
