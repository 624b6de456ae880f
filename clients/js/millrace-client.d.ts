/** How streams are continued. */
export interface ResumeOptions {
  /** The `fetch` that makes the requests; default: the global one. */
  fetch?: typeof globalThis.fetch
  /** How long a stream without a new event is asked for, in milliseconds; default: 60 000. */
  patienceMs?: number
  /** Longest pause between two attempts, in milliseconds; default: 5000. */
  pauseMaxMs?: number
}

/** A server-sent event. */
export interface StreamEvent {
  /** Id of the stream. */
  stream: string
  data: string
  name?: string
  /** Position after the event, for `attach(..., { after })`. */
  id?: string
}

export interface ReadOptions extends ResumeOptions {
  headers?: Record<string, string>
  signal?: AbortSignal
}

/** The stream cannot be continued: the server does not have it any more, or could not be reached for too long. */
export class StreamLost extends Error {}

/**
 * A `fetch` whose streams go on, for `new OpenAI({ fetch })`, `createOpenAI({ fetch })`, `new Anthropic({ fetch })`.
 * A stream that is cancelled before its end is cancelled at the server.
 */
export function resumingFetch(options?: ResumeOptions): typeof globalThis.fetch

/** Opens a stream with a request (`body` has `stream: true`) and reads it to its end; leaving early cancels it. */
export function stream(url: string, body: object, options?: ReadOptions): AsyncGenerator<StreamEvent, void, undefined>

/** Reads a stream that exists, from its beginning or after a position; leaving early does not cancel it. */
export function attach(
  server: string,
  streamId: string,
  options?: ReadOptions & { after?: string },
): AsyncGenerator<StreamEvent, void, undefined>
