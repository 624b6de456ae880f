//! Schemas of fields that parsers read as raw JSON, and of the items of lists.

use crate::embeddings_input::INPUTS_MAX;
use crate::fields::bounds::IDS_MAX;
use crate::metadata::{METADATA_CHARS_MAX, METADATA_MAX, METADATA_NAME_CHARS_MAX};
use engine::ADAPTER_SCALE_MAX;
use generate::infill_prompt::{FILE_NAME_BYTES_MAX, INFILL_FILES_MAX};
use generate::request::{
    CACHE_SALT_BYTES_MAX, CHOICES_MAX, CONVERSATION_ID_BYTES_MAX, DRY_BREAKER_BYTES_MAX,
    LOGIT_BIAS_MAX, PARTS_MAX, STOP_BYTES_MAX, STOPS_MAX, WEBHOOK_URL_BYTES_MAX,
};
use serde_json::{Value, json};
use text::CHOICES_IN_GRAMMAR_MAX;

/// Parts of a field's schema beside the recorded one.
pub(super) struct Detail {
    pub(super) name: &'static str,
    pub(super) schema: fn() -> Value,
}

macro_rules! details {
    ($($(#[$doc:meta])* $list:ident: {$($name:literal: $schema:expr,)*})*) => {$(
        $(#[$doc])*
        pub(super) const $list: &[Detail] = &[$(Detail { name: $name, schema: || $schema }),*];
    )*};
}

details! {
    /// Parameters of a generation.
    GENERATION: {
        "stop": stop(),
        "logit_bias": logit_bias(),
        "stop_token_ids": json!({"items": token_id()}),
        "dry_sequence_breakers": json!({"items": dry_breaker()}),
        "stream_options": stream_options(),
        "priority": priority(),
        "cache_salt": cache_salt(),
        "lora": lora(),
        "response_format": response_format(),
        "structured_outputs": structured_outputs(),
        "guided_json": json_schema(),
        "json_schema": json_schema(),
        "guided_regex": json!({"type": "string"}),
        "guided_choice": choices(),
        "guided_grammar": grammar(),
        "grammar": grammar(),
        "guided_json_object": json!({"type": "boolean"}),
        "tools": json!({"items": {"type": "object"}}),
        "tool_choice": tool_choice(),
    }
    /// Options of a stream.
    STREAM: {
        "stream_options": stream_options(),
        "priority": priority(),
        "cache_salt": cache_salt(),
    }
    /// vLLM's truncation of prompts.
    TRUNCATION: {
        "truncate_prompt_tokens": json!({"not": {"const": 0}, "description": "tokens of the prompt that are kept, the last ones; -1: as many as leave room for the answer"}),
    }
    CHAT: {
        "messages": json!({"minItems": 1, "items": message(&["system", "developer", "user", "assistant", "tool", "function"])}),
    }
    COMPLETION: {
        "prompt": prompts(),
        "continue_token_ids": json!({
            "type": "array", "items": token_id(), "maxItems": IDS_MAX,
            "description": "ids of the answer so far, which another server has begun: the answer begins with them, and the rest is that of the same answer",
        }),
        "continue_choice": json!({"description": "number of the choice whose random numbers are used, as if it were one of several"}),
    }
    LLAMA_COMPLETION: {
        "prompt": llama_prompt(),
    }
    INFILL: {
        "input_prefix": json!({"description": "the text before the gap"}),
        "input_suffix": json!({"description": "the text after the gap"}),
        "prompt": json!({"description": "the beginning of the text of the gap"}),
        "input_extra": json!({"maxItems": INFILL_FILES_MAX, "items": {"type": "object", "required": ["text"], "properties": {
            "text": {"type": "string"}, "filename": {"type": "string", "maxLength": FILE_NAME_BYTES_MAX},
        }}}),
    }
    RESPONSE: {
        "webhook": webhook(),
        "input": json!({"anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "object"}, "minItems": 1},
        ]}),
        "text": json!({"properties": {
            "format": {"type": ["object", "null"]}, "verbosity": {"type": ["string", "null"]},
        }}),
        "truncation": json!({"enum": ["auto", "disabled"]}),
    }
    METADATA: {
        "metadata": json!({
            "maxProperties": METADATA_MAX,
            "propertyNames": {"maxLength": METADATA_NAME_CHARS_MAX},
            "additionalProperties": {"type": "string", "maxLength": METADATA_CHARS_MAX},
        }),
    }
    CLEARED_METADATA: {
        "metadata": json!({"type": ["object", "null"]}),
    }
    MESSAGE: {
        "messages": json!({"minItems": 1, "items": {"type": "object"}}),
        "system": json!({"anyOf": [{"type": "string"}, {"type": "array", "items": text_part(), "maxItems": PARTS_MAX}]}),
        "tools": json!({"items": {"type": "object"}}),
        "thinking": json!({"required": ["type"], "properties": {
            "type": {"enum": ["enabled", "disabled", "adaptive", "between_tools"]},
            "budget_tokens": {"type": ["integer", "null"]},
        }}),
        "output_config": json!({"properties": {
            "effort": {"type": ["string", "null"]}, "format": {"type": ["object", "null"]},
        }}),
        "metadata": json!({"properties": {"user_id": {"type": ["string", "null"]}}}),
        "context_management": json!({"properties": {"edits": {"type": ["array", "null"], "items": {"type": "object"}}}}),
        "tool_choice": json!({"required": ["type"], "properties": {"type": {"enum": ["auto", "any", "tool", "none"]}}}),
        "max_tokens": json!({"description": "thinking.budget_tokens must be less"}),
    }
    MESSAGE_SAMPLING: {
        "stop_sequences": json!({"type": "array", "items": stop_string(1), "maxItems": STOPS_MAX}),
        "output_format": json!({"type": "object"}),
        "logprobs": json!({"enum": [false, 0]}),
        "top_logprobs": json!({"enum": [false, 0]}),
        "tool_choice": json!({"anyOf": [{"type": "object"}]}),
    }
    AI_SDK: {
        "id": json!({"maxLength": CONVERSATION_ID_BYTES_MAX, "description": "the chat"}),
        "messages": json!({"minItems": 1, "items": {
            "type": "object", "required": ["role", "parts"],
            "properties": {
                "role": {"enum": ["system", "user", "assistant"]},
                "parts": {"type": "array", "items": {"type": "object", "required": ["type"]}, "maxItems": PARTS_MAX},
            },
        }}),
    }
    JOB: {
        "webhook": webhook(),
        "job_id": json!({
            "minLength": 1, "maxLength": crate::jobs::job_id::JOB_ID_BYTES_MAX, "pattern": "^[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*$",
            "description": "an identifier chosen by the caller",
        }),
        "prompt": json!({"anyOf": [{"type": "string"}, {"type": "array", "items": token_id(), "minItems": 1}]}),
        "logprobs": json!({"enum": [false, 0]}),
        "top_logprobs": json!({"enum": [false, 0]}),
    }
    OLLAMA: {
        "format": json!({"anyOf": [{"enum": ["", "json"]}, {"type": "object"}]}),
        "structured_outputs": json!({"description": "only disable_additional_properties is read"}),
        "keep_alive": keep_alive(),
        "think": json!({"anyOf": [{"type": "boolean"}, {"enum": ["low", "medium", "high"]}]}),
        "context": json!({"type": "array", "items": token_id()}),
        "tool_choice": tool_choice(),
        "tools": json!({"items": {"type": "object"}}),
        "options": ollama_options(),
    }
    OLLAMA_CHAT: {
        "messages": json!({"items": message(&["system", "developer", "user", "assistant", "tool"])}),
    }
    UPDATE: {
        "tokens": json!({"items": token_id()}),
    }
    EMBEDDINGS: {
        "input": inputs(INPUTS_MAX),
        "encoding_format": json!({"enum": ["float", "base64"]}),
    }
    RERANK: {
        "query": json!({"minLength": 1}),
        "documents": documents(INPUTS_MAX),
    }
    OLLAMA_EMBEDDINGS: {
        "input": ollama_inputs(INPUTS_MAX),
        "prompt": ollama_inputs(1),
        "keep_alive": keep_alive(),
    }
    MODEL_NAME: {
        "name": json!({"description": "former name of the field model"}),
    }
    /// Names of models in requests to the model store.
    STORED_MODEL: {
        "model": json!({"minLength": 1}),
        "name": json!({"minLength": 1}),
        "source": json!({"minLength": 1}),
        "destination": json!({"minLength": 1}),
        "from": json!({"minLength": 1}),
    }
    CREATE: {
        "parameters": ollama_options(),
    }
    DETOKENIZE: {
        "tokens": json!({"type": "array", "items": token_id(), "maxItems": IDS_MAX}),
    }
    WORKFLOW_RUN: {
        "kwargs": json!({"type": "object", "description": "inputs of the run"}),
    }
    CHANNEL_WRITE: {
        "ids": json!({"items": token_id()}),
    }
}

/// A token id of any vocabulary.
fn token_id() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})
}

