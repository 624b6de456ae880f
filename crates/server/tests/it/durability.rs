//! Durable streams while the server runs: what is shown is in the journal, and a bad disk ends no stream.
//!
//! Promise (Journal): a reader of a durable stream has no token, and no end, that is not in the file; plain streams
//! and those that opted out are not recorded.
//!
//! Promise (Journal): a write that stalls hides tokens for two seconds, then readers receive everything and the
//! stream is not durable; a full disk ends no stream.
//!
//! Promise (Journal): a control update and a pause are on the disk before the response; a shutdown ends and forgets
//! no durable stream.

use crate::support::disk::{self, Disk, Writes};
use crate::support::named::{
    CHAT, RESUMABLE, call, chat, fake, get, kept, resumable_chat, send, stream_id, with,
};
use crate::support::sse::{Heard, frames};
use crate::support::{Rig, wait_until};
use gateway::records::StreamDescription;
use journal::{Integrity, JournalConfig, RecoveredStream};
use serde_json::{Value, json};
use server::{ServerConfig, StreamLimits};
use stream::{End, FailCode};

/// A code of the journal for this end.
fn code(end: End) -> u32 {
    end.code()
}

fn described(rig: &Rig, id: &str) -> Value {
    get(rig, &format!("/v1/streams/{id}"), "").json()
}

/// Tokens that readers see.
fn shown_tokens(rig: &Rig, id: &str) -> u64 {
    described(rig, id)["completion_tokens"].as_u64().unwrap()
}

fn recorded_tokens(stream: &RecoveredStream) -> usize {
    stream.choices.iter().map(|choice| choice.ids.len()).sum()
}

/// Tokens whose log-probabilities are in a chunk.
fn emitted_tokens(chunk: &str) -> usize {
    let chunk: Value = serde_json::from_str(chunk).unwrap_or_default();
    let tokens = chunk["choices"][0]["logprobs"]["content"].as_array();
    tokens.map_or(0, Vec::len)
}

#[test]
fn token_that_a_reader_has_is_in_the_file() {
    let disk = Disk::new("commit");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    let mut client = send(
        &rig,
        "POST",
        CHAT,
        RESUMABLE,
        &chat(&json!({"n": 2, "logprobs": true, "top_logprobs": 2})),
    );
    rig.gate.allow(1);
    let head = client.head();
    assert_eq!(head.get("x-stream-durable"), Some("1"));
    let id = stream_id(&head);
    let opened = disk
        .stream(&id)
        .expect("the beginning is written before the head");
    assert_eq!(opened.integrity, Integrity::Intact);
    let mut text = String::new();
    let mut shown = 0;
    while !text.contains("[DONE]") {
        text += &client.chunk().expect("the stream is not over");
        let heard = frames(&text)
            .iter()
            .map(|frame| emitted_tokens(&frame.data))
            .sum();
        assert!(heard >= shown);
        shown = heard;
        let stream = disk.stream(&id).expect("a live stream");
        assert!(recorded_tokens(&stream) >= shown, "{shown} of {stream:?}");
        rig.gate.allow(1);
    }
    rig.gate.open();
    let stream = disk.stream(&id).expect("retained");
    assert_eq!(shown, 48);
    for choice in &stream.choices {
        assert_eq!((choice.ids.len(), choice.logprobs.len()), (24, 24));
        assert_eq!(choice.alternative_counts, [2; 24]);
        assert_eq!(choice.end.map(|end| end.0), Some(code(End::Length)));
    }
    assert!(stream.started.is_some() && stream.prepared.is_some() && stream.broke.is_none());
    assert_eq!(described(&rig, &id)["durable"], true);
    let again = get(&rig, &format!("/v1/streams/{id}/events"), "");
    assert_eq!(again.head.get("x-stream-durable"), Some("1"));
    assert_eq!(Heard::of(&frames(&again.body)), Heard::of(&frames(&text)));
}

