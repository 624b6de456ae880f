//! Offsets of `/v1/stream/{id}` before and after a restart.

use super::copies::Journaled;
use crate::durable_streams::{EventBody, field, head, inner, joined, read};
use crate::support::named::{CHAT, RESUMABLE, chat, fake, kept, send, stream_id};
use crate::support::wait_until;
use serde_json::{Value, json};
use server::ServerConfig;
use std::time::Duration;

/// A server with a running stream of so many shown tokens, and the id.
fn running(name: &str, over: &Value, tokens: u64) -> (Journaled, String) {
    let original = Journaled::gated(name, fake(), kept());
    let mut client = send(&original.rig, "POST", CHAT, RESUMABLE, &chat(over));
    let id = stream_id(&client.head());
    wait_until("tokens", || {
        if original.shown_tokens(&id) < tokens {
            original.rig.gate.allow(1);
        }
        original.shown_tokens(&id) >= tokens
    });
    (original, id)
}

#[test]
fn messages_after_an_offset_are_equal_after_a_restart() {
    let rows = [
        (json!({"max_tokens": 8}), 3, "0000000000000002"),
        (
            json!({"n": 2, "max_tokens": 6}),
            4,
            "000000_0000000000000001",
        ),
    ];
    for (over, tokens, offset) in rows {
        let (original, id) = running("offsets", &over, tokens);
        let before = inner(&read(&original.rig, &id, ""));
        let mut restarted = original.copy().start_loading(fake(), kept());
        let path = format!("/v1/stream/{id}");
        let live = |query: &str| {
            send(
                &restarted.rig,
                "GET",
                &format!("{path}?{query}"),
                "",
                &Value::Null,
            )
        };
        let mut polling = live(&format!("offset={offset}&live=long-poll"));
        let mut events = live(&format!("offset={offset}&live=sse"));
        assert_eq!(events.head().status, 200, "before the model is ready");
        let beyond = offset
            .replace("_000000000000000", "_000000000000009")
            .replace("000000000000002", "000000000000099");
        let mut beyond = live(&format!("offset={beyond}&live=long-poll"));
        restarted.rig.ready();
        assert_eq!(beyond.reply().head.status, 400);
        restarted.rig.gate.open();
        let first = polling.reply();
        let next = field(&first.head, "stream-next-offset");
        let rest = inner(&read(&restarted.rig, &id, &format!("offset={next}")));
        original.whole(&id);
        restarted.whole(&id);
        let whole = read(&original.rig, &id, "");
        assert!(inner(&whole).starts_with(&before));
        let rest = match first.head.get("stream-closed") {
            Some(_) => rest,
            None => inner(&read(&restarted.rig, &id, &format!("offset={next}"))),
        };
        let after = inner(&read(&original.rig, &id, &format!("offset={offset}")));
        assert_eq!(joined(&inner(&first), &rest), after);
        assert_eq!(EventBody::of(&events.body()).closed().0, after);
        let again = read(&restarted.rig, &id, "");
        assert_eq!(again.body, whole.body);
        for name in ["stream-next-offset", "stream-closed", "etag"] {
            assert_eq!(field(&again.head, name), field(&whole.head, name), "{name}");
        }
    }
}

#[test]
fn tail_of_a_recovered_stream_is_unknown_until_the_start() {
    let (original, id) = running("tail", &json!({"max_tokens": 8}), 3);
    let tail = head(&original.rig, &id);
    let config = ServerConfig {
        keep_alive: Duration::from_millis(20),
        ..kept()
    };
    let mut restarted = original.copy().start_loading(fake(), config);
    for query in ["offset=now", "offset=-1", "offset=now&live=sse"] {
        let early = read(&restarted.rig, &id, query);
        let found = (early.head.status, early.json()["error"]["code"].clone());
        assert_eq!(found, (503, json!("recovering")), "{query}");
        assert_eq!(field(&early.head, "retry-after"), "1");
    }
    assert_eq!(head(&restarted.rig, &id).status, 503);
    restarted.rig.ready();
    wait_until("the start", || head(&restarted.rig, &id).status == 200);
    let name = "stream-next-offset";
    assert_eq!(field(&head(&restarted.rig, &id), name), field(&tail, name));
}
