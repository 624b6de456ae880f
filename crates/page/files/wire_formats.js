// The same log in every format, as bytes on the wire.

import { call } from './api.js';
import { button, el, fill } from './dom.js';

const FORMATS = ['native.job', 'openai.chat', 'openai.completions', 'openai.responses', 'anthropic.messages', 'ollama.chat', 'ollama.generate', 'ai-sdk.ui', 'llama.completion', 'llama.infill'];
/** Bytes of a format that are shown. */
const SHOWN_BYTES = 64 << 10;
const FIRST = 3;

/** @param {string} id @returns {HTMLElement} */
export function wireFormats(id) {
  const columns = el('div', { class: 'formats' });
  const boxes = FORMATS.map((name, at) => el('input', { type: 'checkbox', value: name, checked: at < FIRST }));
  const show = () => fill(columns, ...boxes.filter((box) => box.checked).map((box) => column(id, box.value)));
  return el('div', {}, el('h2', {}, 'On the wire'),
    el('p', { class: 'quiet' }, 'One log of tokens, derived again in each format; the cursors are the same.'),
    el('fieldset', { class: 'row wrap formats-chosen' }, el('legend', { class: 'visually-hidden' }, 'Formats'), ...boxes.map((box) => el('label', { class: 'inline' }, box, ` ${box.value}`)),
      button('Read the bytes', show)), columns);
}

/** @param {string} id @param {string} format */
function column(id, format) {
  const bytes = el('pre', { tabindex: '0' }, '…');
  const head = el('header', {}, format);
  void readBytes(id, format).then(
    ({ text, isCut }) => {
      bytes.textContent = text;
      head.textContent = `${format}: ${isCut ? 'the first ' : ''}${new Blob([text]).size} bytes`;
    },
    (error) => (bytes.textContent = String(error.message ?? error)),
  );
  return el('section', { 'aria-label': format }, head, bytes);
}

/** What a reader of a running stream has so far, and the whole of one that has ended. @param {string} id @param {string} format */
async function readBytes(id, format) {
  const abort = new AbortController();
  const path = `/v1/streams/${encodeURIComponent(id)}/events?dialect=${encodeURIComponent(format)}`;
  const response = await call('GET', path, { signal: abort.signal });
  if (!response.body) return { text: '', isCut: false };
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  // A stream that runs sends no end: what comes within a second is shown.
  const timer = setTimeout(() => void reader.cancel(), 1000);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return { text, isCut: false };
      text += value;
      if (text.length >= SHOWN_BYTES) return { text: text.slice(0, SHOWN_BYTES), isCut: true };
    }
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}
