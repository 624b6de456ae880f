// Events, answers, lanes and recordings: what the page makes of the server's bytes.
//
// Promise (The web page): a replay has the times at which the browser received the tokens, also after a reload.
// Also held by `tools/page/view_checks.py :: replay`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applyEvent, callsOf, newAnswer, textOf } from '../../files/answer.js';
import { Breaker } from '../../files/breaker.js';
import { LANES_MAX, Lanes, SEGMENTS_MAX, TICKS_MAX, labelOf, stallOf } from '../../files/lanes.js';
import { Recording, TIMES_MAX, areTimes, noteTime } from '../../files/recording.js';
import { EVENT_CHARS_MAX, EventParser } from '../../files/sse.js';
import { aheadText, describingText } from '../../files/waiting.js';

const WIRE = '\ufeffretry: 250\r\ndata: {"a":1}\r\n\r\n: ping\n: loading 42 %\nid: s:1\nevent: other\ndata: first\ndata:second\n\ndata\n\rid\rdata: last\r\rid: bad\0\ndata:  two spaces\n\ndata: cut';

function parse(pieces) {
  const parser = new EventParser();
  const events = pieces.flatMap((piece) => parser.push(piece));
  return { events, retry: parser.retry, comment: parser.comment };
}

test('events of a text in pieces are those of the whole text, for every cut', () => {
  const whole = parse([WIRE]);
  assert.deepEqual(whole.events, [
    { data: '{"a":1}', id: '', type: 'message' },
    { data: 'first\nsecond', id: 's:1', type: 'other' },
    { data: '', id: 's:1', type: 'message' },
    { data: 'last', id: '', type: 'message' },
    { data: ' two spaces', id: '', type: 'message' },
  ]);
  assert.deepEqual([whole.retry, whole.comment], [250, 'loading 42 %']);
  for (let a = 0; a <= WIRE.length; a += 1) {
    for (let b = a; b <= WIRE.length; b += 7) {
      assert.deepEqual(parse([WIRE.slice(0, a), WIRE.slice(a, b), WIRE.slice(b)]), whole, `${a} ${b}`);
    }
  }
  assert.deepEqual(parse([...WIRE]), whole);
});

test('an event without end is an error', () => {
  const parser = new EventParser();
  const piece = `data: ${'x'.repeat(1 << 20)}`;
  assert.throws(() => {
    for (let i = 0; i < 6; i += 1) parser.push(piece);
  }, new RegExp(String(EVENT_CHARS_MAX)));
});

const EVENTS = [
  { type: 'queued', position: 2 },
  { type: 'started', model: 'm' },
  { type: 'token', t: 'Let me ', kind: 'reasoning', i: 0 },
  { type: 'token', t: 'think', kind: 'reasoning', i: 1, n: 2 },
  { type: 'token', t: 'It is ', i: 3 },
  { type: 'token', t: '4.', i: 4 },
  { type: 'tool_call', call: 0, id: 'c', name: 'add', i: 5 },
  { type: 'tool_args', call: 0, t: '{"a":', i: 6 },
  { type: 'tool_args', call: 0, t: '1}', i: 7 },
  { type: 'tool_end', call: 0, i: 8 },
  { type: 'end', tokens_out: 9, decode_time_ms: 80, stop_reason: 'EOS' },
];

test('an answer adds up its events', () => {
  const answer = newAnswer();
  applyEvent(answer, EVENTS[0], 0);
  assert.deepEqual([answer.state, answer.position], ['queued', 2]);
  EVENTS.slice(1).forEach((event, at) => applyEvent(answer, event, 100 + at));
  assert.equal(textOf(answer.parts, 'reasoning'), 'Let me think');
  assert.equal(textOf(answer.parts, 'content'), 'It is 4.');
  assert.deepEqual(callsOf(answer.parts).map((call) => [call.name, call.args, call.done]), [['add', '{"a":1}', true]]);
  assert.deepEqual([answer.state, answer.end, answer.tokens, answer.rate, answer.position], ['ended', 'EOS', 9, 100, null]);
});

test('tokens merged in one frame make the same answer', () => {
  const merged = newAnswer();
  const single = newAnswer();
  for (const [i, t] of [...'some text'].entries()) applyEvent(single, { type: 'token', t, i }, 0);
  applyEvent(merged, { type: 'token', t: 'some text', i: 0, n: 9 }, 0);
  assert.deepEqual(merged, single);
});

