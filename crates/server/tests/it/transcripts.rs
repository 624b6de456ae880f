//! What clients see, byte for byte where bytes are promised.

use crate::support::client::{get, post};
use crate::support::named::set_fields;
use crate::support::told::Told;
use crate::support::{Rig, config, fake, vocab};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::OnceLock;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// A chat that always says "hello": the model may want something else, the bias does not let it.
fn hello(over: &Value) -> Value {
    let mut body = json!({
        "model": "fake",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0,
        "logit_bias": {vocab::WORD.to_string(): 100},
        "max_tokens": 3,
    });
    set_fields(&mut body, over);
    body
}

/// The text with the parts that differ each time made equal.
fn fixed(text: &str) -> String {
    let cut = |text: &str, before: &str, until: fn(char) -> bool, put: &str| {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(before) {
            let (head, tail) = rest.split_at(at + before.len());
            out.push_str(head);
            out.push_str(put);
            rest = tail.trim_start_matches(until);
        }
        out + rest
    };
    let text = cut(text, "\"id\":\"chatcmpl-", |c| c.is_ascii_hexdigit(), "X");
    let text = cut(&text, "\"id\":\"cmpl-", |c| c.is_ascii_hexdigit(), "X");
    let text = cut(&text, "\"created\":", |c| c.is_ascii_digit(), "0");
    cut(
        &text,
        "ogprob\":",
        |c| c == '-' || c == '.' || c.is_ascii_digit(),
        "N",
    )
}

fn stepwise(body: &Value) -> (crate::support::client::Head, String) {
    let (head, text) = Rig::gated(fake(), config()).stepwise(CHAT, body);
    (head, fixed(&text))
}

#[test]
fn streamed_chat() {
    let (head, text) = stepwise(&hello(
        &json!({"stream": true, "stream_options": {"include_usage": true}}),
    ));
    assert_eq!(head.status, 200);
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
        ("transfer-encoding", "chunked"),
    ] {
        assert_eq!(head.get(name), Some(value));
    }
    assert!(
        head.get("x-request-id")
            .is_some_and(|id| id.starts_with("req-") && id.len() == 36)
    );
    let open = r#"data: {"id":"chatcmpl-X","object":"chat.completion.chunk","created":0,"model":"fake","choices":["#;
    let delta = r#"{"index":0,"delta":{"content":"hello"},"logprobs":null,"finish_reason":null}],"usage":null}"#;
    let want = [
        r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}"#,
        delta,
        delta,
        delta,
        r#"{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null}"#,
        r#"],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}"#,
    ];
    let want: String = want
        .iter()
        .map(|frame| format!("{open}{frame}\n\n"))
        .collect();
    assert_eq!(text, want + "data: [DONE]\n\n");
}

#[test]
fn streamed_chat_has_usage_on_request_only() {
    let (_, text) = stepwise(&hello(&json!({"stream": true})));
    assert!(!text.contains("usage"), "{text}");
    assert!(
        text.ends_with("\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n"),
        "{text}"
    );
}

