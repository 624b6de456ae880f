//! What web pages of other origins get, as their browsers see it.
//!
//! Promise (Admission and keys): a web page of this machine or of a listed origin may use every route; any other can
//! run nothing that its browser would send without a preflight, and cannot open a WebSocket.
//! Also held by `server/src/access/origins.rs`, `server/tests/it/realtime/hostile.rs`.

use super::{CALLER, CHAT, ask, bearer, error, is, key, keys, reply};
use crate::support::client::{Client, Head, Reply};
use crate::support::{Rig, config};
use server::{Origins, Scope, ServerConfig};

const LOCAL: &str = "http://localhost:3000";
const LISTED: &str = "https://chat.example.com";
const FOREIGN: &str = "https://evil.example";

fn allowing(entries: &[&str]) -> ServerConfig {
    let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
    ServerConfig {
        origins: Origins::parse(&entries).unwrap(),
        ..config()
    }
}

fn preflight(rig: &Rig, path: &str, origin: &str) -> Reply {
    let fields = format!(
        "host: localhost\r\norigin: {origin}\r\naccess-control-request-method: POST\r\n\
         access-control-request-headers: authorization,content-type,x-own\r\n"
    );
    reply(rig, "OPTIONS", path, &fields, "")
}

/// A request's head, and what its browser lets the page see of the answer.
fn from_page(rig: &Rig, method: &str, path: &str, origin: &str, more: &str) -> Reply {
    let fields = format!("host: localhost\r\norigin: {origin}\r\n{more}");
    reply(rig, method, path, &fields, &ask().to_string())
}

fn allowed(head: &Head) -> Option<&str> {
    head.get("access-control-allow-origin")
}

#[test]
fn preflight_of_an_allowed_origin_succeeds_on_every_path() {
    let rig = Rig::keyed(allowing(&[LISTED]), &keys(&[]));
    let paths = [
        CHAT,
        "/v1/models",
        "/api/chat",
        "/v1/messages",
        "/v1/streams/x/ack",
        "/health",
        "/docs",
        "/nothing",
    ];
    for path in paths {
        for origin in [LOCAL, LISTED, "app://obsidian.md"] {
            let Reply { head, body, .. } = preflight(&rig, path, origin);
            assert_eq!((head.status, body.as_str()), (204, ""), "{path} {origin}");
            assert_eq!(allowed(&head), Some(origin), "{path}");
            let methods = head.get("access-control-allow-methods").unwrap();
            assert!(
                ["GET", "POST", "DELETE"]
                    .iter()
                    .all(|m| methods.contains(m)),
                "{methods}"
            );
            let fields = head.get("access-control-allow-headers");
            assert_eq!(fields, Some("authorization,content-type,x-own"));
            assert!(
                head.get("access-control-max-age")
                    .unwrap()
                    .parse::<u32>()
                    .unwrap()
                    > 0
            );
            assert_eq!(head.get("vary"), Some("origin"));
            assert_eq!(head.get("access-control-allow-credentials"), None);
        }
        let refused = preflight(&rig, path, FOREIGN);
        assert_eq!(
            (refused.head.status, allowed(&refused.head)),
            (403, None),
            "{path}"
        );
    }
    assert_eq!(
        error(&preflight(&rig, CHAT, FOREIGN)),
        is(403, CALLER, "origin_refused")
    );
}

#[test]
fn cors_headers_are_on_every_response() {
    let rig = Rig::keyed(config(), &keys(&[key("a", &[Scope::Inference])]));
    let own = bearer("a");
    let rows = [
        ("an answer", "POST", CHAT, own.as_str(), 200),
        ("a list", "GET", "/v1/models", &own, 200),
        ("no key", "POST", CHAT, "", 401),
        ("no scope", "GET", "/metrics", &own, 403),
        ("no path", "GET", "/nothing", &own, 404),
        ("no such method", "PATCH", CHAT, &own, 405),
        ("health", "GET", "/health", "", 200),
    ];
    for (label, method, path, fields, status) in rows {
        for (origin, want) in [(LOCAL, Some(LOCAL)), (FOREIGN, None)] {
            let head = from_page(&rig, method, path, origin, fields).head;
            assert_eq!(head.status, status, "{label} {origin}");
            assert_eq!(allowed(&head), want, "{label}");
            assert_eq!(head.get("vary"), Some("origin"), "{label} {origin}");
            let exposed = head.get("access-control-expose-headers");
            assert_eq!(exposed.is_some(), want.is_some(), "{label}");
            if let Some(exposed) = exposed {
                let all = [
                    "x-request-id",
                    "x-stream-id",
                    "retry-after",
                    "retry-after-ms",
                ];
                assert!(all.iter().all(|name| exposed.contains(name)), "{exposed}");
            }
        }
    }
    let misdirected = "host: evil.example\r\norigin: http://localhost\r\n";
    let head = reply(&rig, "GET", "/v1/models", misdirected, "").head;
    assert_eq!(
        (head.status, allowed(&head)),
        (421, Some("http://localhost"))
    );
    let programs = reply(
        &rig,
        "GET",
        "/v1/models",
        &format!("host: localhost\r\n{own}"),
        "",
    );
    assert_eq!(
        (allowed(&programs.head), programs.head.get("vary")),
        (None, None)
    );
    rig.wait_until_empty();
}

