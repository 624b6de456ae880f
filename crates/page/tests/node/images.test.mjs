// Which bytes of an image are sent, how they stand in a request, and what a conversation keeps of them.
//
// Promise (The web page): images are made smaller in the browser, sent with the message, and never stored: a conversation has their
// names, sizes and digests, and its requests say where an image is gone.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import './fake_document.mjs';
import { addMessage, checkConversation, copyBranch, newConversation, requestMessages } from '../../files/conversation.js';
import { EDGE_MAX, KeptImages, PIXELS_MAX, asImageSource, contentOf, fitted, imagesOf, isImagePart, keptImages, newImagePart, typeOfOriginal } from '../../files/images.js';
import { isImageFile } from '../../files/image_tray.js';
import { ModelList } from '../../files/models.js';

const latin1 = (text) => Uint8Array.from(text, (char) => char.charCodeAt(0));
const BEGINNINGS = {
  'image/jpeg': '\xff\xd8\xff\xe0..JFIF',
  'image/png': '\x89PNG\r\n\x1a\n\0\0\0\rIHDR',
  'image/webp': 'RIFF\x0a\x80\n\0WEBPVP8 ',
  'image/gif': 'GIF89a..!\xf9\x04....,',
  'image/bmp': 'BM......',
};

test('a file is sent as it is if a server reads it, it has one picture, and what was drawn is not smaller', () => {
  for (const [type, text] of Object.entries(BEGINNINGS)) {
    const file = latin1(text);
    assert.equal(typeOfOriginal(file, 100, file.length), type, 'as large: the original');
    assert.equal(typeOfOriginal(file, PIXELS_MAX, 1 << 20), type);
    assert.equal(typeOfOriginal(file, 100, file.length - 1), '', 'what was drawn is smaller');
    assert.equal(typeOfOriginal(file, PIXELS_MAX + 1, 1 << 20), '', 'too many pixels');
  }
  const drawn = ['', '<svg xmlns="x"/>', '\0\0\0\x20ftypheic', 'II*\0', '\0\0\0\x1cftypavif', 'GIF88a', 'x\xff\xd8\xff', '%PDF-1.7', 'RIFF\x24\0\0\0WAVEfmt '];
  for (const text of drawn) assert.equal(typeOfOriginal(latin1(text), 100, 1 << 20), '', text);
  const animated = { 'image/png': '\0\0\0\x08acTL', 'image/webp': 'ANIM......ANMF', 'image/gif': '....!\xf9\x04....' };
  for (const [type, more] of Object.entries(animated)) assert.equal(typeOfOriginal(latin1(BEGINNINGS[type] + more), 100, 1 << 20), '', `an animated ${type}`);
});

test('images are drawn within the longest edge, and never larger', () => {
  for (const [size, want] of [[[640, 480], [640, 480]], [[4096, 1024], [2048, 512]], [[3, 9000], [1, 2048]], [[2049, 2049], [2048, 2048]], [[1, 1], [1, 1]]]) {
    assert.deepEqual(fitted(...size), want);
  }
  for (let edge = 1; edge < 20_000; edge += 37) {
    const [width, height] = fitted(edge, 7919);
    assert.ok(width >= 1 && height >= 1 && Math.max(width, height) <= EDGE_MAX, `${edge}: ${width} × ${height}`);
  }
});

const URL_OF_DOT = 'data:image/png;base64,aGVsbG8=';
const text = (words) => ({ kind: 'content', text: words, from: 0, to: 0 });

/** A conversation whose question has an image with its bytes and one without them. */
function sample() {
  keptImages.keep('a', URL_OF_DOT, new Blob(['hello']));
  const conversation = newConversation();
  const [here, gone] = ['a', 'b'].map((id) => newImagePart(id, `${id}.png`, 5, 1, 1));
  const question = addMessage(conversation, { role: 'user', parts: [here, gone, text('Which color?')] }, null);
  return { conversation, question };
}

test('a request has the images of a message before its text, and a word for each that is gone', () => {
  const { conversation, question } = sample();
  addMessage(conversation, { role: 'assistant', parts: [text('Red.')] }, question.id);
  const [asked, answered] = requestMessages(conversation, conversation.leaf);
  assert.deepEqual(asked.content[0], { type: 'image_url', image_url: { url: URL_OF_DOT } });
  assert.match(asked.content[1].text, /image that is no longer available/);
  assert.deepEqual(asked.content.slice(2), [{ type: 'text', text: 'Which color?' }]);
  assert.equal(answered.content, 'Red.', 'a message without images is a text');
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'aGVsbG8=' } };
  assert.deepEqual(contentOf([imagesOf(question)[0]], '', asImageSource), [image], 'an image needs no text');
});

test('a conversation keeps names, sizes and digests, and no bytes', () => {
  const { conversation, question } = sample();
  const json = JSON.stringify(conversation);
  assert.ok(!json.includes('base64') && !json.includes('aGVsbG8'), json);
  assert.deepEqual(checkConversation(JSON.parse(json)), conversation);
  assert.deepEqual(imagesOf(copyBranch(conversation, question.id).messages[question.id]), imagesOf(question));
  const bare = newConversation();
  addMessage(bare, { role: 'user', parts: [newImagePart('c', 'cat.png', 5, 1, 1)] }, null);
  assert.equal(bare.title, 'cat.png');
  const part = newImagePart('a', 'x'.repeat(500), 5, 1, 1);
  assert.ok(isImagePart(part) && part.name.length <= 120, 'a long name is cut');
  for (const damage of [{ id: 1 }, { name: null }, { bytes: 'many' }, { width: NaN }, { name: 'x'.repeat(500) }, { kind: 'picture' }]) {
    assert.ok(!isImagePart({ ...part, ...damage }), JSON.stringify(damage));
  }
});

test('the bytes in the tab have a bound, and the oldest go first', () => {
  const kept = new KeptImages(100);
  const data = 'x'.repeat(40);
  for (const id of ['a', 'b', 'a', 'c']) kept.keep(id, data, new Blob(['x']));
  assert.deepEqual(['a', 'b', 'c'].map((id) => kept.get(id) !== undefined), [false, true, true]);
  kept.keep('large', 'x'.repeat(400), new Blob(['x']));
  assert.deepEqual(['b', 'c', 'large'].map((id) => kept.get(id) !== undefined), [false, false, true], 'the newest stays');
});

test('a model without vision says so, and names those that have it', () => {
  const models = new ModelList();
  const [blind, seeing] = [{ id: 'a', capabilities: ['completion'] }, { id: 'v', capabilities: ['completion', 'vision'] }];
  models.all = [blind, seeing, { id: 'unloaded', state: 'unloaded' }];
  assert.deepEqual(['v', 'unloaded', 'elsewhere'].map((name) => models.blindness(name)), ['', '', '']);
  assert.equal(models.blindness('a'), 'a reads text only; models with vision here: v');
  models.all = [blind];
  assert.match(models.blindness('a'), /no loaded model here has vision/);
});

test('files are recognized by their type, and HEIC by its name', () => {
  const rows = [['image/png', 'a', true], ['', 'IMG_1.HEIC', true], ['', 'a.heif', true], ['text/plain', 'a.txt', false], ['', 'heic', false]];
  for (const [type, name, want] of rows) assert.equal(isImageFile({ type, name }), want, `${type} ${name}`);
});
