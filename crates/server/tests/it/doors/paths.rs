//! Paths and model names as clients get them wrong.
//!
//! Promise (APIs): a base address with `/v1`, without, twice, or with extra slashes reaches the same routes; any
//! other path, or an unknown model, is a 404 that suggests the nearest one, in each API.
//! Also held by `server/src/request/paths.rs`, `gateway/src/models/resolved_model.rs`.

use super::{ask, error};
use crate::support::client::{get, post};
use crate::support::{MODEL, Rig};
use serde_json::{Value, json};

#[test]
fn base_url_works_with_and_without_v1_and_with_v1_twice() {
    let rig = Rig::start();
    let gets = [
        "/v1/models",
        "/models",
        "/v1/models/",
        "//v1/models",
        "/v1/v1/models",
        "/v1/api/tags",
    ];
    for path in gets {
        let reply = get(rig.addr, path);
        assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
        assert!(reply.body.contains(MODEL), "{path}: {}", reply.body);
    }
    let model = get(rig.addr, &format!("/models/{MODEL}"));
    assert_eq!(model.json()["id"], MODEL);
    let posts = [
        ("/chat/completions", ask()),
        ("/v1/chat/completions/", ask()),
        ("/v1/v1/chat/completions", ask()),
        ("/completions", json!({"prompt": "hi", "max_tokens": 2})),
        ("/embeddings", json!({"input": "hi"})),
        (
            "/responses",
            json!({"input": "hi", "max_output_tokens": 16}),
        ),
        ("/messages", ask()),
        ("/messages/count_tokens", ask()),
        ("/v1/api/chat", ask()),
    ];
    for (path, body) in posts {
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
    }
    rig.wait_until_empty();
}

#[test]
fn paths_of_other_servers_are_answered() {
    let rig = Rig::start();
    for (path, place, want) in [
        ("/healthz", "/status", None),
        ("/livez", "/status", None),
        ("/readyz", "/status", None),
        ("/version", "/version", Some(env!("CARGO_PKG_VERSION"))),
    ] {
        let reply = get(rig.addr, path);
        assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
        let told = reply.json();
        let told = told.pointer(place).and_then(Value::as_str);
        assert!(
            told.is_some() && want.is_none_or(|want| told == Some(want)),
            "{path}: {told:?}"
        );
    }
    assert_eq!(get(rig.addr, "/").head.status, 200);
}

#[test]
fn unknown_path_error_names_the_similar_path() {
    let rig = Rig::start();
    for (path, meant) in [
        ("/v1", "/v1/models"),
        ("/v1/chat/completion", "did you mean /v1/chat/completions?"),
        (
            "/openai/v1/chat/completions",
            "did you mean /v1/chat/completions?",
        ),
        ("/completio", "did you mean /completion?"),
        ("/v1/images/generations", "GET /docs lists all paths"),
    ] {
        let reply = post(rig.addr, path, &ask());
        assert_eq!(error(&reply).0, 404, "{path}");
        let words = reply.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(words.contains(meant), "{path}: {words}");
    }
}

#[test]
fn unknown_model_error_names_the_served_model_in_every_dialect() {
    let rig = Rig::start();
    let body = json!({
        "model": "fak3", "prompt": "hi", "input": "hi", "max_tokens": 2, "max_output_tokens": 16,
        "messages": [{"role": "user", "content": "hi"}],
    });
    let want = format!("model 'fak3' not found; there is '{MODEL}'");
    for (path, place) in [
        ("/v1/chat/completions", "/error/message"),
        ("/v1/completions", "/error/message"),
        ("/v1/responses", "/error/message"),
        ("/v1/embeddings", "/error/message"),
        ("/v1/messages", "/error/message"),
        ("/v1/jobs", "/errors/0/constraint"),
        ("/api/chat", "/error"),
        ("/api/show", "/error"),
    ] {
        let mut body = body.clone();
        if path == "/v1/jobs" {
            body.as_object_mut().unwrap().remove("messages");
        }
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 404, "{path}: {}", reply.body);
        let told = reply.json();
        let told = told.pointer(place).and_then(Value::as_str);
        assert_eq!(told, Some(want.as_str()), "{path}: {}", reply.body);
    }
    let one = get(rig.addr, "/v1/models/fak3");
    assert_eq!(one.json()["error"]["message"], want);
}
