//! Who waits, who is let in, who is sent away: as clients see it.

mod bystanders;

use crate::support::client::{Client, post};
use crate::support::{Rig, config, fake, wait_until};
use serde_json::{Value, json};
use server::{AdaptiveLimits, QueueLimits, ServerConfig};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

/// One stream at a time; others wait.
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

fn ask(stream: bool) -> Value {
    let messages = json!([{"role": "user", "content": "hi"}]);
    json!({"messages": messages, "stream": stream, "max_tokens": 4, "ignore_eos": true})
}

fn with(mut ask: Value, key: &str, value: impl Into<Value>) -> Value {
    ask[key] = value.into();
    ask
}

/// A client whose stream holds the only place.
fn holder(rig: &Rig) -> Client {
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, &ask(true));
    assert_eq!(client.head().status, 200);
    assert!(client.chunk().unwrap().contains("\"role\""));
    client
}

/// A client whose stream waits at this place.
fn waiter(rig: &Rig, ask: &Value, position: usize) -> Client {
    let mut client = Client::connect(rig.addr);
    client.post(CHAT, ask);
    assert_eq!(client.head().status, 200, "the head does not wait");
    assert_eq!(
        client.chunk().unwrap(),
        format!(": queued, position {position}\n\n")
    );
    client
}

fn finishes(client: &mut Client) {
    let text = client.body();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
}

#[test]
fn queued_stream_reports_its_position_and_then_runs() {
    let brief = ServerConfig {
        keep_alive: Duration::from_millis(5),
        ..one_at_a_time()
    };
    let rig = Rig::gated(fake(), brief);
    let mut first = holder(&rig);
    let leaver = waiter(&rig, &ask(true), 1);
    let mut last = waiter(&rig, &ask(true), 2);
    drop(leaver);
    while last.chunk().unwrap() != ": queued, position 1\n\n" {}
    rig.gate.open();
    finishes(&mut first);
    let text = last.body();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let answer = post(rig.addr, CHAT, &ask(false)).json();
    assert_eq!(answer["usage"]["completion_tokens"], 4);
    rig.wait_until_empty();
}

#[test]
fn urgent_requests_overtake() {
    let rig = Rig::gated(fake(), one_at_a_time());
    let mut first = holder(&rig);
    let mut background = waiter(&rig, &with(ask(true), "priority", "background"), 1);
    let mut flex = waiter(&rig, &with(ask(true), "service_tier", "flex"), 1);
    let mut normal = waiter(&rig, &ask(true), 1);
    let mut number = waiter(&rig, &with(ask(true), "priority", -1), 1);
    let mut named = Client::connect(rig.addr);
    let body = ask(true).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         x-priority: critical\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    named.send(head.as_bytes());
    assert_eq!(named.head().status, 200);
    assert_eq!(named.chunk().unwrap(), ": queued, position 1\n\n");
    rig.gate.open();
    for client in [
        &mut first,
        &mut named,
        &mut number,
        &mut normal,
        &mut flex,
        &mut background,
    ] {
        finishes(client);
    }
    for (key, value) in [
        ("priority", json!("urgent")),
        ("priority", json!(1.5)),
        ("deadline_ms", json!(0)),
    ] {
        let reply = post(rig.addr, CHAT, &with(ask(false), key, value));
        assert_eq!(reply.head.status, 400);
        assert_eq!(reply.json()["error"]["param"], key);
    }
}

