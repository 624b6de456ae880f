//! More than there is room for: told so at once, and let in when there is room again.

use crate::support::client::{Client, post};
use crate::support::{Rig, config, fake, wait_until};
use serde_json::{Value, json};
use server::ServerConfig;
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

fn ask() -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
}

/// Promise (Admission and keys): a request over the limit of open requests is rejected before it is tokenized.
#[test]
fn open_requests_are_limited() {
    let rig = Rig::gated(
        fake(),
        ServerConfig {
            open_requests_max: 1,
            retry_after: Duration::from_millis(1500),
            ..config()
        },
    );
    let mut first = Client::connect(rig.addr);
    first.post(
        CHAT,
        &json!({"messages": [{"role": "user", "content": "hi"}], "stream": true, "max_tokens": 2}),
    );
    assert_eq!(first.head().status, 200);
    let second = post(rig.addr, CHAT, &ask());
    assert_eq!(
        (second.head.status, &second.json()["error"]["code"]),
        (503, &json!("overloaded"))
    );
    assert_eq!(
        (
            second.head.get("retry-after"),
            second.head.get("retry-after-ms")
        ),
        (Some("2"), Some("1500"))
    );
    rig.gate.open();
    while first.chunk().is_some() {}
    assert_eq!(
        post(rig.addr, CHAT, &ask()).head.status,
        200,
        "the permit came back"
    );
}

#[test]
fn segments_are_limited() {
    let rig = Rig::start();
    let taken: Vec<_> = std::iter::from_fn(|| stream::open(&rig.tokens, 1 << 16).ok()).collect();
    let _rest: Vec<_> = std::iter::from_fn(|| stream::open(&rig.tokens, 1).ok()).collect();
    let reply = post(rig.addr, CHAT, &ask());
    assert_eq!(
        (reply.head.status, &reply.json()["error"]["code"]),
        (503, &json!("overloaded"))
    );
    drop((taken, _rest));
    assert_eq!(post(rig.addr, CHAT, &ask()).head.status, 200);
}

#[test]
fn connections_are_limited() {
    for (label, bounds, status) in [
        (
            "in all",
            ServerConfig {
                connections_max: 2,
                ..config()
            },
            503,
        ),
        (
            "per address",
            ServerConfig {
                connections_per_ip_max: 2,
                ..config()
            },
            429,
        ),
    ] {
        let rig = Rig::with(fake(), bounds);
        let mut held: Vec<Client> = (0..2).map(|_| Client::connect(rig.addr)).collect();
        for client in &mut held {
            client.send(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
            assert_eq!(client.reply().head.status, 200);
        }
        let mut third = Client::connect(rig.addr);
        assert_eq!(third.reply().head.status, status, "{label}");
        assert!(third.is_closed());
        held.clear();
        wait_until("a place is free", || {
            let mut again = Client::connect(rig.addr);
            again.send(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
            again.try_head().is_some_and(|head| head.status == 200)
        });
    }
}
