//! How errors are told: each format has a shape of its own.

use super::fields::object;
use serde_json::{Value, json};

/// The prefix of a shape's names, and its schema.
const SHAPES: [(&str, &str); 4] = [
    ("", "Error"),
    ("Anthropic", "AnthropicError"),
    ("Ollama", "OllamaError"),
    ("Jobs", "JobsError"),
];

/// The shapes, by name.
pub(super) fn schemas() -> Value {
    json!({
        "Error": object(&["error"], &[json!({"error": object(&["message", "type", "code"], &[json!({
            "message": {"type": "string"}, "type": {"type": "string"}, "code": {"type": "string"},
            "param": {"type": ["string", "null"]}, "errors": fields(),
        })])})]),
        "AnthropicError": object(&["type", "error"], &[json!({
            "type": {"const": "error"},
            "error": object(&["type", "message"], &[json!({
                "type": {"type": "string"}, "message": {"type": "string"},
                "details": object(&["error_code"], &[json!({"error_code": {"type": "string"}, "errors": fields()})]),
            })]),
        })]),
        "OllamaError": object(&["error"], &[json!({"error": {"type": "string"}, "code": {"type": "string"}})]),
        "JobsError": {"anyOf": [
            object(&["errors"], &[json!({"errors": fields()})]),
            object(&["error"], &[json!({"error": object(&["code", "message", "retriable"], &[json!({
                "code": {"type": "string"}, "message": {"type": "string"}, "retriable": {"type": "boolean"},
            })])})]),
        ]},
    })
}

/// Every wrong field, at once.
fn fields() -> Value {
    let field = json!({
        "field": {"type": "string"}, "constraint": {"type": "string"}, "message": {"type": "string"}, "value": {},
    });
    json!({"type": "array", "items": object(&["field", "constraint"], &[field])})
}

/// Refusals, by name.
pub(super) fn responses() -> Value {
    let mut all = json!({});
    for (prefix, shape) in SHAPES {
        let told = |words: &str| {
            let schema = json!({"$ref": format!("#/components/schemas/{shape}")});
            json!({"description": words, "content": {"application/json": {"schema": schema}}})
        };
        all[format!("{prefix}Refused")] =
            told("The request was rejected; the error names the reason");
        all[format!("{prefix}Unavailable")] = told(
            "Overloaded, or the model is not ready: Retry-After and retry-after-ms give the time to retry",
        );
        all[format!("{prefix}Late")] =
            told("The deadline of the request passed before there was a response");
    }
    all
}