fn stop_string(least: usize) -> Value {
    json!({"type": "string", "minLength": least, "maxLength": STOP_BYTES_MAX})
}

fn stop() -> Value {
    let list = json!({"type": "array", "items": stop_string(1), "maxItems": STOPS_MAX});
    json!({
        "anyOf": [stop_string(0), list],
        "description": format!("strings of at most {STOP_BYTES_MAX} bytes; they are not part of the output"),
    })
}

fn dry_breaker() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": DRY_BREAKER_BYTES_MAX})
}

fn logit_bias() -> Value {
    let bias = json!({"type": "number", "minimum": -100, "maximum": 100});
    let object = json!({
        "type": "object", "maxProperties": LOGIT_BIAS_MAX, "propertyNames": {"pattern": "^[0-9]{1,9}$"},
        "additionalProperties": bias,
    });
    let pair = json!({
        "type": "array", "prefixItems": [token_id(), {"anyOf": [bias, {"const": false}]}], "minItems": 2, "maxItems": 2,
    });
    json!({"anyOf": [object, {"type": "array", "items": pair, "maxItems": LOGIT_BIAS_MAX}]})
}

fn stream_options() -> Value {
    let flag = json!({"type": ["boolean", "null"]});
    json!({"properties": {"include_usage": flag, "continuous_usage_stats": flag}})
}

