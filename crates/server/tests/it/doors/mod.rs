//! Who comes in, under which name, and how often: each refusal as a client sees it.

mod origins;
mod paths;
mod prefix_cache;

use crate::support::client::{Client, Reply, get, post};
use crate::support::{Rig, config, fake, owners, wait_until};
use serde_json::{Value, json};
use server::{Key, KeyLimits, Keys, Scope, ServerConfig};
use std::num::NonZeroU32;
use std::sync::Arc;

const CHAT: &str = "/v1/chat/completions";

fn key(name: &str, scopes: &[Scope]) -> Key {
    owners::key(name, &secret(name), scopes)
}

fn limited(name: &str, limits: KeyLimits) -> Key {
    Key {
        limits,
        ..key(name, &[Scope::Inference])
    }
}

fn secret(name: &str) -> String {
    format!("mr_{name}_0123456789")
}

fn keys(keys: &[Key]) -> Arc<Keys> {
    Arc::new(Keys::new(keys).unwrap())
}

fn bearer(name: &str) -> String {
    format!("authorization: Bearer {}\r\n", secret(name))
}

fn ask() -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "ignore_eos": true})
}

/// Sends a head with these fields, and the body if there is one.
fn send(client: &mut Client, method: &str, path: &str, fields: &str, body: &str) {
    let json = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    client.send(format!("{method} {path} HTTP/1.1\r\n{fields}{json}\r\n{body}").as_bytes());
}

fn reply(rig: &Rig, method: &str, path: &str, fields: &str, body: &str) -> Reply {
    let mut client = Client::connect(rig.addr);
    send(&mut client, method, path, fields, body);
    client.reply()
}

fn chat(rig: &Rig, name: &str, body: &Value) -> Reply {
    let fields = format!("host: localhost\r\n{}", bearer(name));
    reply(rig, "POST", CHAT, &fields, &body.to_string())
}

/// The error, in OpenAI's shape.
fn error(reply: &Reply) -> (u16, String, String) {
    let error = &reply.json()["error"];
    assert!(error["message"].is_string(), "{}", reply.body);
    assert!(error.get("param").is_some(), "{}", reply.body);
    let word = |field: &str| error[field].as_str().unwrap().to_owned();
    (reply.head.status, word("type"), word("code"))
}

fn is(status: u16, kind: &str, code: &str) -> (u16, String, String) {
    (status, kind.to_owned(), code.to_owned())
}

const CALLER: &str = "invalid_request_error";

#[test]
fn request_without_a_key_is_rejected_before_its_body_is_read() {
    let rig = Rig::keyed(config(), &keys(&[key("a", &[Scope::Inference])]));
    let own = secret("a");
    let rows = [
        ("no key", String::new()),
        ("another key", bearer("b")),
        (
            "half a key",
            format!("x-api-key: {}\r\n", &own[..own.len() - 1]),
        ),
        ("another scheme", format!("authorization: Basic {own}\r\n")),
        ("an empty key", "authorization: Bearer \r\n".to_owned()),
        ("a known name", "x-api-key: a\r\n".to_owned()),
    ];
    for (label, fields) in rows {
        for (method, path) in [("POST", CHAT), ("GET", "/v1/models"), ("GET", "/nothing")] {
            let fields = format!("host: localhost\r\n{fields}");
            let reply = reply(&rig, method, path, &fields, "no JSON at all");
            let told = error(&reply);
            assert_eq!(told, is(401, CALLER, "invalid_api_key"), "{label} {path}");
            let challenge = reply.head.get("www-authenticate");
            assert_eq!(challenge, Some("Bearer realm=\"millrace\""), "{label}");
            assert!(!reply.body.contains("mr_"), "{label}: {}", reply.body);
        }
    }
    for fields in [bearer("a"), format!("X-Api-Key: {own}\r\n")] {
        let fields = format!("host: localhost\r\n{fields}");
        let reply = reply(&rig, "POST", CHAT, &fields, &ask().to_string());
        assert_eq!(reply.head.status, 200, "{}", reply.body);
    }
    rig.wait_until_empty();
}

