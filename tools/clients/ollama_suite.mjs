// The official `ollama` client for JavaScript, unmodified, against a running server.
//
//     node ollama_suite.mjs PATH-OF-THE-MILLRACE-BINARY FOLDER-WITH-node_modules
//
// Makes a small synthetic model, serves it on a free port of 127.0.0.1, and runs every check below.

import assert from "node:assert/strict"
import { execFileSync, spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { createInterface } from "node:readline"

const [binary, packages] = process.argv.slice(2)
const { Ollama } = createRequire(resolve(packages, "package.json"))("ollama")

const model = "tiny"
const messages = [{ role: "user", content: "Say anything — é, 漢, 🙂." }]
const options = (over = {}) => ({ num_predict: 24, seed: 7, ...over })
const long = { num_predict: 1500, ignore_eos: true }

async function serve(folder) {
  const file = join(folder, `${model}.gguf`)
  const synth = ["synth", file, "--preset", "tiny-llama", "--quant", "Q8_0", "--train-context", "2048"]
  execFileSync(binary, synth, { stdio: "ignore" })
  const stdio = ["ignore", "pipe", "inherit"]
  const server = spawn(binary, ["serve", file, "--bind", "127.0.0.1:0", "--deterministic"], { stdio, env: { ...process.env, XDG_CACHE_HOME: folder } })
  for await (const line of createInterface({ input: server.stdout })) {
    const found = / serves .*(http:\/\/127\.0\.0\.1:\d+)/.exec(line)
    if (found) return { server, url: found[1] }
  }
  throw new Error("the server stopped before it listened")
}

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

const folder = mkdtempSync(join(tmpdir(), "millrace-"))
const { server, url } = await serve(folder)
server.stdout.resume()
const client = new Ollama({ host: url })
let failed = 0
for (const [label, check] of Object.entries(checks)) {
  try {
    await check({ client, url })
    console.log(`ok    ${label}`)
  } catch (error) {
    failed += 1
    console.log(`FAIL  ${label}`)
    console.error(error)
  }
}
const stopped = new Promise((told) => server.on("exit", told))
server.kill("SIGTERM")
if ((await stopped) !== 0) {
  failed += 1
  console.log("FAIL  the server did not stop cleanly")
}
rmSync(folder, { recursive: true })
console.log(`${Object.keys(checks).length + 1 - failed} passed, ${failed} failed`)
process.exit(failed ? 1 : 0)
