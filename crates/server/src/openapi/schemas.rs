//! Objects, parameters and answers that several operations share.

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
        "OllamaEmbeddingsRequest": {"type": "object"},
        "OllamaShowRequest": {"type": "object"},
        "OllamaPullRequest": {"type": "object"},
        "OllamaCreateRequest": {"type": "object"},
        "OllamaCopyRequest": {"type": "object"},
        "OllamaDeleteRequest": {"type": "object"},
        "DetokenizeRequest": {"type": "object"},
        "ApplyTemplateRequest": {"type": "object"},
        "StreamAcknowledgement": {"type": "object"},
        "StreamControlRequest": {"type": "object"},
        "WorkflowRunRequest": {"type": "object"},
        "ChannelWriteRequest": {"type": "object"},
        "TokenizeRequest": object(&[], &[conversation(), json!({
            "content": {"type": "string"}, "prompt": {"type": "string"}, "with_pieces": {"type": "boolean"},
            "add_special": {"type": "boolean"}, "add_special_tokens": {"type": "boolean"},
            "parse_special": {"type": "boolean", "default": true}, "return_token_strs": {"type": "boolean"},
        })]),
    });
    let mut all = requests;
    super::merge(&mut all, shared());
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
    })
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
