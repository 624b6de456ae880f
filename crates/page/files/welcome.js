// What a new conversation shows: what the model is, and what to try.

import { button, el } from './dom.js';
import { TOY } from './models.js';

const TRY = ['Tell me about rivers.', 'Tell me a story about a fox.', 'What is 23 + 45?'];

/** @param {import('./chat_view.js').ChatView} chat */
export function welcome(chat) {
  const isToy = chat.conversation.model === TOY;
  return el('div', { class: 'welcome' },
    el('h2', {}, 'Ask something'),
    isToy ? el('div', { class: 'notice', role: 'note' },
      el('strong', {}, `${TOY} is a toy. `),
      'It has 3.5 million parameters, proves that the server works, and knows nothing. ',
      el('a', { href: '#models' }, 'Get a real model'), ', which takes a minute or two.') : null,
    chat.models.error ? el('div', { class: 'error', role: 'alert' }, chat.models.error) : null,
    el('div', { class: 'row wrap' }, ...TRY.map((text) => button(text, () => void chat.send(text), { class: 'suggestion' }))),
    el('p', { class: 'quiet' }, 'Close the lid, reload, lose the network or restart the server: the answer goes on where it was. ',
      'Try it with “Break it”, and look at the ', el('a', { href: '#river' }, 'river'), ' of all streams meanwhile.'));
}
