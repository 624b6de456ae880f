// The chat: conversations at the side, messages in the middle, the composer below.

import { reasonOf } from './api.js';
import { Breaker } from './breaker.js';
import { Composer } from './composer.js';
import { addMessage, copyBranch, imageCount, newConversation, pathTo, showBranch } from './conversation.js';
import { announce, button, el, fill } from './dom.js';
import { Generation } from './generation.js';
import { MessageView } from './message_view.js';
import { optionsPanel } from './options_panel.js';
import { welcome } from './welcome.js';

/** @typedef {import('./conversation.js').Conversation} Conversation */
/** @typedef {import('./conversation.js').Message} Message */

/** Pixels from the end within which the view follows the answer. */
const FOLLOW_PX = 120;

export class ChatView {
  /** @type {Map<string, Generation>} */
  generations = new Map();
  /** @type {Map<string, MessageView>} */
  #views = new Map();
  #follows = true;
  /** The answer that was begun or resumed last, also after its end. @type {Generation | undefined} */
  latest;

  /** @param {import('./store.js').ConversationStore} store @param {import('./models.js').ModelList} models */
  constructor(store, models) {
    this.store = store;
    this.models = models;
    this.breaker = new Breaker();
    this.conversation = newConversation();
    this.messages = el('div', { class: 'messages', role: 'log', 'aria-live': 'off', 'aria-label': 'Conversation' });
    this.scroll = el('div', { class: 'scroll', tabindex: '0', 'aria-label': 'Messages', role: 'region' }, this.messages);
    this.composer = new Composer(this);
    this.model = el('select', { 'aria-label': 'Model', on: { change: () => this.chooseModel(this.model.value) } });
    this.side = el('div', { class: 'drawer', hidden: true });
    this.root = el('section', { class: 'view chat', 'aria-label': 'Chat' },
      el('h1', { class: 'visually-hidden' }, 'Chat'),
      el('div', { class: 'bar' }, this.model,
        button('System & options', () => this.#toggleOptions(), { 'aria-expanded': 'false', 'data-panel': 'options' })),
      this.side, this.scroll, this.composer.root);
    this.composer.takeDrops(this.root);
    this.scroll.addEventListener('scroll', () => {
      const { scrollTop, scrollHeight, clientHeight } = this.scroll;
      this.#follows = scrollHeight - scrollTop - clientHeight < FOLLOW_PX;
    });
    models.addEventListener('change', () => this.#showModels());
    store.addEventListener('change', (event) => this.#takeChange(/** @type {CustomEvent} */ (event).detail));
  }

  /** The answer that is being generated on the branch that is shown. */
  get running() {
    const leaf = this.conversation.leaf;
    return leaf ? this.generations.get(leaf) : undefined;
  }

  /** Why the chosen model takes no images; empty: it does. */
  get blindness() {
    return this.models.blindness(this.conversation.model);
  }

  /** Images that a request of this branch has already. */
  get imageCount() {
    return imageCount(this.conversation);
  }

  /** @param {string} [id] */
  open(id) {
    const known = id ? this.store.get(id) : undefined;
    this.conversation = known ?? newConversation(this.conversation);
    this.#views.clear();
    this.messages.replaceChildren();
    this.#follows = true;
    this.#closePanel();
    this.#showModels();
    this.#render();
    for (const message of Object.values(this.conversation.messages)) {
      if (message.isOpen && !this.generations.has(message.id)) this.#follow(new Generation(this.store, this.conversation, message, this.breaker), 'resume');
    }
    if (matchMedia('(hover: hover)').matches) this.composer.focus();
  }

  /** @param {string} text @param {import('./images.js').ImagePart[]} [images] */
  async send(text, images = []) {
    try {
      const { conversation } = this;
      const leaf = conversation.leaf;
      const asked = addMessage(conversation, { role: 'user', parts: partsOf(text, images) }, leaf);
      await this.#answer(asked.id);
    } catch (error) {
      this.composer.complain(reasonOf(error));
    }
  }

  /** @param {Message} message @param {string} callId @param {string} text */
  async sendToolResult(message, callId, text) {
    const told = addMessage(this.conversation, { role: 'tool', callId, parts: [{ kind: 'content', text, from: 0, to: 0 }] }, this.conversation.leaf ?? message.id);
    const calls = message.parts.filter((part) => part.kind === 'call').length;
    const results = pathTo(this.conversation).filter((one) => one.role === 'tool' && one.time >= message.time).length;
    if (results >= calls) await this.#answer(told.id);
    else this.#render();
  }

  /** @param {Message} message */
  regenerate(message) {
    return this.#answer(message.parent);
  }

  /** @param {Message} message @param {string} text @param {import('./images.js').ImagePart[]} images */
  async editMessage(message, text, images) {
    const edited = addMessage(this.conversation, { role: 'user', parts: partsOf(text, images) }, message.parent);
    await this.#answer(edited.id);
  }

  /** @param {Message} message */
  async continueMessage(message) {
    showBranch(this.conversation, message.id);
    await this.#follow(new Generation(this.store, this.conversation, message, this.breaker), 'continue');
  }

  /** @param {Message} message */
  async branch(message) {
    const copy = copyBranch(this.conversation, message.id);
    await this.store.save(copy);
    location.hash = `#chat/${copy.id}`;
  }

  /** @param {string} id */
  showVersion(id) {
    showBranch(this.conversation, id);
    void this.store.save(this.conversation);
    this.#render();
  }

  stop() {
    void this.running?.stop();
  }

  /** @param {string | null} parent */
  async #answer(parent) {
    const message = addMessage(this.conversation, { role: 'assistant', model: this.conversation.model }, parent);
    message.isOpen = true;
    // An answer may begin while another view is shown.
    if (this.root.isConnected) history.replaceState(null, '', `#chat/${this.conversation.id}`);
    this.#follows = true;
    await this.#follow(new Generation(this.store, this.conversation, message, this.breaker), 'start');
  }

  /** @param {Generation} generation @param {'start' | 'continue' | 'resume'} how */
  async #follow(generation, how) {
    const { message, conversation } = generation;
    this.generations.set(message.id, generation);
    this.latest = generation;
    generation.addEventListener('change', () => {
      const view = this.#views.get(message.id);
      if (!view || this.conversation !== conversation) return;
      view.updateSoon();
      this.composer.update();
      this.#scrollSoon();
    });
    generation.addEventListener('end', () => {
      this.generations.delete(message.id);
      if (this.conversation !== conversation) return;
      this.#render();
      announce(message.error ? `The answer failed: ${message.error.message}` : 'The answer is complete');
    });
    const done = how === 'resume' ? generation.resume() : generation.start({ isContinued: how === 'continue' });
    this.#render();
    announce('The answer begins');
    await done;
  }

  #render() {
    const path = pathTo(this.conversation);
    const nodes = path.map((message) => {
      let view = this.#views.get(message.id);
      if (!view || view.message !== message) {
        view = new MessageView(this, message);
        this.#views.set(message.id, view);
      } else {
        view.update();
        view.showActions();
      }
      return view.root;
    });
    fill(this.messages, ...(nodes.length > 0 ? nodes : [welcome(this)]));
    this.composer.update();
    this.#scrollSoon();
  }

  #scrollSoon() {
    if (this.#follows) requestAnimationFrame(() => (this.scroll.scrollTop = this.scroll.scrollHeight));
  }

  /** Another tab has changed the conversation. @param {string | undefined} id */
  #takeChange(id) {
    if (id !== this.conversation.id || this.running) return;
    const changed = this.store.get(id);
    if (changed && changed !== this.conversation) this.open(id);
  }