#[test]
fn non_streaming_chat() {
    let rig = Rig::start();
    let reply = post(rig.addr, CHAT, &hello(&json!({"service_tier": "auto"})));
    assert_eq!(
        (reply.head.status, reply.head.get("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(
        fixed(&reply.body),
        concat!(
            r#"{"id":"chatcmpl-X","object":"chat.completion","created":0,"model":"fake","service_tier":"default","#,
            r#""choices":[{"index":0,"message":{"role":"assistant","content":"hellohellohello","refusal":null},"#,
            r#""logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":3,"#,
            r#""total_tokens":5,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}"#
        )
    );
}

#[test]
fn chat_logprobs() {
    let rig = Rig::start();
    let ask = json!({"logprobs": true, "top_logprobs": 2, "max_tokens": 1});
    let reply = post(rig.addr, CHAT, &hello(&ask));
    let list = reply.json()["choices"][0]["logprobs"]["content"].clone();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(
        (&list[0]["token"], &list[0]["bytes"]),
        (&json!("hello"), &json!([104, 101, 108, 108, 111]))
    );
    let top = list[0]["top_logprobs"].as_array().unwrap();
    assert_eq!(top.len(), 2);
    let logprob = |entry: &Value| entry["logprob"].as_f64().unwrap();
    assert!(
        logprob(&top[0]) >= logprob(&top[1]) && logprob(&top[0]) <= 0.0,
        "{top:?}"
    );
    let streamed = post(rig.addr, CHAT, &with(hello(&ask), &json!({"stream": true})));
    let chunk = streamed
        .chunks()
        .into_iter()
        .find(|c| c["choices"][0]["delta"]["content"] == "hello")
        .unwrap();
    assert_eq!(
        chunk["choices"][0]["logprobs"]["content"], list,
        "the stream tells the same"
    );
    let without = post(rig.addr, CHAT, &hello(&json!({"logprobs": true})));
    assert_eq!(
        without.json()["choices"][0]["logprobs"]["content"][2]["top_logprobs"],
        json!([])
    );
}

fn with(mut base: Value, over: &Value) -> Value {
    set_fields(&mut base, over);
    base
}

#[test]
fn stop_strings_end_and_do_not_leak() {
    let rig = Rig::start();
    let rows = [
        ("across tokens", json!(["lohe"]), "hel", "stop", 2),
        ("whole token", json!("hello"), "", "stop", 1),
        ("second of two", json!(["x", "ll"]), "he", "stop", 1),
        (
            "never complete",
            json!("hellohellohellox"),
            "hellohellohello",
            "length",
            3,
        ),
    ];
    for (label, stop, text, reason, tokens) in rows {
        for stream in [false, true] {
            let ask = hello(
                &json!({"stop": stop, "stream": stream, "stream_options": {"include_usage": true}}),
            );
            let told = Told::of(&post(rig.addr, CHAT, &ask));
            assert_eq!(told.texts, [text], "{label}");
            assert_eq!(told.reasons, [reason], "{label}");
            assert_eq!(told.usage["completion_tokens"], tokens, "{label}");
        }
    }
}

#[test]
fn end_of_sequence_token_is_hidden() {
    let rig = Rig::start();
    let ask = hello(&json!({"logit_bias": {vocab::EOS.to_string(): 100}, "max_tokens": 9}));
    let told = Told::of(&post(rig.addr, CHAT, &ask));
    assert_eq!(
        (told.texts, told.reasons),
        (vec![String::new()], vec!["stop".to_owned()])
    );
    let ask = with(ask, &json!({"ignore_eos": true}));
    let told = Told::of(&post(rig.addr, CHAT, &ask));
    assert_eq!(
        (told.texts, told.reasons),
        (vec![String::new()], vec!["length".to_owned()]),
        "control tokens have no text"
    );
    let ask = hello(&json!({"stop_token_ids": [vocab::WORD]}));
    let told = Told::of(&post(rig.addr, CHAT, &ask));
    assert_eq!(
        (told.texts, told.reasons),
        (vec![String::new()], vec!["stop".to_owned()])
    );
}

static SHARED: OnceLock<Rig> = OnceLock::new();

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn stream_equals_the_non_streaming_response(
        seed in any::<u64>(),
        n in 1usize..4,
        max_tokens in 1usize..40,
        stops in prop::collection::vec("[a-z]{1,2}", 0..3),
        logprobs in any::<bool>(),
    ) {
        let rig = SHARED.get_or_init(Rig::start);
        let ask = json!({
            "messages": [{"role": "user", "content": "tell"}], "seed": seed, "n": n, "max_tokens": max_tokens,
            "stop": stops, "logprobs": logprobs, "top_logprobs": if logprobs { 2 } else { 0 },
            "stream_options": {"include_usage": true},
        });
        let whole = Told::of(&post(rig.addr, CHAT, &ask));
        let streamed = Told::of(&post(rig.addr, CHAT, &with(ask, &json!({"stream": true}))));
        prop_assert_eq!(&whole.texts, &streamed.texts);
        prop_assert_eq!(&whole.reasons, &streamed.reasons);
        prop_assert_eq!(&whole.logprobs, &streamed.logprobs);
        prop_assert_eq!(&whole.usage["completion_tokens"], &streamed.usage["completion_tokens"]);
        prop_assert_eq!(whole.texts.len(), n);
    }
}

#[test]
fn seeds_are_fresh_unless_given() {
    let rig = Rig::start();
    let ask = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 40, "ignore_eos": true, "temperature": 2});
    let text = |ask: &Value| Told::of(&post(rig.addr, CHAT, ask)).texts.remove(0);
    assert_ne!(text(&ask), text(&ask), "two unseeded answers");
    let seeded = with(ask, &json!({"seed": 5}));
    assert_eq!(text(&seeded), text(&seeded));
    let two = Told::of(&post(rig.addr, CHAT, &with(seeded, &json!({"n": 2})))).texts;
    assert_ne!(two[0], two[1], "choices of one request differ");
}

