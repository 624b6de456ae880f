//! The fields of requests. Bounds are the parsers' own.

use generate::request::{
    CACHE_SALT_BYTES_MAX, CHOICES_MAX, LOGIT_BIAS_MAX, MESSAGES_MAX, STOP_BYTES_MAX, STOP_IDS_MAX,
    STOPS_MAX, TOP_LOGPROBS_MAX,
};
use generate::tools::TOOLS_MAX;
use serde_json::{Map, Value, json};
use wire::embeddings_input::INPUTS_MAX;
use wire::field_table::{FieldRow, FieldTable, Treatment};
use wire::openai::generation_fields::DEADLINE_MS_MAX;

/// An object with these properties, of which some are required.
pub(super) fn object(required: &[&str], properties: &[Value]) -> Value {
    let mut all = Map::new();
    for more in properties {
        all.extend(
            more.as_object()
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.clone())),
        );
    }
    json!({"type": "object", "properties": all, "required": required})
}

/// Fields of a table that have no effect or are rejected, and fields with rejected values.
pub(super) fn of_table(table: &FieldTable) -> Value {
    let told = |row: &FieldRow| match row.treatment {
        Treatment::Honored("") => None,
        Treatment::Honored(words) => Some(json!({"description": words})),
        Treatment::NoEffect(reason) => Some(json!({"description": format!("no effect: {reason}")})),
        Treatment::Rejected { accepted, instead } => {
            let accepted = accepted
                .iter()
                .filter_map(|text| serde_json::from_str(text).ok());
            let values: Vec<Value> = accepted.chain([Value::Null]).collect();
            Some(json!({"enum": values, "description": format!("not supported: {instead}")}))
        }
    };
    let rows = table.rows.iter();
    let told = rows.filter_map(|row| Some((row.name.to_owned(), told(row)?)));
    Value::Object(told.collect())
}

/// A string or a list of strings.
fn text_or_texts(max: usize) -> Value {
    json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": max}]})
}

/// Text, texts, ids, or lists of ids.
pub(super) fn prompts(max: usize) -> Value {
    let ids = json!({"type": "array", "items": {"type": "integer", "minimum": 0}});
    json!({"anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "maxItems": max},
        ids,
        {"type": "array", "items": ids, "maxItems": max},
    ]})
}

/// How tokens are chosen, in every format of ours and OpenAI's.
pub(super) fn sampling() -> Value {
    json!({
        "temperature": {"type": "number", "minimum": 0, "maximum": 2, "default": 1},
        "top_p": {"type": "number", "minimum": 0, "maximum": 1, "default": 1},
        "top_k": {"type": "integer", "minimum": -1, "description": "0 and -1: off"},
        "min_p": {"type": "number", "minimum": 0, "maximum": 1},
        "typical_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "maximum": 10},
        "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
        "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
        "logit_bias": {
            "type": "object", "maxProperties": LOGIT_BIAS_MAX,
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
        "seed": {"type": "integer"},
        "ignore_eos": {"type": "boolean"},
        "min_tokens": {"type": "integer", "minimum": 0},
        "stop_token_ids": {"type": "array", "items": {"type": "integer"}, "maxItems": STOP_IDS_MAX},
    })
}

/// Where an answer ends.
pub(super) fn stops() -> Value {
    let mut stops = text_or_texts(STOPS_MAX);
    let words =
        format!("strings of at most {STOP_BYTES_MAX} bytes; they are not part of the output");
    stops["description"] = json!(words);
    json!({"stop": stops})
}

/// What an answer must look like.
pub(super) fn forms() -> Value {
    json!({
        "response_format": {"$ref": "#/components/schemas/ResponseFormat"},
        "structured_outputs": {"type": "object", "description": "one of json, regex, choice, grammar, json_object"},
        "guided_json": {"description": "a JSON Schema"},
        "guided_regex": {"type": "string"},
        "guided_choice": {"type": "array", "items": {"type": "string"}},
        "guided_grammar": {"type": "string", "description": "a Lark grammar"},
        "json_schema": {"description": "a JSON Schema"},
        "grammar": {"type": "string", "description": "a Lark grammar"},
        "disable_additional_properties": {
            "type": "boolean",
            "description": "treat objects whose schema has properties and no additionalProperties as closed; default: the server's setting",
        },
    })
}

/// How it is handed over, and how urgent it is.
pub(super) fn delivery() -> Value {
    json!({
        "model": {"type": "string", "description": "default: the first model"},
        "stream": {"type": "boolean", "default": false},
        "stream_options": {"type": "object", "properties": {
            "include_usage": {"type": "boolean"},
            "continuous_usage_stats": {"type": "boolean"},
        }},
        "priority": {"anyOf": [
            {"enum": ["critical", "high", "normal", "low", "background"]},
            {"type": "integer", "description": "0 is normal; lower values are more urgent"},
        ]},
        "service_tier": {"type": "string"},
        "deadline_ms": {"type": "integer", "minimum": 1, "maximum": DEADLINE_MS_MAX},
        "user": {"type": "string"},
        "cache_salt": {
            "type": "string", "minLength": 1, "maxLength": CACHE_SALT_BYTES_MAX,
            "description": "share cached prompts only with requests that have the same salt",
        },
    })
}

/// How many tokens and answers.
pub(super) fn lengths() -> Value {
    json!({
        "max_tokens": {"type": "integer", "minimum": 1},
        "n": {"type": "integer", "minimum": 1, "maximum": CHOICES_MAX, "default": 1},
    })
}

/// A conversation in OpenAI's shape, and what the template is given beside it.
pub(super) fn conversation() -> Value {
    json!({
        "messages": {
            "type": "array", "minItems": 1, "maxItems": MESSAGES_MAX,
            "items": {"$ref": "#/components/schemas/Message"},
        },
        "tools": {"type": "array", "items": {"type": "object"}, "maxItems": TOOLS_MAX},
        "tool_choice": tool_choice(),
        "chat_template_kwargs": {"type": "object"},
        "reasoning_effort": {"type": "string"},
    })
}

/// Which tools may, or must, be called.
pub(super) fn tool_choice() -> Value {
    json!({"anyOf": [
        {"enum": ["none", "auto", "required"]},
        {"type": "object", "description": "the tool that must be called"},
    ]})
}

pub(super) fn logprobs() -> Value {
    json!({
        "logprobs": {"type": "boolean"},
        "top_logprobs": {"type": "integer", "minimum": 0, "maximum": TOP_LOGPROBS_MAX},
    })
}

/// Of a bare prompt.
pub(super) fn completion() -> Value {
    json!({
        "prompt": prompts(CHOICES_MAX),
        "echo": {"type": "boolean"},
        "logprobs": {"type": "integer", "minimum": 0, "maximum": TOP_LOGPROBS_MAX, "description": "with echo, also of the prompt's tokens except the first (null)"},
        "best_of": {
            "type": "integer", "minimum": 1, "maximum": CHOICES_MAX,
            "description": "generate this many choices and return the n most likely; must equal n when streaming",
        },
        "suffix": {"const": "", "description": "not supported"},
    })
}

pub(super) fn embeddings() -> Value {
    json!({
        "input": prompts(INPUTS_MAX),
        "encoding_format": {"enum": ["float", "base64"], "default": "float"},
        "dimensions": {"type": "integer", "minimum": 1},
    })
}
