//! `/tokenize`, `/detokenize`, `/apply-template`.
//!
//! Promise (APIs): text becomes ids and ids text as the model defines; long bodies are processed outside the I/O
//! threads.

use crate::support::Rig;
use crate::support::client::post;
use crate::support::vocab::{EOS, WORD};
use serde_json::{Value, json};

fn told(rig: &Rig, path: &str, body: &Value) -> Value {
    let reply = post(rig.addr, path, body);
    assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
    reply.json()
}

#[test]
fn tokenize_and_detokenize() {
    let rig = Rig::start();
    let bytes = |text: &str| json!(text.bytes().collect::<Vec<u8>>());
    let messages =
        json!([{"role": "user", "content": "ab"}, {"role": "user", "content": "<|eos|>"}]);
    for (label, body, tokens) in [
        (
            "llama.cpp's",
            json!({"content": "ab\u{20AC}"}),
            bytes("ab\u{20AC}"),
        ),
        ("nothing", json!({"content": ""}), json!([])),
        (
            "control tokens",
            json!({"content": "a<|eos|>"}),
            json!([97, EOS]),
        ),
        (
            "as text",
            json!({"content": "<|eos|>", "parse_special": false}),
            bytes("<|eos|>"),
        ),
        (
            "vLLM's",
            json!({"model": "fake", "prompt": "ab"}),
            json!([97, 98]),
        ),
        (
            "a conversation, typed",
            json!({"messages": messages}),
            bytes("ab<|eos|>"),
        ),
    ] {
        let told = told(&rig, "/tokenize", &body);
        assert_eq!(told["tokens"], tokens, "{label}");
        let count = tokens.as_array().map(Vec::len);
        assert_eq!(
            (&told["count"], &told["max_model_len"]),
            (&json!(count), &json!(512))
        );
    }
    let ids = json!([97, WORD, EOS, 98]);
    let text = told(&rig, "/detokenize", &json!({"tokens": ids}));
    assert_eq!(text, json!({"content": "ahellob", "prompt": "ahellob"}));
    assert_eq!(
        told(&rig, "/detokenize", &json!({"tokens": []}))["content"],
        ""
    );
}

#[test]
fn pieces_are_text_or_bytes() {
    let rig = Rig::start();
    let asked = json!({"content": "a\u{e9}", "with_pieces": true, "return_token_strs": true});
    let told = told(&rig, "/tokenize", &asked);
    let pieces = json!([
        {"id": 97, "piece": "a"}, {"id": 0xc3, "piece": [0xc3]}, {"id": 0xa9, "piece": [0xa9]},
    ]);
    assert_eq!(told["tokens"], pieces);
    assert_eq!(told["token_strs"], json!(["a", "\u{FFFD}", "\u{FFFD}"]));
}

#[test]
fn apply_template_returns_the_prompt() {
    let rig = Rig::start();
    let messages =
        json!([{"role": "user", "content": "ab"}, {"role": "assistant", "content": "<|eos|>"}]);
    let told = told(&rig, "/apply-template", &json!({"messages": messages}));
    assert_eq!(told, json!({"prompt": "ab<|eos|>"}));
}

#[test]
fn long_bodies_are_processed_off_thread() {
    let rig = Rig::start();
    let long = "x".repeat(100_000);
    let asked = told(&rig, "/tokenize", &json!({"content": long}));
    assert_eq!(asked["count"], 100_000);
    let back = told(&rig, "/detokenize", &json!({"tokens": asked["tokens"]}));
    assert_eq!(back["content"], long);
}

#[test]
fn invalid_fields_are_named() {
    let rig = Rig::start();
    for (path, body, param) in [
        ("/tokenize", json!({}), "content"),
        (
            "/tokenize",
            json!({"content": "a", "messages": []}),
            "content",
        ),
        ("/tokenize", json!({"content": 7}), "content"),
        ("/detokenize", json!({}), "tokens"),
        ("/detokenize", json!({"tokens": [97, 100_000]}), "tokens[1]"),
        ("/apply-template", json!({"messages": []}), "messages"),
    ] {
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 400, "{path}: {}", reply.body);
        assert_eq!(
            reply.json()["error"]["param"],
            param,
            "{path}: {}",
            reply.body
        );
    }
    let other = post(
        rig.addr,
        "/tokenize",
        &json!({"model": "other", "content": "a"}),
    );
    assert_eq!(other.head.status, 404);
}