#[test]
fn stream_is_recorded_only_if_it_is_resumable_and_the_client_agrees() {
    let disk = Disk::new("opt-out");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    rig.gate.open();
    let cases = [
        ("plain", "", None, false),
        ("resumable", RESUMABLE, Some("1"), true),
        (
            "opted out",
            "x-stream-resumable: 1\r\nx-stream-durable: 0\r\n",
            Some("0"),
            false,
        ),
    ];
    for (case, fields, header, is_recorded) in cases {
        let reply = call(&rig, "POST", CHAT, fields, &chat(&json!({})));
        assert_eq!(reply.head.get("x-stream-durable"), header, "{case}");
        let id = stream_id(&reply.head);
        assert_eq!(disk.stream(&id).is_some(), is_recorded, "{case}");
    }
    let reply = call(
        &rig,
        "POST",
        CHAT,
        "x-stream-durable: yes\r\n",
        &chat(&json!({})),
    );
    assert_eq!(reply.head.status, 400);
    assert!(reply.body.contains("x-stream-durable"), "{}", reply.body);
}

#[test]
fn held_writes_hide_tokens_until_the_watchdog_opens_the_gate() {
    let disk = Disk::new("stall");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    let mut feed = send(&rig, "GET", "/v1/streams/feed", "", &Value::Null);
    assert_eq!(feed.head().status, 200);
    let mut client = send(&rig, "POST", CHAT, RESUMABLE, &chat(&json!({})));
    rig.gate.allow(2);
    let id = stream_id(&client.head());
    wait_until("two tokens are shown", || shown_tokens(&rig, &id) == 2);
    disk.set_writes(Writes::Held);
    rig.gate.open();
    wait_until("all tokens are generated", || {
        rig.engine.stats().tokens_generated() == 24
    });
    let shown = shown_tokens(&rig, &id);
    let is_durable = described(&rig, &id)["durable"] == true;
    assert!(shown == 2 || !is_durable, "{shown} tokens are shown");
    let text = client.body();
    assert!(text.contains("[DONE]"), "{text}");
    assert_eq!(described(&rig, &id)["durable"], false);
    let undurable = format!("{{\"type\":\"undurable\",\"stream\":\"{id}\"");
    let mut events = String::new();
    while !events.contains(&undurable) {
        events += &feed.chunk().expect("the feed goes on");
    }
    let reply = resumable_chat(&rig, &json!({}));
    assert_eq!(reply.head.get("x-stream-durable"), Some("0"));
    disk.set_writes(Writes::Done);
    wait_until("streams are durable again", || {
        let reply = resumable_chat(&rig, &json!({"max_tokens": 1}));
        reply.head.get("x-stream-durable") == Some("1")
    });
    assert!(
        disk.stream(&id).is_none(),
        "readers know more than the journal"
    );
}

#[test]
fn full_disk_ends_no_stream_and_streams_are_durable_again_afterwards() {
    let disk = Disk::new("full");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    let mut client = send(&rig, "POST", CHAT, RESUMABLE, &chat(&json!({})));
    rig.gate.allow(2);
    let id = stream_id(&client.head());
    wait_until("two tokens are shown", || shown_tokens(&rig, &id) == 2);
    disk.set_writes(Writes::Full);
    rig.gate.open();
    let text = client.body();
    assert!(text.contains("[DONE]"), "{text}");
    wait_until("the client is told", || {
        described(&rig, &id)["durable"] == false
    });
    disk.set_writes(Writes::Done);
    wait_until("the stream is rewritten", || {
        described(&rig, &id)["durable"] == true
    });
    let stream = disk.stream(&id).expect("a live stream");
    assert_eq!(
        (stream.integrity, recorded_tokens(&stream)),
        (Integrity::Intact, 24)
    );
    assert_eq!(
        stream.choices[0].end.map(|end| end.0),
        Some(code(End::Length))
    );
}

