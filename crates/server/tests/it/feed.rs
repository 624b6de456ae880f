//! What happens to every stream, as its operator sees it.
//!
//! Promise (Streams): the feed reports a stream from its opening to its one end; a stalled reader gets the number of
//! lost events.
//!
//! Promise (Admission and keys): a key's feed has its own streams and nothing else, also in a cluster, and
//! keep-alives while other streams run; readers that read nothing are bounded.
//! Also held by `server/tests/it/peers/views.rs`.

mod own;

use crate::support::client::{Client, post};
use crate::support::feed::{FEED, Feed};
use crate::support::named::{fake, kept, send, stream_id};
use crate::support::{Rig, wait_until};
use engine::{EngineConfig, Policy};
use serde_json::{Value, json};
use server::{Keys, ServerConfig};
use std::sync::Arc;
use std::time::Duration;

impl Feed {
    /// What happened to a stream, up to its end.
    fn story(&mut self, stream: &str) -> Vec<Value> {
        self.story_until(stream, "ended")
    }

    /// What happened to a stream, from where it was told so far up to this.
    fn story_until(&mut self, stream: &str, kind: &str) -> Vec<Value> {
        let mut story = Vec::new();
        loop {
            let event = self.next();
            if event["stream"] != stream {
                continue;
            }
            let is_it = event["type"] == kind;
            assert!(is_it || event["type"] != "ended", "it ended before {kind}");
            story.push(event);
            if is_it {
                return story;
            }
        }
    }
}

