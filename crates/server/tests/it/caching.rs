//! Answers that caches between client and server may keep.
//!
//! Promise (APIs): an answer to GET or HEAD is stored by no cache, except for the files of the page.
//! Also held by `server/tests/it/page.rs`.

use crate::support::Rig;
use crate::support::client::{Client, get, post};
use serde_json::json;

#[test]
fn answer_to_get_is_stored_by_no_cache() {
    let rig = Rig::start();
    for path in [
        "/v1/models",
        "/api/tags",
        "/health",
        "/health/readiness",
        "/props",
        "/slots",
        "/v1/streams",
        "/metrics",
        "/nowhere",
    ] {
        let reply = get(rig.addr, path);
        assert_eq!(reply.head.get("cache-control"), Some("no-store"), "{path}");
    }
    let mut client = Client::connect(rig.addr);
    client.send(b"HEAD /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert_eq!(client.head().get("cache-control"), Some("no-store"));
    // The answer to a POST is stored by no cache anyway.
    let body = json!({"prompt": "a", "max_tokens": 1});
    let reply = post(rig.addr, "/v1/completions", &body);
    assert_eq!(reply.head.get("cache-control"), None);
}
