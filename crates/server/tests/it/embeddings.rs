//! Texts as vectors, over sockets, in both formats.

use crate::support::client::{Client, get, post};
use crate::support::{Rig, config, fake, wait_until};
use engine::fake::{FakeModel, HIDDEN_DIM};
use model::{Batch, Forward, Want};
use serde_json::{Value, json};

const EMBEDDINGS: &str = "/v1/embeddings";

/// What the tests' model makes of these bytes: the last token's hidden state, in plain arithmetic.
fn raw(text: &str) -> Vec<f32> {
    let ids: Vec<u32> = text.bytes().map(u32::from).collect();
    let mut model = FakeModel::new(fake());
    let pages: Vec<u32> = (0..ids.len().div_ceil(16) as u32).collect();
    let mut batch = Batch::default();
    batch.push(&ids, 0, &pages, Want::LastHidden);
    model.forward(&batch).expect("a batch");
    model.hidden().to_vec()
}

fn unit(vector: &[f32]) -> Vec<f32> {
    let length = vector
        .iter()
        .map(|x| f64::from(*x).powi(2))
        .sum::<f64>()
        .sqrt();
    vector
        .iter()
        .map(|x| (f64::from(*x) / length) as f32)
        .collect()
}

fn floats(value: &Value) -> Vec<f32> {
    let list = value
        .as_array()
        .unwrap_or_else(|| panic!("no list: {value}"));
    list.iter()
        .map(|x| x.as_f64().expect("a number") as f32)
        .collect()
}

fn close(told: &[f32], want: &[f32]) {
    assert_eq!(told.len(), want.len());
    for (a, b) in told.iter().zip(want) {
        assert!((a - b).abs() < 1e-6, "{told:?}, not {want:?}");
    }
}

#[test]
fn openai_floats_in_order() {
    let rig = Rig::start();
    let texts: Vec<String> = (0..20).map(|i| "text ".repeat(i + 1)).collect();
    let told = post(
        rig.addr,
        EMBEDDINGS,
        &json!({"model": "fake", "input": texts}),
    );
    assert_eq!(told.head.status, 200, "{}", told.body);
    let told = told.json();
    assert_eq!(
        (&told["object"], &told["model"]),
        (&json!("list"), &json!("fake"))
    );
    let data = told["data"].as_array().expect("data");
    assert_eq!(data.len(), texts.len());
    for (i, (entry, text)) in data.iter().zip(&texts).enumerate() {
        assert_eq!(
            (&entry["object"], &entry["index"]),
            (&json!("embedding"), &json!(i))
        );
        close(&floats(&entry["embedding"]), &unit(&raw(text)));
    }
    let tokens: usize = texts.iter().map(String::len).sum();
    assert_eq!(
        told["usage"],
        json!({"prompt_tokens": tokens, "total_tokens": tokens})
    );
    rig.wait_until_empty();
}

#[test]
fn fields_are_honored_ignored_by_name_or_rejected() {
    let rig = Rig::start();
    let all = json!({"model": "fake", "input": "abc", "dimensions": 2, "encoding_format": "float", "user": "u"});
    let ollama = json!({"model": "fake", "input": "abc", "dimensions": 2, "truncate": true, "keep_alive": "5m",
        "options": {"num_ctx": 7}});
    let one = json!({"model": "fake", "prompt": "abc", "keep_alive": "5m", "options": {}});
    for (path, body) in [
        (EMBEDDINGS, all),
        ("/api/embed", ollama),
        ("/api/embeddings", one),
    ] {
        let header = "x-millrace-ignored-fields";
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
        assert_eq!(reply.head.get(header), None, "{path}");
        let mut more = body;
        more["input_type"] = json!("query");
        let reply = post(rig.addr, path, &more);
        assert_eq!(reply.head.get(header), Some("input_type"), "{path}");
    }
    let refused = json!({"input": "abc", "truncate_prompt_tokens": 7});
    let reply = post(rig.addr, EMBEDDINGS, &refused);
    assert_eq!(reply.head.status, 400, "{}", reply.body);
    assert_eq!(reply.json()["error"]["param"], "truncate_prompt_tokens");
}

#[test]
fn openai_inputs_and_encodings() {
    let rig = Rig::start();
    let one = |over: Value| {
        let reply = post(rig.addr, EMBEDDINGS, &over);
        assert_eq!(reply.head.status, 200, "{}", reply.body);
        reply.json()["data"][0]["embedding"].clone()
    };
    let want = unit(&raw("abc"));
    for input in [
        json!("abc"),
        json!(["abc"]),
        json!([97, 98, 99]),
        json!([[97, 98, 99]]),
    ] {
        close(&floats(&one(json!({"input": input}))), &want);
    }
    let short = floats(&one(json!({"input": "abc", "dimensions": 3})));
    close(&short, &unit(&raw("abc")[..3]));
    let coded = one(json!({"input": "abc", "encoding_format": "base64"}));
    let letters = coded
        .as_str()
        .expect("a string")
        .trim_end_matches('=')
        .len();
    assert_eq!(letters, (HIDDEN_DIM * 4 * 8).div_ceil(6));
}

