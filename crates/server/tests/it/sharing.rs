//! Who gets how much, as clients of the whole server see it: keys beside keys, the patient beside the
//! urgent. Counted in steps of the model.
//!
//! Promise (Admission and keys): a low-priority request is served within its ageing bound under a flood of urgent
//! ones, in the queue and in the engine.
//! Also held by `engine/tests/it/sharing.rs`.

use crate::support::named::{call, fake, set_fields};
use crate::support::owners::key;
use crate::support::{Rig, config, wait_until};
use engine::EngineConfig;
use engine::fake::FakeConfig;
use serde_json::{Value, json};
use server::{AdaptiveLimits, Keys, QueueLimits, Scope, ServerConfig};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A model that computes so many rows at a time.
fn rows(rows: usize) -> FakeConfig {
    let mut fake = fake();
    (fake.dims.rows_max, fake.dims.logit_rows_max) = (rows, rows);
    fake.dims.pages = 4096;
    fake
}

/// So many streams at a time, and nobody has to read.
fn unread(max_streams: usize) -> ServerConfig {
    ServerConfig {
        credit_window: 0,
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams,
            ..AdaptiveLimits::default()
        },
        ..config()
    }
}

fn field(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

/// Starts a job that is long enough; where its stream is.
fn job(rig: &Rig, fields: &str, over: &Value) -> String {
    let mut body = json!({"prompt": "hi", "max_tokens": 450, "ignore_eos": true});
    set_fields(&mut body, over);
    let reply = call(rig, "POST", "/v1/jobs", fields, &body);
    assert_eq!(reply.head.status, 202, "{}", reply.body);
    let id = reply.head.get("x-stream-id").expect("a name");
    format!("/v1/streams/{id}")
}

fn tokens(rig: &Rig, path: &str, fields: &str) -> u64 {
    let shown = call(rig, "GET", path, fields, &Value::Null).json();
    shown["completion_tokens"].as_u64().expect("a count")
}

/// Lets the model do so many passes after the one that waits.
fn steps(rig: &Rig, passes: u64) {
    let until = rig.engine.stats().steps() + passes;
    rig.gate.allow(passes);
    wait_until("the model did its passes", || {
        rig.engine.stats().steps() >= until
    });
}

/// Waits until so many streams of this key were handed to the engine, and a pass waits.
pub(crate) fn in_the_engine(rig: &Rig, fields: &str, streams: usize) {
    wait_until("all are in the engine", || {
        let page = call(rig, "GET", "/v1/streams?limit=100", fields, &Value::Null).json();
        let data = page["data"].as_array().expect("a page").clone();
        let begun = data.iter().filter(|s| s["choices"][0].is_object());
        begun.count() == streams && rig.engine.stats().steps() > 0
    });
}

#[expect(clippy::disallowed_methods, reason = "who waits ages")]
fn pass(time: Duration) {
    let since = Instant::now();
    wait_until("time goes by", || since.elapsed() > time);
}

#[test]
fn key_with_one_stream_has_its_share_beside_a_key_with_sixty_four() {
    const MANY: u64 = 64;
    const STEPS: u64 = 300;
    for width in [2, 3, 16] {
        let names = ["key_a_0123456789", "key_b_0123456789"];
        let keys = names.map(|name| key(name, name, &[Scope::Inference]));
        let keys = Arc::new(Keys::new(&keys).expect("good keys"));
        let tuning = EngineConfig {
            ageing: Duration::from_secs(3600),
            ..EngineConfig::default()
        };
        let rig = Rig::tuned(rows(width), tuning, unread(100), keys);
        let [a, b] = names.map(field);
        for seed in 0..MANY {
            job(&rig, &a, &json!({"seed": seed}));
        }
        in_the_engine(&rig, &a, MANY as usize);
        steps(&rig, 200);
        let one = job(&rig, &b, &json!({"seed": 1}));
        in_the_engine(&rig, &b, 1);
        // A prompt of two tokens, and what was planned before it came.
        steps(&rig, 6);
        let (before, all) = (
            tokens(&rig, &one, &b),
            rig.engine.stats().tokens_generated(),
        );
        assert!(before > 0, "{width} rows: it has begun");
        steps(&rig, STEPS);
        let got = tokens(&rig, &one, &b) - before;
        let others = rig.engine.stats().tokens_generated() - all - got;
        // Half of the rows, or what one stream can take at most: a token per step.
        assert!(got * 10 >= STEPS * 9, "{width} rows: {got} tokens");
        let rest = STEPS * (width as u64 - 1);
        assert!(others * 10 >= rest * 9, "{width} rows: {others} of {rest}");
    }
}

/// A server whose rows are all taken by urgent streams, and a stream that is not urgent.
fn flooded(ageing: Duration) -> (Rig, String) {
    const ROWS: usize = 2;
    let tuning = EngineConfig {
        ageing,
        ..EngineConfig::default()
    };
    let keys = Arc::new(Keys::anonymous());
    let rig = Rig::tuned(rows(ROWS), tuning, unread(100), keys);
    for seed in 0..8 {
        job(&rig, "x-priority: critical\r\n", &json!({"seed": seed}));
    }
    in_the_engine(&rig, "", 8);
    steps(&rig, 40);
    let patient = job(&rig, "x-priority: background\r\n", &json!({}));
    in_the_engine(&rig, "", 9);
    (rig, patient)
}

#[test]
fn background_request_is_served_after_ageing() {
    let (rig, patient) = flooded(Duration::from_secs(3600));
    steps(&rig, 20);
    let before = tokens(&rig, &patient, "");
    steps(&rig, 100);
    let after = tokens(&rig, &patient, "");
    assert_eq!(after, before, "others are more urgent");

    let ageing = Duration::from_millis(20);
    let (rig, patient) = flooded(ageing);
    let before = tokens(&rig, &patient, "");
    // From background to critical, and one more to be before all.
    pass(ageing * 6);
    steps(&rig, 8);
    let after = tokens(&rig, &patient, "");
    assert!(after > before, "within its ageing bound");
}

#[test]
fn queued_request_is_overtaken_for_a_limited_time() {
    let place = |rig: &Rig, path: &str| {
        let job = path.replace("/v1/streams/", "/v1/jobs/");
        call(rig, "GET", &job, "", &Value::Null).json()["position"].clone()
    };
    let ageing = Duration::from_millis(10);
    for (ageing, wait, patient_at) in [
        (Duration::from_secs(3600), Duration::ZERO, 5),
        (ageing, ageing * 6, 1),
    ] {
        let queue = QueueLimits {
            ageing,
            ..QueueLimits::default()
        };
        let rig = Rig::gated(fake(), ServerConfig { queue, ..unread(1) });
        job(&rig, "", &json!({}));
        in_the_engine(&rig, "", 1);
        let patient = job(&rig, "x-priority: background\r\n", &json!({}));
        pass(wait);
        for _ in 0..4 {
            job(&rig, "x-priority: critical\r\n", &json!({}));
        }
        assert_eq!(place(&rig, &patient), json!(patient_at));
    }
}
