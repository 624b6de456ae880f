//! Objects, parameters and answers that several operations share.

use super::errors;
use super::fields::{
    completion, conversation, delivery, embeddings, forms, lengths, logprobs, object, of_table,
    prompts, sampling, stops, tool_choice,
};
use generate::request::{
    CHOICES_MAX, CONVERSATION_ID_BYTES_MAX, MESSAGES_MAX, STOPS_MAX, TOP_LOGPROBS_MAX,
};
use generate::tools::TOOLS_MAX;
use serde_json::{Value, json};
use wire::field_table::{
    CHAT, COMPLETIONS, EMBEDDINGS, JOBS, MESSAGES, OLLAMA_CHAT, OLLAMA_EMBED, OLLAMA_GENERATE,
    RESPONSES,
};
use wire::format::Format;

/// All schemas, by name.
pub(super) fn all() -> Value {
    let requests = json!({
        "ChatRequest": object(&["messages"], &[
            of_table(&CHAT), conversation(), lengths(), stops(), sampling(), logprobs(), forms(), delivery(),
            json!({"max_completion_tokens": {"type": "integer", "minimum": 1}}),
        ]),
        "AiSdkChatRequest": object(&["messages"], &[lengths(), stops(), sampling(), forms(), delivery(), json!({
            "id": {"type": "string", "maxLength": CONVERSATION_ID_BYTES_MAX, "description": "the chat"},
            "messages": {"type": "array", "minItems": 1, "maxItems": MESSAGES_MAX, "items": ui_message()},
            "system": {"type": "string"}, "tools": {"type": "array", "items": {"type": "object"}},
        })]),
        "CompletionRequest": object(&["prompt"], &[
            of_table(&COMPLETIONS), completion(), lengths(), stops(), sampling(), forms(), delivery(),
        ]),
        "ResponseRequest": object(&["input"], &[of_table(&RESPONSES), response(), stops(), sampling(), delivery()]),
        "MessageRequest": object(&["messages", "max_tokens"], &[
            of_table(&MESSAGES), message_request(), sampling(), delivery(),
        ]),
        "JobRequest": object(&["prompt"], &[
            of_table(&JOBS),
            json!({
                "job_id": {"type": "string", "description": "an identifier chosen by the caller"},
                "prompt": prompts(CHOICES_MAX),
            }),
            lengths(), stops(), sampling(), forms(), delivery(),
        ]),
        "EmbeddingRequest": object(&["input"], &[of_table(&EMBEDDINGS), embeddings(), delivery()]),
        "OllamaChatRequest": object(&["model"], &[of_table(&OLLAMA_CHAT), ollama(), json!({
            "messages": {"type": "array", "items": {"$ref": "#/components/schemas/Message"}, "maxItems": MESSAGES_MAX},
        })]),
        "OllamaGenerateRequest": object(&["model"], &[of_table(&OLLAMA_GENERATE), ollama(), json!({
            "prompt": {"type": "string"}, "system": {"type": "string"}, "template": {"type": "string"},
            "raw": {"type": "boolean"}, "context": {"type": "array", "items": {"type": "integer"}},
        })]),
        "OllamaEmbedRequest": object(&["input"], &[of_table(&OLLAMA_EMBED), json!({
            "model": {"type": "string"}, "input": prompts(wire::embeddings_input::INPUTS_MAX),
            "truncate": {"type": "boolean", "default": true}, "dimensions": {"type": "integer", "minimum": 1},
        })]),
        "TokenizeRequest": object(&[], &[conversation(), json!({
            "content": {"type": "string"}, "prompt": {"type": "string"}, "with_pieces": {"type": "boolean"},
            "add_special": {"type": "boolean"}, "add_special_tokens": {"type": "boolean"},
            "parse_special": {"type": "boolean", "default": true}, "return_token_strs": {"type": "boolean"},
        })]),
    });
    let mut all = requests;
    for more in [shared(), errors::schemas()] {
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
        }
    }
    all
}

