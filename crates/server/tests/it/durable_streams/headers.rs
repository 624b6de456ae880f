//! Statuses, header fields and errors.
//!
//! Promise (Streams): a read of `/v1/stream/{id}` has the protocol's statuses and headers, is bounded in bytes and
//! time, returns credit as other readers do, and writes nothing.
//! Also held by `server/tests/it/durable_streams/live.rs`.

use super::{BEGINNING, TOKEN, ended_chat, field, head, inner, read, running_chat, text_and_last};
use crate::support::named::{CHAT, RESUMABLE, call, chat, fake, get, kept, send, stream_id};
use crate::support::owners::key;
use crate::support::{Rig, wait_until};
use serde_json::{Value, json};
use server::{AdaptiveLimits, Keys, Scope, ServerConfig};
use std::sync::Arc;

#[test]
fn ended_stream_is_one_list_with_its_headers() {
    let rig = Rig::with(fake(), kept());
    let id = ended_chat(&rig, &json!({"max_tokens": 6}));
    let whole = read(&rig, &id, "offset=-1");
    let (text, last) = text_and_last(&inner(&whole));
    assert_eq!(
        (text.len(), &last),
        (
            6,
            &json!({"type": "end", "tokens_out": 6, "stop_reason": "MAX_TOKENS"})
        )
    );
    let tail = format!("{:016}", 6 + 2);
    let fields = [
        ("content-type", "application/json"),
        ("stream-next-offset", &*tail),
        ("stream-up-to-date", "true"),
        ("stream-closed", "true"),
        ("cache-control", "private, no-cache"),
        ("x-content-type-options", "nosniff"),
        ("x-stream-id", &*id),
        ("etag", &*format!("\"{id}:{BEGINNING}:{tail}:c\"")),
    ];
    for (name, value) in fields {
        assert_eq!(field(&whole.head, name), value, "{name}");
    }
    assert_eq!(whole.head.get("stream-cursor"), None);
    assert_eq!(read(&rig, &id, "").body, whole.body, "without an offset");
    let end = read(&rig, &id, &format!("offset={tail}"));
    assert_eq!((end.head.status, &*end.body), (200, "[]"));
    for name in ["stream-next-offset", "stream-up-to-date", "stream-closed"] {
        assert_eq!(field(&end.head, name), field(&whole.head, name), "{name}");
    }
    let polled = read(&rig, &id, &format!("offset={tail}&live=long-poll"));
    assert_eq!((polled.head.status, &*polled.body), (204, ""));
    for name in ["stream-next-offset", "stream-up-to-date", "stream-closed"] {
        assert_eq!(
            field(&polled.head, name),
            field(&whole.head, name),
            "{name}"
        );
    }
    assert_eq!(polled.head.get("stream-cursor"), None);
}

#[test]
fn tail_is_found_without_messages() {
    let rig = Rig::gated(fake(), kept());
    let (mut client, id) = running_chat(&rig, &json!({"max_tokens": 9}));
    rig.gate.allow(4);
    wait_until("there are tokens", || {
        inner(&read(&rig, &id, "")).matches(TOKEN).count() == 4
    });
    let check = |offset: &str, is_closed: bool| {
        let found = head(&rig, &id);
        let now = read(&rig, &id, "offset=now");
        assert_eq!(
            (found.status, now.head.status, &*now.body),
            (200, 200, "[]")
        );
        for head in [&found, &now.head] {
            assert_eq!(field(head, "stream-next-offset"), offset);
            assert_eq!(field(head, "content-type"), "application/json");
            assert_eq!(field(head, "cache-control"), "no-store");
            assert_eq!(head.get("stream-closed").is_some(), is_closed);
            assert_eq!(head.get("etag"), None);
        }
        assert_eq!(field(&now.head, "stream-up-to-date"), "true");
        let whole = read(&rig, &id, "offset=-1");
        assert_eq!(field(&whole.head, "stream-next-offset"), offset);
    };
    check("0000000000000004", false);
    rig.gate.open();
    client.body();
    check("0000000000000011", true);
    let polled = read(&rig, &id, "offset=now&live=long-poll");
    assert_eq!(polled.head.status, 204);
    assert_eq!(field(&polled.head, "stream-closed"), "true");
}

#[test]
fn messages_that_a_client_has_are_not_sent_again() {
    let rig = Rig::gated(fake(), kept());
    let (mut client, id) = running_chat(&rig, &json!({"max_tokens": 6}));
    rig.gate.allow(5);
    wait_until("all tokens are there", || {
        inner(&read(&rig, &id, "")).matches(TOKEN).count() == 5
    });
    let path = format!("/v1/stream/{id}");
    let whole = read(&rig, &id, "");
    let tag = field(&whole.head, "etag").to_owned();
    let lists = [tag.clone(), format!("\"x\", W/{tag}"), "*".to_owned()];
    for list in lists {
        let same = get(&rig, &path, &format!("if-none-match: {list}\r\n"));
        assert_eq!((same.head.status, &*same.body), (304, ""), "{list}");
        assert_eq!(
            field(&same.head, "etag"),
            field(&read(&rig, &id, "").head, "etag")
        );
    }
    let other = get(&rig, &path, "if-none-match: \"x\"\r\n");
    assert_eq!(other.head.status, 200);
    rig.gate.open();
    client.body();
    let ended = get(&rig, &path, &format!("if-none-match: {tag}\r\n"));
    assert_eq!(ended.head.status, 200, "the end changes the tag");
    let at_end = format!("{path}?offset={}", field(&ended.head, "stream-next-offset"));
    let tag = field(&get(&rig, &at_end, "").head, "etag").to_owned();
    assert_eq!(
        get(&rig, &at_end, &format!("if-none-match: {tag}\r\n"))
            .head
            .status,
        304
    );
}

