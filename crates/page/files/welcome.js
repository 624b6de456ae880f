// What a new conversation shows: what the model is, and what to try.

import { button, el } from './dom.js';
import { TOY } from './models.js';

/** What the toy was trained for. */
const TRY_TOY = ['Tell me about rivers.', 'Tell me a story about a fox.', 'What is 23 + 45?'];
const TRY = ['Explain how a water mill works.', 'Write a Python function that merges two sorted lists.'];
/** For a model that reasons, and for others. */
const TRY_REASONING = 'A bat and a ball cost 1.10 together, and the bat costs 1 more than the ball. What does the ball cost?';
const TRY_PLAIN = 'Suggest three names for a tea house by a river.';

/** Suggestions for a model. @param {string} name @param {any} model As in the list of models. @returns {string[]} */
export function suggestions(name, model) {
  if (name === TOY) return TRY_TOY;
  return [...TRY, model?.thinking ? TRY_REASONING : TRY_PLAIN];
}

/** @param {import('./chat_view.js').ChatView} chat */
export function welcome(chat) {
  const name = chat.conversation.model;
  const isToy = name === TOY;
  const model = chat.models.all.find((one) => one.id === name);
  return el('div', { class: 'welcome' },
    el('h2', {}, 'Ask something'),
    isToy ? el('div', { class: 'notice', role: 'note' },
      el('strong', {}, `${TOY} is a toy. `),
      'It has 3.5 million parameters, proves that the server works, and knows nothing. ',
      el('a', { href: '#models' }, 'Get a real model'), ', which takes a minute or two.') : null,
    chat.models.error ? el('div', { class: 'error', role: 'alert' }, chat.models.error) : null,
    el('div', { class: 'row wrap' }, ...suggestions(name, model).map((text) => button(text, () => void chat.send(text), { class: 'suggestion' }))),
    el('p', { class: 'quiet' }, 'Close the lid, reload, lose the network or restart the server: the answer goes on where it was. ',
      'Try it with “Break it” in the ', el('a', { href: '#river' }, 'river'), ', which shows all streams.'));
}
