// Conversations in the browser (IndexedDB), within bounds: the ones that were not used for the longest time go first.

import { checkConversation } from './conversation.js';

/** @typedef {import('./conversation.js').Conversation} Conversation */

export const CONVERSATIONS_MAX = 200;
/** Characters of all conversations, as JSON. */
export const STORED_CHARS_MAX = 32 << 20;
/** Characters of an imported file. */
export const IMPORT_CHARS_MAX = 64 << 20;
const TABLE = 'conversations';

export class ConversationStore extends EventTarget {
  /** @type {Map<string, {conversation: Conversation, chars: number}>} */
  #all = new Map();
  /** @type {IDBDatabase | null} */
  #database = null;
  /** Conversations that this tab writes to: what other tabs save of them is not read. */
  written = /** @type {Set<string>} */ (new Set());
  #channel = new BroadcastChannel('millrace-conversations');

  /** Whether conversations outlive the tab. */
  get isKept() {
    return this.#database !== null;
  }

  async open() {
    try {
      this.#database = await openDatabase();
      for (const conversation of await promised(this.#table('readonly').getAll())) this.#keep(conversation);
    } catch {
      // A private window, or no space: the conversations last as long as the tab.
      this.#database = null;
    }
    this.#channel.addEventListener('message', (event) => void this.#reload(event.data));
  }

  /** The latest first. @returns {Conversation[]} */
  list() {
    const all = [...this.#all.values()].map((row) => row.conversation);
    return all.sort((a, b) => b.updated - a.updated);
  }

  /** @param {string} id @returns {Conversation | undefined} */
  get(id) {
    return this.#all.get(id)?.conversation;
  }

  /** @param {Conversation} conversation */
  async save(conversation) {
    this.#keep(conversation);
    await this.#evict(conversation.id);
    await this.#write((table) => table.put(conversation));
    this.#channel.postMessage(conversation.id);
    this.dispatchEvent(new Event('change'));
  }

  /** @param {string} id */
  async remove(id) {
    this.#all.delete(id);
    await this.#write((table) => table.delete(id));
    this.#channel.postMessage(id);
    this.dispatchEvent(new Event('change'));
  }

  /** When the tokens of a stream came, if one of the messages is its answer. @param {string} stream @returns {number[]} */
  timesOf(stream) {
    for (const { conversation } of this.#all.values()) {
      for (const message of Object.values(conversation.messages)) if (message.stream === stream) return [...(message.times ?? [])];
    }
    return [];
  }

  exportAll() {
    return JSON.stringify({ format: 'millrace-conversations', version: 1, conversations: this.list() });
  }

  /** @param {string} text @returns {Promise<number>} How many were imported. */
  async importAll(text) {
    if (text.length > IMPORT_CHARS_MAX) throw new Error(`the file has ${text.length} characters; at most ${IMPORT_CHARS_MAX} are imported`);
    const file = JSON.parse(text);
    if (file?.format !== 'millrace-conversations' || !Array.isArray(file.conversations)) {
      throw new Error('not an export of this page (format: millrace-conversations)');
    }
    const conversations = file.conversations.slice(0, CONVERSATIONS_MAX).map(checkConversation);
    for (const conversation of conversations) await this.save(conversation);
    return conversations.length;
  }

  /** @param {Conversation} conversation */
  #keep(conversation) {
    this.#all.set(conversation.id, { conversation, chars: JSON.stringify(conversation).length });
  }

  /** @param {string} saved */
  async #evict(saved) {
    const rows = this.list().reverse();
    let chars = [...this.#all.values()].reduce((sum, row) => sum + row.chars, 0);
    for (const conversation of rows) {
      if (this.#all.size <= CONVERSATIONS_MAX && chars <= STORED_CHARS_MAX) return;
      if (conversation.id === saved) continue;
      chars -= this.#all.get(conversation.id)?.chars ?? 0;
      await this.remove(conversation.id);
    }
  }

  /** Another tab has changed a conversation. @param {string} id */
  async #reload(id) {
    if (!this.#database || this.written.has(id)) return;
    const conversation = await promised(this.#table('readonly').get(id));
    if (conversation) this.#keep(conversation);
    else this.#all.delete(id);
    this.dispatchEvent(new CustomEvent('change', { detail: id }));
  }

  /** @param {(table: IDBObjectStore) => IDBRequest} write */
  async #write(write) {
    if (!this.#database) return;
    try {
      await promised(write(this.#table('readwrite')));
    } catch {
      this.#database = null;
    }
  }

  /** @param {IDBTransactionMode} mode */
  #table(mode) {
    if (!this.#database) throw new Error('no database');
    return this.#database.transaction(TABLE, mode).objectStore(TABLE);
  }
}

function openDatabase() {
  const opening = indexedDB.open('millrace', 1);
  opening.addEventListener('upgradeneeded', () => opening.result.createObjectStore(TABLE, { keyPath: 'id' }));
  return promised(opening);
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function promised(request) {
  return new Promise((resolve, reject) => {
    request.addEventListener('success', () => resolve(request.result));
    request.addEventListener('error', () => reject(request.error));
  });
}
