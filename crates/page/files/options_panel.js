// The system prompt, the sampling parameters, tools and a schema of a conversation.

import { callJson } from './api.js';
import { el, field } from './dom.js';

/** Name of the field, label, step and range. */
const NUMBERS = /** @type {[string, string, string, string, string][]} */ ([
  ['temperature', 'Temperature', '0.05', '0', '2'],
  ['top_p', 'Top p', '0.01', '0', '1'],
  ['top_k', 'Top k', '1', '0', '1000'],
  ['min_p', 'Min p', '0.01', '0', '1'],
  ['repetition_penalty', 'Repetition penalty', '0.01', '0.01', '10'],
  ['presence_penalty', 'Presence penalty', '0.1', '-2', '2'],
  ['frequency_penalty', 'Frequency penalty', '0.1', '-2', '2'],
  ['max_tokens', 'Longest answer (tokens)', '1', '1', '1000000'],
  ['seed', 'Seed', '1', '0', '9007199254740991'],
]);
/** Names of `/api/show` that differ from the fields'. */
const SHOWN_NAMES = /** @type {Record<string, string>} */ ({ repetition_penalty: 'repeat_penalty', max_tokens: 'num_predict' });
const EFFORTS = ['', 'none', 'low', 'medium', 'high'];
const PRIORITIES = ['', 'critical', 'high', 'normal', 'low', 'background'];

/** @param {import('./conversation.js').Conversation} conversation @param {() => void} changed @returns {HTMLElement} */
export function optionsPanel(conversation, changed) {
  const { options } = conversation;
  const system = el('textarea', {
    rows: '3', value: conversation.system, dir: 'auto',
    on: { change: () => { conversation.system = system.value; changed(); } },
  });
  /** @param {string} name @param {any} value */
  const set = (name, value) => {
    if (value === undefined) delete options[name];
    else options[name] = value;
    changed();
  };
  const numbers = NUMBERS.map(([name, label, step, min, max]) => {
    const input = el('input', {
      type: 'number', step, min, max, value: options[name] ?? '', placeholder: 'default', inputmode: 'decimal',
      on: { change: () => set(name, input.value === '' ? undefined : Number(input.value)) },
    });
    return field(label, input);
  });
  void modelDefaults(conversation.model).then((defaults) => {
    NUMBERS.forEach(([name], at) => {
      const shown = defaults.get(SHOWN_NAMES[name] ?? name);
      const input = numbers[at].querySelector('input');
      if (shown !== undefined && input) input.placeholder = shown;
    });
  });
  return el('div', { class: 'panel' },
    field('System prompt', system),
    el('div', { class: 'grid' }, ...numbers,
      field('Reasoning', choice(EFFORTS, options.reasoning_effort, (value) => set('reasoning_effort', value))),
      field('Priority', choice(PRIORITIES, options.priority, (value) => set('priority', value)))),
    jsonField('Answer schema (JSON Schema)', options.schema, (value) => set('schema', value),
      'The answer is JSON that is valid under the schema; its validity is shown while it arrives.', isObject),
    jsonField('Tools (a list, as in OpenAI’s API)', options.tools, (value) => set('tools', value),
      'Calls are shown with their arguments as they arrive; you write the results.', Array.isArray));
}

/** What requests get that leave a parameter open, by the names of `/api/show`. @param {string} model @returns {Promise<Map<string, string>>} */
async function modelDefaults(model) {
  try {
    const shown = await callJson('POST', '/api/show', { body: { model } });
    return new Map(readParameters(shown.parameters ?? ''));
  } catch {
    // The fields say "default" then.
    return new Map();
  }
}

/** The lines of a Modelfile's parameters. @param {string} lines @returns {[string, string][]} */
export function readParameters(lines) {
  return lines.split('\n').flatMap((line) => {
    const at = line.indexOf(' ');
    return at > 0 ? [/** @type {[string, string]} */ ([line.slice(0, at), line.slice(at + 1)])] : [];
  });
}

/** @param {any} value */
function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @param {string[]} names @param {string | undefined} chosen @param {(value: string | undefined) => void} set */
function choice(names, chosen, set) {
  const select = el('select', { on: { change: () => set(select.value || undefined) } },
    ...names.map((name) => el('option', { value: name, selected: name === (chosen ?? '') }, name || 'default')));
  return select;
}

/** @param {string} label @param {any} value @param {(value: any) => void} set @param {string} hint @param {(value: any) => boolean} isRight */
function jsonField(label, value, set, hint, isRight) {
  const verdict = el('small', { class: 'verdict', role: 'status' }, hint);
  const text = el('textarea', {
    rows: '3', spellcheck: 'false', class: 'code', value: value ? JSON.stringify(value, null, 2) : '',
    on: {
      input: () => {
        const read = readJson(text.value, isRight);
        verdict.textContent = read.error || hint;
        verdict.classList.toggle('invalid', read.error !== '');
        if (!read.error) set(read.value);
      },
    },
  });
  return el('div', {}, field(label, text), verdict);
}

/** @param {string} text @param {(value: any) => boolean} isRight */
function readJson(text, isRight) {
  if (text.trim() === '') return { value: undefined, error: '' };
  try {
    const value = JSON.parse(text);
    return isRight(value) ? { value, error: '' } : { value: undefined, error: 'not of the right kind: a schema is an object, tools are a list' };
  } catch (error) {
    return { value: undefined, error: `not JSON yet: ${error instanceof Error ? error.message : error}` };
  }
}
