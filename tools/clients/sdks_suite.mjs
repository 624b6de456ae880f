// OpenAI's and Anthropic's clients for JavaScript and the AI SDK, unmodified, against a running server.
//
//     node sdks_suite.mjs PATH-OF-THE-MILLRACE-BINARY FOLDER-WITH-node_modules
//
// The models' words mean little: what is checked is form, equality and endings.

import assert from "node:assert/strict"

import { BUILT_IN as model, load, run } from "./suite.mjs"

const { default: OpenAI } = await load("openai")
const { default: Anthropic } = await load("@anthropic-ai/sdk")
const { betaZodTool } = await load("@anthropic-ai/sdk/helpers/beta/zod")
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible")
const { createAnthropic } = await load("@ai-sdk/anthropic")
const { embedMany, generateText, Output, stepCountIs, streamText, tool } = await load("ai")
const { z } = await load("zod")

const question = "What is the weather in Rome?"
const messages = [{ role: "user", content: question }]
const place = z.strictObject({ city: z.enum(["Rome", "Oslo"]) })
const parameters = {
  type: "object",
  properties: { city: { type: "string", enum: ["Rome", "Oslo"] } },
  required: ["city"],
  additionalProperties: false,
}
// Sampling without chance: the same answers in every run.
const certain = { temperature: 0, max_tokens: 200 }
const certainly = { temperature: 0, maxOutputTokens: 200 }

const texts = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text)

async function joined(parts) {
  let text = ""
  for await (const part of parts) text += part
  return text
}

/// A model of the AI SDK: text, stream, a tool with its second step, an object.
async function aiSdk(of) {
  const whole = await generateText({ model: of, prompt: "Hello", ...certainly })
  assert.ok(whole.text.length > 0 && whole.usage.outputTokens > 0 && whole.finishReason === "stop")
  assert.equal(await joined(streamText({ model: of, prompt: "Hello", ...certainly }).textStream), whole.text)
  const told = []
  const weather = tool({
    description: "The weather of a city.",
    inputSchema: place,
    execute: ({ city }) => told.push(city) && "sunny",
  })
  const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" })
  const acted = await generateText({
    model: of, prompt: question, tools: { weather }, prepareStep, stopWhen: stepCountIs(2), ...certainly,
  })
  assert.ok(told.length > 0 && told.every((city) => ["Rome", "Oslo"].includes(city)), `${told}`)
  assert.equal(acted.steps.length, 2)
  const { output } = await generateText({ model: of, prompt: question, output: Output.object({ schema: place }), ...certainly })
  assert.deepEqual(place.parse(output), output)
}

const checks = {
  async "openai: chat and responses, whole and streamed; embeddings"({ openai }) {
    const ask = { model, messages, ...certain }
    const whole = await openai.chat.completions.create(ask)
    const stream = openai.chat.completions.stream({ ...ask, stream_options: { include_usage: true } })
    const streamed = await stream.finalChatCompletion()
    assert.equal(streamed.choices[0].message.content, whole.choices[0].message.content)
    assert.equal(streamed.usage.completion_tokens, whole.usage.completion_tokens)
    const input = { model, input: question, temperature: 0, max_output_tokens: 200 }
    const response = await openai.responses.create(input)
    const events = openai.responses.stream(input)
    assert.equal((await events.finalResponse()).output_text, response.output_text)
    const { data } = await openai.embeddings.create({ model, input: ["one", "two"] })
    assert.deepEqual(data.map((one) => one.embedding.length), [256, 256])
  },
  async "openai: runTools calls, is answered, and ends"({ openai }) {
    const told = []
    const weather = { name: "weather", description: "The weather of a city.", parameters, parse: JSON.parse }
    const call = ({ city }) => told.push(city) && "sunny"
    const runner = openai.chat.completions.runTools({
      model, messages, ...certain, tool_choice: { type: "function", function: { name: "weather" } },
      tools: [{ type: "function", function: { ...weather, function: call } }],
    })
    await runner.done()
    assert.equal(told.length, 1)
    assert.equal(runner.messages.at(-1).role, "tool")
  },
  async "anthropic: toolRunner takes its second turn: a refused thread is left out"({ anthropic }) {
    const told = []
    const weather = betaZodTool({
      name: "weather", description: "The weather of a city.", inputSchema: place, run: ({ city }) => told.push(city) && "sunny",
    })
    const ask = { model, messages, ...certain, tools: [weather], tool_choice: { type: "any" }, max_iterations: 2 }
    for (const stream of [false, true]) {
      const turns = []
      for await (const turn of anthropic.beta.messages.toolRunner({ ...ask, stream })) {
        turns.push(stream ? await turn.finalMessage() : turn)
      }
      assert.equal(turns.length, 2)
      assert.ok(told.length >= 2 && turns[1].usage.input_tokens + turns[1].usage.cache_read_input_tokens > turns[0].usage.input_tokens)
      told.length = 0
    }
  },
  async "anthropic: a thread is refused with the details that its fallback reads"({ anthropic }) {
    for (const thread of [{ type: "create" }, { type: "continue", previous_message_id: "msg_x" }]) {
      const ask = anthropic.beta.messages.create({ model, messages, ...certain, thread })
      await assert.rejects(ask, ({ status, error }) => {
        const { details } = error.error
        return status === 400 && details.error_code === "thread_unsupported_request" && details.unsupported[0] === "thread"
      })
    }
  },
  async "anthropic: a message, streamed and whole"({ anthropic }) {
    const ask = { model, messages, ...certain }
    const whole = await anthropic.messages.create(ask)
    const streamed = await anthropic.messages.stream(ask).finalMessage()
    assert.deepEqual(texts(streamed), texts(whole))
    assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens)
  },
  async "openai and anthropic: a resumable stream, whose first event sets the reconnection time"({ openai, anthropic }) {
    const headers = { "x-stream-resumable": "1" }
    const ask = { model, messages, ...certain }
    const whole = await openai.chat.completions.create(ask)
    let text = ""
    for await (const chunk of await openai.chat.completions.create({ ...ask, stream: true }, { headers })) {
      text += chunk.choices[0].delta.content ?? ""
    }
    assert.equal(text, whole.choices[0].message.content)
    const input = { model, input: question, temperature: 0, max_output_tokens: 200 }
    const response = await openai.responses.create(input)
    assert.equal((await openai.responses.stream(input, { headers }).finalResponse()).output_text, response.output_text)
    const message = await anthropic.messages.create(ask)
    assert.deepEqual(texts(await anthropic.messages.stream(ask, { headers }).finalMessage()), texts(message))
  },
  async "the AI SDK with @ai-sdk/openai-compatible"({ url }) {
    const millrace = createOpenAICompatible({
      name: "millrace", baseURL: `${url}/v1`, supportsStructuredOutputs: true, includeUsage: true,
    })
    await aiSdk(millrace(model))
    const { embeddings } = await embedMany({ model: millrace.textEmbeddingModel(model), values: ["one", "two"] })
    assert.deepEqual(embeddings.map((one) => one.length), [256, 256])
  },
  async "the AI SDK with @ai-sdk/anthropic"({ url }) {
    await aiSdk(createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" })(model))
  },
}

const plain = { apiKey: "none", maxRetries: 0 }
const connect = (url) => ({
  openai: new OpenAI({ ...plain, baseURL: `${url}/v1` }),
  anthropic: new Anthropic({ ...plain, baseURL: url }),
})
await run(connect, checks)
