//! Valid and invalid requests.

pub(crate) mod chat;
pub(crate) mod completion;

use crate::fields::Fields;
use crate::openai::completion_request;
use crate::request_parser::tests::parsed_request;
use crate::shared::error_response::status_code;
use generate::error::ApiError;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A valid request with some fields replaced.
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
fn body_that_is_no_json_object_is_rejected() {
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
        let parsed = parsed_request(completion_request::parse_chat, body);
        let error = parsed.expect_err(label);
        assert_eq!(
            (status_code(error.kind).as_u16(), error.code),
            (400, want),
            "{label}: {}",
            error.message
        );
    }
    let error = Fields::parse(b"{\"a\": [").err().unwrap();
    assert!(error.message.contains("truncated"), "{}", error.message);
}

#[test]
fn field_given_twice_is_rejected() {
    let body = br#"{"messages":[{"role":"user","content":"x"}],"n":1,"n":2}"#;
    let error = parsed_request(completion_request::parse_chat, body).expect_err("twice");
    assert_eq!(bad_fields(&error), ["n"]);
}

fn chat(body: &Value) -> Result<generate::request::GenerateRequest, ApiError> {
    parsed_request(completion_request::parse_chat, body.to_string().as_bytes())
}

#[test]
fn reported_errors_and_fields_are_bounded() {
    let many: Vec<Value> = (0..1000).map(|_| json!({"role": "x"})).collect();
    let error = chat(&json!({ "messages": many })).expect_err("all wrong");
    assert_eq!(error.problems.len(), 64);
    let fields: serde_json::Map<String, Value> =
        (0..300).map(|i| (format!("f{i}"), json!(1))).collect();
    let error = chat(&Value::Object(fields)).expect_err("too many fields");
    assert_eq!(error.code, "invalid_json");
}

proptest! {
    /// No body causes a panic; every error response names a field or a position.
    #[test]
    fn any_body_is_parsed_or_rejected(body in any_body()) {
        let chat = parsed_request(completion_request::parse_chat, &body);
        let completion = parsed_request(completion_request::parse, &body);
        for error in [chat.err(), completion.err()].into_iter().flatten() {
            prop_assert!(status_code(error.kind).is_client_error() && !error.message.is_empty());
            prop_assert!(error.problems.iter().all(|p| !p.field.is_empty() && !p.constraint.is_empty()));
        }
    }
}

/// Random bytes, broken JSON, and objects whose known fields have any value.
fn any_body() -> impl Strategy<Value = Vec<u8>> {
    const NAMES: [&str; 16] = [
        "messages",
        "prompt",
        "stop",
        "n",
        "seed",
        "logit_bias",
        "stream_options",
        "tools",
        "top_logprobs",
        "logprobs",
        "max_tokens",
        "response_format",
        "chat_template_kwargs",
        "temperature",
        "echo",
        "stop_token_ids",
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|x| format!("{x:e}")),
        any::<String>().prop_map(|s| Value::String(s).to_string()),
        Just(r#"{"role":"user","content":"x"}"#.to_owned()),
        Just(r#"{"type":"text"}"#.to_owned()),
    ];
    let value = leaf.prop_recursive(3, 12, 4, |inner| {
        let pair =
            ("[a-z]{1,4}", inner.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(pair, 0..4).prop_map(|pairs| format!("{{{}}}", pairs.join(","))),
        ]
    });
    let field = (prop::sample::select(&NAMES[..]), value)
        .prop_map(|(name, value)| format!("\"{name}\":{value}"));
    let object =
        prop::collection::vec(field, 0..6).prop_map(|fields| format!("{{{}}}", fields.join(",")));
    let cut = (object.clone(), any::<prop::sample::Index>()).prop_map(|(text, at)| {
        let at = at.index(text.len());
        text.as_bytes()[..at].to_vec()
    });
    prop_oneof![
        4 => object.prop_map(String::into_bytes),
        1 => cut,
        1 => prop::collection::vec(any::<u8>(), 0..64),
    ]
}
