//! Streams by name: who sees them, who steers them, what becomes of them.

use crate::support::client::Client;
use crate::support::named::{
    CHAT, RESUMABLE, call, chat, fake, get, kept, resumable_chat, send, stream_id, with,
};
use crate::support::owners::key;
use crate::support::sse::{Heard, frames};
use crate::support::{Rig, wait_until};
use serde_json::{Value, json};
use server::{AdaptiveLimits, Keys, Scope, ServerConfig, StreamLimits};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn plain_stream_is_forgotten_at_its_end() {
    let rig = Rig::with(fake(), kept());
    for stream in [true, false] {
        let reply = call(&rig, "POST", CHAT, "", &chat(&json!({"stream": stream})));
        let path = format!("/v1/streams/{}", stream_id(&reply.head));
        wait_until("it is gone", || get(&rig, &path, "").head.status == 410);
        let gone = get(&rig, &format!("{path}/events"), "");
        assert_eq!(gone.json()["error"]["code"], "stream_gone");
        let deleted = call(&rig, "DELETE", &path, "", &Value::Null);
        assert_eq!(deleted.head.status, 202, "deleting twice is deleting");
    }
    rig.wait_until_empty();
    let unknown = get(&rig, &format!("/v1/streams/{}", "0".repeat(32)), "");
    assert_eq!(
        (unknown.head.status, &unknown.json()["error"]["code"]),
        (404, &json!("stream_not_found"))
    );
    assert_eq!(get(&rig, "/v1/streams/me", "").head.status, 404);
}

#[test]
fn detached_stream_waits_and_continues_with_the_next_client() {
    const WINDOW: u64 = 8;
    const ALONE: u64 = 5;
    let limits = StreamLimits {
        detached_tokens: ALONE,
        detached_wait: Duration::from_secs(3600),
        ..StreamLimits::default()
    };
    let config = ServerConfig {
        credit_window: WINDOW,
        ..with(limits)
    };
    let rig = Rig::gated(fake(), config);
    let body = chat(&json!({"max_tokens": 200}));
    let mut client = send(&rig, "POST", CHAT, RESUMABLE, &body);
    let path = format!("/v1/streams/{}", stream_id(&client.head()));
    rig.gate.allow(3);
    while !client.chunk().expect("some text").contains("id: ") {}
    drop(client);
    rig.gate.open();
    wait_until("it waits for credit", || {
        get(&rig, &path, "").json()["state"] == "parked"
    });
    wait_until("its client is gone", || {
        get(&rig, &path, "").json()["attached"] == false
    });
    wait_until("it used what it may make alone", || {
        let choice = get(&rig, &path, "").json()["choices"][0].clone();
        let (made, accepted) = (&choice["tokens"], &choice["accepted"]);
        made.as_u64() == accepted.as_u64().map(|accepted| accepted + WINDOW + ALONE)
    });
    assert_eq!(get(&rig, &path, "").json()["state"], "parked");
    let rest = get(&rig, &format!("{path}/events"), "");
    let plain = call(&rig, "POST", CHAT, "", &body);
    assert_eq!(
        Heard::of(&frames(&rest.body)),
        Heard::of(&frames(&plain.body))
    );
}

#[test]
fn abandoned_stream_is_cancelled_and_leaves_nothing() {
    let limits = StreamLimits {
        detached_tokens: 5,
        detached_wait: Duration::from_millis(20),
        retention: Duration::from_millis(20),
        ..StreamLimits::default()
    };
    let config = ServerConfig {
        credit_window: 8,
        ..with(limits)
    };
    let rig = Rig::gated(fake(), config);
    let mut paths = Vec::new();
    for _ in 0..4 {
        let body = chat(&json!({"max_tokens": 300, "n": 2}));
        let mut client = send(&rig, "POST", CHAT, RESUMABLE, &body);
        paths.push(format!("/v1/streams/{}", stream_id(&client.head())));
    }
    rig.gate.open();
    for path in &paths {
        wait_until("it ends and is forgotten", || {
            get(&rig, path, "").head.status == 410
        });
    }
    rig.wait_until_empty();
    assert_eq!(rig.engine.stats().endings().cancelled, 8);
    assert_eq!(get(&rig, "/v1/streams", "").json()["data"], json!([]));
}

