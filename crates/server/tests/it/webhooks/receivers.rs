//! Receivers that do not answer, or answer without an end, and hosts that resolve to this machine.
//!
//! Promise (Streams): an event is sent to allowed hosts and public addresses only, whatever names, notations of
//! addresses and redirects lead elsewhere; a receiver without an answer or an end costs bounded time and memory.
//! Also held by `gateway/src/webhooks/webhook_url.rs`, `server/tests/it/webhooks/rejections.rs`.

use super::{background, deliveries, post, rig};
use crate::support::wait_until;
use crate::support::webhook_receiver::{Answer, Receiver, webhook_settings};
use serde_json::{Value, json};
use server::{HostPattern, WebhookSettings};
use std::time::Duration;

/// The dead letter after one attempt.
fn dead_letter(settings: WebhookSettings, url: &str) -> Value {
    let rig = rig(WebhookSettings {
        attempts_max: 1,
        ..settings
    });
    let reply = post(&rig, "/v1/responses", &background(url));
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    wait_until("the letter is dead", || {
        !deliveries(&rig, "?status=dead").is_empty()
    });
    deliveries(&rig, "").remove(0)
}

#[test]
fn receiver_without_an_answer_is_a_failed_attempt() {
    for answer in [Answer::Silence, Answer::EndlessHead, Answer::Close] {
        let receiver = Receiver::start([answer.clone()]);
        let settings = WebhookSettings {
            timeout: Duration::from_millis(200),
            ..webhook_settings()
        };
        let dead = dead_letter(settings, &receiver.url("/"));
        assert_eq!(dead["last_status"], Value::Null, "{answer:?}: {dead}");
        assert!(dead["last_failure"].is_string(), "{answer:?}: {dead}");
        assert_eq!(receiver.received().len(), 1, "{answer:?}");
    }
}

#[test]
fn body_without_an_end_is_not_read() {
    let receiver = Receiver::start([Answer::EndlessBody(200)]);
    let rig = rig(webhook_settings());
    post(&rig, "/v1/responses", &background(&receiver.url("/")));
    receiver.wait_for(1);
    wait_until("the delivery is done", || deliveries(&rig, "").is_empty());
    let receiver = Receiver::start([Answer::EndlessBody(500)]);
    let dead = dead_letter(webhook_settings(), &receiver.url("/"));
    assert_eq!(dead["last_status"], json!(500));
}

#[test]
fn slow_receiver_of_one_event_does_not_delay_another() {
    let (slow, quick) = (Receiver::start([Answer::Silence]), Receiver::start([]));
    let rig = rig(webhook_settings());
    post(&rig, "/v1/responses", &background(&slow.url("/")));
    slow.wait_for(1);
    post(&rig, "/v1/responses", &background(&quick.url("/")));
    quick.wait_for(1);
    wait_until("one delivery is left", || {
        deliveries(&rig, "?status=pending").len() == 1
    });
}

#[test]
fn name_that_resolves_to_this_machine_is_not_connected() {
    let receiver = Receiver::start([]);
    let settings = WebhookSettings {
        allowed_hosts: vec![HostPattern::parse("localhost:*").expect("a host")],
        allow_private: false,
        ..webhook_settings()
    };
    let url = format!("http://localhost:{}/", receiver.addr.port());
    let dead = dead_letter(settings, &url);
    let failure = dead["last_failure"].as_str().expect("a failure");
    assert!(failure.contains("not public"), "{failure}");
    assert!(receiver.received().is_empty());
}

#[test]
fn https_is_not_answered_in_plain_text() {
    let receiver = Receiver::start([]);
    let dead = dead_letter(webhook_settings(), &format!("https://{}/", receiver.addr));
    assert!(dead["last_failure"].is_string(), "{dead}");
    assert!(receiver.received().is_empty());
}
