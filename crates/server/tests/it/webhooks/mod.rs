//! Webhooks: events about ends, their signatures, retries and dead letters, and receivers that cannot be trusted.
//!
//! Promise (Streams): the event of a webhook is signed as Standard Webhooks specifies and arrives at least once under
//! one id, also after `kill -9` in the middle of the stream, before an attempt and between attempts.
//! Also held by `gateway/src/webhooks/webhook_url.rs`, `millrace/tests/it/kill/webhooks.rs`, `cargo xtask clients`,
//! `tools/clients/openai_responses_suite.py`.

mod receivers;
mod rejections;

use crate::support::client::Reply;
use crate::support::named::{call, fake, get, set_fields};
use crate::support::webhook_receiver::{
    Answer, Received, Receiver, SECRET, config_with, webhook_settings,
};
use crate::support::{Rig, wait_until};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use server::WebhookSettings;
use sha2::{Digest, Sha256};

const DELIVERIES: &str = "/v1/webhooks/deliveries";

/// A server without keys, with a secret.
fn rig(settings: WebhookSettings) -> Rig {
    let rig = gated_rig(settings);
    rig.gate.open();
    rig
}

/// A rig whose model waits for the gate.
fn gated_rig(settings: WebhookSettings) -> Rig {
    Rig::set_next_secrets(vec![None]);
    Rig::gated(fake(), config_with(settings))
}

fn background(url: &str) -> Value {
    json!({"input": "hi", "background": true, "max_output_tokens": 8, "seed": 3, "webhook": url})
}

fn post(rig: &Rig, path: &str, body: &Value) -> Reply {
    call(rig, "POST", path, "", body)
}

/// HMAC-SHA256 as RFC 2104 defines it.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad = |byte: u8| {
        let mut block = [byte; 64];
        for (place, key) in block.iter_mut().zip(key) {
            *place ^= key;
        }
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message);
    let outer = Sha256::new()
        .chain_update(pad(0x5c))
        .chain_update(inner.finalize());
    outer.finalize().to_vec()
}

/// The event, whose signature is right.
fn verified(request: &Received) -> Value {
    let (id, time) = (
        request.field("webhook-id"),
        request.field("webhook-timestamp"),
    );
    let signed = format!("{id}.{time}.{}", request.body);
    let expected = format!("v1,{}", STANDARD.encode(hmac(&SECRET, signed.as_bytes())));
    assert_eq!(request.field("webhook-signature"), expected);
    let event: Value = serde_json::from_str(&request.body).expect("JSON");
    assert_eq!(
        (&event["object"], &event["id"]),
        (&json!("event"), &json!(id))
    );
    event
}

fn deliveries(rig: &Rig, query: &str) -> Vec<Value> {
    let list = get(rig, &format!("{DELIVERIES}{query}"), "").json();
    list["data"].as_array().expect("a list").clone()
}

