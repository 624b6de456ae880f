// The chat transport and hooks of Vercel's AI SDK, unmodified, against /v1/ai-sdk/chat of a running server.
//
//     node ai_sdk_ui_suite.mjs PATH-OF-THE-MILLRACE-BINARY FOLDER-WITH-node_modules
//
// The models' words mean little: what is checked is parts, equality and endings.

import assert from "node:assert/strict"

import { BUILT_IN, TINY, load, run } from "./suite.mjs"

globalThis.IS_REACT_ACT_ENVIRONMENT = true
const { DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls, readUIMessageStream } = await load("ai")
const { Chat, useChat } = await load("@ai-sdk/react")
const { createElement } = await load("react")
const { act, create } = await load("react-test-renderer")

const HEADER = "x-vercel-ai-ui-message-stream"
const certain = { model: BUILT_IN, temperature: 0, max_tokens: 200 }
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string", enum: ["Rome", "Oslo"] } },
      required: ["city"],
      additionalProperties: false,
    },
  },
}

const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("")
const partOf = (message, type) => message.parts.find((part) => part.type === type)
const user = (text) => ({ id: "u1", role: "user", parts: [{ type: "text", text }] })

/// A transport that notes the heads of responses.
function transport(url, body, heads = []) {
  const noted = async (...args) => {
    const response = await fetch(...args)
    heads.push(response)
    return response
  }
  return new DefaultChatTransport({ api: `${url}/v1/ai-sdk/chat`, body, fetch: noted })
}

const PATIENCE_MS = 60_000