fn priority() -> Value {
    json!({"anyOf": [
        {"enum": ["critical", "high", "normal", "low", "background"]},
        {"type": "integer", "description": "0 is normal; lower values are more urgent"},
    ]})
}

fn cache_salt() -> Value {
    json!({
        "minLength": 1, "maxLength": CACHE_SALT_BYTES_MAX,
        "description": "share cached prompts only with requests that have the same salt",
    })
}

fn lora() -> Value {
    let scale =
        json!({"type": "number", "minimum": -ADAPTER_SCALE_MAX, "maximum": ADAPTER_SCALE_MAX});
    json!({
        "items": {"type": "object", "properties": {
            "id": {"type": "integer", "minimum": 0}, "name": {"type": "string"}, "scale": scale,
        }, "anyOf": [{"required": ["id"]}, {"required": ["name"]}]},
        "description": "adapters of this request, by number or name (as in /lora-adapters), each with a scale (default 1)",
    })
}

fn webhook() -> Value {
    json!({
        "format": "uri", "minLength": 1, "maxLength": WEBHOOK_URL_BYTES_MAX,
        "description": "URL that receives a signed event when the stream has ended; of a host that the operator allows",
    })
}

fn response_format() -> Value {
    let with_type = |name: &str| json!({"type": "object", "required": ["type"], "properties": {"type": {"const": name}}});
    let mut schema = with_type("json_schema");
    schema["required"] = json!(["type", "json_schema"]);
    schema["properties"]["json_schema"] = json!({"type": "object", "required": ["schema"], "properties": {"schema": {"type": "object"}}});
    json!({"anyOf": [with_type("text"), with_type("json_object"), schema]})
}