#[test]
fn removed_stream_is_forgotten() {
    let disk = Disk::new("forget");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    rig.gate.open();
    let reply = resumable_chat(&rig, &json!({}));
    let id = stream_id(&reply.head);
    assert!(disk.stream(&id).is_some());
    call(
        &rig,
        "DELETE",
        &format!("/v1/streams/{id}"),
        "",
        &Value::Null,
    );
    wait_until("the stream is forgotten", || disk.stream(&id).is_none());
}

/// A request without a body, with this status.
fn expect_status(rig: &Rig, method: &str, path: &str, status: u16) -> Value {
    let reply = call(rig, method, path, "", &Value::Null);
    assert_eq!(reply.head.status, status, "{method} {path}: {}", reply.body);
    reply.json()
}

/// Promise (Journal): a deletion, a cancellation and an acknowledged event are on the disk before the response.
/// Also held by `server/tests/it/durability.rs :: cancellation_is_on_disk_before_its_response`.
#[test]
fn deletion_is_on_disk_before_its_response() {
    let disk = Disk::new("deletion");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    rig.gate.open();
    let objects = || disk.read().streams.len();
    let response = json!({"input": "hi", "max_output_tokens": 16, "store": true});
    let completion = chat(&json!({"stream": false, "store": true}));
    for turn in 0..16 {
        let (route, body) = match turn % 2 {
            0 => ("/v1/responses", &response),
            _ => (CHAT, &completion),
        };
        let answer = call(&rig, "POST", route, "", body).json();
        let path = format!("{route}/{}", answer["id"].as_str().unwrap());
        expect_status(&rig, "GET", &path, 200);
        wait_until("the answer is stored", || objects() == 1);
        expect_status(&rig, "DELETE", &path, 200);
        assert_eq!(objects(), 0, "{path}, turn {turn}");
    }
    for turn in 0..8 {
        let job = json!({"prompt": "hi", "max_tokens": 3, "ignore_eos": true, "job_id": format!("job-{turn}")});
        let id = stream_id(&call(&rig, "POST", "/v1/jobs", "", &job).head);
        wait_until("the job ended", || described(&rig, &id)["state"] == "ended");
        assert_eq!(objects(), 1);
        let path = format!("/v1/streams/{id}/ack");
        let acknowledged = call(&rig, "POST", &path, "", &json!({"end": true}));
        assert_eq!(acknowledged.head.status, 200, "{}", acknowledged.body);
        let noted = disk.stream(&id).expect("the stream stays").outcome;
        assert!(noted.is_some(), "the acknowledgement is recorded");
        let path = match turn % 2 {
            0 => format!("/v1/streams/{id}"),
            _ => format!("/v1/jobs/job-{turn}"),
        };
        expect_status(&rig, "DELETE", &path, 202);
        assert_eq!(objects(), 0, "{path}");
    }
}

#[test]
fn cancellation_is_on_disk_before_its_response() {
    let disk = Disk::new("cancellation");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    rig.gate.open();
    for turn in 0..6 {
        let job = json!({"prompt": "hi", "max_tokens": 400, "ignore_eos": true, "job_id": format!("job-{turn}")});
        let reply = call(&rig, "POST", "/v1/jobs", "", &job);
        assert_eq!(reply.head.status, 202, "{}", reply.body);
        let id = stream_id(&reply.head);
        match turn % 3 {
            0 => expect_status(&rig, "POST", &format!("/v1/jobs/job-{turn}/cancel"), 202),
            1 => expect_status(&rig, "DELETE", &format!("/v1/jobs/job-{turn}"), 202),
            _ => expect_status(&rig, "DELETE", &format!("/v1/streams/{id}"), 202),
        };
        let stream = disk.stream(&id);
        let is_over = |stream: &RecoveredStream| {
            stream.outcome.is_some() || stream.choices.iter().any(|choice| choice.end.is_some())
        };
        // A job that had ended before was removed.
        assert!(stream.is_none_or(|stream| is_over(&stream)), "turn {turn}");
    }
}

