//! Jobs that wait, fail and are shut down, and the server's own state.

use super::speech::*;
use crate::support::client::{Client, get, post};
use crate::support::{Rig, config, fake, wait_until};
use engine::fake::{Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use server::{AdaptiveLimits, QueueLimits, ServerConfig};
use std::time::Duration;

#[test]
fn server_state_is_reported() {
    let rig = Rig::gated(fake(), config());
    assert_eq!(
        get(rig.addr, "/health/liveness").json(),
        json!({"status": "ok"})
    );
    let ready = get(rig.addr, "/health/readiness");
    assert_eq!(
        (ready.head.status, ready.json()),
        (200, json!({"status": "ready"}))
    );
    assert_eq!(
        get(rig.addr, "/v1/ready").json(),
        json!({"ready": true, "state": "ready"})
    );
    let progress = get(rig.addr, "/v1/loading/progress");
    assert_eq!(
        (
            &progress.chunks()[..],
            progress.frames().last().unwrap().as_str()
        ),
        (
            &[json!({"type": "progress", "model": "fake", "state": "ready", "percent": 100})][..],
            "[DONE]"
        )
    );
    submit(&rig, &ask(&json!({})));
    rig.gate.allow(1);
    wait_until("the job is counted", || {
        let engine = get(rig.addr, "/health").json()["engine"].clone();
        engine["running"].as_u64().unwrap() + engine["queued"].as_u64().unwrap() == 1
    });
}

#[test]
fn heartbeats_end_with_the_server() {
    let mut rig = Rig::start();
    let mut client = send(&rig, "GET", "/v1/heartbeats/stream", "");
    assert_eq!(client.head().status, 200);
    let first = frames(&client.chunk().unwrap())[0].json();
    assert_eq!(
        (
            &first["type"],
            &first["seq"],
            &first["dropped"],
            &first["state"]
        ),
        (&json!("heartbeat"), &json!(0), &json!(0), &json!("ready"))
    );
    assert!(first["engine"]["pages_free"].as_u64().unwrap() > 0);
    rig.ask_to_stop();
    let last = frames(&client.body()).pop().unwrap().json();
    assert_eq!(last["state"], "draining");
    assert_eq!(rig.stopped().cut, 0);
}

/// A job that goes through every stage, told by what its frames are.
fn kinds(frames: &[Frame]) -> Vec<String> {
    let mut kinds: Vec<_> = frames.iter().map(Frame::kind).collect();
    kinds.dedup();
    kinds
}

#[test]
fn start_event_is_sent_when_the_job_starts() {
    let rig = Rig::gated(fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(INFERENCE, &ask(&json!({})));
    assert_eq!(client.head().status, 200);
    let first = client.chunk().expect("the model did not do anything yet");
    assert_eq!(kinds(&frames(&first)), ["started"]);
    rig.gate.open();
    assert_eq!(kinds(&frames(&client.body())), ["token", "end", ""]);
}

/// One job at a time; others wait.
fn one_at_a_time() -> ServerConfig {
    ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams: 1,
            ..AdaptiveLimits::default()
        },
        ..config()
    }
}

#[test]
fn queued_job_reports_its_position() {
    let rig = Rig::gated(fake(), one_at_a_time());
    let (_, first) = submit(&rig, &ask(&json!({})));
    let (id, url) = submit(&rig, &ask(&json!({})));
    let path = format!("{JOBS}/{id}");
    assert_eq!(get(rig.addr, &path).json()["position"], 1);
    let mut watchers = [send(&rig, "GET", &url, ""), send(&rig, "GET", &url, "")];
    for watcher in &mut watchers {
        assert_eq!(watcher.head().status, 200);
        let queued = &frames(&watcher.chunk().unwrap())[0];
        assert_eq!(queued.json(), json!({"type": "queued", "position": 1}));
        assert_eq!(queued.id, None, "no place to come back to");
    }
    rig.gate.open();
    assert_eq!(
        ending(&frames(&call(&rig, "GET", &first, "").body))["type"],
        "end"
    );
    for watcher in &mut watchers {
        let told = frames(&watcher.body());
        assert_eq!(kinds(&told), ["started", "token", "end", ""]);
    }
    assert_eq!(get(rig.addr, &path).json()["position"], Value::Null);
}

#[test]
fn each_failure_is_reported_once() {
    let impatient = ServerConfig {
        queue: QueueLimits {
            timeout: Duration::from_millis(30),
            ..QueueLimits::default()
        },
        ..one_at_a_time()
    };
    let rig = Rig::gated(fake(), impatient);
    let mut holder = Client::connect(rig.addr);
    holder.post(INFERENCE, &ask(&json!({})));
    assert_eq!(holder.head().status, 200);
    let queued = frames(&post(rig.addr, INFERENCE, &ask(&json!({}))).body);
    assert_eq!(ending(&queued)["code"], "TIMEOUT");
    assert_eq!(ending(&queued)["retriable"], true);
    rig.gate.open();
    assert_eq!(ending(&frames(&holder.body()))["type"], "end");
    for (kind, code) in [
        (FaultKind::Panic, "INTERNAL"),
        (FaultKind::NotANumber, "INFERENCE_FAILED"),
    ] {
        let mut faulty = fake();
        let at = FaultAt::Token(u32::from(b'~'));
        faulty.faults = vec![Fault { at, kind }];
        let rig = Rig::with(faulty, config());
        let bad = frames(&post(rig.addr, INFERENCE, &ask(&json!({"prompt": "~"}))).body);
        assert_eq!(ending(&bad)["code"], code);
        let whole = post(
            rig.addr,
            INFERENCE,
            &ask(&json!({"prompt": "~", "stream": false})),
        );
        assert_eq!(
            (whole.head.status, &whole.json()["error"]["code"]),
            (500, &json!(code))
        );
        let good = frames(&post(rig.addr, INFERENCE, &ask(&json!({}))).body);
        assert_eq!(ending(&good)["type"], "end", "others are not affected");
    }
}

#[test]
fn shutdown_ends_jobs() {
    let impatient = ServerConfig {
        drain: Duration::ZERO,
        drain_flush: Duration::from_secs(30),
        ..config()
    };
    let mut rig = Rig::gated(fake(), impatient);
    let mut client = Client::connect(rig.addr);
    client.post(INFERENCE, &ask(&json!({"max_tokens": 400})));
    assert_eq!(client.head().status, 200);
    assert_eq!(kinds(&frames(&client.chunk().unwrap())), ["started"]);
    rig.ask_to_stop();
    // The engine is told to end what runs before its next step.
    rig.wait_until_leaving();
    rig.gate.open();
    let told = frames(&client.body());
    let end = ending(&told);
    assert!(
        end["code"] == "WORKER_UNHEALTHY" && end["retriable"] == true,
        "{end}"
    );
}
