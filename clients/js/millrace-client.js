// Streams of a Millrace server that go on after a broken connection or a restart. Types are in millrace-client.d.ts.

/** Bytes of an event that has not ended; a longer one is not the server's. */
const EVENT_CHARS_MAX = 64 * 1024 * 1024
/** Reconnection time until the stream names its own (`retry:`). */
const RETRY_MS = 250
/** Names of events that nothing follows. Other ends are learned by asking: a position at the end is answered with 204. */
const LAST_EVENTS = new Set(["message_stop", "response.completed", "response.incomplete", "response.failed", "response.cancelled"])
/** Fields of the opening request that do not belong to a request without a body. */
const OF_THE_BODY = ["content-length", "content-type", "content-encoding", "accept", "last-event-id"]
/** Statuses at which a server, or a proxy before it, may answer later. */
const TRANSIENT = new Set([408, 425, 429, 500, 502, 503, 504])

export class StreamLost extends Error {
  name = "StreamLost"
}

/** Why a connection failed: a failed `fetch` is a TypeError, whose cause has the reason. */
const reasonOf = (why) => (why instanceof Error ? why.cause?.message || why.cause?.code || why.message : why)

/**
 * The position of a reader in a stream, without sockets.
 *
 * One token may cause several events, of which the last one has the position (`id:`). Events are given out up to one with a
 * position, so that a reader that continues there has each event once.
 */
class Resumption {
  isOver = false
  #part = ""
  #held = ""
  #retryMs = RETRY_MS
  #pauseMs = 0
  #waitedMs = 0

  constructor(request, response, { patienceMs = 60_000, pauseMaxMs = 5000 }) {
    this.id = response.headers.get("x-stream-id")
    this.isOpener = request.method === "POST"
    this.headers = new Headers(request.headers)
    this.cursor = this.headers.get("last-event-id")
    for (const name of OF_THE_BODY) this.headers.delete(name)
    this.url = request.url
    this.patienceMs = patienceMs
    this.pauseMaxMs = pauseMaxMs
  }

  /** Takes text of the response; returns the whole events that a later connection will not repeat. */
  feed(text) {
    const blocks = (this.#part + text).split("\n\n")
    this.#part = blocks.pop()
    if (this.#part.length > EVENT_CHARS_MAX) throw new StreamLost(`an event of stream ${this.id} has more than ${EVENT_CHARS_MAX} characters`)
    let given = ""
    for (const block of blocks) {
      this.#held += `${block}\n\n`
      if (this.#hasPosition(block)) given += this.rest()
    }
    return given
  }

  /** The events that are held back; at the end of the stream, nothing replaces them. */
  rest() {
    const held = this.#held
    this.#held = ""
    return held
  }

  /** Reads the fields of an event; whether it has a position, or is the last one. */
  #hasPosition(block) {
    let isPlaced = false
    for (const [name, value] of fieldsOf(block)) {
      if (name === "id") {
        this.cursor = value
        isPlaced = true
        this.#pauseMs = this.#waitedMs = 0
      } else if (name === "retry" && /^\d+$/.test(value)) this.#retryMs = Number(value)
      else if ((name === "data" && value === "[DONE]") || (name === "event" && LAST_EVENTS.has(value))) this.isOver = true
    }
    return isPlaced || this.isOver
  }

  /** Notes a connection that ended or failed; returns the pause before the next one, or gives up. */
  cut(why, retryAfter) {
    this.#part = ""
    if (this.#waitedMs >= this.patienceMs) {
      throw new StreamLost(`stream ${this.id} has no new event after ${this.#waitedMs} ms of attempts: ${reasonOf(why)}`, { cause: why })
    }
    const named = /^\d+$/.test(retryAfter ?? "") ? Number(retryAfter) * 1000 : Math.max(this.#pauseMs * 2, this.#retryMs)
    this.#pauseMs = Math.min(named, this.pauseMaxMs)
    this.#waitedMs += Math.max(this.#pauseMs, 50)
    return this.#pauseMs
  }

  /** Address and headers of the request that continues after the last position. */
  request() {
    const headers = new Headers(this.headers)
    headers.set("accept", "text/event-stream")
    if (this.cursor) headers.set("last-event-id", this.cursor)
    return { url: this.isOpener ? this.address("/events") : this.url, headers }
  }

  /** Takes the head of the response that continues the stream: a pause before another attempt, or none. */
  resumed(response) {
    const { status } = response
    if (TRANSIENT.has(status)) return this.cut(`status ${status}`, response.headers.get("retry-after"))
    if (status !== 200 && status !== 204) throw new StreamLost(`stream ${this.id} cannot be continued after ${this.cursor}: status ${status}`)
    if (status === 204) this.isOver = true
    else this.#held = ""
    return null
  }

  address(verb) {
    const url = new URL(this.url)
    const at = url.pathname.indexOf("/v1/")
    return `${url.origin}${at < 0 ? "" : url.pathname.slice(0, at)}/v1/streams/${this.id}${verb}`
  }
}

function* fieldsOf(block) {
  for (const line of block.split("\n")) {
    const at = line.indexOf(":")
    if (at > 0) yield [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")]
  }
}

const isStream = ({ status, headers }) =>
  status === 200 && headers.has("x-stream-id") && (headers.get("content-type") ?? "").startsWith("text/event-stream")

function wantsStream(method, body) {
  if (method !== "POST" || typeof body !== "string" || !body.includes('"stream"')) return false
  try {
    return JSON.parse(body).stream === true
  } catch {
    return false
  }
}

const sleep = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true })
  })

