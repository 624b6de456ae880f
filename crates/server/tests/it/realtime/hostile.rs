//! Messages nobody should send, and callers who may not.
//!
//! Promise (Streams): no message of a WebSocket client harms more than its own connection; another caller's stream is
//! not found.
//!
//! Promise (Admission and keys): a WebSocket client's pings are rate-limited; beyond the limit the connection is
//! closed (1008).
//! Also held by `server/src/realtime/session.rs`.

use super::job;
use crate::support::named::{fake, kept};
use crate::support::owners::{key, key_text};
use crate::support::talk::{Talk, text};
use crate::support::{Rig, config};
use serde_json::{Value, json};
use server::{Keys, RealtimeLimits, Scope, ServerConfig};
use std::sync::Arc;
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// An id of nothing.
const NOBODY: &str = "0123456789abcdef0123456789abcdef";

fn tight() -> ServerConfig {
    ServerConfig {
        realtime: RealtimeLimits {
            connections_max: 2,
            streams_max: 2,
            message_bytes_max: 4096,
            ..RealtimeLimits::default()
        },
        ..kept()
    }
}

/// A message, the error's code, and the field it names, if it does.
fn rows() -> Vec<(String, &'static str, Option<&'static str>)> {
    let row = |message: Value, code, field| (message.to_string(), code, field);
    vec![
        ("{\"type\":".to_owned(), "invalid_json", None),
        ("[1,2]".to_owned(), "invalid_json", None),
        (String::new(), "invalid_json", None),
        row(json!({"type": "dance"}), "invalid_value", Some("type")),
        row(json!({"type": 7}), "invalid_value", Some("type")),
        row(json!({"type": "open"}), "invalid_value", Some("body")),
        row(json!({"type": "open", "body": 3}), "invalid_json", None),
        row(
            json!({"type": "open", "body": {"prompt": "hi", "max_tokens": -1}}),
            "invalid_value",
            Some("body.max_tokens"),
        ),
        row(
            json!({"type": "open", "body": {"prompt": "hi", "model": "other"}}),
            "model_not_found",
            Some("body.model"),
        ),
        row(
            json!({"type": "open", "dialect": "latin", "body": {}}),
            "invalid_value",
            Some("dialect"),
        ),
        row(json!({"type": "pause"}), "invalid_value", Some("stream")),
        row(
            json!({"type": "pause", "stream": NOBODY}),
            "stream_not_found",
            None,
        ),
        row(
            json!({"type": "cancel", "stream": "x"}),
            "stream_not_found",
            None,
        ),
        row(
            json!({"type": "attach", "stream": NOBODY}),
            "stream_not_found",
            None,
        ),
        row(
            json!({"type": "ack", "stream": NOBODY, "index": 1}),
            "stream_not_found",
            None,
        ),
        row(
            json!({"type": "ack", "acks": [{"stream": NOBODY}]}),
            "invalid_value",
            Some("acks[0].index"),
        ),
    ]
}

#[test]
fn invalid_message_is_reported_and_the_connection_continues() {
    let rig = Rig::with(fake(), tight());
    let mut talk = Talk::with(&rig);
    for (message, code, field) in rows() {
        talk.send(Message::text(message.clone()));
        let told = talk.next();
        assert_eq!(
            (&told["type"], &told["code"]),
            (&json!("error"), &json!(code)),
            "{message}: {told}"
        );
        match field {
            Some(field) => assert_eq!(told["errors"][0]["field"], field, "{message}: {told}"),
            None => assert!(told.get("errors").is_none(), "{message}: {told}"),
        }
    }
    let id = talk.open("a", &json!({}), &job(5));
    let whole = talk.whole(&id);
    text(&whole, 0);
    let rows = [
        (json!({"type": "pause", "stream": id}), "stream_not_running"),
        (json!({"type": "detach", "stream": id}), "not_attached"),
        (
            json!({"type": "attach", "stream": id, "from": 1000}),
            "invalid_cursor",
        ),
        (
            json!({"type": "attach", "stream": id, "after": "x"}),
            "invalid_cursor",
        ),
        (
            json!({"type": "ack", "stream": id, "index": 1, "choice": 3}),
            "invalid_value",
        ),
    ];
    for (message, code) in rows {
        talk.say(&message);
        assert_eq!(talk.next()["code"], code, "{message}");
    }
}

#[test]
fn fatal_messages_close_the_connection() {
    let rig = Rig::with(fake(), tight());
    // A message longer than any that is dropped: `realtime/message_gate/tests.rs`.
    let rows = [(Message::binary(vec![1, 2, 3]), 1003)];
    for (message, code) in rows {
        let mut talk = Talk::with(&rig);
        let id = talk.open(
            "a",
            &json!({"resumable": false, "acks": "explicit"}),
            &job(400),
        );
        talk.of(&id, "backpressure");
        talk.send(message);
        assert_eq!(talk.closed(), code);
        // What ran for this client alone is over.
        rig.wait_until_empty();
    }
}

