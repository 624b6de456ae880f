// Buttons that break things, and a load generator: what backpressure and resumption look like.

import { BreakLane } from './break_lane.js';
import { announce, button, el, fill } from './dom.js';
import { LOAD_CLIENTS_MAX, LoadGenerator } from './load.js';

const load = new LoadGenerator();

/** @param {import('./chat_view.js').ChatView} chat @returns {HTMLElement} */
export function breakPanel(chat) {
  const { breaker } = chat;
  const state = el('p', { class: 'quiet', role: 'status' });
  const buttons = {
    stopped: button('Stop reading', () => toggle('stopped'), { 'aria-pressed': 'false' }),
    slow: button('Read 2 tokens/s', () => toggle('slow'), { 'aria-pressed': 'false' }),
  };
  /** @param {'slow' | 'stopped'} pace */
  const toggle = (pace) => breaker.setPace(breaker.pace === pace ? 'full' : pace);
  const show = () => {
    for (const [pace, control] of Object.entries(buttons)) control.setAttribute('aria-pressed', String(breaker.pace === pace));
    const isOffline = breaker.offlineUntil > performance.now();
    state.textContent = isOffline ? 'Offline for five seconds; then the answer goes on.'
      : { full: 'Reading as fast as it comes.', slow: 'The stream is parked whenever it is a credit window ahead.', stopped: 'The stream is parked when its credit window is used up. No other stream notices.' }[breaker.pace];
  };
  breaker.addEventListener('change', show);
  show();
  const lane = new BreakLane(() => chat.running?.reader?.id ?? '');
  return el('div', { class: 'panel' },
    el('p', { class: 'quiet' }, 'These act on the answer that is being generated. Below is its lane, with those of all others it is in the ', el('a', { href: '#river' }, 'river'), '.'),
    lane.root,
    el('div', { class: 'row wrap' }, buttons.stopped, buttons.slow,
      button('Cut the socket', () => { breaker.cut(); announce('The socket was cut'); }),
      button('Offline for 5 s', () => breaker.goOffline())),
    state, loadControls(() => chat.conversation.model));
}

/** @param {() => string} model @returns {HTMLElement} */
export function loadControls(model) {
  const clients = el('input', { type: 'number', min: '1', max: String(LOAD_CLIENTS_MAX), value: '8', 'aria-label': 'Clients' });
  const report = el('p', { class: 'quiet', role: 'status' });
  const control = button('', () => {
    if (load.isRunning) load.stop();
    else void load.start(model(), Math.min(LOAD_CLIENTS_MAX, Math.max(1, Number(clients.value) || 1)));
    show();
  });
  const show = () => {
    control.textContent = load.isRunning ? 'Stop the load' : 'Start the load';
    fill(report, load.report());
  };
  load.addEventListener('change', show);
  show();
  return el('div', { class: 'row wrap' }, el('label', { class: 'inline' }, 'Load: ', clients, ' clients'), control, report);
}
