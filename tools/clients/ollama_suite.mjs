// The official `ollama` client for JavaScript, unmodified, against a running server.
//
//     node ollama_suite.mjs PATH-OF-THE-MILLRACE-BINARY FOLDER-WITH-node_modules
//
// Makes a small synthetic model, serves it on a free port of 127.0.0.1, and runs every check below.

import assert from "node:assert/strict"

import { load, run, TINY as model } from "./suite.mjs"

const { Ollama } = await load("ollama")

const messages = [{ role: "user", content: "Say anything — é, 漢, 🙂." }]
const options = (over = {}) => ({ num_predict: 24, seed: 7, ...over })
const long = { num_predict: 1500, ignore_eos: true }

async function collect(parts, text) {
  const all = []
  for await (const part of parts) all.push(part)
  assert.equal(all.filter((part) => part.done).length, 1)
  return { text: all.map(text).join(""), last: all.at(-1) }
}

const checks = {
  async "a streamed chat concatenates to the whole one"({ client }) {
    const ask = { model, messages, options: options() }
    const { text, last } = await collect(await client.chat({ ...ask, stream: true }), (p) => p.message.content)
    const whole = await client.chat(ask)
    assert.equal(text, whole.message.content)
    assert.equal(last.eval_count, whole.eval_count)
    assert.equal(last.done_reason, whole.done_reason)
    assert.ok(last.total_duration > 0)
  },
  async "the same for generate, whose context can be sent again"({ client }) {
    const ask = { model, prompt: "Once upon", options: options() }
    const { text, last } = await collect(await client.generate({ ...ask, stream: true }), (p) => p.response)
    const whole = await client.generate(ask)
    assert.equal(text, whole.response)
    assert.deepEqual(last.context, whole.context)
    const again = await client.generate({ ...ask, context: whole.context })
    assert.ok(again.prompt_eval_count > whole.context.length)
  },
  async "list, show, ps, version"({ client }) {
    const listed = (await client.list()).models.map((m) => m.name)
    assert.deepEqual(listed, [`${model}:latest`, "millrace-mini:latest"])
    assert.equal((await client.show({ model })).details.family, "llama")
    assert.equal((await client.ps()).models.length, 1)
    assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/)
  },
  async "wrong requests throw the client's own error, in words"({ client }) {
    const rows = [
      [404, /not found/, () => client.chat({ model: "nobody", messages })],
      [404, /not found/, () => client.chat({ model: "nobody", messages, stream: true })],
      [400, /temperature/, () => client.chat({ model, messages, options: { temperature: -1 } })],
      [400, /short name/, () => client.pull({ model: "anything" })],
      [404, /not found/, () => client.copy({ source: "nobody", destination: "other" })],
      [404, /not found/, () => client.delete({ model: "nobody" })],
    ]
    for (const [status_code, error, ask] of rows) {
      await assert.rejects(ask, (thrown) => thrown.status_code === status_code && error.test(thrown.error))
    }
  },
  async "abort ends the stream and leaves nothing running"({ client, url }) {
    for (let i = 0; i < 5; i++) {
      const parts = await client.chat({ model, messages, stream: true, options: long })
      await assert.rejects(
        async () => {
          for await (const _ of parts) parts.abort()
        },
        { name: "AbortError" },
      )
    }
    for (const until = Date.now() + 30_000; ; ) {
      const { engine } = await (await fetch(`${url}/health`)).json()
      if (engine.running + engine.queued === 0) break
      assert.ok(Date.now() < until, "work goes on after the client left")
      await new Promise((wake) => setTimeout(wake, 20))
    }
  },
}

await run((url) => ({ client: new Ollama({ host: url }) }), checks)
