//! One line of the log for each request, with its id, key, route, status, tokens and times.
//!
//! Promise (APIs): a request has one line in the log, with id, key, route, model, status, tokens and times; a
//! client's id is logged without harmful characters.
//! Also held by `server/src/request_line.rs`.

use crate::support::client::{Client, Reply};
use crate::support::exported::CHAT;
use crate::support::logged::Logged;
use crate::support::owners::key;
use crate::support::{Rig, config, wait_until};
use serde_json::{Value, json};
use server::{Key, KeyLimits, Keys, Scope};
use std::num::NonZeroU32;
use std::sync::Arc;
use testing::child::run_in_child;

const SECRET: &str = "mr_log_0123456789";

fn keys() -> Arc<Keys> {
    let key = Key {
        limits: KeyLimits {
            requests_per_min: NonZeroU32::new(4),
            ..KeyLimits::default()
        },
        ..key("team-a", SECRET, &[Scope::Inference])
    };
    Arc::new(Keys::new(&[key]).expect("keys"))
}

fn send(rig: &Rig, line: &str, fields: &str, body: Option<&Value>) -> Reply {
    let mut client = Client::connect(rig.addr);
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{fields}\r\n");
    client.send(format!("{head}{body}").as_bytes());
    client.reply()
}

/// The fields of the only line with this id.
fn line_of(logged: &Logged, id: &str) -> Value {
    let mut found = Vec::new();
    wait_until("the line is written", || {
        let text = logged.text();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        found = lines
            .filter(|line| line["target"] == "requests" && line["fields"]["id"] == id)
            .collect();
        !found.is_empty()
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["level"], "INFO", "{found:?}");
    found[0]["fields"].take()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn each_request_has_one_line() {
    if run_in_child(each_request_has_one_line) {
        return;
    }
    let logged = Logged::default();
    tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::INFO)
        .with_writer(logged.clone())
        .init();
    let rig = Rig::keyed(config(), &keys());
    let key = format!("authorization: Bearer {SECRET}\r\n");
    for stream in [true, false] {
        let body = json!({
            "messages": [{"role": "user", "content": "abc"}], "max_tokens": 3, "ignore_eos": true, "stream": stream,
        });
        let id = format!("mine-{stream}");
        let fields = format!("{key}x-request-id: {id}\r\n");
        let reply = send(&rig, &format!("POST {CHAT}"), &fields, Some(&body));
        assert_eq!(reply.head.status, 200, "{}", reply.body);
        assert_eq!(reply.head.get("x-request-id"), Some(&*id));
        let line = line_of(&logged, &id);
        for (name, want) in [
            ("key", json!("team-a")),
            ("method", json!("POST")),
            ("route", json!(CHAT)),
            ("status", json!(200)),
            ("model", json!("fake")),
            ("stream", json!(stream)),
            ("prompt_tokens", json!(3)),
            ("completion_tokens", json!(3)),
        ] {
            assert_eq!(line[name], want, "{name}: {line}");
        }
        assert!(
            line["first_token_ms"].as_u64() <= line["total_ms"].as_u64(),
            "{line}"
        );
        assert!(line["first_token_ms"].is_u64(), "{line}");
    }
    let model = json!({"model": "none", "messages": [{"role": "user", "content": "a"}]});
    let rows = [
        ("GET /v1/none", &key[..], None, 404, "none"),
        (
            "GET /v1/models",
            "authorization: Bearer wrong\r\n",
            None,
            401,
            "/v1/models",
        ),
        (
            "POST /v1/chat/completions",
            &key[..],
            Some(&model),
            404,
            CHAT,
        ),
        (
            "POST /v1/chat/completions",
            &key[..],
            Some(&model),
            404,
            CHAT,
        ),
        (
            "POST /v1/chat/completions",
            &key[..],
            Some(&model),
            429,
            CHAT,
        ),
    ];
    for (request, fields, body, status, route) in rows {
        let reply = send(&rig, request, fields, body);
        assert_eq!(reply.head.status, status, "{request}: {}", reply.body);
        let id = reply.head.get("x-request-id").expect("an id");
        let line = line_of(&logged, id);
        assert_eq!(
            (&line["status"], &line["route"]),
            (&json!(status), &json!(route)),
            "{line}"
        );
        assert_eq!(line["error"], reply.json()["error"]["code"], "{line}");
    }
    // Probes come every few seconds.
    send(&rig, "GET /health", "", None);
    assert!(!logged.text().contains("/health"), "{}", logged.text());
    assert!(!logged.text().contains(SECRET), "{}", logged.text());
    rig.wait_until_empty();
}
