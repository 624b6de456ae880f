// The models of the server.

import { callJson, reasonOf } from './api.js';

export const TOY = 'millrace-mini';

/** What the kinds of models that cannot chat are for. */
const OTHER_KINDS = /** @type {Record<string, string>} */ ({ embedding: 'for embeddings', rerank: 'ranks documents' });

/** @param {any} model @returns {string} Empty of a model that writes text. */
export function otherUse(model) {
  return OTHER_KINDS[model?.kind] ?? '';
}

export class ModelList extends EventTarget {
  /** @type {any[]} */
  all = [];
  error = '';

  async refresh() {
    try {
      this.all = (await callJson('GET', '/v1/models')).data ?? [];
      this.error = '';
    } catch (error) {
      this.error = reasonOf(error);
    }
    this.dispatchEvent(new Event('change'));
  }

  /** Those that can chat. */
  get chatting() {
    return this.all.filter((model) => !otherUse(model));
  }

  /** Why a model takes no images; empty: it does, or nothing is known before it is loaded. @param {string} name */
  blindness(name) {
    const sees = (/** @type {any} */ model) => model.capabilities?.includes('vision');
    const model = this.all.find((one) => one.id === name);
    if (!model?.capabilities || sees(model)) return '';
    const seeing = this.all.filter(sees).map((one) => one.id);
    return `${name} reads text only; ${seeing.length > 0 ? `models with vision here: ${seeing.join(', ')}` : 'no loaded model here has vision'}`;
  }

  /** @param {string} name */
  label(name) {
    const model = this.all.find((one) => one.id === name);
    return model?.state ? `${name} (${model.state})` : name;
  }
}