test('a continued answer keeps what was there in a part of its own', () => {
  const parts = [{ kind: 'content', text: 'Once upon', from: 0, to: 0 }];
  const answer = newAnswer(parts, 1);
  applyEvent(answer, { type: 'token', t: ' a time', i: 0 }, 5);
  assert.deepEqual(answer.parts.map((part) => part.text), ['Once upon', ' a time']);
  applyEvent(answer, { type: 'error', code: 'X', message: 'why' }, 6);
  assert.deepEqual([answer.state, answer.error], ['failed', { code: 'X', message: 'why' }]);
});

function stream(more = {}) {
  return {
    id: 'a', model: 'm', priority: 'normal', state: 'running', completion_tokens: 0, prompt_tokens: 10, prompt_done: 10, credit_window: 100,
    choices: [{ unaccepted: 0, end: null }], measures: { socket: { frames: 0 }, inter_token_ms: { mean: 10, max: 20 } }, ...more,
  };
}

const frames = (count) => ({ socket: { frames: count }, inter_token_ms: { mean: 10, max: 20 } });

test('lanes have ticks of the frames that the socket took, and a credit', () => {
  const lanes = new Lanes();
  lanes.takeList([stream()], 0);
  lanes.takeList([stream({ completion_tokens: 9, measures: frames(5), choices: [{ unaccepted: 75 }] })], 400);
  lanes.takeList([stream({ completion_tokens: 9, measures: frames(5) })], 800);
  const [lane] = lanes.all;
  assert.deepEqual(lane.ticks, [{ time: 400, count: 5 }]);
  assert.equal(lane.credit, 1);
  assert.equal(stallOf(lane, 900), '');
  assert.match(stallOf(lane, 4000), /^engine/);
});

test('a stall says whose it is', () => {
  const rows = [
    [{ state: 'queued', position: 3 }, /queue: number 3/],
    [{ state: 'prefilling', prompt_done: 4 }, /prompt 40 %/],
    [{ state: 'parked', parked: 'credit' }, /reader/],
    [{ state: 'parked', parked: 'detached' }, /reader: gone/],
    [{ state: 'parked', parked: 'pages' }, /engine/],
    [{ state: 'parked', parked: 'place' }, /queue/],
    [{ state: 'paused', parked: 'paused' }, /by request/],
    [{ attached: true }, /^running$/],
    [{ attached: false }, /^running, no reader$/],
  ];
  for (const [more, label] of rows) {
    const lanes = new Lanes();
    lanes.takeList([stream(more)], 0);
    assert.match(labelOf(lanes.all[0], 100), label);
  }
});

test('changes of the feed end a lane once, and lanes leave after a while', () => {
  const lanes = new Lanes();
  lanes.takeList([stream(), stream({ id: 'b' }), stream({ id: 'old', state: 'ended' })], 0);
  assert.equal(lanes.all.length, 2, 'a stream that has ended before gets no lane');
  lanes.takeEvent({ type: 'backpressure', stream: 'a' }, 10);
  lanes.takeEvent({ type: 'ended', stream: 'a', end: 'failed', detail: 'x' }, 20);
  lanes.takeEvent({ type: 'resumed', stream: 'a' }, 30);
  lanes.takeEvent({ type: 'ended', stream: 'unknown', end: 'eos' }, 30);
  assert.deepEqual(lanes.all.map((lane) => lane.id), ['b', 'a'], 'ended ones are last');
  assert.deepEqual(lanes.all[1].segments.map((segment) => segment.state), ['running', 'credit', 'failed']);
  lanes.takeList([stream({ id: 'b' })], 60_000);
  assert.deepEqual(lanes.all.map((lane) => lane.id), ['b']);
});

test('lanes, ticks and segments have their bounds', () => {
  const lanes = new Lanes();
  lanes.takeList(Array.from({ length: LANES_MAX + 10 }, (_, at) => stream({ id: `s${at}` })), 0);
  assert.equal(lanes.all.length, LANES_MAX);
  for (let at = 1; at < TICKS_MAX + 50; at += 1) {
    lanes.takeList([stream({ id: 's0', measures: frames(at), state: at % 2 ? 'parked' : 'running', parked: 'credit' })], at);
  }
  assert.equal(lanes.all[0].ticks.length, TICKS_MAX);
  assert.equal(lanes.all[0].segments.length, SEGMENTS_MAX);
});