#[test]
fn explicit_acknowledgements_return_credit() {
    const WINDOW: u64 = 8;
    let config = ServerConfig {
        credit_window: WINDOW,
        ..kept()
    };
    let rig = Rig::with(fake(), config);
    let body = chat(&json!({"max_tokens": 20}));
    let mut client = send(&rig, "POST", CHAT, "x-stream-acks: explicit\r\n", &body);
    let path = format!("/v1/streams/{}", stream_id(&client.head()));
    let made = || {
        get(&rig, &path, "").json()["choices"][0]["tokens"]
            .as_u64()
            .unwrap()
    };
    wait_until("it waits", || {
        get(&rig, &path, "").json()["state"] == "parked"
    });
    assert_eq!(made(), WINDOW, "reading returns nothing");
    let ack = |index: u64| {
        call(
            &rig,
            "POST",
            &format!("{path}/ack"),
            "",
            &json!({"index": index}),
        )
    };
    assert_eq!(ack(3).head.status, 200);
    wait_until("it goes on as far as it may", || made() == WINDOW + 3);
    assert_eq!(
        ack(1).json()["choices"][0]["accepted"],
        3,
        "what was said stays said"
    );
    let wrong = call(
        &rig,
        "POST",
        &format!("{path}/ack"),
        "",
        &json!({"index": "x", "choice": 4}),
    );
    assert_eq!(
        (
            wrong.head.status,
            wrong.json()["error"]["errors"].as_array().map(Vec::len)
        ),
        (400, Some(2))
    );
    ack(WINDOW + 3);
    wait_until("and on", || made() >= 19);
    ack(19);
    let plain = call(&rig, "POST", CHAT, "", &body);
    assert_eq!(
        Heard::of(&frames(&client.body())),
        Heard::of(&frames(&plain.body))
    );
}

/// A resumable stream that began, and its path.
fn opened(rig: &Rig, max_tokens: usize) -> (Client, String) {
    let body = chat(&json!({"max_tokens": max_tokens}));
    let mut client = send(rig, "POST", CHAT, RESUMABLE, &body);
    let path = format!("/v1/streams/{}", stream_id(&client.head()));
    (client, path)
}

#[test]
fn paused_stream_makes_no_tokens() {
    let rig = Rig::gated(fake(), kept());
    let (mut client, path) = opened(&rig, 50);
    rig.gate.allow(5);
    let made = || {
        get(&rig, &path, "").json()["choices"][0]["tokens"]
            .as_u64()
            .unwrap()
    };
    wait_until("it runs", || made() == 5);
    let paused = call(&rig, "POST", &format!("{path}/pause"), "", &Value::Null);
    assert_eq!(
        (paused.head.status, &paused.json()["state"]),
        (200, &json!("paused"))
    );
    rig.gate.open();
    // Somebody else's whole answer passes it by.
    let other = call(&rig, "POST", CHAT, "", &chat(&json!({"max_tokens": 30})));
    assert_eq!(other.head.status, 200);
    assert!(made() <= 6, "the step under way is the last");
    let resumed = call(&rig, "POST", &format!("{path}/resume"), "", &Value::Null);
    assert_eq!(resumed.head.status, 200);
    assert!(client.body().ends_with("data: [DONE]\n\n"));
    wait_until("it has ended", || {
        get(&rig, &path, "").json()["state"] == "ended"
    });
    let late = call(&rig, "POST", &format!("{path}/pause"), "", &Value::Null);
    assert_eq!(
        (late.head.status, &late.json()["error"]["code"]),
        (409, &json!("stream_not_running"))
    );
}

#[test]
fn deleted_stream_ends_for_all_readers() {
    let rig = Rig::gated(fake(), kept());
    let (mut client, path) = opened(&rig, 400);
    let mut watcher = send(&rig, "GET", &format!("{path}/events"), "", &Value::Null);
    assert_eq!(watcher.head().status, 200);
    rig.gate.allow(4);
    wait_until("it runs", || rig.engine.stats().tokens_generated() == 4);
    assert_eq!(
        call(&rig, "DELETE", &path, "", &Value::Null).head.status,
        202
    );
    rig.gate.open();
    for client in [&mut client, &mut watcher] {
        assert!(client.body().contains("\"code\":\"cancelled\""));
    }
    wait_until("it has ended", || {
        get(&rig, &path, "").json()["state"] == "ended"
    });
    let end = get(&rig, &path, "").json()["choices"][0]["end"].clone();
    assert_eq!(end, "cancelled");
    for gone in ["ended", "gone"] {
        assert_eq!(
            call(&rig, "DELETE", &path, "", &Value::Null).json()["state"],
            gone
        );
    }
    assert_eq!(get(&rig, &path, "").head.status, 410);
    rig.wait_until_empty();
}

