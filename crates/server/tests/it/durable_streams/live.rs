//! Long polls and event streams.

use super::{
    BEGINNING, EventBody, TOKEN, ended_chat, field, head, inner, joined, read, running_chat,
    text_and_last,
};
use crate::support::named::{fake, get, kept, send, with};
use crate::support::{Rig, wait_until};
use serde_json::{Value, json};
use server::{ServerConfig, StreamLimits};
use std::time::Duration;

#[test]
fn long_poll_waits_for_the_next_message() {
    let rig = Rig::gated(fake(), kept());
    let (mut client, id) = running_chat(&rig, &json!({"max_tokens": 4}));
    let (mut offset, mut cursor) = (BEGINNING.to_owned(), String::new());
    let mut all = String::new();
    for _ in 0..3 {
        let path = format!("/v1/stream/{id}?offset={offset}&live=long-poll&cursor={cursor}");
        let mut polling = send(&rig, "GET", &path, "", &Value::Null);
        rig.gate.allow(1);
        let reply = polling.reply();
        let more = inner(&reply);
        assert_eq!(more.matches(TOKEN).count(), 1, "{more}");
        all = joined(&all, &more);
        let next = field(&reply.head, "stream-next-offset");
        assert!(*offset < *next, "{offset} {next}");
        assert_eq!(field(&reply.head, "stream-up-to-date"), "true");
        assert!(reply.head.get("etag").is_some());
        let later = field(&reply.head, "stream-cursor")
            .parse::<u64>()
            .expect("a number");
        assert!(cursor.parse().map_or(true, |before: u64| before < later));
        (offset, cursor) = (next.to_owned(), later.to_string());
    }
    rig.gate.open();
    client.body();
    let end = read(&rig, &id, &format!("offset={offset}&live=long-poll"));
    assert_eq!(field(&end.head, "stream-closed"), "true");
    assert_eq!(end.head.get("stream-cursor"), None);
    let whole = inner(&read(&rig, &id, ""));
    assert_eq!(joined(&all, &inner(&end)), whole);
}

#[test]
fn long_poll_without_a_message_ends_in_time() {
    let config = ServerConfig {
        keep_alive: Duration::from_millis(30),
        ..kept()
    };
    let rig = Rig::gated(fake(), config);
    let (mut client, id) = running_chat(&rig, &json!({"max_tokens": 3}));
    let late = read(&rig, &id, "offset=-1&live=long-poll");
    assert_eq!((late.head.status, &*late.body), (204, ""));
    assert_eq!(field(&late.head, "stream-next-offset"), BEGINNING);
    assert_eq!(field(&late.head, "stream-up-to-date"), "true");
    assert_eq!(field(&late.head, "cache-control"), "no-store");
    assert!(field(&late.head, "stream-cursor").parse::<u64>().is_ok());
    assert_eq!(late.head.get("stream-closed"), None);
    let path = format!("/v1/stream/{id}?offset=now&live=sse");
    let mut events = send(&rig, "GET", &path, "", &Value::Null);
    assert_eq!(field(&events.head(), "content-type"), "text/event-stream");
    let first = events.chunk().expect("a position");
    assert!(
        first.starts_with("event: control\n") && first.contains("\"upToDate\":true"),
        "{first}"
    );
    assert_eq!(events.chunk().expect("a keep-alive"), ": ping\n\n");
    rig.gate.open();
    client.body();
    let (messages, _) = EventBody::of(&format!("{first}{}", events.body())).closed();
    assert_eq!(messages, inner(&read(&rig, &id, "")));
}

#[test]
fn event_stream_of_an_ended_stream_is_closed_at_once() {
    let rig = Rig::with(fake(), kept());
    let id = ended_chat(&rig, &json!({"max_tokens": 3}));
    let whole = read(&rig, &id, "");
    let tail = field(&whole.head, "stream-next-offset");
    let rows = [
        ("-1", inner(&whole)),
        ("now", String::new()),
        (tail, String::new()),
    ];
    for (offset, messages) in rows {
        let events = read(&rig, &id, &format!("offset={offset}&live=sse"));
        assert_eq!(field(&events.head, "x-stream-id"), id);
        assert_eq!(field(&events.head, "cache-control"), "no-cache");
        let body = EventBody::of(&events.body);
        assert_eq!(body.controls.len(), 1, "{}", events.body);
        assert_eq!(body.closed(), (messages, tail.to_owned()));
    }
}

#[test]
fn reader_of_messages_returns_credit() {
    const WINDOW: u64 = 8;
    let limits = StreamLimits {
        detached_tokens: 5,
        detached_wait: Duration::from_secs(3600),
        ..StreamLimits::default()
    };
    for over in [json!({"max_tokens": 80}), json!({"n": 3, "max_tokens": 40})] {
        let config = ServerConfig {
            credit_window: WINDOW,
            ..with(limits)
        };
        let rig = Rig::gated(fake(), config);
        let (client, id) = running_chat(&rig, &over);
        drop(client);
        rig.gate.open();
        let path = format!("/v1/streams/{id}");
        wait_until("the stream waits for a reader", || {
            let found = get(&rig, &path, "").json();
            // It is parked before its client is seen to have gone, too, and then gets the tokens of detached streams.
            let tokens = found["choices"][0]["tokens"].as_u64().unwrap_or(0);
            let has_all = tokens >= WINDOW + limits.detached_tokens;
            found["attached"] == false && found["state"] == "parked" && has_all
        });
        let tokens = || get(&rig, &path, "").json()["choices"][0]["tokens"].clone();
        let before = tokens();
        head(&rig, &id);
        read(&rig, &id, "offset=now");
        assert_eq!(tokens(), before, "a look returns nothing");
        let (mut offset, mut all) = ("-1".to_owned(), String::new());
        let last = loop {
            let reply = read(&rig, &id, &format!("offset={offset}&live=long-poll"));
            if reply.head.status == 200 {
                all = joined(&all, &inner(&reply));
            }
            offset = field(&reply.head, "stream-next-offset").to_owned();
            if reply.head.get("stream-closed").is_some() {
                break offset;
            }
        };
        let whole = read(&rig, &id, "offset=-1");
        assert_eq!(all, inner(&whole));
        assert_eq!(last, field(&whole.head, "stream-next-offset"));
        assert_eq!(text_and_last(&all).1["stop_reason"], "MAX_TOKENS");
    }
}

#[test]
fn long_stream_is_read_in_parts() {
    let rig = Rig::with(fake(), kept());
    let id = ended_chat(&rig, &json!({"n": 16, "max_tokens": 480, "stream": false}));
    let (mut offset, mut parts, mut text) = ("-1".to_owned(), 0, 0);
    loop {
        let reply = read(&rig, &id, &format!("offset={offset}"));
        let messages = inner(&reply);
        assert!(messages.len() <= (256 << 10) + 200, "{}", messages.len());
        text += messages.matches(TOKEN).count();
        parts += 1;
        offset = field(&reply.head, "stream-next-offset").to_owned();
        let is_last = reply.head.get("stream-closed").is_some();
        assert_eq!(reply.head.get("stream-up-to-date").is_some(), is_last);
        if is_last {
            break;
        }
    }
    assert!(parts >= 2 && text == 16 * 480, "{parts} {text}");
    let events = read(&rig, &id, "offset=-1&live=sse");
    let (messages, end) = EventBody::of(&events.body).closed();
    assert_eq!((messages.matches(TOKEN).count(), end), (text, offset));
}