#[test]
fn key_is_limited_to_its_scopes() {
    let all = [
        key("user", &[Scope::Inference]),
        key("admin", &[Scope::Admin]),
        key("figures", &[Scope::Metrics]),
    ];
    let rig = Rig::keyed(config(), &keys(&all));
    // 403, or whatever is behind the door.
    let rows = [
        ("GET", "/v1/models", "user", true),
        ("GET", "/v1/models", "admin", false),
        ("GET", "/v1/models", "figures", false),
        ("GET", "/nothing", "user", true),
        ("GET", "/nothing", "figures", false),
        ("GET", "/metrics", "user", false),
        ("GET", "/metrics", "admin", true),
        ("GET", "/metrics", "figures", true),
        ("GET", "/v1/streams", "user", true),
        ("GET", "/v1/streams", "admin", true),
        ("GET", "/v1/streams/0123", "figures", false),
        ("GET", "/v1/cluster", "user", false),
        ("GET", "/lora-adapters", "user", true),
        ("POST", "/lora-adapters", "user", false),
        ("POST", "/lora-adapters", "figures", false),
        ("POST", "/lora-adapters", "admin", true),
    ];
    for (method, path, name, opens) in rows {
        let fields = format!("host: localhost\r\n{}", bearer(name));
        let body = if method == "POST" { "[]" } else { "" };
        let reply = reply(&rig, method, path, &fields, body);
        let refused = reply.head.status == 403;
        assert_eq!(refused, !opens, "{name} {method} {path}: {}", reply.body);
        if refused {
            assert_eq!(error(&reply), is(403, CALLER, "insufficient_scope"));
            let challenge = reply.head.get("www-authenticate").unwrap();
            assert!(challenge.contains("insufficient_scope"), "{challenge}");
        }
    }
    // This one has no end.
    for (name, status) in [("admin", 200), ("user", 200), ("figures", 403)] {
        let mut client = Client::connect(rig.addr);
        let fields = format!("host: localhost\r\n{}", bearer(name));
        send(&mut client, "GET", "/v1/streams/feed", &fields, "");
        assert_eq!(client.head().status, status, "{name}");
    }
}

/// Names of keys are for administrators; another key does not learn them.
///
/// Promise (Admission and keys): the description of a stream names its key only to callers with the scope `admin`.
#[test]
fn key_of_a_stream_is_told_to_administrators() {
    let all = [
        key("user", &[Scope::Inference]),
        key("admin", &[Scope::Admin]),
    ];
    let rig = Rig::keyed(config(), &keys(&all));
    let fields = |name: &str| {
        format!(
            "host: localhost\r\nx-stream-resumable: 1\r\n{}",
            bearer(name)
        )
    };
    let answer = reply(&rig, "POST", CHAT, &fields("user"), &ask().to_string());
    assert_eq!(answer.head.status, 200, "{}", answer.body);
    for (name, told) in [("user", Value::Null), ("admin", json!("user"))] {
        let list = reply(&rig, "GET", "/v1/streams", &fields(name), "").json();
        assert_eq!(list["data"][0]["key"], told, "{name}: {list}");
        let path = format!("/v1/streams/{}", list["data"][0]["id"].as_str().unwrap());
        let one = reply(&rig, "GET", &path, &fields(name), "").json();
        assert_eq!(one["key"], told, "{name}: {one}");
    }
}

#[test]
fn health_needs_no_key_and_no_host() {
    let rig = Rig::keyed(config(), &keys(&[]));
    let health = reply(&rig, "GET", "/health", "host: 10.1.2.3:80\r\n", "");
    assert_eq!(health.head.status, 200);
    assert_eq!(get(rig.addr, "/healthy").head.status, 401);
    let models = get(rig.addr, "/v1/models");
    assert_eq!(error(&models), is(401, CALLER, "invalid_api_key"));
}

#[test]
fn unknown_host_is_rejected() {
    let named = ServerConfig {
        hosts: vec!["gpu.lan".to_owned()],
        ..config()
    };
    let (ours, named) = (Rig::start(), Rig::with(fake(), named));
    let rows = [
        ("this machine", "host: LOCALHOST:99\r\n", 200, 200),
        ("a page's own name", "host: evil.example\r\n", 421, 421),
        ("a name in the list", "host: gpu.lan\r\n", 421, 200),
        ("no name", "", 400, 400),
        (
            "two names",
            "host: localhost\r\nhost: localhost\r\n",
            400,
            400,
        ),
    ];
    for (label, fields, alone, listed) in rows {
        for (rig, status) in [(&ours, alone), (&named, listed)] {
            let reply = reply(rig, "GET", "/v1/models", fields, "");
            assert_eq!(reply.head.status, status, "{label}: {}", reply.body);
            match status {
                421 => assert_eq!(error(&reply), is(421, CALLER, "misdirected_request")),
                400 => assert_eq!(error(&reply), is(400, CALLER, "invalid_host")),
                _ => {}
            }
        }
    }
    let target = "http://evil.example/v1/models";
    let absolute = reply(&ours, "GET", target, "host: localhost\r\n", "");
    assert_eq!(absolute.head.status, 421, "the target's name counts");
    let mut old = Client::connect(ours.addr);
    old.send(b"GET /v1/models HTTP/1.0\r\n\r\n");
    assert_eq!(old.reply().head.status, 200);
}