#[test]
fn full_queue_and_queue_timeout() {
    let short = ServerConfig {
        queue: QueueLimits {
            max_depth: 1,
            timeout: Duration::from_millis(30),
            ..QueueLimits::default()
        },
        ..one_at_a_time()
    };
    let rig = Rig::gated(fake(), short);
    let mut first = holder(&rig);
    let mut waiting = Client::connect(rig.addr);
    waiting.post(CHAT, &ask(true));
    waiting.head();
    let text = waiting.body();
    assert!(
        text.contains("\"code\":\"timeout\"") && !text.contains("[DONE]"),
        "{text}"
    );
    let reply = post(rig.addr, CHAT, &ask(false));
    assert_eq!(
        (reply.head.status, &reply.json()["error"]["code"]),
        (503, &json!("timeout"))
    );
    assert!(reply.head.get("retry-after").is_some());
    rig.gate.open();
    finishes(&mut first);
    rig.wait_until_empty();

    let patient = ServerConfig {
        queue: QueueLimits {
            max_depth: 1,
            ..QueueLimits::default()
        },
        ..one_at_a_time()
    };
    let rig = Rig::gated(fake(), patient);
    let (_first, _second) = (holder(&rig), waiter(&rig, &ask(true), 1));
    let reply = post(rig.addr, CHAT, &ask(true));
    assert_eq!(
        (reply.head.status, &reply.json()["error"]["code"]),
        (503, &json!("overloaded"))
    );
    assert!(reply.head.get("retry-after-ms").is_some());
}

#[test]
fn deadline_ends_the_wait() {
    let rig = Rig::gated(fake(), one_at_a_time());
    let _first = holder(&rig);
    for stream in [true, false] {
        let reply = post(rig.addr, CHAT, &with(ask(stream), "deadline_ms", 20));
        let text = &reply.body;
        assert_eq!(reply.head.status, if stream { 200 } else { 504 });
        assert!(text.contains("\"code\":\"timeout\""), "{text}");
    }
}

#[test]
fn invalid_prompt_is_rejected_after_the_wait() {
    let rig = Rig::gated(fake(), one_at_a_time());
    let mut first = holder(&rig);
    let mut too_long = ask(true);
    too_long["messages"][0]["content"] = json!("x".repeat(600));
    let mut waiting = waiter(&rig, &too_long, 1);
    rig.gate.open();
    finishes(&mut first);
    let text = waiting.body();
    assert!(
        text.contains("context_length_exceeded") && !text.contains("[DONE]"),
        "{text}"
    );
    rig.wait_until_empty();
}

#[test]
fn shutdown_ends_queued_requests() {
    let mut rig = Rig::gated(fake(), one_at_a_time());
    let mut first = holder(&rig);
    let mut waiting = waiter(&rig, &ask(true), 1);
    rig.ask_to_stop();
    let text = waiting.body();
    assert!(text.contains("\"code\":\"shutting_down\""), "{text}");
    rig.gate.open();
    finishes(&mut first);
    assert_eq!(rig.stopped().cut, 0);
}

#[test]
fn request_larger_than_kv_cache_is_rejected_with_the_numbers() {
    let mut small = fake();
    small.dims.pages = 8;
    let rig = Rig::with(small, config());
    let reply = post(rig.addr, CHAT, &with(ask(false), "max_tokens", 200));
    assert_eq!(
        (reply.head.status, &reply.json()["error"]["code"]),
        (400, &json!("too_long_for_memory"))
    );
    let message = reply.json()["error"]["message"].to_string();
    assert!(message.contains("has 8"), "{message}");
    assert_eq!(post(rig.addr, CHAT, &ask(false)).head.status, 200);
}

#[test]
fn pages_are_promised_once() {
    let mut small = fake();
    small.dims.pages = 8;
    let exact = ServerConfig {
        reservation: server::Reservation {
            overcommit_percent: 100,
            ..server::Reservation::default()
        },
        ..config()
    };
    let rig = Rig::gated(small, exact);
    // Six pages of eight; as many again are not there.
    let big = with(ask(true), "max_tokens", 90);
    let mut first = Client::connect(rig.addr);
    first.post(CHAT, &big);
    assert_eq!(first.head().status, 200);
    assert!(first.chunk().unwrap().contains("\"role\""));
    let mut second = waiter(&rig, &big, 1);
    rig.gate.open();
    finishes(&mut first);
    finishes(&mut second);
    assert_eq!(rig.engine.stats().preemptions(), 0);
    wait_until("all pages are back", || {
        rig.engine.stats().pages_used() == 0
    });
}
