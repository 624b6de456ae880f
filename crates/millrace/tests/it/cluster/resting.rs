//! Readers that rest behind a gateway whose slots are fewer than they are.
//!
//! Promise (Cluster): a stream behind a gateway that waits for its reader for half a second holds no slot, either; an
//! engine that dies meanwhile costs it nothing, and it is placed when the reader is back and a slot is free.
//! Also held by `cluster/src/relay/tests/permits.rs`, `cluster/src/relay/simulation/mod.rs ::
//! readers_that_rest_keep_no_request_out`, `engine/src/remote/tests/permits.rs`.

use super::conversation::{Conversation, SETTINGS};
use super::nats_server;
use super::processes::{Cluster, wait_for_engines};
use crate::kill::requests::Request;
use crate::support::Serving;
use serde_json::json;
use std::process::Stdio;

/// Streams whose readers rest, one of them with two choices.
const READERS: u64 = 12;
/// Slots of the gateway.
const SLOTS: &str = "3";

fn requests() -> impl Iterator<Item = Request> {
    (0..READERS).map(|number| Request {
        case: "a reader that rests",
        path: "/v1/chat/completions",
        body: json!({
            "messages": [{"role": "user", "content": format!("Tell me story {number}.")}],
            "stream": true, "seed": number, "max_tokens": 16, "ignore_eos": true,
            "n": if number == 5 { 2 } else { 1 },
        }),
        update: None,
        is_paused: false,
    })
}

/// Every stream gets its window of tokens although the readers of the others have accepted nothing: each gives its slot back.
/// While all are parked without a slot, engines die; what the readers get then is what one process tells.
#[test]
fn readers_that_rest_use_no_slots_and_their_streams_outlive_engines() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let slots = [
        ("MILLRACE_ADAPTIVE_LIMITS_MIN_STREAMS", SLOTS),
        ("MILLRACE_ADAPTIVE_LIMITS_MAX_STREAMS", SLOTS),
    ];
    let settings = [&SETTINGS[..], &slots].concat();
    let mut cluster = Cluster::new(program, "cluster-resting", "", &settings);
    cluster.start_engines(2);
    let gateway = cluster.start_gateway();
    wait_for_engines(&gateway, 2);
    let conversation = Conversation::of(&gateway, requests());
    let received = conversation.run(&gateway, |round| match round {
        0 => {
            cluster.kill_engine(0);
            cluster.start_engines(1);
        }
        1 => cluster.kill_engine(1),
        _ => {}
    });
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let alone = Serving::start_with(&args, &SETTINGS, Stdio::inherit());
    let expected = Conversation::of(&alone, requests()).run(&alone, |_| {});
    assert_eq!(received.len(), expected.len());
    for (received, expected) in received.iter().zip(expected) {
        assert_eq!(received, &expected);
    }
    assert!(gateway.terminate().success());
}
