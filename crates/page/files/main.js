// The page: views behind the fragment of the address, the list of conversations, the key, the theme.

import { apiKey, reasonOf } from './api.js';
import { ChatView } from './chat_view.js';
import { CompareView } from './compare_view.js';
import { button, el, fill } from './dom.js';
import { ModelList } from './models.js';
import { ModelsView } from './models_view.js';
import { RiverView } from './river.js';
import { ConversationStore } from './store.js';
import { StreamView } from './stream_view.js';

/** Colors: the system's, or the ones that were chosen in this browser. The first script shows them. */
const THEME_KEY = 'millrace-theme';
const THEMES = ['system', 'light', 'dark'];

const store = new ConversationStore();
const models = new ModelList();
const main = /** @type {HTMLElement} */ (document.querySelector('main'));
const sidebar = /** @type {HTMLElement} */ (document.getElementById('sidebar'));
const conversations = /** @type {HTMLElement} */ (document.getElementById('conversations'));
const keyDialog = /** @type {HTMLDialogElement} */ (document.getElementById('key-dialog'));
const keyInput = /** @type {HTMLInputElement} */ (document.getElementById('key'));

const chat = new ChatView(store, models);
const river = new RiverView(chat);
const stream = new StreamView(store);
const compare = new CompareView(models);
const modelsView = new ModelsView(models, (model) => {
  chat.open();
  chat.chooseModel(model);
  location.hash = '#chat';
  route();
});
/** @type {Record<string, {root: HTMLElement, show?: (id: string) => unknown, open?: (id: string) => unknown, hide?: () => void}>} */
const views = { chat, river, stream, compare, models: modelsView };

function route() {
  const [name, id = ''] = location.hash.slice(1).split('/');
  const view = views[name] ?? chat;
  for (const other of Object.values(views)) if (other !== view) other.hide?.();
  fill(main, view.root);
  if (view === chat && id && id !== chat.conversation.id) chat.open(id);
  // The conversation that is shown is the one after a reload, too.
  if (view === chat && !id && Object.keys(chat.conversation.messages).length) history.replaceState(null, '', `#chat/${chat.conversation.id}`);
  void view.show?.(id);
  for (const link of document.querySelectorAll('nav a')) {
    const isHere = link.getAttribute('href') === `#${views[name] ? name : 'chat'}`;
    if (isHere) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  showSidebar(false);
  listConversations();
}

function listConversations() {
  fill(conversations, ...store.list().map((conversation) => el('li', { class: conversation.id === chat.conversation.id ? 'is-here' : '' },
    el('a', { href: `#chat/${conversation.id}`, dir: 'auto' }, conversation.title),
    button('×', () => void remove(conversation), { 'aria-label': `Delete “${conversation.title}”` }))));
}

/** @param {import('./conversation.js').Conversation} conversation */
async function remove(conversation) {
  if (!confirm(`Delete “${conversation.title}”?`)) return;
  await store.remove(conversation.id);
  if (conversation.id === chat.conversation.id) newChat();
}

/** @param {boolean} isShown */
function showSidebar(isShown) {
  sidebar.classList.toggle('is-shown', isShown);
  document.getElementById('menu')?.setAttribute('aria-expanded', String(isShown));
}

function exportConversations() {
  const url = URL.createObjectURL(new Blob([store.exportAll()], { type: 'application/json' }));
  el('a', { href: url, download: 'millrace-conversations.json' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function importConversations() {
  const input = el('input', { type: 'file', accept: 'application/json,.json' });
  input.addEventListener('change', async () => {
    try {
      say(`${await store.importAll(await input.files[0].text())} conversations were imported.`);
    } catch (error) {
      say(`Not imported: ${reasonOf(error)}`);
    }
  });
  input.click();
}

/** @param {string} text */
function say(text) {
  const line = /** @type {HTMLElement} */ (document.getElementById('sidebar-status'));
  line.textContent = text;
}

function setUp() {
  const theme = storedTheme();
  const themes = el('select', { 'aria-label': 'Colors', on: { change: () => setTheme(themes.value) } },
    ...THEMES.map((name) => el('option', { value: name, selected: name === theme }, `${name} colors`)));
  fill(/** @type {HTMLElement} */ (document.getElementById('tools')),
    button('Key', () => openKey()), button('Export', exportConversations), button('Import', importConversations), themes);
  document.getElementById('menu')?.addEventListener('click', () => showSidebar(!sidebar.classList.contains('is-shown')));
  document.getElementById('new-chat')?.addEventListener('click', newChat);
  keyDialog.addEventListener('close', () => {
    if (keyDialog.returnValue !== 'save') return;
    apiKey.set(keyInput.value.trim());
    void models.refresh();
    route();
  });
  window.addEventListener('key-needed', () => openKey());
  window.addEventListener('hashchange', route);
  document.addEventListener('keydown', takeKey);
  store.addEventListener('change', listConversations);
}

function storedTheme() {
  const theme = localStorage.getItem(THEME_KEY) ?? '';
  return THEMES.includes(theme) ? theme : 'system';
}

/** @param {string} theme */
function setTheme(theme) {
  localStorage.setItem(THEME_KEY, theme);
  if (theme === 'system') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.dataset.theme = theme;
}

function openKey() {
  if (keyDialog.open) return;
  keyInput.value = apiKey.get();
  keyDialog.returnValue = '';
  keyDialog.showModal();
}

function newChat() {
  chat.open();
  if (location.hash === '#chat') route();
  else location.hash = '#chat';
}

/** @param {KeyboardEvent} event */
function takeKey(event) {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(/** @type {HTMLElement} */ (event.target).tagName);
  if (event.key === 'Escape' && !keyDialog.open) chat.stop();
  else if (event.key === 'k' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    newChat();
  } else if (event.key === '/' && !isTyping) {
    event.preventDefault();
    chat.composer.focus();
  }
}

setUp();
await store.open();
chat.open();
route();
await models.refresh();
