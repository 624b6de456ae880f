//! Request bodies of every malformed kind, for every route that takes one: each is answered with a status below 500,
//! each refusal says why in JSON, and nothing is held afterwards.

mod malformed;
mod routes;
mod values;

use crate::support::client::{Client, Reply};
use crate::support::{Rig, config, fake};
use engine::fake::FakeConfig;
use malformed::MALFORMED;
use routes::{ROUTES, Route};
use serde_json::Value;
use server::{ServerConfig, StreamLimits};
use std::time::Duration;
use values::{VALUES, fields};

/// Longer than any body of the tables but the one that exceeds it.
const BODY_BYTES_MAX: usize = 1 << 20;

#[test]
fn malformed_bodies_are_rejected_on_every_route() {
    let (rig, mut failures) = (rig(), Vec::new());
    for route in ROUTES {
        for (kind, write) in MALFORMED {
            let reply = post(&rig, route, &write(&route.body()));
            failures.extend(failure(&reply).map(|why| format!("{kind} to {}: {why}", route.path)));
        }
    }
    assert_none(&failures);
    assert_serves(&rig);
}

#[test]
fn absurd_values_never_fail_the_server() {
    let (rig, mut failures) = (rig(), Vec::new());
    for route in ROUTES {
        for field in fields(&route.body()) {
            for (kind, value) in VALUES {
                let mut body = route.body();
                body[&field] = value();
                let reply = post(&rig, route, body.to_string().as_bytes());
                if (200..300).contains(&reply.head.status) {
                    continue;
                }
                let case = format!("{field} = {kind} to {}", route.path);
                failures.extend(failure(&reply).map(|why| format!("{case}: {why}")));
            }
        }
    }
    assert_none(&failures);
    assert_serves(&rig);
}

#[test]
fn bodies_over_the_limit_are_rejected_before_they_are_sent() {
    let (rig, mut failures) = (rig(), Vec::new());
    for route in ROUTES {
        for length in [BODY_BYTES_MAX as u64 + 1, i64::MAX as u64] {
            let mut client = Client::connect(rig.addr);
            client.send(head(route, &length.to_string()).as_bytes());
            let reply = client.reply();
            let why = match reply.head.status {
                413 => failure(&reply),
                status => Some(format!("{status}: {}", reply.body)),
            };
            failures.extend(why.map(|why| format!("{length} bytes to {}: {why}", route.path)));
        }
    }
    assert_none(&failures);
    assert_serves(&rig);
}

fn rig() -> Rig {
    let model = FakeConfig {
        eos_probability: 0.5,
        ..fake()
    };
    let config = ServerConfig {
        body_bytes_max: BODY_BYTES_MAX,
        streams: StreamLimits {
            // Jobs have no reader here, and nobody comes back to one.
            retention: Duration::from_millis(50),
            detached_wait: Duration::from_millis(50),
            ..StreamLimits::default()
        },
        ..config()
    };
    Rig::with(model, config)
}

fn post(rig: &Rig, route: &Route, body: &[u8]) -> Reply {
    let mut client = Client::connect(rig.addr);
    client.send(&[head(route, &body.len().to_string()).as_bytes(), body].concat());
    client.reply()
}

fn head(route: &Route, length: &str) -> String {
    format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        route.path
    )
}

/// Why this is no proper refusal: it is one with a status of the caller's fault and an error with a message.
fn failure(reply: &Reply) -> Option<String> {
    let Ok(said) = serde_json::from_str::<Value>(&reply.body) else {
        return Some(format!("{}, no JSON: {:?}", reply.head.status, reply.body));
    };
    let messages = [
        &said["error"],
        &said["error"]["message"],
        &said["errors"][0]["message"],
    ];
    let is_told = messages
        .iter()
        .any(|message| message.as_str().is_some_and(|message| !message.is_empty()));
    let is_refused = (400..500).contains(&reply.head.status);
    (!is_refused || !is_told).then(|| format!("{}: {said}", reply.head.status))
}

fn assert_none(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Nothing of the requests before is left, and the next is answered.
fn assert_serves(rig: &Rig) {
    rig.wait_until_empty();
    let chat = &ROUTES[0];
    let reply = post(rig, chat, chat.body().to_string().as_bytes());
    assert_eq!(reply.head.status, 200, "{}", reply.body);
}
