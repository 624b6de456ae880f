//! Requests, right and wrong.

mod chat;
mod completion;

use crate::error::ApiError;
use crate::fields::Fields;
use crate::openai::chat_request;
use serde_json::{Value, json};

const VOCAB: usize = 300;

/// A good request with some fields put over it.
fn with(mut base: Value, over: &Value) -> Value {
    for (name, value) in over.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}

fn bad_fields(error: &ApiError) -> Vec<&str> {
    error.problems.iter().map(|p| p.field.as_str()).collect()
}

#[test]
fn bodies_that_are_no_json_object() {
    let rows: [(&str, &[u8], &str); 8] = [
        ("empty", b"", "invalid_json"),
        ("truncated", b"{\"messages\": [", "invalid_json"),
        ("array", b"[]", "invalid_json"),
        ("words", b"hello", "invalid_json"),
        ("two values", b"{} {}", "invalid_json"),
        ("broken UTF-8", b"{\"a\": \"\xff\"}", "invalid_utf8"),
        (
            "half a surrogate pair",
            b"{\"messages\": [{\"role\": \"user\", \"content\": \"\\ud800\"}]}",
            "invalid_value",
        ),
        ("too deep", &[b'['; 100_000], "invalid_json"),
    ];
    for (label, body, want) in rows {
        let parsed = Fields::parse(body).and_then(|fields| chat_request::parse(fields, VOCAB));
        let error = parsed.expect_err(label);
        assert_eq!(
            (error.status.as_u16(), error.code),
            (400, want),
            "{label}: {}",
            error.message
        );
    }
    let error = Fields::parse(b"{\"a\": [").err().unwrap();
    assert!(error.message.contains("truncated"), "{}", error.message);
}

#[test]
fn a_field_given_twice_is_refused() {
    let body = br#"{"messages":[{"role":"user","content":"x"}],"n":1,"n":2}"#;
    let error = Fields::parse(body)
        .and_then(|f| chat_request::parse(f, VOCAB))
        .expect_err("twice");
    assert_eq!(bad_fields(&error), ["n"]);
}

fn chat(body: &Value) -> Result<crate::ask::Ask, ApiError> {
    chat_request::parse(Fields::parse(body.to_string().as_bytes())?, VOCAB)
}

#[test]
fn problems_and_fields_are_bounded() {
    let many: Vec<Value> = (0..1000).map(|_| json!({"role": "x"})).collect();
    let error = chat(&json!({ "messages": many })).expect_err("all wrong");
    assert_eq!(error.problems.len(), 64);
    let fields: serde_json::Map<String, Value> =
        (0..300).map(|i| (format!("f{i}"), json!(1))).collect();
    let error = chat(&Value::Object(fields)).expect_err("too many fields");
    assert_eq!(error.code, "invalid_json");
}
