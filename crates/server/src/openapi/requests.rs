//! Schemas of request bodies. Those of the wire protocols are recorded from their parsers; the others are written here.

use serde_json::{Map, Value, json};
use wire::embeddings_input::INPUTS_MAX;
use wire::field_table::{EMBEDDINGS, FieldTable, OLLAMA_EMBED, OLLAMA_EMBEDDINGS};
use wire::request_schema::REQUESTS;

/// Token ids that one request may write into a channel.
const CHANNEL_IDS_MAX: usize = 4096;

/// All schemas, by name.
pub(super) fn all() -> Value {
    let recorded = REQUESTS.iter();
    let recorded = recorded.map(|request| (request.name.to_owned(), request.schema()));
    let mut all = Value::Object(recorded.collect());
    for more in [embeddings(), store(), vocabulary(), streams()] {
        super::merge(&mut all, more);
    }
    all
}

/// An object with these properties; null is the same as no value for those that are not required.
fn object(required: &[&str], mut properties: Value) -> Value {
    for (name, schema) in properties.as_object_mut().into_iter().flatten() {
        if required.contains(&&**name) {
            continue;
        }
        if let Some(Value::String(kind)) = schema.get("type") {
            schema["type"] = json!([kind, "null"]);
        } else if let Some(schemas) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
            schemas.push(json!({"type": "null"}));
        }
    }
    json!({"type": "object", "properties": properties, "required": required})
}

/// An object with these properties and the rows of a field table.
fn with_table(table: &FieldTable, required: &[&str], properties: Value) -> Value {
    let mut object = object(required, properties);
    let mut all: Value = Value::Object(table.properties());
    for (name, schema) in object["properties"].as_object().into_iter().flatten() {
        match all.get_mut(name) {
            Some(row) => super::merge(row, schema.clone()),
            None => all[name] = schema.clone(),
        }
    }
    object["properties"] = all;
    object
}

fn text() -> Value {
    json!({"type": "string"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn token_ids() -> Value {
    json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": u32::MAX}})
}

fn messages() -> Value {
    REQUESTS[0].schema()["properties"]["messages"].clone()
}

fn embeddings() -> Value {
    let mut ids = token_ids();
    ids["minItems"] = json!(1);
    let words = json!({"type": "string", "minLength": 1});
    let input = json!({"anyOf": [
        words, ids,
        {"type": "array", "items": {"anyOf": [words, ids]}, "minItems": 1, "maxItems": INPUTS_MAX},
    ]});
    let dimensions = json!({"type": "integer", "minimum": 1});
    let keep_alive = json!({"anyOf": [{"type": "number"}, text()]});
    let stream = &REQUESTS[0].schema()["properties"];
    json!({
        "EmbeddingRequest": with_table(&EMBEDDINGS, &["input"], json!({
            "model": text(), "input": input, "dimensions": dimensions,
            "encoding_format": {"enum": ["float", "base64", null]},
            "priority": stream["priority"], "deadline_ms": stream["deadline_ms"], "user": text(),
        })),
        "OllamaEmbedRequest": with_table(&OLLAMA_EMBED, &["input"], json!({
            "model": text(), "input": input, "dimensions": dimensions, "truncate": flag(), "keep_alive": keep_alive,
        })),
        "OllamaEmbeddingsRequest": with_table(&OLLAMA_EMBEDDINGS, &["prompt"], json!({
            "model": text(), "prompt": {"anyOf": [words, ids]}, "dimensions": dimensions, "truncate": flag(),
            "keep_alive": keep_alive,
        })),
    })
}

fn store() -> Value {
    let name = || json!({"type": "string", "minLength": 1});
    json!({
        "OllamaShowRequest": object(&["model"], json!({"model": text()})),
        "OllamaPullRequest": object(&["model"], json!({"model": name(), "stream": flag()})),
        "OllamaDeleteRequest": object(&["model"], json!({"model": name()})),
        "OllamaCopyRequest": object(&["source", "destination"], json!({"source": name(), "destination": name()})),
        "OllamaCreateRequest": object(&["model", "from"], json!({
            "model": name(), "from": name(), "system": text(), "template": text(), "stream": flag(),
            "parameters": {"anyOf": [{"$ref": "#/components/schemas/OllamaOptions"}]},
        })),
    })
}

fn vocabulary() -> Value {
    let conversation = json!({
        "model": text(), "messages": messages(), "add_generation_prompt": flag(), "reasoning_effort": text(),
        "chat_template_kwargs": {"type": "object"},
    });
    let mut tokenized = conversation.clone();
    let flags = [
        "with_pieces",
        "add_special",
        "add_special_tokens",
        "parse_special",
        "return_token_strs",
    ];
    let flags: Map<String, Value> = flags
        .map(|name| (name.to_owned(), flag()))
        .into_iter()
        .collect();
    super::merge(&mut tokenized, Value::Object(flags));
    super::merge(&mut tokenized, json!({"content": text(), "prompt": text()}));
    let mut tokenize = object(&[], tokenized);
    let one_of = ["content", "prompt", "messages"].map(|name| json!({"required": [name]}));
    tokenize["anyOf"] = json!(one_of);
    json!({
        "TokenizeRequest": tokenize,
        "DetokenizeRequest": object(&["tokens"], json!({"model": text(), "tokens": token_ids()})),
        "ApplyTemplateRequest": object(&["messages"], conversation),
    })
}

fn streams() -> Value {
    let count = || json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    let mut ids = token_ids();
    ids["maxItems"] = json!(CHANNEL_IDS_MAX);
    json!({
        "StreamAcknowledgement": object(&["index"], json!({"index": count(), "choice": count()})),
        "WorkflowRunRequest": object(&[], json!({
            "model": text(), "max_tokens": {"type": "integer", "minimum": 1}, "stream": flag(),
            "kwargs": {"type": "object"},
        })),
        "ChannelWriteRequest": object(&[], json!({"ids": ids, "close": flag()})),
    })
}
