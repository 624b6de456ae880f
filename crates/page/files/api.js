// Requests to the server that serves this page. The key is in the session's storage and in a header, never in a URL.

const KEY = 'millrace-key';

/** Prefix of all paths: the folder of the page. */
const PREFIX = typeof location === 'undefined' ? '' : new URL('.', location.href).pathname.slice(0, -1);

export const apiKey = {
  get() {
    return sessionStorage.getItem(KEY) ?? '';
  },
  /** @param {string} key */
  set(key) {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
  },
};

/** What an error says to a person. @param {unknown} error */
export function reasonOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/** An error response. */
export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message @param {number | null} retryAfterMs */
  constructor(status, code, message, retryAfterMs) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether the same request may succeed later. */
  get isTransient() {
    return this.status === 429 || this.status === 503 || this.status === 502 || this.status === 504;
  }
}

/**
 * @param {string} method @param {string} path
 * @param {{body?: any, signal?: AbortSignal, headers?: Record<string, string>}} [options]
 * @returns {Promise<Response>} A response with a status of success.
 */
export async function call(method, path, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { ...options.headers };
  if (apiKey.get()) headers.authorization = `Bearer ${apiKey.get()}`;
  if (options.body !== undefined) headers['content-type'] = 'application/json';
  const body = options.body === undefined ? undefined : JSON.stringify(options.body);
  const response = await fetch(PREFIX + path, { method, headers, body, signal: options.signal, cache: 'no-store', credentials: 'omit' })
    .catch((error) => { throw error instanceof TypeError ? new Error('the server cannot be reached', { cause: error }) : error; });
  if (response.ok) return response;
  throw await errorOf(response);
}

/** @param {string} method @param {string} path @param {{body?: any, signal?: AbortSignal}} [options] @returns {Promise<any>} */
export async function callJson(method, path, options) {
  const response = await call(method, path, { ...options, headers: { accept: 'application/json' } });
  return response.status === 204 ? null : response.json();
}

/** @param {Response} response */
async function errorOf(response) {
  const text = (await response.text().catch(() => '')).slice(0, 64 << 10);
  let code = `http_${response.status}`;
  let message = text || response.statusText || `status ${response.status}`;
  try {
    const body = JSON.parse(text);
    const error = body.error ?? body;
    if (Array.isArray(body.errors)) message = body.errors.map((/** @type {any} */ one) => one.message).join('; ');
    else message = typeof error === 'string' ? error : (error.message ?? message);
    code = body.code ?? error.code ?? error.type ?? (body.errors ? 'invalid_request' : code);
  } catch {
    // No JSON: the text is the message.
  }
  const ms = Number(response.headers.get('retry-after-ms') ?? Number(response.headers.get('retry-after')) * 1000);
  const error = new ApiError(response.status, String(code), String(message), ms > 0 ? ms : null);
  if (response.status === 401) window.dispatchEvent(new CustomEvent('key-needed'));
  return error;
}

/**
 * Lines of JSON as they come.
 * @param {Response} response @param {(line: any) => void} take
 */
export async function readLines(response, take) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? '';
    const lines = rest.split('\n');
    rest = done ? '' : /** @type {string} */ (lines.pop());
    for (const line of lines) if (line.trim()) take(JSON.parse(line));
    if (done) return;
  }
}