#[test]
fn completions_streamed_and_non_streaming() {
    let rig = Rig::start();
    let ask = with(hello(&json!({"max_tokens": 2})), &json!({"prompt": "ab"}));
    let whole = post(rig.addr, COMPLETIONS, &ask);
    assert_eq!(
        fixed(&whole.body),
        concat!(
            r#"{"id":"cmpl-X","object":"text_completion","created":0,"model":"fake","choices":[{"index":0,"#,
            r#""text":"hellohello","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":2,"#,
            r#""completion_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}"#
        )
    );
    let streamed = post(rig.addr, COMPLETIONS, &with(ask, &json!({"stream": true})));
    let told = Told::of(&streamed);
    assert_eq!(
        (told.texts, told.reasons),
        (vec!["hellohello".to_owned()], vec!["length".to_owned()])
    );
    assert!(
        streamed
            .chunks()
            .iter()
            .all(|c| c["object"] == "text_completion")
    );
}

#[test]
fn completions_of_many_prompts_echoed() {
    let rig = Rig::start();
    let base = hello(
        &json!({"max_tokens": 1, "n": 2, "echo": true, "stream_options": {"include_usage": true}}),
    );
    for (prompt, texts) in [
        (json!(["a", "b"]), ["ahello", "ahello", "bhello", "bhello"]),
        (
            json!([[97], [vocab::WORD, 98]]),
            ["ahello", "ahello", "hellobhello", "hellobhello"],
        ),
    ] {
        for stream in [false, true] {
            let ask = with(base.clone(), &json!({"prompt": prompt, "stream": stream}));
            let told = Told::of(&post(rig.addr, COMPLETIONS, &ask));
            assert_eq!(told.texts, texts);
            assert_eq!(told.usage["completion_tokens"], 4);
        }
    }
}

#[test]
fn completions_logprobs_are_parallel_lists() {
    let rig = Rig::start();
    let ask = with(
        hello(&json!({"max_tokens": 2, "logprobs": 1})),
        &json!({"prompt": "ab"}),
    );
    let logprobs = post(rig.addr, COMPLETIONS, &ask).json()["choices"][0]["logprobs"].clone();
    assert_eq!(logprobs["tokens"], json!(["hello", "hello"]));
    assert_eq!(logprobs["text_offset"], json!([0, 5]));
    assert_eq!(logprobs["token_logprobs"].as_array().unwrap().len(), 2);
    assert!(
        logprobs["top_logprobs"][0].get("hello").is_some(),
        "the chosen token is listed: {logprobs}"
    );
}

#[test]
fn repeated_prompt_is_reported_as_cached() {
    let rig = Rig::start();
    let ask = hello(&json!({"messages": [{"role": "user", "content": "x".repeat(40)}]}));
    let cached = |ask: &Value| {
        let usage = Told::of(&post(rig.addr, CHAT, ask)).usage;
        usage["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(cached(&ask), 0);
    assert_eq!(cached(&ask), 32, "two full pages of 16");
    let over = json!({"stream": true, "stream_options": {"include_usage": true}});
    assert_eq!(cached(&with(ask, &over)), 32);
}

#[test]
fn usage_on_every_chunk() {
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let (_, text) = stepwise(&hello(&json!({"stream": true, "stream_options": options})));
    let chunks = text.split("\n\n").filter_map(|f| f.strip_prefix("data: {"));
    let count = |chunk: &str| {
        let json: Value = serde_json::from_str(&format!("{{{chunk}").replace('N', "0")).unwrap();
        assert_eq!(json["usage"]["prompt_tokens"], 2);
        json["usage"]["completion_tokens"].as_u64().unwrap()
    };
    assert_eq!(
        chunks.map(count).collect::<Vec<_>>(),
        [0, 1, 2, 3, 3, 3],
        "{text}"
    );
}

#[test]
fn models_and_health() {
    let rig = Rig::start();
    let card = json!({
        "id": "fake", "object": "model", "created": 7, "owned_by": "millrace", "max_model_len": 512,
        "kind": "text", "capabilities": ["completion", "tools", "thinking"], "tools": "template", "thinking": true,
    });
    assert_eq!(
        get(rig.addr, "/v1/models").json(),
        json!({"object": "list", "data": [card]})
    );
    assert_eq!(get(rig.addr, "/v1/models/fake").json(), card);
    let missing = get(rig.addr, "/v1/models/other/one");
    assert_eq!(
        (missing.head.status, &missing.json()["error"]["code"]),
        (404, &json!("model_not_found"))
    );
    let health = get(rig.addr, "/health").json();
    assert_eq!(
        (&health["status"], &health["model"]),
        (&json!("ok"), &json!("fake"))
    );
    assert_eq!(
        (&health["engine"]["queued"], &health["engine"]["running"]),
        (&json!(0), &json!(0))
    );
}
