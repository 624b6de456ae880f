// Where a message is written, and where an answer is stopped.

import { button, el } from './dom.js';

/** Characters of a text file that is dropped into a message. */
const FILE_CHARS_MAX = 256 << 10;

export class Composer {
  /** @param {import('./chat_view.js').ChatView} chat */
  constructor(chat) {
    this.chat = chat;
    this.text = el('textarea', {
      rows: '1', placeholder: 'Write a message', 'aria-label': 'Message', enterkeyhint: 'send', dir: 'auto',
      on: {
        input: () => this.#fit(),
        keydown: (/** @type {KeyboardEvent} */ event) => this.#takeKey(event),
        paste: (/** @type {ClipboardEvent} */ event) => this.#takeFiles(event, event.clipboardData?.files),
      },
    });
    this.sendButton = button('Send', () => this.#send(), { class: 'primary' });
    this.stopButton = button('Stop', () => chat.stop(), { class: 'stop', hidden: true });
    this.complaint = el('p', { class: 'error', role: 'alert', hidden: true });
    this.root = el('form', {
      class: 'composer',
      on: {
        submit: (/** @type {Event} */ event) => event.preventDefault(),
        dragover: (/** @type {Event} */ event) => event.preventDefault(),
        drop: (/** @type {DragEvent} */ event) => this.#takeFiles(event, event.dataTransfer?.files),
      },
    }, this.complaint, el('div', { class: 'row' }, this.text, this.sendButton, this.stopButton));
  }

  focus() {
    this.text.focus({ preventScroll: true });
  }

  update() {
    const isRunning = this.chat.running !== undefined;
    this.stopButton.hidden = !isRunning;
    this.sendButton.hidden = isRunning;
  }

  /** @param {string} message Empty: there is none. */
  complain(message) {
    this.complaint.textContent = message;
    this.complaint.hidden = message === '';
  }

  #fit() {
    this.text.style.height = 'auto';
    this.text.style.height = `${this.text.scrollHeight + 2}px`;
  }

  /** @param {KeyboardEvent} event */
  #takeKey(event) {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.#send();
    }
  }

  #send() {
    const text = this.text.value.trim();
    if (!text || this.chat.running) return;
    this.complain('');
    this.text.value = '';
    this.#fit();
    void this.chat.send(text);
  }

  /** @param {Event} event @param {FileList | undefined} files */
  #takeFiles(event, files) {
    const file = files?.[0];
    if (!file) return;
    event.preventDefault();
    if (!/^text\/|json|xml|yaml|toml|javascript/.test(file.type) && file.type !== '') {
      this.complain(`${file.name}: this server’s models read text only. Images, audio and other files are not sent.`);
      return;
    }
    if (file.size > FILE_CHARS_MAX) {
      this.complain(`${file.name} has ${file.size} bytes; at most ${FILE_CHARS_MAX} are put into a message.`);
      return;
    }
    void file.text().then((text) => {
      this.complain(text.includes('\0') ? `${file.name} is not a text file: it was not added.` : '');
      if (!text.includes('\0')) this.text.value += `${this.text.value ? '\n\n' : ''}\`\`\`${file.name}\n${text}\n\`\`\`\n`;
      this.#fit();
    });
  }
}