fn shared() -> Value {
    json!({
        "Message": object(&["role"], &[json!({
            "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"anyOf": [
                {"type": "string"}, {"type": "null"},
                {"type": "array", "items": object(&["type", "text"], &[json!({
                    "type": {"const": "text"}, "text": {"type": "string"},
                })])},
            ]},
        })]),
        "ResponseFormat": {"oneOf": [
            object(&["type"], &[json!({"type": {"const": "text"}})]),
            object(&["type"], &[json!({"type": {"const": "json_object"}})]),
            object(&["type", "json_schema"], &[json!({
                "type": {"const": "json_schema"},
                "json_schema": object(&["schema"], &[json!({"name": {"type": "string"}, "schema": {}})]),
            })]),
        ]},
        "ResponseEvent": object(&["type", "sequence_number"], &[json!({
            "type": {"enum": [
                "response.created", "response.in_progress", "response.output_item.added",
                "response.content_part.added", "response.output_text.delta", "response.output_text.done",
                "response.reasoning_text.delta", "response.reasoning_text.done",
                "response.function_call_arguments.delta", "response.function_call_arguments.done",
                "response.content_part.done", "response.output_item.done", "response.completed",
                "response.incomplete", "response.failed", "error",
            ]},
            "sequence_number": {"type": "integer", "description": "grows; what stands for several tokens leaves a gap before it"},
        })]),
        "MessageEvent": object(&["type"], &[json!({"type": {"enum": [
            "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
            "message_stop", "ping", "error",
        ]}})]),
        "UiMessageChunk": ui_message_chunk(),
        "JobEvent": object(&["type"], &[json!({"type": {"enum": [
            "queued", "started", "token", "metrics", "end", "error",
        ]}})]),
        "Chunk": object(&["id", "object", "choices"], &[json!({
            "id": {"type": "string"}, "object": {"enum": ["chat.completion.chunk", "text_completion"]},
            "created": {"type": "integer"}, "model": {"type": "string"},
            "choices": {"type": "array", "items": {"type": "object"}}, "usage": {"type": ["object", "null"]},
        })]),
        "OllamaLine": object(&["model", "created_at", "done"], &[json!({
            "model": {"type": "string"}, "created_at": {"type": "string", "format": "date-time"},
            "done": {"type": "boolean"}, "done_reason": {"enum": ["stop", "length", "load", "unload"]},
        })]),
        "ChunkEvent": {"anyOf": [schema("Chunk"), schema("Error")]},
        "OllamaEvent": {"anyOf": [schema("OllamaLine"), schema("OllamaError")]},
        "Stream": object(&["id", "state", "dialect"], &[json!({
            "id": {"type": "string"}, "response_id": {"type": "string"}, "model": {"type": "string"},
            "dialect": {"enum": Format::ALL.map(Format::name)},
            "state": {"enum": ["queued", "prefilling", "running", "parked", "paused", "ended"]},
            "choices": {"type": "array", "items": {"type": "object"}},
            "parked": {"enum": ["credit", "detached", "pages", "paused", "place"]},
            "measures": measures(),
        })]),
        "Object": {"type": "object"},
    })
}

fn measures() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let figure = || json!({"type": "number", "minimum": 0});
    let perhaps = || json!({"type": ["number", "null"], "minimum": 0});
    let gaps = || json!({"anyOf": [{"type": "null"}, object(&["mean", "max"], &[json!({"mean": figure(), "max": figure()})])]});
    let socket = json!({"frames": count(), "stall_ms": figure(), "inter_token_ms": gaps()});
    object(
        &[],
        &[json!({
            "queue_wait_ms": perhaps(), "parks": count(), "pauses": count(), "preemptions": count(),
            "resumes": count(), "stall_ms": figure(), "tokens_per_s": perhaps(), "inter_token_ms": gaps(),
            "socket": object(&[], &[socket]),
        })],
    )
}

