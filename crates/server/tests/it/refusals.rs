//! How refusals before any route are spelled: in the dialect of the path.
//!
//! Promise (APIs): an error before routing is in the path's wire protocol.

use crate::support::client::{Client, Reply, get};
use crate::support::owners::{self, key_field, key_text};
use crate::support::{Rig, config};
use server::{Key, KeyLimits, Keys, Scope, ServerConfig};
use std::num::NonZeroU32;
use std::sync::Arc;

const CHAT: &str = "/v1/chat/completions";
const CALLER: &str = "invalid_request_error";

fn key(name: &str, scope: Scope, limits: KeyLimits) -> Key {
    Key {
        limits,
        ..owners::key(name, &key_text(name), &[scope])
    }
}

/// A server with small bodies, and with keys of which two allow one request in a minute.
fn strict() -> Rig {
    let brief = ServerConfig {
        body_bytes_max: 64,
        ..config()
    };
    let once = KeyLimits {
        requests_per_min: NonZeroU32::new(1),
        ..KeyLimits::default()
    };
    let all = [
        key("a", Scope::Inference, KeyLimits::default()),
        key("m", Scope::Metrics, KeyLimits::default()),
        key("once", Scope::Inference, once),
        key("twice", Scope::Inference, once),
    ];
    Rig::keyed(brief, &Arc::new(Keys::new(&all).unwrap()))
}

fn reply(rig: &Rig, method: &str, path: &str, fields: &str, body: &str) -> Reply {
    let json = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    let mut client = Client::connect(rig.addr);
    client.send(format!("{method} {path} HTTP/1.1\r\n{fields}{json}\r\n{body}").as_bytes());
    client.reply()
}

#[test]
fn values_in_the_path_that_are_not_utf8_are_errors_of_the_api() {
    let rig = Rig::start();
    for path in [
        "/v1/responses/%ff",
        "/v1/models/%ff",
        "/v1/jobs/%ff",
        "/v1/streams/%ff",
        "/v1/workflows/%ff",
    ] {
        let reply = get(rig.addr, path);
        assert_eq!(reply.head.status, 400, "{path}");
        let error = reply.json().to_string();
        assert!(error.contains("UTF-8"), "{path}: {error}");
    }
}

/// A path, what is wrong with the request, and how the refusal is spelled there: by OpenAI's `type`,
/// or by the native code.
#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn errors_before_routing_are_in_the_dialect_of_the_path() {
    let rig = strict();
    let large = "x".repeat(65);
    let host = "host: localhost\r\n".to_owned();
    let rows = [
        (
            "no key",
            "POST",
            host.clone(),
            "",
            401,
            CALLER,
            "INVALID_REQUEST",
        ),
        (
            "scope",
            "POST",
            host.clone() + &key_field("m"),
            "",
            403,
            CALLER,
            "INVALID_REQUEST",
        ),
        (
            "two hosts",
            "POST",
            format!("{host}{host}"),
            "",
            400,
            CALLER,
            "INVALID_REQUEST",
        ),
        (
            "another host",
            "POST",
            "host: evil.example\r\n".to_owned(),
            "",
            421,
            CALLER,
            "INVALID_REQUEST",
        ),
        (
            "origin",
            "OPTIONS",
            host.clone() + &key_field("a"),
            "",
            405,
            CALLER,
            "INVALID_REQUEST",
        ),
        (
            "method",
            "PATCH",
            host.clone() + &key_field("a"),
            "",
            405,
            CALLER,
            "INVALID_REQUEST",
        ),
        (
            "too large",
            "POST",
            host.clone() + &key_field("a"),
            large.as_str(),
            413,
            CALLER,
            "INVALID_REQUEST",
        ),
    ];
    for path in [CHAT, "/v1/completions", "/v1/inference", "/v1/jobs"] {
        let native = path == "/v1/inference" || path == "/v1/jobs";
        for (label, method, fields, body, status, kind, code) in &rows {
            let told = reply(&rig, method, path, fields, body);
            assert_eq!(told.head.status, *status, "{label} {path}: {}", told.body);
            spelled(&told, native, kind, code, label);
        }
    }
    // The path decides, also where there is nothing at it.
    for (path, native) in [
        ("/v1/jobs/7/none", true),
        ("/v1/chat/none", false),
        ("/none", false),
    ] {
        let told = reply(&rig, "GET", path, &(host.clone() + &key_field("a")), "");
        assert_eq!(told.head.status, 404, "{path}");
        spelled(&told, native, CALLER, "INVALID_REQUEST", path);
    }
    for (path, name, native) in [(CHAT, "once", false), ("/v1/jobs", "twice", true)] {
        let fields = host.clone() + &key_field(name);
        reply(&rig, "POST", path, &fields, "{}");
        let told = reply(&rig, "POST", path, &fields, "{}");
        assert_eq!(told.head.status, 429, "{path}: {}", told.body);
        assert!(told.head.get("retry-after").is_some(), "{path}");
        spelled(&told, native, "rate_limit_error", "QUEUE_FULL", path);
    }
}

/// Anthropic's clients know what is wrong by its type.
#[test]
fn message_errors_have_their_types() {
    let rig = strict();
    let large = "x".repeat(65);
    let rows = [
        ("POST", String::new(), "{}", 401, "authentication_error"),
        ("POST", key_field("m"), "{}", 403, "permission_error"),
        ("PATCH", key_field("a"), "{}", 405, CALLER),
        ("POST", key_field("a"), &large, 413, "request_too_large"),
        ("POST", key_field("once"), "{}", 400, CALLER),
        ("POST", key_field("once"), "{}", 429, "rate_limit_error"),
        (
            "POST",
            format!("x-api-key: {}\r\n", key_text("a")),
            "{}",
            400,
            CALLER,
        ),
    ];
    for (method, key, body, status, kind) in rows {
        let fields = format!("host: localhost\r\n{key}");
        let told = reply(&rig, method, "/v1/messages", &fields, body);
        assert_eq!(told.head.status, status, "{}", told.body);
        let json = told.json();
        assert_eq!(
            (&json["type"], &json["error"]["type"]),
            (&"error".into(), &kind.into())
        );
    }
}

fn spelled(told: &Reply, native: bool, kind: &str, code: &str, label: &str) {
    let error = &told.json()["error"];
    if native {
        assert_eq!(error["code"], code, "{label}: {}", told.body);
        assert!(error["retriable"].is_boolean(), "{label}: {}", told.body);
        assert!(error.get("type").is_none(), "{label}: {}", told.body);
    } else {
        assert_eq!(error["type"], kind, "{label}: {}", told.body);
        assert!(error.get("param").is_some(), "{label}: {}", told.body);
    }
}
