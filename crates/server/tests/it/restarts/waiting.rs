//! Streams that waited before the restart, readers that wait after it, jobs by name, and an orderly shutdown.
//!
//! Promise (Journal): queued streams, jobs, background responses and list cursors survive a restart; readers wait
//! with 200 while the model is loaded; an orderly shutdown ends no durable stream.

use super::copies::Journaled;
use crate::support::named::{CHAT, RESUMABLE, call, chat, fake, get, kept, send, stream_id};
use crate::support::sse::{Heard, frames};
use crate::support::wait_until;
use serde_json::{Value, json};
use server::{AdaptiveLimits, ServerConfig};
use std::time::Duration;

/// One stream runs at a time.
fn one_slot() -> ServerConfig {
    ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams: 1,
            ..AdaptiveLimits::default()
        },
        ..kept()
    }
}

fn events(id: &str) -> String {
    format!("/v1/streams/{id}/events")
}

#[test]
fn queued_stream_runs_after_a_restart() {
    let original = Journaled::gated("queued", fake(), one_slot());
    let open = |seed: u64| {
        let body = chat(&json!({"seed": seed, "max_tokens": 6}));
        let mut client = send(&original.rig, "POST", CHAT, RESUMABLE, &body);
        (stream_id(&client.head()), client)
    };
    let (running, _first) = open(1);
    original.rig.gate.allow(1);
    wait_until("a token", || original.shown_tokens(&running) == 1);
    let (queued, _second) = open(2);
    assert_eq!(original.describe(&queued)["state"], "queued");
    let restarted = original.copy().start(fake(), one_slot());
    for id in [running, queued] {
        let uninterrupted = original.whole(&id);
        assert!(uninterrupted.contains("[DONE]"));
        assert_eq!(restarted.whole(&id), uninterrupted);
    }
}

#[test]
fn reader_waits_while_the_model_is_loaded_and_new_requests_wait_behind() {
    let original = Journaled::gated("loading", fake(), kept());
    let body = chat(&json!({"max_tokens": 8}));
    let mut client = send(&original.rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&client.head());
    original.rig.gate.allow(3);
    wait_until("tokens", || original.shown_tokens(&id) == 3);
    let mut restarted = original.copy().start_loading(fake(), kept());
    let cursor = format!("last-event-id: {id}:2\r\n");
    let mut reader = send(&restarted.rig, "GET", &events(&id), &cursor, &Value::Null);
    assert_eq!(reader.head().status, 200, "before the model is ready");
    assert_eq!(restarted.describe(&id)["state"], "queued");
    restarted.rig.ready();
    restarted.rig.gate.open();
    let heard = Heard::of(&frames(&reader.body()));
    assert!(heard.is_over());
    original.whole(&id);
    let uninterrupted = get(&original.rig, &events(&id), &cursor).body;
    assert_eq!(heard, Heard::of(&frames(&uninterrupted)));
    let beyond = format!("last-event-id: {id}:99\r\n");
    assert_eq!(get(&restarted.rig, &events(&id), &beyond).head.status, 400);
    let other = call(&restarted.rig, "POST", CHAT, "", &chat(&json!({})));
    assert_eq!(other.head.status, 200);
}

/// A line of a stream without the time of its computation, which two processes may measure differently.
fn without_decode_time(line: &str) -> String {
    let Some((before, rest)) = line.split_once("\"decode_time_ms\":") else {
        return line.to_owned();
    };
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}{after}")
}