/// Promise (Journal): a journal that is not durable is in the log, once with the system's reason and once when it is
/// durable again, in `/health` and in the metrics.
/// Also held by `gateway/src/streams/stream_journal.rs`, `journal/src/durability.rs`.
#[test]
fn health_and_metrics_name_a_full_disk() {
    let disk = Disk::new("health");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    rig.gate.open();
    let health = || get(&rig, "/health", "").json()["journal"].clone();
    let is_durable = || metric(&rig, "millrace_journal_durable");
    wait_until("the journal works", || is_durable() == 1.0);
    assert_eq!(health(), json!({"durable": true}));
    disk.set_writes(Writes::Full);
    resumable_chat(&rig, &json!({}));
    wait_until("the disk is noticed", || is_durable() == 0.0);
    let full = json!({"durable": false, "reason": "the disk is full"});
    assert_eq!(health(), full);
    disk.set_writes(Writes::Done);
    wait_until("the journal works again", || is_durable() == 1.0);
    wait_until("health agrees", || health() == json!({"durable": true}));
}

#[test]
fn control_update_and_pause_are_on_disk_before_the_response() {
    let disk = Disk::new("control");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    let mut client = send(&rig, "POST", CHAT, RESUMABLE, &chat(&json!({})));
    rig.gate.allow(1);
    let id = stream_id(&client.head());
    wait_until("a token is shown", || shown_tokens(&rig, &id) == 1);
    let path = format!("/v1/streams/{id}");
    let steer = json!({"temperature": 0.5, "text": "ab"});
    assert_eq!(
        call(&rig, "POST", &format!("{path}/control"), "", &steer)
            .head
            .status,
        200
    );
    let control = |stream: &RecoveredStream| {
        let body = stream.sampling.as_ref().expect("a control update");
        gateway::records::ControlState::decode(body).expect("a control state")
    };
    let steered = control(&disk.stream(&id).expect("a live stream"));
    assert_eq!(
        (steered.count, steered.applied, steered.pending.len()),
        (1, 0, 1)
    );
    assert_eq!(steered.pending[0].temperature, Some(0.5));
    let pause = call(&rig, "POST", &format!("{path}/pause"), "", &Value::Null);
    assert_eq!(pause.head.status, 200, "{}", pause.body);
    assert!(disk.stream(&id).expect("a live stream").is_paused);
    call(&rig, "POST", &format!("{path}/resume"), "", &Value::Null);
    rig.gate.open();
    client.body();
    let stream = disk.stream(&id).expect("retained");
    let steered = control(&stream);
    assert_eq!((steered.applied, steered.pending.len()), (1, 0));
    assert_eq!(steered.in_effect.temperature, Some(0.5));
    assert!(!stream.is_paused && steered.in_effect.inject.is_empty());
}

/// A metric without labels.
fn metric(rig: &Rig, name: &str) -> f64 {
    let text = get(rig, "/metrics", "").body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect("a family").parse().expect("a number")
}

/// The description with the submitted prompts.
fn description_of(stream: &RecoveredStream) -> StreamDescription {
    let description = StreamDescription::decode(&stream.description);
    let mut description = description.expect("a description");
    if let Some(prompts) = &stream.prepared {
        description.set_prepared(prompts).expect("prompts");
    }
    description
}

