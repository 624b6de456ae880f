// A message on the screen: markdown, folded reasoning, tool calls, what became of it, and what can be done with it.

import { button, duration, el, fill } from './dom.js';
import { ImageTray, thumbnail } from './image_tray.js';
import { imagesOf, keptImages } from './images.js';
import { checkJson } from './json_check.js';
import { MarkdownView, copyText } from './markdown_view.js';
import { siblingsOf, textOf } from './conversation.js';
import { waitingCard } from './waiting.js';

/** @typedef {import('./conversation.js').Message} Message */
/** @typedef {import('./chat_view.js').ChatView} ChatView */

/** What an end means to a reader. */
const ENDS = /** @type {Record<string, string>} */ ({
  MAX_TOKENS: 'cut off at the token limit',
  CANCELLED: 'stopped',
  STOP_SEQUENCE: 'ended by a stop string',
});

export class MessageView {
  /** @type {Map<string, {root: HTMLElement, update: (part: any) => void}>} */
  #parts = new Map();
  #frame = 0;
  /** @type {string | undefined} */
  #shownStream;

  /** @param {ChatView} chat @param {Message} message */
  constructor(chat, message) {
    this.chat = chat;
    this.message = message;
    this.body = el('div', { class: 'message-body' });
    this.status = el('div', { class: 'message-status' });
    this.actions = el('div', { class: 'message-actions' });
    const name = { user: 'You', assistant: message.model || chat.conversation.model || 'Answer', tool: 'Tool result' }[message.role];
    this.root = el('article', { class: `message ${message.role}`, 'aria-label': name, 'data-id': message.id },
      el('header', { class: 'message-name' }, name), this.body, this.status, this.actions);
    this.update();
    this.showActions();
  }

  /** At most once a frame. */
  updateSoon() {
    if (this.#frame) return;
    const update = () => {
      this.#frame = 0;
      this.update();
    };
    this.#frame = document.hidden ? Number(setTimeout(update, 200)) : requestAnimationFrame(update);
  }

  get generation() {
    return this.chat.generations.get(this.message.id);
  }

  update() {
    const isOpen = this.message.isOpen === true;
    this.root.classList.toggle('is-open', isOpen);
    this.root.setAttribute('aria-busy', String(isOpen));
    const groups = grouped(this.message.parts);
    const keys = groups.map((group, at) => `${at} ${group.kind}`);
    for (const [key, part] of this.#parts) {
      if (!keys.includes(key)) {
        part.root.remove();
        this.#parts.delete(key);
      }
    }
    groups.forEach((group, at) => {
      let part = this.#parts.get(keys[at]);
      if (!part) {
        part = this.#makePart(group);
        this.#parts.set(keys[at], part);
        this.body.append(part.root);
      }
      part.update(group);
    });
    this.#showStatus();
    if (this.message.stream !== this.#shownStream) this.showActions();
  }

  /** @param {any} group */
  #makePart(group) {
    if (group.kind === 'call') return callPart(this, group);
    if (group.kind === 'image') return imagePart();
    if (group.kind === 'reasoning') return reasoningPart(this);
    if (this.message.role !== 'assistant') {
      const root = el('div', { class: 'plain', dir: 'auto' });
      return { root, update: (/** @type {any} */ part) => (root.textContent = part.text) };
    }
    const root = el('div', { class: 'markdown', dir: 'auto' });
    const view = new MarkdownView(root);
    return { root, update: (/** @type {any} */ part) => view.show(part.text, !this.message.isOpen) };
  }

  #showStatus() {
    const { message, generation } = this;
    const lines = [];
    if (generation && message.isOpen && message.parts.length === (message.skipped ?? 0)) lines.push(waitingCard(generation));
    else if (generation && message.isOpen && ['broken', 'offline', 'connecting'].includes(generation.connection) && generation.reader?.connections) {
      lines.push(el('span', { class: 'chip warn' }, generation.connection === 'offline' ? 'offline' : 'reconnecting, goes on where it was'));
    }
    if (message.error) {
      lines.push(el('div', { class: 'error', role: 'alert' }, el('strong', {}, message.error.code), ` ${message.error.message}`));
    }
    const schema = this.chat.conversation.options.schema;
    const text = textOf(message);
    if (schema && message.role === 'assistant' && text) {
      const verdict = checkJson(schema, text, !message.isOpen);
      lines.push(el('span', { class: `chip ${verdict.state}` }, `schema: ${verdict.message}`));
    }
    if (message.role === 'assistant' && message.measures) lines.push(measuresLine(message));
    fill(this.status, ...lines);
  }