#[test]
fn message_that_is_too_long_is_an_error_and_the_streams_continue() {
    let rig = Rig::with(fake(), tight());
    let mut talk = Talk::with(&rig);
    let over = json!({"resumable": false, "acks": "explicit"});
    let id = talk.open("a", &over, &job(400));
    talk.of(&id, "backpressure");
    let long = json!({"type": "open", "request": "b", "body": {"prompt": "x".repeat(5000)}});
    for long in [long.to_string(), "x".repeat(1 << 20)] {
        talk.send(Message::text(long));
        let error = talk.wait("an error", |event| event["type"] == "error");
        assert_eq!(error["code"], "message_too_large", "{error}");
        let why = "a message may have at most 4096 bytes (realtime.message_bytes_max)";
        assert_eq!(error["message"], why);
    }
    talk.say(&json!({"type": "cancel", "stream": id}));
    assert_eq!(talk.of(&id, "ended")["reason"], "CANCELLED");
}

#[test]
fn ping_flood_closes_the_connection_and_its_streams() {
    /// Within a second, by the server's clock.
    const MOST: usize = 100;
    let rig = Rig::with(fake(), tight());
    for flood in [Message::Ping, Message::Pong] {
        let mut talk = Talk::with(&rig);
        let id = talk.open(
            "a",
            &json!({"resumable": false, "acks": "explicit"}),
            &job(400),
        );
        talk.of(&id, "backpressure");
        for _ in 0..MOST {
            talk.send(flood(Bytes::new()));
        }
        talk.say(&json!({"type": "detach", "stream": NOBODY, "request": "b"}));
        assert_eq!(talk.answer("b")["type"], "error", "as many as may be");
        let sent = (0..1000 * MOST).take_while(|_| talk.try_send(flood(Bytes::new())));
        sent.count();
        assert_eq!(talk.closed(), 1008);
        rig.wait_until_empty();
    }
}

#[test]
fn connections_and_their_streams_are_limited() {
    let rig = Rig::with(fake(), tight());
    let mut talk = Talk::with(&rig);
    let more = json!({"acks": "explicit"});
    let a = talk.open("a", &more, &job(400));
    talk.open("b", &more, &job(400));
    talk.say(&json!({"type": "open", "body": job(1), "request": "c"}));
    assert_eq!(talk.answer("c")["code"], "too_many_streams");
    talk.say(&json!({"type": "attach", "stream": a, "request": "d"}));
    assert_eq!(talk.answer("d")["code"], "already_attached");
    talk.say(&json!({"type": "detach", "stream": a, "request": "e"}));
    assert_eq!(talk.answer("e")["type"], "ok");
    talk.open("c", &json!({}), &job(1));
    let _second = Talk::with(&rig);
    assert_eq!(Talk::try_with(rig.addr, &[]).err(), Some(503));
}

#[test]
fn handshake_checks_host_origin_and_key() {
    let keys = [
        ("a", Scope::Inference),
        ("b", Scope::Inference),
        ("m", Scope::Metrics),
    ]
    .map(|(name, scope)| key(name, &key_text(name), &[scope]));
    let rig = Rig::keyed(config(), &Arc::new(Keys::new(&keys).unwrap()));
    let here = format!("http://localhost:{}", rig.addr.port());
    let bearer = |name| format!("Bearer {}", key_text(name));
    let (a, b, m) = (bearer("a"), bearer("b"), bearer("m"));
    let key = |value| ("authorization", value);
    let rows: [(&[(&'static str, &str)], u16); 8] = [
        (&[], 401),
        (&[key("Bearer nobody")], 401),
        (&[key(&m)], 403),
        (&[key(&a), ("origin", "http://evil.example")], 403),
        (&[key(&a), ("origin", "null")], 403),
        (&[key(&a), ("host", "evil.example")], 421),
        (&[key(&a), ("sec-websocket-version", "8")], 426),
        (&[key(&a), ("sec-websocket-key", "short")], 400),
    ];
    for (fields, status) in rows {
        assert_eq!(
            Talk::try_with(rig.addr, fields).err(),
            Some(status),
            "{fields:?}"
        );
    }
    let local = [key(&a), ("origin", "http://localhost:3000")];
    assert!(
        Talk::try_with(rig.addr, &local).is_ok(),
        "a page of this machine"
    );
    let mut ours = Talk::try_with(rig.addr, &[key(&a), ("origin", &here)]).unwrap();
    let id = ours.open("a", &json!({"acks": "explicit"}), &job(400));
    // Another caller's stream is none.
    let mut theirs = Talk::try_with(rig.addr, &[key(&b)]).unwrap();
    theirs.next();
    for kind in ["attach", "pause", "resume", "cancel", "detach", "ack"] {
        theirs.say(&json!({"type": kind, "stream": id, "index": 4}));
        assert_eq!(theirs.next()["code"], "stream_not_found", "{kind}");
    }
    ours.say(&json!({"type": "cancel", "stream": id}));
    assert_eq!(ours.whole(&id).last().unwrap()["reason"], "CANCELLED");
}
