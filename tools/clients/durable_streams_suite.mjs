// The client of the Durable Streams protocol, unmodified, against a running server.
//
//     node durable_streams_suite.mjs PATH-OF-THE-MILLRACE-BINARY FOLDER-WITH-node_modules
//
// Streams are opened as chats; the client reads their messages.

import assert from "node:assert/strict"

import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

import { BUILT_IN as model, load, run, start } from "./suite.mjs"

const { DurableStream, stream } = await load("@durable-streams/client")

const messages = [{ role: "user", content: "Tell me a story." }]
const backoffOptions = { maxRetries: 0 }

/// Opens a chat that goes on without its client; returns the address of its messages.
async function open(url, over = {}) {
  const headers = { "content-type": "application/json", "x-stream-resumable": "1" }
  const body = { model, messages, stream: true, temperature: 0, max_tokens: 300, ignore_eos: true, ...over }
  const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body: JSON.stringify(body) })
  assert.equal(response.status, 200)
  const id = response.headers.get("x-stream-id")
  // Nobody else reads the answer.
  await response.body.cancel()
  return { id, address: `${url}/v1/stream/${id}` }
}

/// All messages from an offset to the end of the stream, and the offsets between them.
async function read(address, options) {
  const response = await stream({ url: address, backoffOptions, ...options })
  const items = []
  const offsets = []
  await new Promise((ended, failed) => {
    response.closed.catch(failed)
    response.subscribeJson((batch) => {
      items.push(...batch.items)
      offsets.push([batch.offset, items.length])
      if (batch.streamClosed) ended()
    })
  })
  return { items, offsets }
}

const text = (items) => items.map((item) => item.t ?? "").join("")

/// Reads a stream while its server is killed with SIGKILL and started again, `kills` times; returns all messages, and
/// how many calls of the client that took: a call that fails is followed by one from the last offset on.
async function readThroughKills(live, over, kills) {
  const folder = mkdtempSync(join(tmpdir(), "millrace-kill-"))
  const variables = { XDG_CACHE_HOME: folder, XDG_DATA_HOME: folder, MILLRACE_JOURNAL_DIRECTORY: join(folder, "journal") }
  let { server, url } = await start(["--bind", "127.0.0.1:0"], variables)
  const bind = url.replace("http://", "")
  const items = []
  let [killed, calls, next, offset, closed] = [0, 0, KILL_EACH, "-1", false]
  let restarting = Promise.resolve()
  const restart = async () => {
    const gone = new Promise((left) => server.on("exit", left))
    server.kill("SIGKILL")
    await gone
    server = (await start(["--bind", bind], variables)).server
  }
  const take = (batch) => {
    items.push(...batch.items)
    ;({ offset, streamClosed: closed } = batch)
    // A batch can have the messages of several kills: what waits for a reader arrives at once.
    for (; items.length >= next && killed < kills; next += KILL_EACH) {
      killed += 1
      restarting = restarting.then(restart)
    }
  }
  try {
    const { address } = await open(url, over)
    const backoffOptions = { initialDelay: 50, maxDelay: 250, multiplier: 1.5 }
    while (!closed) {
      calls += 1
      assert.ok(calls <= kills + 1, "a call fails at a kill only")
      const response = await stream({ url: address, offset, live, backoffOptions })
      await new Promise((ended) => {
        response.closed.catch(ended)
        response.subscribeJson((batch) => {
          take(batch)
          if (closed) ended()
        })
      })
    }
    await restarting
    const again = await stream({ url: address, live: false })
    assert.deepEqual(await again.json(), items, "a later read")
    return { items, killed, calls }
  } finally {
    await restarting.catch(() => {})
    server.kill("SIGKILL")
    rmSync(folder, { recursive: true })
  }
}

/// Messages between two kills.
const KILL_EACH = 60

const checks = {
  async "an answer is read through three kills -9 of the server: by long polls in one call, as events from the last offset on"({ url }) {
    for (const over of [{ max_tokens: 600 }, { max_tokens: 400, temperature: 1, seed: 7, n: 2 }]) {
      const { address } = await open(url, over)
      const { items: uncut } = await read(address, { live: "sse" })
      for (const live of ["long-poll", "sse"]) {
        const { items, killed, calls } = await readThroughKills(live, over, 3)
        assert.deepEqual(items, uncut)
        assert.equal(killed, 3)
        assert.ok(live === "sse" || calls === 1, `${calls} calls`)
      }
    }
  },
  async "a running stream is read to its end, by long polls and as events"({ url }) {
    for (const live of ["long-poll", "sse", true]) {
      const { address } = await open(url)
      const { items, offsets } = await read(address, { live })
      assert.deepEqual(items.at(-1), { type: "end", tokens_out: 300, stop_reason: "MAX_TOKENS" })
      assert.ok(offsets.length > 1, "while it was generated")
      const again = await stream({ url: address, live: false })
      assert.deepEqual(await again.json(), items)
      assert.ok(text(items).length > 300)
    }
  },
  async "a stream is resumed in the middle, at each offset that was sent"({ url }) {
    const { address } = await open(url, { max_tokens: 40 })
    const { items, offsets } = await read(address, { live: "sse" })
    for (const live of [false, "long-poll", "sse"]) {
      for (const [offset, before] of offsets) {
        const options = { url: address, offset, live, backoffOptions }
        const rest = live === false ? await (await stream(options)).json() : (await read(address, options)).items
        assert.deepEqual(rest, items.slice(before), `${live} from ${offset}`)
      }
    }
  },
  async "a reader that leaves in the middle goes on later"({ url }) {
    const { id, address } = await open(url)
    const first = await stream({ url: address, live: "long-poll", backoffOptions })
    const items = []
    let offset
    await new Promise((enough) => {
      first.subscribeJson((batch) => {
        if (items.length >= 20) return
        items.push(...batch.items)
        offset = batch.offset
        if (items.length >= 20) enough()
      })
    })
    first.cancel()
    const rest = await read(address, { offset, live: "sse" })
    const whole = await stream({ url: address, live: false })
    assert.deepEqual([...items, ...rest.items], await whole.json())
    assert.equal((await fetch(`${url}/v1/streams/${id}`, { method: "DELETE" })).status, 202)
    await assert.rejects(stream({ url: address, live: false, backoffOptions }), ({ status }) => status === 410)
  },
  async "several choices follow one another"({ url }) {
    const { address } = await open(url, { n: 2, max_tokens: 30, temperature: 1, seed: 5 })
    const { items } = await read(address, { live: "sse" })
    const order = items.map((item) => item.choice)
    assert.deepEqual(order, order.toSorted())
    assert.equal(items.filter((item) => item.type === "end").length, 2)
  },
  async "the head has the offset of the end, and nothing can be written"({ url }) {
    const { address } = await open(url, { max_tokens: 20 })
    const { offsets } = await read(address, { live: "sse" })
    const handle = new DurableStream({ url: address, contentType: "application/json", backoffOptions })
    const head = await handle.head()
    assert.equal(head.exists && head.offset, offsets.at(-1)[0])
    assert.ok(head.streamClosed && head.contentType === "application/json")
    await assert.rejects(handle.append(JSON.stringify({ type: "token" })), ({ status }) => status === 405)
    await assert.rejects(handle.delete(), ({ status }) => status === 405)
    const unknown = stream({ url: `${url}/v1/stream/${"0".repeat(32)}`, backoffOptions })
    await assert.rejects(unknown, ({ status }) => status === 404)
  },
}

await run(() => ({}), checks)