#[test]
fn cors_headers_are_on_streams() {
    let rig = Rig::start();
    let mut client = Client::connect(rig.addr);
    let mut body = ask();
    body["stream"] = true.into();
    let fields = format!("host: localhost\r\norigin: {LOCAL}\r\n");
    super::send(&mut client, "POST", CHAT, &fields, &body.to_string());
    let Reply { head, body, .. } = client.reply();
    assert_eq!(head.status, 200);
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    assert_eq!(allowed(&head), Some(LOCAL));
    assert!(head.get("x-stream-id").is_some());
    assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    rig.wait_until_empty();
}

#[test]
fn requests_without_preflight_run_nothing() {
    let rig = Rig::start();
    let text = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ];
    let stated = |kind: &str| format!("content-type: {kind}\r\n");
    let kinds = text.map(stated);
    let posted = |path: &str, fields: &str| {
        let body = ask().to_string();
        let mut client = Client::connect(rig.addr);
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {length}\r\n\r\n"
        );
        client.send((head + &body).as_bytes());
        client.reply().head.status
    };
    for path in [
        CHAT,
        "/v1/completions",
        "/api/chat",
        "/v1/messages",
        "/v1/jobs",
        "/tokenize",
        "/v1/embeddings",
    ] {
        for kind in kinds.iter().map(String::as_str).chain([""]) {
            let foreign = posted(path, &format!("origin: {FOREIGN}\r\n{kind}"));
            assert_eq!(foreign, 403, "{path} {kind}");
            let null = posted(path, &format!("origin: null\r\n{kind}"));
            assert_eq!(null, 403, "{path} {kind}");
            for page in [
                "origin: http://localhost:3000\r\n",
                "origin: http://localhost\r\n",
                "sec-fetch-site: none\r\n",
            ] {
                assert_eq!(
                    posted(path, &format!("{page}{kind}")),
                    415,
                    "{path} {kind} {page}"
                );
            }
        }
    }
    // A program: whatever it calls its JSON, as `curl -d` does.
    for kind in kinds.iter().map(String::as_str).chain([""]) {
        assert_eq!(posted(CHAT, kind), 200, "{kind}");
    }
    // Without a body: nothing to read, and nothing done.
    let bare = format!("host: localhost\r\norigin: {FOREIGN}\r\n");
    let mut client = Client::connect(rig.addr);
    client.send(format!("POST /v1/streams/x/pause HTTP/1.1\r\n{bare}\r\n").as_bytes());
    assert_eq!(error(&client.reply()), is(403, CALLER, "origin_refused"));
    rig.wait_until_empty();
}

#[test]
fn allowed_origins_are_configurable() {
    let rows: [(&[&str], &str, Option<&str>); 6] = [
        (&["*"], FOREIGN, Some("*")),
        (&["*"], "null", Some("*")),
        (&["none"], LOCAL, None),
        (&["none", LISTED], LISTED, Some(LISTED)),
        (&["https://*.example.com"], LISTED, Some(LISTED)),
        (
            &["chrome-extension://*"],
            "chrome-extension://abc",
            Some("chrome-extension://abc"),
        ),
    ];
    for (entries, origin, want) in rows {
        let rig = Rig::with(super::fake(), allowing(entries));
        let status = preflight(&rig, CHAT, origin).head.status;
        assert_eq!(
            status,
            if want.is_some() { 204 } else { 403 },
            "{entries:?}"
        );
        let answer = from_page(&rig, "POST", CHAT, origin, "").head;
        assert_eq!(
            (answer.status, allowed(&answer)),
            (200, want),
            "{entries:?}"
        );
    }
}
