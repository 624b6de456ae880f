//! What cannot be done, and why.

use super::{RESPONSES, code, hello};
use crate::support::Rig;
use crate::support::client::post;
use serde_json::{Value, json};

/// What cannot stand in `input`, and what the refusal names.
fn bad_items() -> Vec<(Value, &'static str)> {
    let part = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]);
    vec![
        (json!({"input": null}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [7]}), "input[0]"),
        (
            json!({"input": [{"role": "tool", "content": "x"}]}),
            "input[0].role",
        ),
        (json!({"input": [{"role": "user"}]}), "input[0].content"),
        (json!({"input": part}), "input[0].content[0]"),
        (
            json!({"input": [{"role": "user", "content": "a"}, part[0]["content"][0]]}),
            "input[1]",
        ),
        (json!({"input": [{"type": "compaction"}]}), "input"),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            "input[0].id",
        ),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "x", "output": ""}]}),
            "input[0].call_id",
        ),
    ]
}

/// What other fields cannot be.
fn bad_fields() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (
            json!({"max_output_tokens": 2, "min_tokens": 3}),
            "min_tokens",
        ),
        (json!({"top_logprobs": 21}), "top_logprobs"),
        (
            json!({"text": {"format": {"type": "xml"}}}),
            "text.format.type",
        ),
        (
            json!({"text": {"format": {"type": "json_schema"}}}),
            "text.format.schema",
        ),
        (
            json!({"text": {"format": {"type": "json_schema", "schema": {"type": "array", "uniqueItems": true}}}}),
            "text.format.schema",
        ),
        (json!({"background": true, "store": false}), "background"),
        (json!({"truncation": "last"}), "truncation"),
        (json!({"truncation": true}), "truncation"),
        (json!({"metadata": {"a": 7}}), "metadata"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"prompt": {"id": "pmpt_1"}}), "prompt"),
        (json!({"reasoning": {"effort": 7}}), "reasoning.effort"),
        (
            json!({"previous_response_id": "resp_x"}),
            "previous_response_id",
        ),
        (json!({"text": 7}), "text"),
    ]
}

#[test]
fn invalid_fields_are_named() {
    let rig = Rig::start();
    for (over, param) in bad_items().into_iter().chain(bad_fields()) {
        for stream in [false, true] {
            let mut over = over.clone();
            over["stream"] = json!(stream);
            let reply = post(rig.addr, RESPONSES, &hello(&over));
            assert_eq!(reply.head.status, 400, "{over}: {}", reply.body);
            let told = reply.json()["error"]["param"].clone();
            let told = told.as_str().unwrap_or_default();
            assert!(told.starts_with(param), "{over}: {}", reply.body);
        }
    }
    rig.wait_until_empty();
}

#[test]
fn too_long_input_is_named_by_its_field() {
    let rig = Rig::start();
    let reply = post(
        rig.addr,
        RESPONSES,
        &hello(&json!({"input": "x".repeat(600)})),
    );
    assert_eq!(code(&reply), (400, "context_length_exceeded".to_owned()));
    let error = reply.json()["error"].clone();
    assert_eq!(error["param"], "input", "{error}");
    let words = error["message"].as_str().unwrap_or_default();
    let start = "This model's maximum context length is 512 tokens. However, input has ";
    assert!(words.starts_with(start), "{error}");
}
