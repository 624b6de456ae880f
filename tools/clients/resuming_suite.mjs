// `clients/js` against a running server, through connections that are cut and a server that is killed.
//
//     node resuming_suite.mjs PATH-OF-THE-MILLRACE-BINARY FOLDER-WITH-node_modules
//
// The clients of OpenAI and Anthropic and the AI SDK are unmodified, with `fetch` as their only changed argument.

import assert from "node:assert/strict"
import { mkdtempSync, rmSync } from "node:fs"
import { createServer, connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"

import { StreamLost, attach, resumingFetch, stream } from "../../clients/js/millrace-client.js"
import { BUILT_IN, TINY as model, load, run, start } from "./suite.mjs"

const { default: OpenAI } = await load("openai")
const { default: Anthropic } = await load("@anthropic-ai/sdk")
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible")
const { streamText } = await load("ai")

const messages = [{ role: "user", content: "Hello" }]
const body = { model, messages, max_tokens: 60, temperature: 0, ignore_eos: true, stream: true }
/// Bytes of bodies after which connections are cut: at the beginning, and anywhere in and between events.
const CUTS = [[0, 0, 0], [1, 1], [11, 300, 0, 411]]
for (const step of [17, 101, 263, 479, 601]) CUTS.push(Array.from({ length: 10 }, (_, at) => (step * (at + 1) * (at + 3)) % 6000))
// Many cuts in a row must not take long.
const patience = { pauseMaxMs: 20 }

/// A proxy of `url` that cuts each of the next streams after its number of bytes of `cuts`, by a reset or a close, in turn.
async function cuttingProxy(url) {
  const proxy = { cuts: [], done: 0, cut: (cuts) => Object.assign(proxy, { cuts: [...cuts], done: 0 }) }
  const server = createServer((client) => {
    const upstream = connect(Number(new URL(url).port), "127.0.0.1")
    let [head, passed, after] = ["", 0, Infinity]
    client.on("error", () => upstream.destroy()).on("close", () => upstream.destroy())
    upstream.on("error", () => client.destroy()).on("end", () => client.end())
    client.pipe(upstream)
    upstream.on("data", (part) => {
      let bodyPart = part
      if (!head.includes("\r\n\r\n")) {
        head += part.toString("latin1")
        bodyPart = Buffer.from(head.split("\r\n\r\n").slice(1).join("\r\n\r\n"), "latin1")
        if (!head.includes("\r\n\r\n")) return client.write(part)
        if (head.includes("event-stream") && proxy.cuts.length > 0) after = proxy.cuts.shift()
      }
      const over = passed + bodyPart.length - after
      if (over >= 0) {
        proxy.done += 1
        upstream.removeAllListeners("data")
        client.write(part.subarray(0, part.length - over))
        const isReset = proxy.done % 2 === 1
        setTimeout(() => (isReset ? client.resetAndDestroy() : client.destroy(), upstream.destroy()), 20)
        return
      }
      passed += bodyPart.length
      client.write(part)
    })
  })
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening))
  server.unref()
  proxy.url = `http://127.0.0.1:${server.address().port}`
  return proxy
}

/// What `read` returns through every row of `CUTS` is what it returns without a cut.
async function throughCuts(url, read) {
  const whole = await read(url)
  const proxy = await cuttingProxy(url)
  let total = 0
  for (const cuts of CUTS) {
    proxy.cut(cuts)
    assert.deepEqual(await read(proxy.url, resumingFetch(patience)), whole, `cut after ${cuts}`)
    total += proxy.done
  }
  assert.ok(total >= CUTS.length, `${total} connections were cut`)
  return whole
}

/// The text and ends of the chunks of a chat.
async function chat(chunks) {
  let [text, ends] = ["", []]
  for await (const { choices } of chunks) {
    text += choices[0]?.delta.content ?? ""
    if (choices[0]?.finish_reason) ends.push(choices[0].finish_reason)
  }
  return { text, ends }
}

const openaiOf = (url, fetch) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, fetch })

async function killedServer(read) {
  const folder = mkdtempSync(join(tmpdir(), "millrace-kill-"))
  const variables = { XDG_CACHE_HOME: folder, XDG_DATA_HOME: folder, MILLRACE_JOURNAL_DIRECTORY: join(folder, "journal") }
  let { server, url } = await start(["--bind", "127.0.0.1:0"], variables)
  const restart = async () => {
    const gone = new Promise((left) => server.on("exit", left))
    server.kill("SIGKILL")
    await gone
    server = (await start(["--bind", url.replace("http://", "")], variables)).server
  }
  try {
    return await read(url, restart)
  } finally {
    server.kill("SIGKILL")
    rmSync(folder, { recursive: true })
  }
}