#[test]
fn stream_is_invisible_to_other_keys() {
    let (one, two, admin) = ("a".repeat(32), "b".repeat(32), "c".repeat(32));
    let keys = Keys::new(&[
        key("one", &one, &[Scope::Inference]),
        key("two", &two, &[Scope::Inference]),
        key("admin", &admin, &[Scope::Admin]),
    ]);
    let rig = Rig::keyed(kept(), &Arc::new(keys.expect("good keys")));
    let field = |secret: &str| format!("authorization: Bearer {secret}\r\n");
    let reply = call(
        &rig,
        "POST",
        CHAT,
        &(field(&one) + RESUMABLE),
        &chat(&json!({})),
    );
    let id = stream_id(&reply.head);
    let path = format!("/v1/streams/{id}");
    let known = |secret: &str| {
        let page = get(&rig, "/v1/streams", &field(secret)).json();
        page["data"].as_array().map(Vec::len)
    };
    assert_eq!(
        (known(&one), known(&two), known(&admin)),
        (Some(1), Some(0), Some(1))
    );
    refused_everywhere(&rig, &path, &field(&two));
    for secret in [&one, &admin] {
        let again = get(&rig, &format!("{path}/events"), &field(secret));
        assert_eq!(
            Heard::of(&frames(&again.body)),
            Heard::of(&frames(&reply.body))
        );
    }
    assert_eq!(
        call(&rig, "DELETE", &path, &field(&one), &Value::Null)
            .head
            .status,
        202
    );
    assert_eq!(get(&rig, &path, &field(&one)).head.status, 410);
    assert_eq!(
        get(&rig, &path, &field(&two)).head.status,
        404,
        "not even that it was"
    );
}

#[test]
fn stream_list_is_paginated() {
    let rig = Rig::with(fake(), kept());
    let ids: Vec<String> = (0..5)
        .map(|_| stream_id(&resumable_chat(&rig, &json!({"max_tokens": 2})).head))
        .collect();
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let page = get(&rig, &format!("/v1/streams?limit=2&after={after}"), "").json();
        let data = page["data"].as_array().unwrap().clone();
        assert!(data.len() <= 2);
        seen.extend(
            data.iter()
                .map(|stream| stream["id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(seen, ids);
    assert_eq!(get(&rig, "/v1/streams?limit=x", "").head.status, 400);
}

#[test]
fn queued_stream_is_listed_and_deletable() {
    let config = ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams: 1,
            ..AdaptiveLimits::default()
        },
        ..kept()
    };
    let rig = Rig::gated(fake(), config);
    let mut first = send(&rig, "POST", CHAT, "", &chat(&json!({})));
    assert_eq!(first.head().status, 200);
    for fields in [RESUMABLE, ""] {
        let urgent = format!("{fields}x-priority: high\r\n");
        let mut second = send(&rig, "POST", CHAT, &urgent, &chat(&json!({})));
        let path = format!("/v1/streams/{}", stream_id(&second.head()));
        let told = get(&rig, &path, "").json();
        let waits = (&told["state"], &told["position"], &told["priority"]);
        assert_eq!(waits, (&json!("queued"), &json!(1), &json!("high")));
        let mut watcher = send(&rig, "GET", &format!("{path}/events"), "", &Value::Null);
        assert_eq!(watcher.head().status, 200);
        let deleted = call(&rig, "DELETE", &path, "", &Value::Null);
        assert_eq!(deleted.head.status, 202);
        for client in [&mut second, &mut watcher] {
            let body = client.body();
            assert!(body.contains("\"code\":\"cancelled\""), "{body}");
        }
        if fields == RESUMABLE {
            let late = get(
                &rig,
                &format!("{path}/events?dialect=anthropic.messages"),
                "",
            );
            assert_eq!(
                late.json()["type"],
                "error",
                "in the dialect it was asked in"
            );
        }
    }
    rig.gate.open();
    assert!(first.body().ends_with("data: [DONE]\n\n"));
    rig.wait_until_empty();
}

/// Every route answers as if there were no such stream.
fn refused_everywhere(rig: &Rig, path: &str, fields: &str) {
    let routes = [
        ("GET", ""),
        ("GET", "/events"),
        ("POST", "/ack"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("DELETE", ""),
    ];
    for (method, route) in routes {
        let path = format!("{path}{route}");
        let reply = call(rig, method, &path, fields, &json!({"index": 1}));
        assert_eq!(
            (reply.head.status, &reply.json()["error"]["code"]),
            (404, &json!("stream_not_found")),
            "{method} {path}"
        );
    }
}