#[test]
fn job_and_background_response_survive_a_restart() {
    let original = Journaled::gated("jobs", fake(), kept());
    let job = json!({
        "job_id": "mine", "stream": true, "seed": 3,
        "messages": [{"role": "user", "content": "hi"}], "max_tokens": 6,
    });
    let submitted = call(&original.rig, "POST", "/v1/jobs", "", &job);
    assert!(submitted.head.status < 300, "{}", submitted.body);
    let background = json!({"input": "hi", "background": true, "max_output_tokens": 6});
    let response = call(&original.rig, "POST", "/v1/responses", "", &background);
    assert_eq!(response.head.status, 200, "{}", response.body);
    let response_id = response.json()["id"].as_str().unwrap().to_owned();
    let restarted = original.copy().start(fake(), kept());
    let taken = call(&restarted.rig, "POST", "/v1/jobs", "", &job);
    assert_eq!(taken.head.status, 409, "{}", taken.body);
    original.rig.gate.open();
    restarted.rig.gate.open();
    let stream = |journaled: &Journaled| {
        journaled.whole(&stream_id(&submitted.head));
        let body = get(&journaled.rig, "/v1/jobs/mine/stream", "").body;
        let timeless = body.lines().filter(|line| !line.contains("started_at"));
        timeless.map(without_decode_time).collect::<Vec<_>>()
    };
    let lines = stream(&original);
    assert!(lines.iter().any(|line| line.contains("MAX_TOKENS")));
    assert_eq!(stream(&restarted), lines);
    let completed = |journaled: &Journaled| {
        let path = format!("/v1/responses/{response_id}");
        get(&journaled.rig, &path, "").json()
    };
    for journaled in [&original, &restarted] {
        let is_running = |status: &Value| status == "queued" || status == "in_progress";
        wait_until("the response is complete", || {
            !is_running(&completed(journaled)["status"])
        });
        assert_eq!(
            completed(journaled)["status"],
            "incomplete",
            "{}",
            completed(journaled)
        );
    }
    let output = |journaled: &Journaled| completed(journaled)["output"].clone();
    assert_eq!(output(&restarted), output(&original));
}

#[test]
fn stream_continues_after_an_orderly_shutdown() {
    let config = ServerConfig {
        drain: Duration::from_millis(50),
        ..kept()
    };
    let mut original = Journaled::gated("shutdown", fake(), config.clone());
    let body = chat(&json!({"max_tokens": 12}));
    let whole = Journaled::gated("whole", fake(), kept());
    whole.rig.gate.open();
    let uninterrupted = call(&whole.rig, "POST", CHAT, RESUMABLE, &body).body;
    let mut client = send(&original.rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&client.head());
    original.rig.gate.allow(4);
    wait_until("tokens", || original.shown_tokens(&id) == 4);
    original.rig.ask_to_stop();
    original.rig.gate.open();
    original.rig.stopped();
    let sealed = original.read();
    assert!(sealed.report.is_sealed);
    assert_eq!(sealed.streams.len(), 1, "the stream is not forgotten");
    let restarted = original.copy().start(fake(), kept());
    restarted.rig.gate.open();
    let again = restarted.whole(&id);
    assert_eq!(
        Heard::of(&frames(&again)),
        Heard::of(&frames(&uninterrupted))
    );
}

#[test]
fn page_of_streams_begun_before_a_restart_goes_on_after_it() {
    let original = Journaled::gated("list", fake(), kept());
    original.rig.gate.open();
    let open = || {
        let body = chat(&json!({"max_tokens": 2}));
        stream_id(&call(&original.rig, "POST", CHAT, RESUMABLE, &body).head)
    };
    let opened: Vec<String> = (0..5).map(|_| open()).collect();
    let page = |journaled: &Journaled, after: &Value| {
        let after = after.as_u64().unwrap_or(0);
        let path = format!("/v1/streams?limit=2&after={after}");
        get(&journaled.rig, &path, "").json()
    };
    let ids = |page: &Value| -> Vec<String> {
        let streams = page["data"].as_array().unwrap().iter();
        let id = |stream: &Value| stream["id"].as_str().unwrap().to_owned();
        streams.map(id).collect()
    };
    let first = page(&original, &Value::Null);
    assert_eq!(ids(&first), opened[..2]);
    let restarted = original.copy().start(fake(), kept());
    let second = page(&restarted, &first["next"]);
    assert_eq!(ids(&second), opened[2..4]);
    assert_eq!(ids(&page(&restarted, &second["next"])), opened[4..]);
}