export function resumingFetch(options = {}) {
  const inner = options.fetch ?? ((...args) => globalThis.fetch(...args))
  return async (input, init = {}) => {
    const isRequest = typeof input === "object" && "headers" in input
    const method = (init.method ?? (isRequest ? input.method : "GET")).toUpperCase()
    const headers = new Headers(init.headers ?? (isRequest ? input.headers : undefined))
    const body = init.body ?? (isRequest && method === "POST" ? await input.clone().text() : undefined)
    const signal = init.signal ?? (isRequest ? input.signal : undefined)
    if (wantsStream(method, body) && !headers.has("x-stream-resumable")) headers.set("x-stream-resumable", "1")
    const response = await inner(input, { ...init, headers })
    if (!isStream(response)) return response
    const request = { url: isRequest ? input.url : String(input), method, headers }
    const resumption = new Resumption(request, response, options)
    const { status, statusText } = response
    return new Response(bodyOf(inner, resumption, response, signal), { status, statusText, headers: response.headers })
  }
}

/** The body of all connections of a stream. */
function bodyOf(inner, resumption, response, signal) {
  let reader = response.body.getReader()
  let decoder = new TextDecoder()
  const encoder = new TextEncoder()
  /** Cancels a stream that its opener leaves before the end. */
  const leave = () => {
    if (resumption.isOver) return
    resumption.isOver = true
    const { headers } = resumption
    if (resumption.isOpener) inner(resumption.address(""), { method: "DELETE", headers, keepalive: true }).catch(() => {})
  }
  const connect = async () => {
    const { url, headers } = resumption.request()
    let next
    try {
      next = await inner(url, { headers, signal })
    } catch (error) {
      return resumption.cut(error)
    }
    const pause = resumption.resumed(next)
    reader = next.body?.getReader()
    decoder = new TextDecoder()
    if (pause !== null) reader?.cancel().catch(() => {})
    return pause
  }
  /** The next events; `null` at the end. */
  const next = async () => {
    while (!resumption.isOver) {
      let why = "the connection was closed"
      let part
      try {
        part = await reader.read()
      } catch (error) {
        why = error
      }
      if (part?.value) {
        const given = resumption.feed(decoder.decode(part.value, { stream: true }))
        if (given) return given
        continue
      }
      for (let pause = resumption.cut(why); pause !== null; pause = await connect()) {
        await sleep(pause, signal)
        signal?.throwIfAborted()
      }
    }
    return resumption.rest() || null
  }
  signal?.addEventListener("abort", leave, { once: true })
  return new ReadableStream({
    async pull(controller) {
      const given = await next().catch((error) => (leave(), Promise.reject(error)))
      if (given !== null) return controller.enqueue(encoder.encode(given))
      signal?.removeEventListener("abort", leave)
      reader?.cancel().catch(() => {})
      controller.close()
    },
    async cancel(why) {
      leave()
      await reader?.cancel(why).catch(() => {})
    },
  })
}

export async function* stream(url, body, options = {}) {
  const headers = { "content-type": "application/json", ...options.headers }
  yield* events(url, { method: "POST", body: JSON.stringify(body), headers, signal: options.signal }, options)
}

export async function* attach(server, streamId, options = {}) {
  const position = options.after ? { "last-event-id": options.after } : {}
  const headers = { ...options.headers, ...position }
  yield* events(`${server.replace(/\/+$/, "")}/v1/streams/${streamId}/events`, { headers, signal: options.signal }, options)
}

async function* events(url, init, options) {
  const response = await resumingFetch(options)(url, init)
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`)
  if (response.status === 204) return
  const id = response.headers.get("x-stream-id") ?? ""
  const reader = response.body.getReader()
  const decoder = new TextDecoder()
  let part = ""
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      const blocks = (part + decoder.decode(value, { stream: true })).split("\n\n")
      part = blocks.pop()
      for (const block of blocks) {
        const { data, event: name, id: position } = Object.fromEntries(fieldsOf(block))
        if (data !== undefined) yield { stream: id, data, name, id: position }
      }
    }
  } finally {
    await reader.cancel().catch(() => {})
  }
}
