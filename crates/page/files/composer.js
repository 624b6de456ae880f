// Where a message is written, and where an answer is stopped.

import { reasonOf } from './api.js';
import { button, el } from './dom.js';
import { IMAGES_MAX } from './images.js';
import { ImageTray, isImageFile } from './image_tray.js';

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
        paste: (/** @type {ClipboardEvent} */ event) => this.#paste(event),
      },
    });
    this.sendButton = button('Send', () => this.#send(), { class: 'primary' });
    this.stopButton = button('Stop', () => chat.stop(), { class: 'stop', hidden: true });
    this.tray = new ImageTray();
    this.imageButton = button('Image', () => this.#choose());
    this.complaint = el('p', { class: 'error', role: 'alert', hidden: true });
    this.root = el('form', {
      class: 'composer',
      on: { submit: (/** @type {Event} */ event) => event.preventDefault() },
    }, this.complaint, this.tray.root, el('div', { class: 'row' }, this.text, this.imageButton, this.sendButton, this.stopButton));
  }

  /** Takes files that are dropped on an element. @param {HTMLElement} element */
  takeDrops(element) {
    element.addEventListener('dragover', (event) => event.preventDefault());
    element.addEventListener('drop', (event) => this.#takeFiles(event, event.dataTransfer?.files));
  }

  focus() {
    this.text.focus({ preventScroll: true });
  }

  update() {
    const isRunning = this.chat.running !== undefined;
    this.stopButton.hidden = !isRunning;
    this.sendButton.hidden = isRunning;
    const blind = this.chat.blindness;
    this.imageButton.setAttribute('aria-disabled', String(blind !== ''));
    this.imageButton.title = blind || 'Add images, or paste or drop them';
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
    const { images, opening } = this.tray;
    if (!text && images.length === 0 || this.chat.running) return;
    const problem = images.length > 0 && this.chat.blindness || (opening > 0 ? 'An image is still being opened.' : '');
    this.complain(problem);
    if (problem) return;
    this.text.value = '';
    this.#fit();
    void this.chat.send(text, this.tray.take());
  }

  #choose() {
    this.complain(this.chat.blindness);
    if (this.chat.blindness) return;
    const input = el('input', { type: 'file', accept: 'image/*,.heic,.heif', multiple: true });
    input.addEventListener('change', () => void this.#addImages([...input.files]));
    input.click();
  }

  /** Programs for documents copy a picture of a text along with it. @param {ClipboardEvent} event */
  #paste(event) {
    const types = event.clipboardData?.types ?? [];
    if (!(types.includes('text/html') && types.includes('text/plain'))) this.#takeFiles(event, event.clipboardData?.files);
  }

  /** One after another: in their order, and with one open picture. @param {File[]} files */
  async #addImages(files) {
    const problems = new Set();
    for (const file of files) problems.add(this.#refusal(file) || await this.tray.add(file).then(() => '', reasonOf));
    this.complain([...problems].filter(Boolean).join(' '));
  }

  /** @param {File} file */
  #refusal(file) {
    if (this.chat.blindness) return this.chat.blindness;
    const { images, opening } = this.tray;
    return this.chat.imageCount + images.length + opening < IMAGES_MAX ? ''
      : `${file.name}: a request has at most ${IMAGES_MAX} images, those of earlier messages included. A new chat has none.`;
  }

  /** @param {Event} event @param {FileList | undefined} files */
  #takeFiles(event, files) {
    if (!files?.length) return;
    event.preventDefault();
    const images = [...files].filter(isImageFile);
    if (images.length > 0) void this.#addImages(images);
    const file = [...files].find((one) => !images.includes(one));
    if (!file) return;
    if (!/^text\/|json|xml|yaml|toml|javascript/.test(file.type) && file.type !== '') {
      this.complain(`${file.name}: files are sent if they are texts or images.`);
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
