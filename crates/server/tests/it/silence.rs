//! What is said reaches neither metrics nor logs.
//!
//! Promise (Admission and keys): no key, prompt or token text in logs or metrics.
//! Also held by `millrace/tests/it/keys.rs`.

use crate::support::client::{Client, get, post};
use crate::support::exported::{CHAT, COMPLETIONS, ask};
use crate::support::logged::Logged;
use crate::support::{Rig, config, vocab};
use engine::fake::FakeConfig;
use serde_json::json;
use testing::child::run_in_child;

#[test]
fn prompts_and_answers_reach_neither_metrics_nor_logs() {
    if run_in_child(prompts_and_answers_reach_neither_metrics_nor_logs) {
        return;
    }
    const MARK: &str = "Zebra7Marker";
    const ANSWER: &str = "hello";
    let logged = Logged::default();
    // The whole process: the work is done on other threads. Other tests only add to it.
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(logged.clone())
        .init();
    // A model that says nothing but one word.
    let rig = Rig::with(
        FakeConfig {
            eos_probability: 0.0,
            tokens: vocab::WORD..vocab::WORD + 1,
            ..crate::support::fake()
        },
        config(),
    );
    for stream in [true, false] {
        let reply = post(rig.addr, CHAT, &ask(MARK, stream));
        assert!(reply.body.contains(ANSWER), "{}", reply.body);
    }
    let mut refused = vec![json!({"model": MARK, "messages": []})];
    for field in ["stop", "seed", "user", "tools", "priority", MARK] {
        let mut body = ask(MARK, true);
        body[field] = json!(MARK);
        refused.push(body);
    }
    refused.push(json!({"messages": [{"role": MARK, "content": MARK}]}));
    refused.push(ask(&MARK.repeat(100), true));
    for body in &refused {
        post(rig.addr, CHAT, body);
        post(rig.addr, COMPLETIONS, body);
    }
    get(rig.addr, &format!("/{MARK}"));
    get(rig.addr, &format!("/v1/models/{MARK}"));
    let mut client = Client::connect(rig.addr);
    client.send(format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {MARK}\r\nx-priority: {MARK}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{{{MARK}", MARK.len() + 1).as_bytes());
    assert_eq!(client.reply().head.status, 400);
    rig.wait_until_empty();
    let (metrics, logs) = (get(rig.addr, "/metrics").body, logged.text());
    assert!(logs.contains("submitted"), "something was logged: {logs}");
    for (place, text) in [("metrics", metrics), ("logs", logs)] {
        for said in [MARK, ANSWER] {
            assert!(!text.contains(said), "{said:?} in the {place}: {text}");
        }
    }
}