#[test]
fn rate_limit_of_a_key_has_retry_after() {
    let limits = |requests, tokens| KeyLimits {
        requests_per_min: NonZeroU32::new(requests),
        tokens_per_min: NonZeroU32::new(tokens),
        ..KeyLimits::default()
    };
    let all = [
        limited("asks", limits(1, 0)),
        limited("reads", limits(0, 6)),
        key("free", &[Scope::Inference]),
    ];
    let rig = Rig::keyed(config(), &keys(&all));
    // Its one request a minute; what is wrong with the next is not even looked at.
    assert_eq!(chat(&rig, "asks", &ask()).head.status, 200);
    // A prompt of two tokens and an answer of 100 against six a minute: a debt of 16 minutes.
    let mut long = ask();
    long["max_tokens"] = json!(100);
    assert_eq!(chat(&rig, "reads", &long).head.status, 200);
    for (name, body, wait_ms) in [("asks", json!(7), 60_000), ("reads", ask(), 980_000)] {
        let reply = chat(&rig, name, &body);
        assert_eq!(
            error(&reply),
            is(429, "rate_limit_error", "rate_limit_exceeded")
        );
        let told = |field: &str| reply.head.get(field).unwrap().parse::<u64>().unwrap();
        // Some of it passed since; how much is the machine's matter.
        let (ms, s) = (told("retry-after-ms"), told("retry-after"));
        assert!((wait_ms / 2..=wait_ms).contains(&ms), "{name}: {ms}");
        assert_eq!(s, ms.div_ceil(1000), "{name}");
    }
    let longer = json!({"messages": [{"role": "user", "content": "1234567"}]});
    let never = chat(&rig, "reads", &longer);
    assert_eq!(error(&never), is(413, CALLER, "prompt_over_quota"));
    assert!(never.head.get("retry-after").is_none());
    assert!(never.body.contains("7 tokens") && never.body.contains("6 per minute"));
    assert_eq!(chat(&rig, "free", &ask()).head.status, 200);
    rig.wait_until_empty();
}

#[test]
fn concurrent_streams_of_a_key_are_limited() {
    let limits = KeyLimits {
        concurrent_streams: NonZeroU32::new(2),
        ..KeyLimits::default()
    };
    let all = keys(&[limited("two", limits), key("free", &[Scope::Inference])]);
    let rig = Rig::behind(fake(), config(), Arc::clone(&all));
    let mut two = ask();
    (two["n"], two["stream"]) = (json!(2), json!(true));
    let fields = format!("host: localhost\r\n{}", bearer("two"));
    let mut running = Client::connect(rig.addr);
    send(&mut running, "POST", CHAT, &fields, &two.to_string());
    assert_eq!(running.head().status, 200);
    let third = chat(&rig, "two", &ask());
    assert_eq!(
        error(&third),
        is(429, "rate_limit_error", "rate_limit_exceeded")
    );
    let again = third.head.get("retry-after-ms").map(str::parse::<u64>);
    assert!(matches!(again, Some(Ok(100..=60_000))), "{again:?}");
    two["n"] = json!(3);
    let never = chat(&rig, "two", &two);
    assert_eq!(error(&never), is(400, CALLER, "choices_over_quota"));
    // Revoked at once, while what runs goes on.
    all.replace(&[key("free", &[Scope::Inference])]).unwrap();
    assert_eq!(
        error(&chat(&rig, "two", &ask())),
        is(401, CALLER, "invalid_api_key")
    );
    rig.gate.open();
    assert!(running.body().ends_with("data: [DONE]\n\n"));
    assert_eq!(chat(&rig, "free", &ask()).head.status, 200);
    rig.wait_until_empty();
}

#[test]
fn disconnected_client_releases_its_stream_limit() {
    let limits = KeyLimits {
        concurrent_streams: NonZeroU32::new(1),
        ..KeyLimits::default()
    };
    let rig = Rig::behind(fake(), config(), keys(&[limited("one", limits)]));
    let fields = format!("host: localhost\r\n{}", bearer("one"));
    let mut stream = ask();
    stream["stream"] = json!(true);
    let mut leaves = Client::connect(rig.addr);
    send(&mut leaves, "POST", CHAT, &fields, &stream.to_string());
    assert_eq!(leaves.head().status, 200);
    assert_eq!(chat(&rig, "one", &ask()).head.status, 429);
    drop(leaves);
    rig.gate.open();
    wait_until("the stream is given back", || {
        chat(&rig, "one", &ask()).head.status == 200
    });
}

#[test]
fn any_key_is_accepted_without_configured_keys() {
    let rig = Rig::start();
    assert_eq!(post(rig.addr, CHAT, &ask()).head.status, 200);
    assert_eq!(chat(&rig, "whoever", &ask()).head.status, 200);
}