fn structured_outputs() -> Value {
    json!({"type": "object", "description": "one of json, regex, choice, grammar, json_object"})
}

fn json_schema() -> Value {
    json!({"type": ["object", "boolean", "string"], "description": "a JSON Schema, or its text"})
}

fn choices() -> Value {
    json!({
        "type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": CHOICES_IN_GRAMMAR_MAX,
    })
}

fn grammar() -> Value {
    json!({"type": "string", "description": "a grammar in GBNF or Lark"})
}

fn tool_choice() -> Value {
    json!({"anyOf": [
        {"enum": ["none", "auto", "required"]},
        {"type": "object", "description": "the tool that must be called"},
    ]})
}

fn text_part() -> Value {
    json!({"type": "object", "required": ["type", "text"], "properties": {
        "type": {"const": "text"}, "text": {"type": "string"},
    }})
}

/// A content part of a message of chat completions.
fn content_part() -> Value {
    json!({"anyOf": [
        {"type": "object", "required": ["type", "text"], "properties": {
            "type": {"enum": ["text", "input_text", "output_text"]}, "text": {"type": "string"},
        }},
        {"type": "object", "required": ["type", "refusal"], "properties": {
            "type": {"const": "refusal"}, "refusal": {"type": "string"},
        }},
    ]})
}

fn message(roles: &[&str]) -> Value {
    json!({"type": "object", "required": ["role"], "properties": {
        "role": {"enum": roles},
        "content": {"anyOf": [
            {"type": "string"}, {"type": "null"}, {"type": "array", "items": content_part(), "maxItems": PARTS_MAX},
        ]},
    }})
}

/// Texts, token ids, or lists of token ids.
fn prompts() -> Value {
    let ids = json!({"type": "array", "items": token_id(), "minItems": 1});
    let prompt = json!({"anyOf": [{"type": "string"}, ids]});
    json!({"anyOf": [
        {"type": "string"}, ids,
        {"type": "array", "items": prompt, "minItems": 1, "maxItems": CHOICES_MAX},
    ]})
}

/// A text, token ids, or texts and token ids that make one prompt; or a list of one prompt.
fn llama_prompt() -> Value {
    let part = json!({"anyOf": [{"type": "string"}, token_id()]});
    let parts = json!({"type": "array", "items": part});
    json!({"anyOf": [
        {"type": "string"}, parts,
        {"type": "array", "items": parts, "minItems": 1, "maxItems": 1},
    ]})
}

/// Texts or token ids to embed: one, or a list of at most `max`.
fn inputs(max: usize) -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let ids = json!({"type": "array", "items": token_id(), "minItems": 1, "maxItems": IDS_MAX});
    let input = json!({"anyOf": [text, ids]});
    json!({"anyOf": [
        text, ids,
        {"type": "array", "items": input, "minItems": 1, "maxItems": max},
    ]})
}

/// As [`inputs`], or nothing to embed.
fn ollama_inputs(max: usize) -> Value {
    let nothing = json!({"type": "array", "maxItems": 0});
    json!({"anyOf": [inputs(max), {"enum": [""]}, nothing]})
}

fn documents(max: usize) -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let object = json!({"type": "object", "properties": {"text": text}, "required": ["text"]});
    let document = json!({"anyOf": [text, object]});
    json!({"type": "array", "items": document, "minItems": 1, "maxItems": max})
}

fn keep_alive() -> Value {
    json!({"type": ["number", "string"], "description": "seconds, or a duration such as 5m"})
}

/// Ollama's generation parameters.
fn ollama_options() -> Value {
    json!({"properties": {
        "stop": stop(), "logit_bias": logit_bias(), "stop_token_ids": {"items": token_id()},
        "dry_sequence_breakers": {"items": dry_breaker()},
        "response_format": response_format(), "structured_outputs": structured_outputs(),
        "guided_json": json_schema(), "json_schema": json_schema(), "guided_regex": {"type": "string"},
        "guided_choice": choices(), "guided_grammar": grammar(), "grammar": grammar(),
        "guided_json_object": {"type": "boolean"},
    }})
}