test('a recording replays what came, by its times', () => {
  const recording = new Recording({ tokens: 2, meanMs: 10, firstMs: 100 });
  recording.add({ type: 'token', t: 'a', i: 0 }, 5000);
  recording.add({ type: 'token', t: 'b', i: 1 }, 5000);
  recording.add({ type: 'token', t: 'c', i: 2 }, 5000);
  recording.add({ type: 'token', t: 'd', i: 3 }, 5700);
  assert.deepEqual(recording.times(), [110, 120, 120, 820]);
  assert.equal(recording.textAt(115).content, 'a');
  assert.equal(recording.textAt(819).content, 'abc');
  assert.deepEqual(recording.textAt(820), { content: 'abcd', reasoning: '', tokens: 4 });
});

test('a recording has the times of each token that the chat has noted, also of tokens in one frame', () => {
  const times = [];
  noteTime(times, 1, 100.4);
  noteTime(times, 3, 250);
  noteTime(times, 3, 900);
  noteTime(times, 4, 240);
  assert.deepEqual(times, [100, 250, 250, 250], 'a time is noted once, and none goes back');
  const recording = new Recording({ tokens: 4, meanMs: 10, firstMs: 5, times });
  recording.add({ type: 'token', t: 'ab👍d', i: 0, n: 4 }, 7000);
  recording.add({ type: 'token', t: 'e', i: 4 }, 7100);
  recording.add({ type: 'token', t: 'f', i: 5 }, 7180);
  assert.deepEqual(recording.times(), [100, 250, 250, 250, 250, 330]);
  assert.equal(recording.textAt(100).content, 'a');
  assert.equal(recording.textAt(330).content, 'ab👍def');
  assert.match(recording.note, /this browser received/);
  noteTime(times, TIMES_MAX + 9, 300);
  assert.equal(times.length, TIMES_MAX);
  assert.ok(areTimes(times) && areTimes(undefined) && !areTimes(['1']) && !areTimes({}));
});

test('who is ahead is told by class, and by key where keys are named', () => {
  const stream = { position: 5, priority: 'normal' };
  assert.equal(aheadText({ position: 1 }, []), 'The next free slot is yours.');
  assert.equal(aheadText(stream, [{ priority: 'high' }, { priority: 'high' }]), 'Ahead of you (class normal): 2 high; 2 of other keys.');
  const named = [{ priority: 'high', key: 'ann' }, { priority: 'high', key: 'bob' }, { priority: 'low', key: 'ann' }, { priority: 'high', key: 'ann' }];
  assert.equal(aheadText(stream, named), 'Ahead of you (class normal): 2 high of ann, 1 high of bob, 1 low of ann.');
});

test('an image that another model describes is named by its number, until it is described', () => {
  const answer = newAnswer();
  const shown = [describingText(answer.images, 2)];
  for (const [index, state] of [[0, 'waiting'], [0, 'describing'], [0, 'described'], [1, 'describing'], [1, 'failed']]) {
    applyEvent(answer, { type: 'image', index, state }, 0);
    shown.push(describingText(answer.images, 2));
  }
  assert.deepEqual(shown, ['', '', 'Describing image 1 of 2…', '', 'Describing image 2 of 2…', '']);
  const late = newAnswer();
  applyEvent(late, { type: 'image', index: 1, state: 'describing' }, 0);
  assert.equal(describingText(late.images, 0), 'Describing image 2…', 'a reloaded tab does not know how many there are');
});

test('a slow reader waits half a second for each token of a frame', async () => {
  const breaker = new Breaker();
  breaker.setPace('slow');
  const [waits, later] = [[], globalThis.setTimeout];
  globalThis.setTimeout = (act, ms) => {
    waits.push(ms);
    return later(act, 0);
  };
  try {
    for (const tokens of [1, 7, 0]) await breaker.untilReading(new AbortController().signal, tokens);
  } finally {
    globalThis.setTimeout = later;
  }
  assert.deepEqual(waits, [500, 3500], 'an event without tokens is read at once');
});

test('a breaker holds readers until it lets go', async () => {
  const breaker = new Breaker();
  const { signal } = new AbortController();
  await breaker.untilReading(signal);
  breaker.setPace('stopped');
  let isRead = false;
  const read = breaker.untilReading(signal).then(() => (isRead = true));
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(isRead, false);
  breaker.setPace('full');
  await read;
  let cuts = 0;
  const unfollow = breaker.follow(() => (cuts += 1));
  breaker.cut();
  unfollow();
  breaker.cut();
  assert.equal(cuts, 1);
});
