//! Requests that are admitted and whose clients never read: others are served all the while, whatever the route.
//!
//! Promise (Admission and keys): a request that was admitted reaches the engine although its client never reads, in
//! each API, streamed or not, as a job, a workflow or a batch of embeddings, and over a WebSocket; other requests are
//! served meanwhile.

use crate::support::client::{Client, get, post};
use crate::support::named::{chat, completion, fake, kept};
use crate::support::talk::Talk;
use crate::support::{Rig, wait_until};
use serde_json::{Value, json};
use server::{AdaptiveLimits, QueueLimits, ServerConfig};
use std::path::PathBuf;

/// Slots, and clients that never read: more than the slots.
const SLOTS: usize = 3;
const UNREAD: usize = 3 * SLOTS;
/// Tokens of an answer that fits into the logs, so that the engine ends it without a reader.
const SHORT: u64 = 4;

/// Few slots, and connections that hold few bytes.
fn few() -> ServerConfig {
    ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams: SLOTS,
            ..AdaptiveLimits::default()
        },
        queue: QueueLimits {
            max_depth: 4 * UNREAD,
            ..QueueLimits::default()
        },
        credit_window: 20,
        send_buffer_bytes: 4096,
        unsent_bytes_max: 4096,
        workflows: Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../workflows")),
        ..kept()
    }
}

/// A client with a small receive buffer that sends a request and reads nothing.
fn deaf(rig: &Rig, path: &str, body: &Value) -> Client {
    let mut client = Client::narrow(rig.addr, 4096);
    client.post(path, body);
    client
}

/// Another client gets its answer.
fn expect_others_served(rig: &Rig, case: &str) {
    let body = chat(&json!({"max_tokens": SHORT, "stream": false}));
    let other = post(rig.addr, "/v1/chat/completions", &body);
    assert_eq!(other.head.status, 200, "{case}: {}", other.body);
}

/// Each generation over HTTP: path and body, streamed where the protocol can be.
fn doors() -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let parts = json!([{"id": "a", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]);
    let job = json!({"prompt": "hi", "max_tokens": SHORT, "ignore_eos": true, "stream": true});
    let options = json!({"num_predict": SHORT});
    let texts =
        json!({"model": "fake", "input": (0..20).map(|n| format!("text {n}")).collect::<Vec<_>>()});
    let run = json!({"kwargs": {"prompt": "hi", "max_tokens": SHORT}});
    vec![
        ("/v1/chat/completions", chat(&json!({"max_tokens": SHORT}))),
        (
            "/v1/chat/completions",
            chat(&json!({"max_tokens": SHORT, "stream": false})),
        ),
        ("/v1/completions", completion(&json!({"max_tokens": SHORT}))),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": SHORT, "stream": true}),
        ),
        (
            "/v1/responses",
            json!({"input": "hi", "max_output_tokens": 16, "stream": true}),
        ),
        (
            "/v1/responses",
            json!({"input": "hi", "max_output_tokens": 16, "background": true}),
        ),
        ("/v1/inference", job.clone()),
        ("/v1/jobs", job),
        (
            "/api/chat",
            json!({"model": "fake", "messages": messages, "options": options}),
        ),
        (
            "/api/generate",
            json!({"model": "fake", "prompt": "hi", "options": options}),
        ),
        (
            "/completion",
            json!({"prompt": "hi", "n_predict": SHORT, "stream": true}),
        ),
        (
            "/v1/ai-sdk/chat",
            json!({"id": "c", "messages": parts, "max_tokens": SHORT}),
        ),
        ("/v1/workflows/streamed_generation/runs", run),
        ("/v1/embeddings", texts),
    ]
}

#[test]
fn requests_of_clients_that_never_read_hold_no_slot() {
    let rig = Rig::with(fake(), few());
    for (path, body) in doors() {
        let unread: Vec<_> = (0..UNREAD).map(|_| deaf(&rig, path, &body)).collect();
        expect_others_served(&rig, path);
        for mut client in unread {
            let head = client.head();
            assert!(head.status < 300, "{path}: {}", head.status);
        }
    }
}

/// A socket that accepts nothing more: a long answer has filled it.
fn full_socket(rig: &Rig) -> Talk {
    let mut talk = Talk::with(rig);
    // Two kilobytes a token: more than all buffers on the way hold.
    let wide = chat(&json!({"max_tokens": 480, "logprobs": true, "top_logprobs": 20}));
    let id = talk.open("wide", &json!({"dialect": "openai.chat"}), &wide);
    wait_until("the socket is full", || {
        get(rig.addr, &format!("/v1/streams/{id}")).json()["state"] == "parked"
    });
    talk
}

#[test]
fn streams_of_a_socket_that_is_not_read_reach_the_engine() {
    let fields = json!({"max_tokens": SHORT, "ignore_eos": true});
    let over = |body: Value| {
        let mut body = body;
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        body
    };
    let messages = json!({"messages": [{"role": "user", "content": "hi"}]});
    let cases = [
        ("native.job", over(json!({"prompt": "hi"})), false),
        ("openai.chat", over(messages.clone()), false),
        ("openai.completions", over(json!({"prompt": "hi"})), false),
        ("openai.chat", over(messages), true),
    ];
    for (dialect, body, resumable) in cases {
        let rig = Rig::with(fake(), few());
        let mut talk = full_socket(&rig);
        for n in 0..UNREAD {
            talk.say(
                &json!({"type": "open", "request": n.to_string(), "dialect": dialect,
                "resumable": resumable, "body": body}),
            );
        }
        wait_until(dialect, || {
            rig.engine.stats().endings().total() == UNREAD as u64
        });
        expect_others_served(&rig, dialect);
        for n in 0..UNREAD {
            let opened = talk.answer(&n.to_string());
            assert_eq!(opened["type"], "opened", "{dialect}: {opened}");
            let whole = talk.whole(opened["stream"].as_str().unwrap());
            let tokens = &whole.last().unwrap()["usage"]["completion_tokens"];
            assert_eq!(tokens, &json!(SHORT), "{dialect}");
        }
    }
}