  /** @param {Partial<Conversation>} change */
  #set(change) {
    Object.assign(this.conversation, change);
    if (this.conversation.leaf) void this.store.save(this.conversation);
  }

  /** @param {string} model */
  chooseModel(model) {
    this.#set({ model });
    this.composer.complain('');
    this.#showModels();
  }

  #showModels() {
    const names = this.models.chatting.map((model) => model.id);
    if (this.conversation.model && !names.includes(this.conversation.model)) names.push(this.conversation.model);
    this.conversation.model ||= names[0] ?? '';
    fill(this.model, ...names.map((name) => el('option', { value: name, selected: name === this.conversation.model }, this.models.label(name))));
    if (!this.conversation.leaf) fill(this.messages, welcome(this));
    this.composer.update();
  }

  #closePanel() {
    this.side.hidden = true;
    for (const opener of this.root.querySelectorAll('[data-panel]')) opener.setAttribute('aria-expanded', 'false');
  }

  #toggleOptions() {
    const opener = /** @type {HTMLElement} */ (this.root.querySelector('[data-panel=options]'));
    const isOpen = opener.getAttribute('aria-expanded') === 'true';
    this.#closePanel();
    if (isOpen) return;
    opener.setAttribute('aria-expanded', 'true');
    this.side.hidden = false;
    fill(this.side, optionsPanel(this.conversation, () => this.#set({})));
  }
}

/** The parts of a question. @param {string} text @param {import('./images.js').ImagePart[]} images @returns {import('./answer.js').Part[]} */
function partsOf(text, images) {
  return text ? [...images, { kind: 'content', text, from: 0, to: 0 }] : images;
}
