//! The feed of a key: its own streams and nothing else.

use super::{job, types};
use crate::support::client::Client;
use crate::support::feed::{FEED, Feed};
use crate::support::named::{get, kept, send, stream_id};
use crate::support::owners::{key, key_text};
use crate::support::{Rig, wait_until};
use serde_json::Value;
use server::{Keys, Scope, ServerConfig};
use std::sync::Arc;
use std::time::Duration;

fn key_field(name: &str) -> String {
    format!("x-api-key: {}\r\n", key_text(name))
}

/// A server with two users and an operator.
fn shared(config: ServerConfig) -> Rig {
    let keys = [
        ("one", Scope::Inference),
        ("two", Scope::Inference),
        ("operator", Scope::Admin),
    ]
    .map(|(name, scope)| key(name, &key_text(name), &[scope]));
    Rig::keyed(config, &Arc::new(Keys::new(&keys).unwrap()))
}

#[test]
fn feed_of_a_key_has_its_own_streams_and_nothing_else() {
    let config = ServerConfig {
        metrics_export_interval: Duration::from_millis(5),
        ..kept()
    };
    let rig = shared(config);
    let mut all = Feed::open(&rig, FEED, &key_field("operator"));
    let mut own = Feed::open(&rig, FEED, &key_field("one"));
    let run = |name: &str| {
        let mut client = send(&rig, "POST", "/v1/inference", &key_field(name), &job(4));
        let id = stream_id(&client.head());
        client.body();
        id
    };
    let streams = ["two", "one", "two", "one"].map(run);
    let told: Vec<Value> = (0..6).map(|_| own.next()).collect();
    for (events, stream) in told.chunks(3).zip([&streams[1], &streams[3]]) {
        assert_eq!(types(events), ["opened", "started", "ended"]);
        assert!(
            events
                .iter()
                .all(|event| event["stream"] == stream.as_str())
        );
    }
    for stream in &streams {
        assert_eq!(types(&all.story(stream)), ["opened", "started", "ended"]);
    }
}

#[test]
fn silent_feed_of_a_key_has_keep_alives_also_while_others_stream() {
    let config = ServerConfig {
        keep_alive: Duration::from_millis(20),
        ..kept()
    };
    let rig = shared(config);
    let mut own = Feed::open(&rig, FEED, &key_field("one"));
    assert_eq!(own.client.chunk().as_deref(), Some(": open\n\n"));
    let mut client = Client::connect(rig.addr);
    let request = |name: &str| {
        let body = job(1).to_string();
        let (fields, length) = (key_field(name), body.len());
        format!(
            "POST /v1/inference HTTP/1.1\r\nhost: localhost\r\n{fields}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    for _ in 0..20 {
        client.send(request("two").as_bytes());
        assert_eq!(client.reply().head.status, 200);
    }
    assert_eq!(own.client.chunk().as_deref(), Some(": ping\n\n"));
}

#[test]
fn readers_of_their_own_streams_are_bounded_and_readers_of_all_are_not_affected() {
    let rig = shared(kept());
    let mut readers: Vec<Feed> = (0..64)
        .map(|at| Feed::open(&rig, FEED, &key_field(["one", "two"][at % 2])))
        .collect();
    let field = key_field("one");
    let refused = get(&rig, FEED, &field);
    assert_eq!(refused.head.status, 503);
    assert_eq!(refused.json()["error"]["code"], "overloaded");
    assert!(refused.head.get("retry-after").is_some());
    Feed::open(&rig, FEED, &key_field("operator"));
    readers.pop();
    wait_until("a place is free again", || {
        let mut client = send(&rig, "GET", FEED, &field, &Value::Null);
        client.head().status == 200
    });
}