await run(() => ({}), {
  async "openai: chat completions are whole through cuts, with one end"({ url }) {
    const read = async (url, fetch) => chat(await openaiOf(url, fetch).chat.completions.create(body))
    const { text, ends } = await throughCuts(url, read)
    assert.ok(text.length > 0)
    assert.deepEqual(ends, ["length"])
  },
  async "openai: responses are whole through cuts, with each sequence number once"({ url }) {
    const request = { model, input: "Hello", max_output_tokens: 60, temperature: 0, ignore_eos: true, stream: true }
    const whole = await throughCuts(url, async (url, fetch) => {
      let [text, numbers] = ["", []]
      for await (const event of await openaiOf(url, fetch).responses.create(request)) {
        numbers.push(event.sequence_number)
        if (event.type === "response.output_text.delta") text += event.delta
      }
      assert.deepEqual(numbers, [...new Set(numbers)].sort((a, b) => a - b))
      return text
    })
    assert.ok(whole.length > 0)
  },
  async "anthropic: messages are whole through cuts, with one start and one end"({ url }) {
    const { stream: _, ...request } = body
    await throughCuts(url, async (url, fetch) => {
      const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0, fetch })
      const names = []
      const stream = client.messages.stream(request)
      for await (const event of stream) names.push(event.type)
      for (const name of ["message_start", "content_block_start", "message_stop"]) {
        assert.equal(names.filter((other) => other === name).length, 1, name)
      }
      return (await stream.finalMessage()).content
    })
  },
  async "AI SDK: text streams are whole through cuts"({ url }) {
    await throughCuts(url, async (url, fetch) => {
      const millrace = createOpenAICompatible({ name: "millrace", baseURL: `${url}/v1`, fetch })
      const answer = streamText({ model: millrace(model), prompt: "Hello", maxOutputTokens: 60, temperature: 0, maxRetries: 0 })
      let text = ""
      for await (const part of answer.textStream) text += part
      return { text, reason: await answer.finishReason }
    })
  },
  async "openai without the changed argument reports the same cut as an error"({ url }) {
    const proxy = await cuttingProxy(url)
    proxy.cut([411])
    await assert.rejects(async () => chat(await openaiOf(proxy.url).chat.completions.create(body)))
  },
  async "stream and attach: each event once through cuts, and from each position on"({ url }) {
    const proxy = await cuttingProxy(url)
    proxy.cut([700, 600, 500, 400, 300, 2000])
    const textOf = ({ data }) => (data === "[DONE]" ? "" : JSON.parse(data).choices[0].delta.content ?? "")
    const events = []
    for await (const event of stream(`${proxy.url}/v1/chat/completions`, { ...body, max_tokens: 40 })) events.push(event)
    assert.equal(events.filter(({ data }) => data === "[DONE]").length, 1)
    const whole = events.map(textOf).join("")
    for (const [at, { stream: streamId, id }] of events.entries()) {
      if (!id) continue
      let text = events.slice(0, at + 1).map(textOf).join("")
      for await (const event of attach(url, streamId, { after: id })) text += textOf(event)
      assert.equal(text, whole)
    }
  },
  async "a stream that is left, or aborted, before its end is cancelled at the server"({ url }) {
    for (const leave of ["left", "aborted"]) {
      const gone = new AbortController()
      const long = { ...body, max_tokens: 1500 }
      const { data, response } = await openaiOf(url, resumingFetch()).chat.completions.create(long, { signal: gone.signal }).withResponse()
      for await (const _ of data) {
        if (leave === "aborted") gone.abort()
        break
      }
      const id = response.headers.get("x-stream-id")
      let description
      do description = await (await fetch(`${url}/v1/streams/${id}`)).json()
      while (description.state !== "ended")
      assert.match(JSON.stringify(description), /cancelled/, leave)
    }
  },
  async "a server that does not come back is an error, after the time that was given"({ url }) {
    const proxy = await cuttingProxy(url)
    proxy.cut(Array(100).fill(0))
    const options = { patienceMs: 1000, pauseMaxMs: 200 }
    await assert.rejects(async () => {
      for await (const _ of stream(`${proxy.url}/v1/chat/completions`, body, options));
    }, (lost) => lost instanceof StreamLost && !lost.message.includes("TypeError"))
  },
  async "openai: an answer is whole through three kills -9 of the server, which has a journal"() {
    await killedServer(async (url, restart) => {
      const long = { ...body, model: BUILT_IN, max_tokens: 600 }
      const whole = await chat(await openaiOf(url).chat.completions.create(long))
      // Parts of the text, not numbers of chunks: what waits for a reader is sent as one chunk.
      const kills = [0, 1 / 8, 1 / 4].map((part) => part * whole.text.length)
      async function* chunks() {
        let length = 0
        for await (const chunk of await openaiOf(url, resumingFetch()).chat.completions.create(long)) {
          yield chunk
          length += chunk.choices[0]?.delta.content?.length ?? 0
          for (; length > kills[0]; kills.shift()) await restart()
        }
      }
      assert.deepEqual(await chat(chunks()), whole)
      assert.equal(kills.length, 0)
    })
  },
})