#[test]
fn live_stream_is_rewritten_from_memory_and_is_found_unchanged() {
    let disk = Disk::new("rewriting");
    let sizes = JournalConfig {
        segment_bytes: 16 << 10,
        bytes_max: 1 << 20,
        reserve_bytes: 4 << 10,
        ..JournalConfig::default()
    };
    let one_retained = StreamLimits {
        retained_max: 1,
        ..StreamLimits::default()
    };
    let files = disk.clone();
    Rig::set_next_journal(move |feed| disk::start_journal_with(files, sizes, feed));
    let rig = Rig::gated(fake(), with(one_retained));
    let body = chat(&json!({"n": 2, "logprobs": true, "top_logprobs": 2}));
    let mut client = send(&rig, "POST", CHAT, RESUMABLE, &body);
    rig.gate.allow(3);
    let id = stream_id(&client.head());
    wait_until("some tokens are shown", || shown_tokens(&rig, &id) >= 2);
    let path = format!("/v1/streams/{id}");
    let steer = json!({"temperature": 0.5, "pause": true});
    let reply = call(&rig, "POST", &format!("{path}/control"), "", &steer);
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    rig.gate.open();
    wait_until("the stream is paused", || {
        described(&rig, &id)["state"] == "paused"
    });
    let before = disk.stream(&id).expect("a live stream");
    wait_until("the stream is rewritten", || {
        resumable_chat(&rig, &json!({}));
        metric(&rig, "millrace_journal_rewritten_streams_total") > 1.0
    });
    let after = disk.stream(&id).expect("a live stream");
    assert_eq!(
        (after.integrity, after.is_paused),
        (Integrity::Intact, true)
    );
    assert!(
        after.prepared.is_none(),
        "the prompts are in the description"
    );
    assert_eq!(description_of(&after), description_of(&before));
    assert!(recorded_tokens(&after) >= recorded_tokens(&before));
    for (after, before) in after.choices.iter().zip(&before.choices) {
        assert!(after.ids.starts_with(&before.ids));
        assert!(after.logprobs.starts_with(&before.logprobs));
        assert!(after.alternatives.starts_with(&before.alternatives));
    }
    assert_eq!(
        after.started.map(|s| s.at_unix_us),
        before.started.map(|s| s.at_unix_us)
    );
    call(&rig, "POST", &format!("{path}/resume"), "", &Value::Null);
    let text = client.body();
    assert!(text.contains("[DONE]"), "{text}");
    assert_eq!(metric(&rig, "millrace_journal_errors_total"), 0.0);
}

#[test]
fn rejection_before_the_start_is_recorded() {
    let disk = Disk::new("rejected");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    rig.gate.open();
    let long = "a".repeat(4000);
    let body = chat(&json!({"messages": [{"role": "user", "content": long}]}));
    let reply = call(&rig, "POST", CHAT, RESUMABLE, &body);
    assert_eq!(reply.head.status, 400, "{}", reply.body);
    let stream = disk.stream(&stream_id(&reply.head)).expect("retained");
    let error = gateway::records::outcome::decode(&stream.outcome.expect("an error"));
    let code = reply.json()["error"]["code"].clone();
    assert_eq!(code, error.expect("an error").code);
}

#[test]
fn shutdown_neither_ends_nor_forgets_streams() {
    let disk = Disk::new("shutdown");
    let config = ServerConfig {
        drain: std::time::Duration::from_millis(10),
        drain_flush: std::time::Duration::from_millis(200),
        ..kept()
    };
    let mut rig = Rig::recorded(fake(), config, disk.clone());
    let mut running = send(&rig, "POST", CHAT, RESUMABLE, &chat(&json!({})));
    rig.gate.allow(3);
    let id = stream_id(&running.head());
    wait_until("three tokens are shown", || shown_tokens(&rig, &id) == 3);
    let pause = format!("/v1/streams/{id}/pause");
    call(&rig, "POST", &pause, "", &Value::Null);
    rig.ask_to_stop();
    rig.gate.open();
    let drained = rig.stopped();
    assert_eq!(drained.cut, 1, "the connection is closed without an end");
    drop(rig);
    let found = disk.read();
    assert!(found.report.is_sealed);
    let stream = disk
        .stream(&id)
        .expect("the stream continues in the next process");
    assert_eq!(stream.integrity, Integrity::Intact);
    let end = stream.choices[0].end.map(|end| end.0);
    assert!(
        end.is_none(),
        "{end:?} {}",
        code(End::Failed(FailCode::Shutdown))
    );
}