async function until(holds) {
  const end = Date.now() + PATIENCE_MS
  while (!(await holds())) {
    assert.ok(Date.now() < end, `not within ${PATIENCE_MS} ms: ${holds}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

const control = (url, id, verb) => fetch(`${url}/v1/streams/${id}/${verb}`, { method: "POST" })

/// Whether a client reads the stream. A stream that was paused before its first token sends nothing that a client could show.
const isAttached = async (url, id) => (await (await fetch(`${url}/v1/streams/${id}`)).json()).attached

/// Starts an answer that stops after a few tokens, as its client has gone; gives the id of its stream.
async function abandoned(url, chatId) {
  const heads = []
  const body = { model: TINY, temperature: 0, max_tokens: 400, ignore_eos: true }
  const gone = new AbortController()
  const options = { chatId, messages: [user("Hello")], trigger: "submit-message", abortSignal: gone.signal }
  const chunks = (await transport(url, body, heads).sendMessages(options)).getReader()
  const id = heads[0].headers.get("x-stream-id")
  assert.equal((await control(url, id, "pause")).status, 200)
  assert.equal((await chunks.read()).value.type, "start")
  gone.abort()
  await chunks.read().catch(() => {})
  await until(async () => !(await isAttached(url, id)))
  return id
}

/// The whole text of a stream, in this protocol.
async function wholeText(url, id) {
  const response = await fetch(`${url}/v1/streams/${id}/events?dialect=ai-sdk.ui`)
  assert.equal(response.headers.get(HEADER), "v1")
  const stream = new DefaultChatTransport().processResponseStream(response.body)
  let message
  for await (const state of readUIMessageStream({ stream })) message = state
  return textOf(message)
}

await run(async () => ({}), {
  async "a chat's answer has a step, text, a finish reason and usage"({ url }) {
    const heads = []
    let finish
    const chat = new Chat({ transport: transport(url, certain, heads), onFinish: (options) => (finish = options) })
    await chat.sendMessage({ text: "Hello" })
    assert.equal(chat.status, "ready")
    assert.equal(heads[0].headers.get(HEADER), "v1")
    assert.match(heads[0].headers.get("content-type"), /^text\/event-stream/)
    const [question, answer] = chat.messages
    assert.deepEqual([question.role, answer.role], ["user", "assistant"])
    assert.equal(answer.parts[0].type, "step-start")
    assert.ok(textOf(answer).length > 0)
    assert.ok(answer.parts.every((part) => part.state === undefined || part.state === "done"))
    assert.equal(finish.finishReason, "stop")
    assert.ok(answer.metadata.usage.outputTokens > 0)
  },

  async "a second turn sends the first one's messages"({ url }) {
    const chat = new Chat({ transport: transport(url, certain) })
    await chat.sendMessage({ text: "Hello" })
    const first = chat.messages[1].metadata.usage.inputTokens
    await chat.sendMessage({ text: "Hello again" })
    assert.equal(chat.messages.length, 4)
    assert.ok(chat.messages[3].metadata.usage.inputTokens > first)
  },

  async "an answer is regenerated"({ url }) {
    const chat = new Chat({ transport: transport(url, certain) })
    await chat.sendMessage({ text: "Hello" })
    const text = textOf(chat.messages[1])
    await chat.regenerate()
    assert.equal(chat.messages.length, 2)
    assert.equal(textOf(chat.messages[1]), text)
  },

  async "reasoning is a part of its own"({ url }) {
    const chat = new Chat({ transport: transport(url, { ...certain, reasoning_effort: "high" }) })
    await chat.sendMessage({ text: "What is 2 + 3?" })
    const reasoning = partOf(chat.messages[1], "reasoning")
    assert.ok(reasoning?.text.length > 0, JSON.stringify(chat.messages[1].parts))
    assert.equal(reasoning.state, "done")
  },

  async "a tool call is executed by the page and its result is sent back"({ url }) {
    const turns = []
    const chat = new Chat({
      transport: new DefaultChatTransport({
        api: `${url}/v1/ai-sdk/chat`,
        prepareSendMessagesRequest: ({ id, messages }) => {
          turns.push(messages)
          const tool_choice = turns.length === 1 ? "required" : "none"
          return { body: { id, messages, ...certain, tools: [weather], tool_choice } }
        },
      }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall({ toolCall: { toolName, toolCallId, input } }) {
        assert.equal(toolName, "get_weather")
        assert.ok(["Rome", "Oslo"].includes(input.city))
        chat.addToolOutput({ tool: toolName, toolCallId, output: { sky: "clear" } })
      },
    })
    await chat.sendMessage({ text: "What is the weather in Rome?" })
    await until(() => turns.length === 2 && chat.status === "ready")
    const answer = chat.messages.at(-1)
    const call = partOf(answer, "tool-get_weather")
    assert.deepEqual([call.state, call.output], ["output-available", { sky: "clear" }])
    assert.equal(answer.parts.filter((part) => part.type === "step-start").length, 2)
  },

  async "a truncated tool call ends in an input error"({ url }) {
    const body = { ...certain, max_tokens: 12, tools: [weather], tool_choice: "required" }
    let finish
    const chat = new Chat({ transport: transport(url, body), onFinish: (options) => (finish = options) })
    await chat.sendMessage({ text: "What is the weather in Rome?" })
    const call = partOf(chat.messages[1], "tool-get_weather")
    if (finish.finishReason === "length" && call) assert.equal(call.state, "output-error")
    else assert.ok(finish.finishReason === "length" || call.state === "input-available")
  },

  async "an error of the request reaches the page"({ url }) {
    const chat = new Chat({ transport: transport(url, { ...certain, model: "nobody" }), onError() {} })
    await chat.sendMessage({ text: "Hello" })
    assert.equal(chat.status, "error")
    assert.match(chat.error.message, /nobody/)
  },

  async "a field that would change the answer and is not supported is rejected"({ url }) {
    const chat = new Chat({ transport: transport(url, { ...certain, functions: [{ name: "old" }] }), onError() {} })
    await chat.sendMessage({ text: "Hello" })
    assert.match(chat.error.message, /functions/)
  },

  async "images are rejected by name"({ url }) {
    const chat = new Chat({ transport: transport(url, certain), onError() {} })
    const image = { type: "file", mediaType: "image/png", url: "data:image/png;base64,AA==" }
    await chat.sendMessage({ text: "Look", files: [image] })
    assert.match(chat.error.message, /messages\[0\]\.parts/)
  },

  async "an unknown chat has nothing to resume"({ url }) {
    const reconnected = await transport(url, {}).reconnectToStream({ chatId: "never" })
    assert.equal(reconnected, null)
  },

  async "an ended chat has nothing to resume"({ url }) {
    const chat = new Chat({ id: "over", transport: transport(url, certain) })
    await chat.sendMessage({ text: "Hello" })
    assert.equal(await transport(url, {}).reconnectToStream({ chatId: "over" }), null)
  },

  async "a chat is resumed with all of its answer"({ url }) {
    const id = await abandoned(url, "lost connection")
    const chat = new Chat({ id: "lost connection", messages: [user("Hello")], transport: transport(url, {}) })
    const resumed = chat.resumeStream()
    await until(() => isAttached(url, id))
    assert.equal((await control(url, id, "resume")).status, 200)
    await resumed
    assert.equal(chat.status, "ready")
    assert.equal(textOf(chat.messages[1]), await wholeText(url, id))
    assert.ok(textOf(chat.messages[1]).length > 0)
  },

  async "useChat with resume goes on where a page was closed"({ url }) {
    const id = await abandoned(url, "closed page")
    let hook
    function Page() {
      const options = { id: "closed page", messages: [user("Hello")], resume: true, transport: transport(url, {}) }
      hook = useChat(options)
      return null
    }
    let page
    await act(async () => (page = create(createElement(Page))))
    await act(async () => {
      await until(() => isAttached(url, id))
      assert.equal((await control(url, id, "resume")).status, 200)
    })
    await act(() => until(() => hook.status === "ready"))
    assert.equal(textOf(hook.messages[1]), await wholeText(url, id))
    await act(async () => page.unmount())
  },

  async "a chat completion is read as a UI message stream"({ url }) {
    const body = JSON.stringify({ ...certain, stream: true, messages: [{ role: "user", content: "Hello" }] })
    const headers = { "content-type": "application/json", "x-stream-resumable": "true" }
    const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body })
    assert.equal(response.headers.get(HEADER), null)
    const chunks = (await response.text()).split("\n").filter((line) => line.startsWith("data: {"))
    const deltas = chunks.map((line) => JSON.parse(line.slice(6)).choices[0]?.delta.content ?? "")
    assert.equal(await wholeText(url, response.headers.get("x-stream-id")), deltas.join(""))
  },
})