#[test]
fn both_ollama_routes() {
    let rig = Rig::start();
    let told = post(
        rig.addr,
        "/api/embed",
        &json!({"model": "fake:latest", "input": ["abc", "de"]}),
    );
    let told = told.json();
    assert_eq!(told["model"], "fake");
    close(&floats(&told["embeddings"][0]), &unit(&raw("abc")));
    close(&floats(&told["embeddings"][1]), &unit(&raw("de")));
    assert_eq!(told["prompt_eval_count"], 5);
    let (total, load) = (&told["total_duration"], &told["load_duration"]);
    assert!(
        total.as_u64() >= load.as_u64() && total.as_u64() > Some(0),
        "{told}"
    );
    let old = post(
        rig.addr,
        "/api/embeddings",
        &json!({"model": "fake", "prompt": "abc"}),
    );
    close(&floats(&old.json()["embedding"]), &raw("abc"));
    // What is too long is cut, unless it is not to be.
    let long = "x".repeat(600);
    let told = post(rig.addr, "/api/embed", &json!({"input": long})).json();
    close(&floats(&told["embeddings"][0]), &unit(&raw(&long[..511])));
    let refused = post(
        rig.addr,
        "/api/embed",
        &json!({"input": long, "truncate": false}),
    );
    assert_eq!(refused.head.status, 400, "{}", refused.body);
    let words = "the input length exceeds the context length";
    assert_eq!(refused.json()["error"], words);
    let refused = post(rig.addr, EMBEDDINGS, &json!({"input": ["a", long]}));
    let words = refused.json()["error"]["message"].clone();
    let want =
        "This model's maximum context length is 511 tokens. However, input[1] has 600 tokens. ";
    assert!(
        words.as_str().unwrap_or_default().starts_with(want),
        "{words}"
    );
    let named = post(rig.addr, EMBEDDINGS, &json!({"input": "a", "model": ""}));
    assert_eq!(named.json()["model"], "fake");
}

#[test]
fn ollama_answers_no_text_with_no_vector() {
    let rig = Rig::start();
    for (path, body, want) in [
        ("/api/embed", json!({"input": ""}), "embeddings"),
        ("/api/embed", json!({"input": []}), "embeddings"),
        ("/api/embed", json!({}), "embeddings"),
        (
            "/api/embed",
            json!({"input": null, "model": ""}),
            "embeddings",
        ),
        ("/api/embeddings", json!({"prompt": ""}), "embedding"),
        ("/api/embeddings", json!({"model": "fake"}), "embedding"),
    ] {
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 200, "{path} {body}: {}", reply.body);
        assert_eq!(reply.json()[want], json!([]), "{path} {body}");
    }
    for input in [json!(["a", ""]), json!(7)] {
        let reply = post(rig.addr, "/api/embed", &json!({"input": input}));
        assert_eq!(reply.head.status, 400, "{input}: {}", reply.body);
    }
    rig.wait_until_empty();
}

#[test]
fn two_thousand_texts_are_embedded_in_order() {
    let rig = Rig::start();
    let texts: Vec<String> = (0..2048).map(|i| (i % 7).to_string()).collect();
    let told = post(rig.addr, EMBEDDINGS, &json!({"input": texts})).json();
    let data = told["data"].as_array().expect("data");
    assert_eq!(data.len(), texts.len());
    for (i, entry) in data.iter().enumerate() {
        assert_eq!(entry["index"], i);
        assert_eq!(entry["embedding"], data[i % 7]["embedding"]);
    }
    rig.wait_until_empty();
}

#[test]
fn ids_of_an_unknown_vocabulary_are_warned_of() {
    let rig = Rig::start();
    let warning = Some("input.token_ids_of_another_vocabulary");
    for (input, want) in [
        (json!("a"), None),
        (json!(["a", "b"]), None),
        (json!([97]), warning),
        (json!([[97], [98]]), warning),
    ] {
        let reply = post(rig.addr, EMBEDDINGS, &json!({"input": input}));
        let header = reply.head.get("x-millrace-ignored-fields");
        assert_eq!(header, want, "{input}");
    }
    rig.wait_until_empty();
}

#[test]
fn invalid_fields_are_named() {
    let rig = Rig::start();
    let many: Vec<&str> = vec!["x"; 2049];
    for (over, param) in [
        (json!({}), "input"),
        (json!({"input": ""}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": many}), "input"),
        (json!({"input": ["a", ""]}), "input[1]"),
        (json!({"input": ["a", 7]}), "input[1]"),
        (json!({"input": [[97, 100_000]]}), "input[0][1]"),
        (
            json!({"input": "x", "encoding_format": "int8"}),
            "encoding_format",
        ),
        (
            json!({"input": "x", "dimensions": HIDDEN_DIM + 1}),
            "dimensions",
        ),
        (json!({"input": "x".repeat(600)}), "input"),
    ] {
        let reply = post(rig.addr, EMBEDDINGS, &over);
        assert_eq!(reply.head.status, 400, "{param}: {}", reply.body);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.body);
    }
    let other = post(
        rig.addr,
        EMBEDDINGS,
        &json!({"model": "other", "input": "x"}),
    );
    assert_eq!(other.head.status, 404);
    rig.wait_until_empty();
}

#[test]
fn streams_continue_beside_embeddings_and_disconnected_clients_are_released() {
    let rig = Rig::gated(fake(), config());
    let mut talks = Client::connect(rig.addr);
    let chat = json!({
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 200, "ignore_eos": true, "stream": true,
    });
    talks.post("/v1/chat/completions", &chat);
    assert_eq!(talks.head().status, 200);
    let mut leaves = Client::connect(rig.addr);
    let texts: Vec<String> = (0..30).map(|i| "word ".repeat(40 + i)).collect();
    leaves.post(EMBEDDINGS, &json!({"input": texts}));
    // The chat's prompt has two tokens.
    wait_until("the engine began some", || {
        rig.gate.allow(1);
        rig.engine.stats().prompt_tokens_computed() > 2
    });
    let health = get(rig.addr, "/health").json();
    assert_eq!(health["status"], "ok");
    drop(leaves);
    rig.gate.open();
    let body = talks.body();
    assert!(body.contains("\"finish_reason\":\"length\""), "{body}");
    rig.wait_until_empty();
}