  showActions() {
    const { chat, message } = this;
    this.#shownStream = message.stream;
    const branches = siblingsOf(chat.conversation, message);
    const at = branches.indexOf(message);
    /** @type {(Node | false)[]} */
    const actions = [
      branches.length > 1 && el('span', { class: 'branches' },
        button('‹', () => chat.showVersion(branches[at - 1].id), { disabled: at === 0, 'aria-label': 'Previous version' }),
        el('span', {}, `${at + 1}/${branches.length}`),
        button('›', () => chat.showVersion(branches[at + 1].id), { disabled: at === branches.length - 1, 'aria-label': 'Next version' })),
    ];
    const copy = button('Copy', () => void copyText(textOf(message), copy));
    if (message.role === 'user') actions.push(button('Edit', () => this.edit()), copy);
    if (message.role === 'assistant' && !message.isOpen) {
      const mayContinue = message.end !== 'EOS' && textOf(message) !== '' && !message.parts.some((part) => part.kind === 'call');
      actions.push(copy, button('Regenerate', () => void chat.regenerate(message)));
      if (mayContinue) actions.push(button('Continue', () => void chat.continueMessage(message)));
      actions.push(button('Branch', () => void chat.branch(message), { title: 'A new conversation from here' }));
    }
    if (message.stream) actions.push(el('a', { href: `#stream/${message.stream}`, class: 'button' }, 'Stream'));
    fill(this.actions, ...actions);
  }

  edit() {
    const text = el('textarea', { class: 'edit', rows: '4', 'aria-label': 'Edit the message', value: textOf(this.message) });
    const tray = new ImageTray(imagesOf(this.message));
    const close = () => {
      editor.replaceWith(this.body);
      this.actions.hidden = false;
    };
    const send = () => {
      close();
      void this.chat.editMessage(this.message, text.value, tray.images);
    };
    const editor = el('div', { class: 'editor' }, tray.root, text, el('div', { class: 'row' },
      button('Send as a new branch', send, { class: 'primary' }), button('Cancel', close)));
    text.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Escape') close();
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send();
    });
    this.body.replaceWith(editor);
    this.actions.hidden = true;
    text.focus();
  }
}

/** Parts beside each other of one kind are shown as one. @param {import('./answer.js').Part[]} parts */
function grouped(parts) {
  /** @type {any[]} */
  const groups = [];
  for (const part of parts) {
    const last = groups.at(-1);
    if (last && last.kind === part.kind && (part.kind === 'content' || part.kind === 'reasoning')) {
      last.text += part.text;
      last.to = part.to;
    } else {
      groups.push({ ...part });
    }
  }
  return groups;
}

function imagePart() {
  const root = el('div', { class: 'image' });
  let isKept = /** @type {boolean | undefined} */ (undefined);
  return {
    root,
    update: (/** @type {import('./images.js').ImagePart} */ part) => {
      const isThere = keptImages.get(part.id) !== undefined;
      if (isThere !== isKept) fill(root, thumbnail(part));
      isKept = isThere;
    },
  };
}

/** @param {MessageView} view */
function reasoningPart(view) {
  const summary = el('summary', {});
  const text = el('div', { class: 'markdown', dir: 'auto' });
  const markdown = new MarkdownView(text);
  const root = el('details', { class: 'reasoning' }, summary, text);
  return {
    root,
    update: (/** @type {any} */ part) => {
      const isNow = view.message.isOpen && view.message.parts.at(-1)?.kind === 'reasoning';
      const time = part.to - part.from;
      summary.textContent = isNow ? `Thinking… ${duration(time)}` : time < 100 ? 'Thought' : `Thought for ${duration(time)}`;
      markdown.show(part.text, !view.message.isOpen);
    },
  };
}

/** @param {MessageView} view @param {any} first */
function callPart(view, first) {
  const state = el('span', { class: 'chip' });
  const args = el('pre', { tabindex: '0' }, '');
  const answer = el('div', {});
  const root = el('section', { class: 'call', 'aria-label': `Tool call ${first.name}` },
    el('header', {}, el('strong', {}, first.name), state), args, answer);
  let asks = false;
  return {
    root,
    update: (/** @type {any} */ part) => {
      state.textContent = part.done ? 'arguments complete' : 'arguments arriving';
      args.textContent = pretty(part);
      const isLeaf = view.chat.conversation.leaf === view.message.id;
      if (part.done && !view.message.isOpen && isLeaf && !asks) {
        asks = true;
        answer.append(resultForm(view, part));
      }
    },
  };
}

/** @param {any} part */
function pretty(part) {
  if (!part.done) return part.args;
  try {
    return JSON.stringify(JSON.parse(part.args), null, 2);
  } catch {
    return part.args;
  }
}

/** @param {MessageView} view @param {any} part */
function resultForm(view, part) {
  const result = el('textarea', { rows: '2', 'aria-label': `Result of ${part.name}`, placeholder: 'What the tool returned' });
  return el('div', { class: 'row' }, result,
    button('Send result', () => void view.chat.sendToolResult(view.message, part.id, result.value)));
}

/** @param {Message} message */
function measuresLine(message) {
  const { tokens, rate, firstMs, totalMs } = /** @type {NonNullable<Message['measures']>} */ (message.measures);
  const facts = [`${tokens} tokens`];
  if (rate) facts.push(`${rate.toFixed(1)} tokens/s`);
  if (firstMs !== null) facts.push(`first after ${duration(firstMs)}`);
  if (totalMs !== null && !message.isOpen) facts.push(`in ${duration(totalMs)}`);
  if (message.end && ENDS[message.end]) facts.push(ENDS[message.end]);
  return el('span', { class: 'measures' }, facts.join(' · '));
}
