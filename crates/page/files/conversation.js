// A conversation is a tree of messages: an edited question or another answer is a new branch beside the old one.

/**
 * @typedef {object} Message
 * @property {string} id
 * @property {string | null} parent
 * @property {'user' | 'assistant' | 'tool'} role
 * @property {import('./answer.js').Part[]} parts
 * @property {number} time
 * @property {string} [callId] Of a tool's result.
 * @property {string} [model]
 * @property {string} [job] Name under which the server has the request.
 * @property {string} [stream]
 * @property {string | null} [cursor] Last event that is in the parts.
 * @property {number} [skipped] Parts before the answer's own: the text that it continues.
 * @property {string | null} [end]
 * @property {{code: string, message: string} | null} [error]
 * @property {{tokens: number, rate: number | null, firstMs: number | null, totalMs: number | null}} [measures]
 * @property {number} [begun] When the answer was asked for, in milliseconds since 1970.
 * @property {number[]} [times] Milliseconds from then to each token.
 * @property {boolean} [isOpen] Whether the answer has not ended.
 *
 * @typedef {object} Conversation
 * @property {string} id
 * @property {string} title
 * @property {number} updated
 * @property {string} model
 * @property {string} system
 * @property {Record<string, any>} options
 * @property {Record<string, Message>} messages
 * @property {string | null} leaf The last message of the branch that is shown.
 */

import { contentOf, imagesOf, isImagePart, keptImages } from './images.js';
import { areTimes } from './recording.js';

/** Characters of a title. */
const TITLE_CHARS = 60;
/** Messages of a conversation, all branches together. */
export const MESSAGES_MAX = 2000;

/** 128 random bits. `crypto.randomUUID` is missing in pages without TLS. */
export function newId() {
  return hexadecimal(crypto.getRandomValues(new Uint8Array(16)));
}