#[test]
fn hmac_of_the_test_equals_a_vector_of_rfc_4231() {
    let tag = hmac(b"Jefe", b"what do ya want for nothing?");
    let hex: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

#[test]
fn ended_background_response_sends_a_signed_event() {
    let (receiver, rig) = (Receiver::start([]), rig(webhook_settings()));
    let response = post(
        &rig,
        "/v1/responses",
        &background(&receiver.url("/hook?a=b")),
    )
    .json();
    let received = receiver.wait_for(1);
    assert!(
        received[0].head.starts_with("POST /hook?a=b HTTP/1.1\r\n"),
        "{}",
        received[0].head
    );
    assert_eq!(received[0].field("content-type"), "application/json");
    let event = verified(&received[0]);
    assert_eq!(event["type"], "response.incomplete", "{event}");
    let data = &event["data"];
    assert_eq!(
        (&data["id"], &data["object"]),
        (&response["id"], &json!("response"))
    );
    assert_eq!(
        (&data["status"], &data["ending"]),
        (&json!("incomplete"), &json!("length"))
    );
    assert_eq!(
        (&data["error"], &data["usage"]["output_tokens"]),
        (&Value::Null, &json!(8))
    );
    let stored = get(&rig, data["links"]["result"].as_str().expect("a path"), "");
    assert_eq!(
        (stored.head.status, &stored.json()["id"]),
        (200, &response["id"])
    );
    wait_until("the delivery is done", || deliveries(&rig, "").is_empty());
    let metrics = get(&rig, "/metrics", "").body;
    assert!(metrics.contains("millrace_webhook_attempts_total{outcome=\"delivered\"} 1\n"));
    assert!(
        metrics.contains("millrace_webhook_waiting 0\n"),
        "{metrics}"
    );
}

#[test]
fn jobs_send_events_about_every_kind_of_end() {
    let (receiver, rig) = (Receiver::start([]), rig(webhook_settings()));
    let job = |id: &str, over: &Value| {
        let mut body =
            json!({"job_id": id, "prompt": "hi", "max_tokens": 4, "webhook": receiver.url("/")});
        set_fields(&mut body, over);
        let reply = post(&rig, "/v1/jobs", &body);
        assert_eq!(reply.head.status, 202, "{}", reply.body);
    };
    let last = |count: usize| {
        let event = verified(&receiver.wait_for(count)[count - 1]);
        let [kind, id, error] = [
            &event["type"],
            &event["data"]["id"],
            &event["data"]["error"]["code"],
        ];
        [kind, id, error].map(|value| value.as_str().unwrap_or_default().to_owned())
    };
    job("whole", &json!({"stop": ["zzzzzz"]}));
    assert_eq!(last(1), ["job.incomplete", "whole", ""]);
    job("long", &json!({"max_tokens": 400, "deadline_ms": 1}));
    assert_eq!(last(2), ["job.failed", "long", "timeout"]);
}

#[test]
fn cancelled_job_sends_an_event() {
    let (receiver, rig) = (Receiver::start([]), gated_rig(webhook_settings()));
    let body = json!({"prompt": "hi", "max_tokens": 400, "webhook": receiver.url("/")});
    let job = post(&rig, "/v1/jobs", &body).json();
    let id = job["job_id"].as_str().expect("an id");
    post(&rig, &format!("/v1/jobs/{id}/cancel"), &json!({}));
    rig.gate.open();
    let event = verified(&receiver.wait_for(1)[0]);
    assert_eq!(
        (&event["type"], &event["data"]["id"]),
        (&json!("job.cancelled"), &json!(id))
    );
    assert_eq!(event["data"]["error"], Value::Null);
}

#[test]
fn failed_attempts_are_repeated_with_the_same_event() {
    let elsewhere = Receiver::start([]);
    let head = |head: &str| Answer::Head(head.to_owned());
    let receiver = Receiver::start([
        head("500 Internal Server Error\r\n"),
        Answer::Close,
        head(&format!(
            "302 Found\r\nlocation: {}\r\n",
            elsewhere.url("/")
        )),
        head("429 Too Many Requests\r\nretry-after: 0\r\n"),
    ]);
    let rig = rig(webhook_settings());
    post(&rig, "/v1/responses", &background(&receiver.url("/")));
    let received = receiver.wait_for(5);
    let events: Vec<_> = received.iter().map(verified).collect();
    assert!(events.iter().all(|event| *event == events[0]));
    assert!(
        elsewhere.received().is_empty(),
        "redirects are not followed"
    );
    wait_until("the delivery is done", || deliveries(&rig, "").is_empty());
    assert_eq!(receiver.received().len(), 5);
}

#[test]
fn dead_letter_is_listed_and_delivered_again() {
    let gone = Answer::Head("410 Gone\r\n".to_owned());
    let receiver = Receiver::start([gone]);
    let rig = rig(webhook_settings());
    post(&rig, "/v1/responses", &background(&receiver.url("/")));
    wait_until("the letter is dead", || {
        !deliveries(&rig, "?status=dead").is_empty()
    });
    let dead = &deliveries(&rig, "")[0];
    assert_eq!(
        (&dead["attempts"], &dead["last_status"]),
        (&json!(1), &json!(410))
    );
    assert_eq!(dead["next_attempt_at"], Value::Null);
    assert!(deliveries(&rig, "?status=pending").is_empty());
    let path = format!("{DELIVERIES}/{}", dead["id"].as_str().expect("an id"));
    assert_eq!(get(&rig, &path, "").json(), *dead);
    let again = post(&rig, &format!("{path}/redeliver"), &json!({}));
    assert_eq!(
        (again.head.status, &again.json()["status"]),
        (202, &json!("pending"))
    );
    let received = receiver.wait_for(2);
    assert_eq!(verified(&received[0]), verified(&received[1]));
    wait_until("the delivery is done", || {
        get(&rig, &path, "").head.status == 404
    });
    assert_eq!(
        post(&rig, &format!("{path}/redeliver"), &json!({}))
            .head
            .status,
        404
    );
}

#[test]
fn deleted_dead_letter_is_gone() {
    let gone = Answer::Head("410 Gone\r\n".to_owned());
    let receiver = Receiver::start([gone]);
    let rig = rig(webhook_settings());
    post(&rig, "/v1/responses", &background(&receiver.url("/")));
    wait_until("the letter is dead", || {
        !deliveries(&rig, "?status=dead").is_empty()
    });
    let id = deliveries(&rig, "")[0]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let path = format!("{DELIVERIES}/{id}");
    let deleted = call(&rig, "DELETE", &path, "", &Value::Null).json();
    assert_eq!(
        deleted,
        json!({"id": id, "object": "webhook.delivery", "deleted": true})
    );
    assert!(deliveries(&rig, "").is_empty());
    assert_eq!(get(&rig, &path, "").head.status, 404);
}
