// The models of the server.

import { callJson } from './api.js';

export const TOY = 'millrace-mini';

export class ModelList extends EventTarget {
  /** @type {any[]} */
  all = [];
  error = '';

  async refresh() {
    try {
      this.all = (await callJson('GET', '/v1/models')).data ?? [];
      this.error = '';
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error);
    }
    this.dispatchEvent(new Event('change'));
  }

  /** @param {string} name */
  label(name) {
    const model = this.all.find((one) => one.id === name);
    return model?.state ? `${name} (${model.state})` : name;
  }
}