/** @param {Uint8Array} bytes */
export function hexadecimal(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** @param {Partial<Conversation>} [like] @returns {Conversation} */
export function newConversation(like = {}) {
  return {
    id: newId(),
    title: 'New chat',
    updated: Date.now(),
    model: like.model ?? '',
    system: like.system ?? '',
    options: { ...like.options },
    messages: {},
    leaf: null,
  };
}

/** Adds a message after another, and shows that branch. @param {Conversation} conversation @param {Partial<Message> & {role: Message['role']}} message @param {string | null} parent @returns {Message} */
export function addMessage(conversation, message, parent) {
  if (Object.keys(conversation.messages).length >= MESSAGES_MAX) {
    throw new Error(`a conversation has at most ${MESSAGES_MAX} messages, all branches together: begin a new one`);
  }
  const added = { parts: [], time: Date.now(), ...message, id: newId(), parent };
  conversation.messages[added.id] = added;
  conversation.leaf = added.id;
  conversation.updated = Date.now();
  if (conversation.title === 'New chat' && message.role === 'user') {
    const text = (textOf(added) || imagesOf(added)[0]?.name || '').trim().replace(/\s+/g, ' ');
    conversation.title = [...text].slice(0, TITLE_CHARS).join('') || 'New chat';
  }
  return added;
}

/** The messages from the first one to this one. @param {Conversation} conversation @param {string | null} [leaf] @returns {Message[]} */
export function pathTo(conversation, leaf = conversation.leaf) {
  /** @type {Message[]} */
  const path = [];
  // The bound also ends a circle, which only a broken import could have.
  for (let id = leaf; id && conversation.messages[id] && path.length <= MESSAGES_MAX; id = conversation.messages[id].parent) {
    path.push(conversation.messages[id]);
  }
  return path.reverse();
}

/** The messages that stand in the place of this one, itself included, oldest first. @param {Conversation} conversation @param {Message} message */
export function siblingsOf(conversation, message) {
  const all = Object.values(conversation.messages).filter((other) => other.parent === message.parent);
  return all.sort((a, b) => a.time - b.time);
}

/** Shows the branch of a message, down to its latest answer. @param {Conversation} conversation @param {string} id */
export function showBranch(conversation, id) {
  let leaf = id;
  for (let steps = 0; steps <= MESSAGES_MAX; steps += 1) {
    const children = Object.values(conversation.messages).filter((message) => message.parent === leaf);
    if (children.length === 0) break;
    leaf = children.reduce((a, b) => (b.time >= a.time ? b : a)).id;
  }
  conversation.leaf = leaf;
}

/** A conversation of its own with the messages up to this one. @param {Conversation} conversation @param {string} id @returns {Conversation} */
export function copyBranch(conversation, id) {
  const copy = { ...newConversation(conversation), title: `${conversation.title} (branch)` };
  for (const message of pathTo(conversation, id)) copy.messages[message.id] = structuredClone(message);
  copy.leaf = id;
  return copy;
}

/** @param {Message} message */
export function textOf(message) {
  return message.parts.map((part) => (part.kind === 'content' ? part.text : '')).join('');
}

/** Images of a request whose bytes this tab has. @param {Conversation} conversation @param {string | null} [leaf] */
export function imageCount(conversation, leaf) {
  return pathTo(conversation, leaf).flatMap(imagesOf).filter(({ id }) => keptImages.get(id)).length;
}

/** The messages of a request, as OpenAI's API writes them. @param {Conversation} conversation @param {string | null} leaf */
export function requestMessages(conversation, leaf) {
  /** @type {any[]} */
  const messages = conversation.system.trim() ? [{ role: 'system', content: conversation.system }] : [];
  for (const message of pathTo(conversation, leaf)) {
    if (message.role === 'tool') {
      messages.push({ role: 'tool', tool_call_id: message.callId, content: textOf(message) });
      continue;
    }
    const calls = message.parts.flatMap((part) => (part.kind === 'call'
      ? [{ id: part.id, type: 'function', function: { name: part.name, arguments: part.args || '{}' } }] : []));
    messages.push({ role: message.role, content: contentOf(imagesOf(message), textOf(message)), ...(calls.length > 0 && { tool_calls: calls }) });
  }
  return messages;
}

/** A conversation from a file, or an error that says what is wrong. @param {any} value @returns {Conversation} */
export function checkConversation(value) {
  const isText = (/** @type {unknown} */ text) => typeof text === 'string';
  if (!value || !isText(value.id) || !isText(value.title) || typeof value.messages !== 'object' || !value.messages) {
    throw new Error('not a conversation of this page: id, title or messages are missing');
  }
  const messages = Object.entries(value.messages);
  if (messages.length > MESSAGES_MAX) throw new Error(`a conversation has at most ${MESSAGES_MAX} messages, not ${messages.length}`);
  for (const [id, message] of /** @type {[string, any][]} */ (messages)) {
    const isMessage = message && message.id === id && ['user', 'assistant', 'tool'].includes(message.role)
      && (message.parent === null || isText(message.parent)) && Array.isArray(message.parts) && message.parts.every(isPart) && areTimes(message.times);
    if (!isMessage) throw new Error(`the message ${id.slice(0, 40)} of “${value.title.slice(0, 40)}” is damaged`);
  }
  return {
    id: value.id, title: value.title.slice(0, 200), updated: Number(value.updated) || Date.now(),
    model: isText(value.model) ? value.model : '', system: isText(value.system) ? value.system : '',
    options: typeof value.options === 'object' && value.options ? value.options : {},
    messages: value.messages, leaf: value.messages[value.leaf] ? value.leaf : null,
  };
}

/** @param {any} part */
function isPart(part) {
  if (!part || typeof part !== 'object') return false;
  if (part.kind === 'call') return typeof part.args === 'string' && typeof part.name === 'string' && typeof part.id === 'string';
  return isImagePart(part) || (part.kind === 'content' || part.kind === 'reasoning') && typeof part.text === 'string';
}
