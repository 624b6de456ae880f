// Buttons that break things, and a load generator: what backpressure and resumption look like. Both are in the river.

import { BreakLane } from './break_lane.js';
import { announce, button, el, fill } from './dom.js';
import { LOAD_CLIENTS_MAX, LoadGenerator } from './load.js';

const load = new LoadGenerator();
/** A question whose answer is long enough to be broken. */
const LONG = 'Tell me a long story about a fox, a river and a mill, with many turns.';

/** Acts on the answers of the chat, which go on while this is shown. @param {import('./chat_view.js').ChatView} chat @returns {HTMLElement} */
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
  const ask = button('Ask for a long answer', () => {
    chat.open();
    void chat.send(LONG);
  });
  const lane = new BreakLane(() => (chat.running ?? chat.latest)?.reader?.id ?? '', ask);
  return el('div', { class: 'panel' },
    el('p', { class: 'quiet' }, 'These act on the answer of your ', el('a', { href: '#chat' }, 'chat'), ' that is being generated. Its lane is here alone, and below among all others.'),
    lane.root,
    el('div', { class: 'row wrap' }, buttons.stopped, buttons.slow,
      button('Cut the socket', () => { breaker.cut(); announce('The socket was cut'); }),
      button('Offline for 5 s', () => breaker.goOffline())),
    state);
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