fn types(story: &[Value]) -> Vec<&str> {
    story
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

fn job(max_tokens: u64) -> Value {
    json!({"prompt": "hi", "max_tokens": max_tokens, "ignore_eos": true})
}

fn call(rig: &Rig, method: &str, path: &str, body: &Value) -> u16 {
    crate::support::named::call(rig, method, path, "", body)
        .head
        .status
}

#[test]
fn feed_reports_a_stream_from_opening_to_one_end() {
    let config = ServerConfig {
        credit_window: 4,
        ..kept()
    };
    let rig = Rig::with(fake(), config);
    let mut feed = Feed::open(&rig, FEED, "");
    assert_eq!(
        feed.next()["type"],
        "metrics",
        "how things stand comes first"
    );
    let fields = "x-stream-acks: explicit\r\n";
    let mut client = send(&rig, "POST", "/v1/inference", fields, &job(10));
    let id = stream_id(&client.head());
    let path = format!("/v1/streams/{id}");
    wait_until("it is parked", || rig.engine.stats().parks() > 0);
    assert_eq!(
        call(&rig, "POST", &format!("{path}/pause"), &json!({})),
        200
    );
    let state = || crate::support::named::get(&rig, &path, "").json()["state"].clone();
    wait_until("it is paused", || state() == "paused");
    // Told to go on in the same step, it would never have stood still for it.
    let mut story = feed.story_until(&id, "parked");
    assert_eq!(
        call(&rig, "POST", &format!("{path}/ack"), &json!({"index": 4})),
        200
    );
    assert_eq!(
        call(&rig, "POST", &format!("{path}/resume"), &json!({})),
        200
    );
    let made = || crate::support::named::get(&rig, &path, "").json()["choices"][0]["tokens"] == 8;
    wait_until("it has used that up", made);
    let acked = call(&rig, "POST", &format!("{path}/ack"), &json!({"index": 8}));
    assert_eq!(acked, 200);
    client.body();
    story.extend(feed.story(&id));
    let told = types(&story);
    assert_eq!(told[..3], ["opened", "started", "backpressure"], "{told:?}");
    assert_eq!(told[told.len() - 2..], ["resumed", "ended"], "{told:?}");
    let parked = story
        .iter()
        .find(|event| event["type"] == "parked")
        .unwrap();
    assert_eq!(parked["reason"], "paused");
    assert_eq!(story.last().unwrap()["end"], "length");
    let times: Vec<_> = story
        .iter()
        .map(|event| event["at"].as_str().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
}

/// A server that calls a reader slow at once, and keeps to its policy in the step after that.
fn hasty(policy: Policy) -> Rig {
    let mut config = ServerConfig {
        credit_window: 4,
        ..kept()
    };
    config.clocks.policy = policy;
    config.clocks.reader = Some(Duration::from_millis(1));
    config.streams.detached_tokens = 0;
    let tuning = EngineConfig {
        slow_consumer: Duration::ZERO,
        ..EngineConfig::default()
    };
    let rig = Rig::tuned(fake(), tuning, config, Arc::new(Keys::anonymous()));
    rig.gate.open();
    rig
}

/// Says so, once there are so many tokens.
fn has_all(rig: &Rig, path: &str, tokens: u64) {
    wait_until("it has used its window up", || {
        crate::support::named::get(rig, path, "").json()["completion_tokens"] == tokens
    });
    let index = json!({"index": tokens});
    assert_eq!(call(rig, "POST", &format!("{path}/ack"), &index), 200);
}

/// Promise (Streams): a client that does not read is reported as a slow consumer, to the feed and to its WebSocket,
/// before its policy applies, and once for each stop.
/// Also held by `server/tests/it/realtime/slow.rs`.
#[test]
fn stalled_reader_is_reported_slow_before_its_policy_applies() {
    let rows = [
        (Policy::Cancel, "ended"),
        (Policy::Detach, "parked"),
        (Policy::Keep, "slow_consumer"),
    ];
    for (policy, last) in rows {
        let rig = hasty(policy);
        let mut feed = Feed::open(&rig, FEED, "");
        let fields = "x-stream-resumable: 0\r\nx-stream-acks: explicit\r\n";
        let mut client = send(&rig, "POST", "/v1/inference", fields, &job(10));
        let id = stream_id(&client.head());
        let path = format!("/v1/streams/{id}");
        let mut story = feed.story_until(&id, last);
        match policy {
            Policy::Cancel => {}
            Policy::Detach => {
                assert_eq!(story.last().unwrap()["reason"], "detached");
                assert_eq!(call(&rig, "DELETE", &path, &json!({})), 202);
                story.extend(feed.story(&id));
            }
            Policy::Keep => {
                for tokens in [4, 8] {
                    has_all(&rig, &path, tokens);
                }
                story.extend(feed.story(&id));
                assert!(types(&story).contains(&"resumed"), "{story:?}");
            }
        }
        let told = types(&story);
        assert_eq!(
            told[..4],
            ["opened", "started", "backpressure", "slow_consumer"]
        );
        let ended = story.last().unwrap();
        let want = match policy {
            Policy::Cancel => json!(["timed_out", "reader"]),
            Policy::Detach => json!(["cancelled", null]),
            Policy::Keep => json!(["length", null]),
        };
        assert_eq!(json!([ended["end"], ended["detail"]]), want, "{policy:?}");
    }
}

#[test]
fn feed_reports_each_end_also_of_streams_that_never_started() {
    let rig = Rig::gated(fake(), kept());
    let mut feed = Feed::open(&rig, FEED, "");
    let mut client = send(
        &rig,
        "POST",
        "/v1/inference",
        "x-stream-resumable: 0\r\n",
        &job(10),
    );
    let id = stream_id(&client.head());
    drop(client);
    let path = format!("/v1/streams/{id}");
    wait_until("its client is missed", || {
        crate::support::named::get(&rig, &path, "").head.status != 200
    });
    wait_until("it is cancelled", || {
        rig.gate.allow(1);
        rig.engine.stats().endings().cancelled == 1
    });
    rig.gate.allow(1000);
    let story = feed.story(&id);
    assert_eq!(story.last().unwrap()["end"], "cancelled", "{story:?}");
    rig.gate.open();
    // It can never fit, and that is found out after it was registered.
    let long = json!({"prompt": "x".repeat(600), "max_tokens": 10});
    let refused = post(rig.addr, "/v1/inference", &long);
    assert_eq!(refused.head.status, 400);
    let opened = loop {
        let event = feed.next();
        if event["type"] == "opened" {
            break event;
        }
    };
    let story = feed.story(opened["stream"].as_str().unwrap());
    assert_eq!(story.last().unwrap()["end"], "refused");
    assert_eq!(story.last().unwrap()["detail"], "context_length_exceeded");
}

#[test]
fn stalled_feed_reader_loses_the_oldest_events_and_gets_their_number() {
    let config = ServerConfig {
        metrics_export_interval: Duration::from_millis(1),
        send_buffer_bytes: 4096,
        ..kept()
    };
    let rig = Rig::with(fake(), config);
    let mut feed = Feed::open(&rig, FEED, "");
    let mut client = Client::connect(rig.addr);
    for _ in 0..1500 {
        client.post("/v1/inference", &job(1));
        assert_eq!(client.reply().head.status, 200);
    }
    let mut dropped = 0;
    let last = loop {
        let event = feed.next();
        if event["type"] == "dropped" {
            dropped += event["count"].as_u64().unwrap();
            assert_eq!(event["total"], dropped);
            break event;
        }
    };
    assert!(last["count"].as_u64().unwrap() > 0);
    // It goes on, whole.
    client.post("/v1/inference", &job(1));
    let id = stream_id(&client.reply().head);
    assert_eq!(types(&feed.story(&id)), ["opened", "started", "ended"]);
}

#[test]
fn snapshots_repeat() {
    let config = ServerConfig {
        metrics_export_interval: Duration::from_millis(5),
        ..kept()
    };
    let rig = Rig::with(fake(), config);
    let mut feed = Feed::open(&rig, FEED, "");
    for _ in 0..3 {
        let event = feed.next();
        assert_eq!(event["type"], "metrics");
        assert_eq!(event["metrics"]["streams_open"], 0);
    }
}