fn response() -> Value {
    json!({
        "input": {"anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": MESSAGES_MAX},
        ]},
        "instructions": {"type": "string"},
        "previous_response_id": {"type": "string"},
        "store": {"type": "boolean", "default": true},
        "background": {"type": "boolean", "default": false, "description": "needs store"},
        "max_output_tokens": {"type": "integer", "minimum": 1},
        "top_logprobs": {"type": "integer", "minimum": 0, "maximum": TOP_LOGPROBS_MAX},
        "include": {"type": "array", "items": {"type": "string"}},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "prompt_cache_key": {"type": ["string", "null"]},
        "safety_identifier": {"type": ["string", "null"]},
        "tools": {"type": "array", "items": {"type": "object"}, "maxItems": TOOLS_MAX},
        "tool_choice": tool_choice(),
        "reasoning": object(&[], &[json!({"effort": {"type": "string"}})]),
        "text": object(&[], &[json!({"format": {"type": "object"}, "verbosity": {"type": "string"}})]),
        "truncation": {"const": "disabled"},
    })
}

fn message_request() -> Value {
    json!({
        "messages": {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": MESSAGES_MAX},
        "system": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "max_tokens": {"type": "integer", "minimum": 1},
        "stop_sequences": {"type": "array", "items": {"type": "string"}, "maxItems": STOPS_MAX},
        "tools": {"type": "array", "items": {"type": "object"}},
        "tool_choice": {"type": "object"},
        "thinking": {"type": "object"},
        "output_config": object(&[], &[json!({
            "effort": {"type": "string"},
            "format": object(&["type", "schema"], &[json!({"type": {"const": "json_schema"}, "schema": {"type": "object"}})]),
        })]),
        "metadata": {"type": "object"},
    })
}

fn ollama() -> Value {
    json!({
        "model": {"type": "string"},
        "stream": {"type": "boolean", "default": true},
        "format": {"description": "\"json\", or a JSON Schema"},
        "options": {"type": "object"},
        "think": {"anyOf": [{"type": "boolean"}, {"enum": ["low", "medium", "high"]}]},
        "keep_alive": {"type": ["number", "string"]},
    })
}

/// Parameters, by name.
pub(super) fn parameters() -> Value {
    let query = |name: &str, schema: Value, words: &str| json!({"name": name, "in": "query", "schema": schema, "description": words});
    let header = |name: &str, schema: Value, words: &str| json!({"name": name, "in": "header", "schema": schema, "description": words});
    let flag = || json!({"enum": ["0", "1"]});
    let text = || json!({"type": "string"});
    json!({
        "resumable": header("X-Stream-Resumable", flag(), "1: the stream goes on when the client disconnects, and can be resumed"),
        "acks": header("X-Stream-Acks", json!({"enum": ["socket", "explicit"]}), "what returns credit: bytes written to the socket, or explicit acknowledgements"),
        "priority": header("X-Priority", json!({"enum": ["critical", "high", "normal", "low", "background"]}), "overrides the body's priority"),
        "deadline": header("Request-Timeout-Ms", json!({"type": "integer", "minimum": 1}), "deadline of the request in milliseconds"),
        "last_event": header("Last-Event-ID", text(), "cursor of the last event that the client has"),
        "after": query("after", text(), "as Last-Event-ID"),
        "dialect": query("dialect", json!({"enum": Format::ALL.map(Format::name)}), "wire protocol of the events; default: the stream's own"),
        "framing": query("format", json!({"enum": ["sse", "ndjson"]}), "framing of the events, for protocols that have both"),
        "govern": query("govern", flag(), "1: this reader returns credit from now on"),
        "limit": query("limit", json!({"type": "integer", "minimum": 1}), "entries per page"),
        "order": query("order", json!({"enum": ["asc", "desc"]}), "desc: newest first"),
        "stream": query("stream", json!({"enum": ["true", "false"]}), "true: stream the events"),
        "starting_after": query("starting_after", json!({"type": "integer", "minimum": 0}), "a sequence_number; events after it are sent"),
    })
}

fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// A `UIMessage` of the AI SDK.
fn ui_message() -> Value {
    object(
        &["role", "parts"],
        &[json!({
            "id": {"type": "string"}, "role": {"enum": ["system", "user", "assistant"]},
            "parts": {"type": "array", "items": object(&["type"], &[json!({"type": {"type": "string"}})])},
        })],
    )
}

/// A chunk of the AI SDK's UI message stream.
fn ui_message_chunk() -> Value {
    let types = json!([
        "start",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
        "tool-input-error",
        "finish-step",
        "finish",
        "error",
        "abort",
    ]);
    object(&["type"], &[json!({"type": {"enum": types}})])
}