#[test]
fn invalid_reads_are_rejected() {
    let rig = Rig::with(fake(), kept());
    let id = ended_chat(&rig, &json!({"max_tokens": 4}));
    let offsets = [
        "",
        "7",
        "-2",
        "x",
        "000000_0000000000000001",
        "0000000000000007",
        "9999999999999999",
        "../x",
    ];
    for offset in offsets {
        for live in ["", "&live=long-poll", "&live=sse"] {
            let reply = read(&rig, &id, &format!("offset={offset}{live}"));
            let found = (reply.head.status, reply.json()["error"]["code"].clone());
            assert_eq!(found, (400, json!("invalid_offset")), "{offset}{live}");
        }
    }
    for query in [
        "live=long-poll",
        "live=sse",
        "live=x",
        "offset=-1&live=",
        "offset=-1&offset=-1",
    ] {
        assert_eq!(read(&rig, &id, query).head.status, 400, "{query}");
    }
    let several = ended_chat(&rig, &json!({"n": 2, "max_tokens": 4}));
    for offset in [
        BEGINNING,
        "000002_0000000000000001",
        "000001_0000000000000007",
    ] {
        let reply = read(&rig, &several, &format!("offset={offset}"));
        assert_eq!(reply.head.status, 400, "{offset}");
    }
    let unknown = read(&rig, &"0".repeat(32), "");
    assert_eq!(
        (unknown.head.status, &unknown.json()["error"]["code"]),
        (404, &json!("stream_not_found"))
    );
    assert_eq!(head(&rig, &"0".repeat(32)).status, 404);
    let deleted = call(
        &rig,
        "DELETE",
        &format!("/v1/streams/{id}"),
        "",
        &Value::Null,
    );
    assert_eq!(deleted.head.status, 202);
    let gone = read(&rig, &id, "offset=-1&live=sse");
    assert_eq!(
        (gone.head.status, &gone.json()["error"]["code"]),
        (410, &json!("stream_gone"))
    );
    assert_eq!(head(&rig, &id).status, 410);
}

#[test]
fn writes_are_not_allowed() {
    let rig = Rig::with(fake(), kept());
    let id = ended_chat(&rig, &json!({"max_tokens": 4}));
    let path = format!("/v1/stream/{id}");
    for method in ["PUT", "POST", "DELETE", "PATCH"] {
        let reply = call(&rig, method, &path, "", &json!({}));
        assert_eq!(reply.head.status, 405, "{method}");
        assert_eq!(field(&reply.head, "allow"), "GET,HEAD", "{method}");
        assert_eq!(reply.json()["error"]["code"], "method_not_allowed");
    }
    assert_eq!(read(&rig, &id, "").head.status, 200, "it is still there");
}

#[test]
fn other_keys_do_not_find_the_stream() {
    let (one, two, admin) = ("a".repeat(32), "b".repeat(32), "c".repeat(32));
    let keys = Keys::new(&[
        key("one", &one, &[Scope::Inference]),
        key("two", &two, &[Scope::Inference]),
        key("admin", &admin, &[Scope::Admin]),
    ]);
    let rig = Rig::keyed(kept(), &Arc::new(keys.expect("good keys")));
    let secret = |secret: &str| format!("authorization: Bearer {secret}\r\n");
    let opened = call(
        &rig,
        "POST",
        CHAT,
        &(secret(&one) + RESUMABLE),
        &chat(&json!({})),
    );
    let path = format!("/v1/stream/{}", stream_id(&opened.head));
    let rows = [
        (secret(&one), 200),
        (secret(&admin), 200),
        (secret(&two), 404),
        (String::new(), 401),
    ];
    for (fields, status) in rows {
        assert_eq!(get(&rig, &path, &fields).head.status, status, "{fields}");
        let found = send(&rig, "HEAD", &path, &fields, &Value::Null).head();
        assert_eq!(found.status, status, "{fields}");
    }
}

#[test]
fn stream_that_never_starts_has_one_message() {
    let limits = AdaptiveLimits {
        enabled: false,
        max_streams: 1,
        ..AdaptiveLimits::default()
    };
    let config = ServerConfig {
        adaptive_limits: limits,
        ..kept()
    };
    let rig = Rig::gated(fake(), config);
    let (mut first, _) = running_chat(&rig, &json!({}));
    let (mut second, id) = running_chat(&rig, &json!({"n": 2}));
    let waiting = read(&rig, &id, "offset=-1");
    assert_eq!(
        (&*waiting.body, waiting.head.get("stream-closed")),
        ("[]", None)
    );
    assert_eq!(field(&waiting.head, "stream-up-to-date"), "true");
    let path = format!("/v1/stream/{id}?offset=-1&live=long-poll");
    let mut polling = send(&rig, "GET", &path, "", &Value::Null);
    let cancelled = call(
        &rig,
        "DELETE",
        &format!("/v1/streams/{id}"),
        "",
        &Value::Null,
    );
    assert_eq!(cancelled.head.status, 202);
    second.body();
    let only = r#"[{"type":"end","tokens_out":0,"stop_reason":"CANCELLED"}]"#;
    let tail = "000001_0000000000000001";
    for reply in [polling.reply(), read(&rig, &id, "offset=-1")] {
        assert_eq!(reply.body, only);
        assert_eq!(field(&reply.head, "stream-next-offset"), tail);
        assert_eq!(field(&reply.head, "stream-closed"), "true");
    }
    assert_eq!(read(&rig, &id, &format!("offset={tail}")).body, "[]");
    assert_eq!(field(&head(&rig, &id), "stream-next-offset"), tail);
    rig.gate.open();
    first.body();
}
