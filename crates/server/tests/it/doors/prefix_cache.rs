//! Which requests share cached prompts: `cached_tokens` tells no key what another key has sent.

use super::{chat, key, keys, secret};
use crate::support::{Rig, config};
use serde_json::{Value, json};
use server::{Keys, PrefixSharing, Scope, ServerConfig};
use std::path::PathBuf;
use std::sync::Arc;

/// Tokens of a prompt of this many letters that are taken from full pages of 16: all but the last token
/// are looked for.
const LETTERS: usize = 100;
const CACHED: u64 = 96;

fn two_keys() -> Arc<Keys> {
    keys(&[key("a", &[Scope::Inference]), key("b", &[Scope::Inference])])
}

/// A prompt that begins with `first`, so that no two tests' rows share pages.
fn ask(first: char, salt: Option<&str>) -> Value {
    let prompt: String = std::iter::once(first)
        .chain((1..LETTERS).map(|i| char::from(b'a' + (i % 26) as u8)))
        .collect();
    let mut body = json!({
        "messages": [{"role": "user", "content": prompt}], "max_tokens": 2, "ignore_eos": true,
    });
    if let Some(salt) = salt {
        body["cache_salt"] = json!(salt);
    }
    body
}

/// Prompt tokens that this key's request found in the cache.
fn cached(rig: &Rig, name: &str, body: &Value) -> u64 {
    let reply = chat(rig, name, body);
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    let usage = &reply.json()["usage"];
    usage["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap()
}

/// Label, key, first letter, salt of the request, and the tokens that must be found.
type Row<'a> = (&'a str, &'a str, char, Option<&'a str>, u64);

fn check(rig: &Rig, rows: &[Row<'_>]) {
    for &(label, name, first, salt, want) in rows {
        assert_eq!(cached(rig, name, &ask(first, salt)), want, "{label}");
    }
    rig.wait_until_empty();
}

#[test]
fn cached_prompts_are_separate_for_each_key() {
    let rig = Rig::keyed(config(), &two_keys());
    check(
        &rig,
        &[
            ("nobody sent it before", "a", 'a', None, 0),
            ("the same key", "a", 'a', None, CACHED),
            ("another key", "b", 'a', None, 0),
            ("that key again", "b", 'a', None, CACHED),
            ("the first key under a salt", "a", 'a', Some("s"), 0),
            ("the same salt", "a", 'a', Some("s"), CACHED),
            ("another key's same salt", "b", 'a', Some("s"), 0),
            ("another salt", "a", 'a', Some("t"), 0),
        ],
    );
}

#[test]
fn cached_prompts_are_shared_between_keys_if_configured() {
    let shared = ServerConfig {
        prefix_sharing: PrefixSharing::Shared,
        ..config()
    };
    let rig = Rig::keyed(shared, &two_keys());
    check(
        &rig,
        &[
            ("nobody sent it before", "a", 'a', None, 0),
            ("another key", "b", 'a', None, CACHED),
            ("a salt of its own", "a", 'a', Some("s"), 0),
            ("another key with that salt", "b", 'a', Some("s"), CACHED),
        ],
    );
}

#[test]
fn cached_prompts_are_shared_without_keys() {
    let rig = Rig::start();
    check(
        &rig,
        &[
            ("nobody sent it before", "", 'a', None, 0),
            ("again", "", 'a', None, CACHED),
            ("under a salt", "", 'a', Some("s"), 0),
            ("under that salt again", "", 'a', Some("s"), CACHED),
        ],
    );
    for salt in ["", &"x".repeat(257)] {
        let reply = chat(&rig, "", &ask('a', Some(salt)));
        assert_eq!(reply.head.status, 400, "{} bytes", salt.len());
        assert!(reply.body.contains("cache_salt"), "{}", reply.body);
    }
}

/// The choices of one request share their prompt; so do the runs of one key's programs, and nobody else's.
#[test]
fn choices_and_runs_share_cached_prompts_of_their_key() {
    let workflows = ServerConfig {
        workflows: Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../workflows")),
        ..config()
    };
    let rig = Rig::keyed(workflows, &two_keys());
    let hits = || rig.engine.stats().prefix_hit_tokens();
    let post = |name: &str, path: &str, body: &Value| {
        let fields = format!("host: localhost\r\nx-api-key: {}\r\n", secret(name));
        let reply = super::reply(&rig, "POST", path, &fields, &body.to_string());
        assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
    };
    let choices = json!({"prompt": "x".repeat(LETTERS), "max_tokens": 2, "best_of": 4, "n": 2});
    post("a", "/v1/completions", &choices);
    rig.wait_until_empty();
    let computed = rig.engine.stats().prompt_tokens_computed();
    assert_eq!(computed, LETTERS as u64, "once for all choices");
    let given = json!({"kwargs": {"prompt": "y".repeat(LETTERS), "max_tokens": 4}});
    let run = |name: &str| post(name, "/v1/workflows/text_generation/runs", &given);
    run("a");
    let first = hits();
    run("b");
    assert_eq!(hits(), first, "another key's run finds nothing");
    run("a");
    assert!(hits() >= first + CACHED, "the same key's finds its prompt");
}

/// What a key learns in any other format is counted by the same fold; one of each family of routes.
#[test]
fn no_dialect_reveals_prompts_of_another_key() {
    let rig = Rig::keyed(config(), &two_keys());
    let prompt = "x".repeat(LETTERS);
    let message = json!([{"role": "user", "content": prompt}]);
    let formats = [
        (
            "/v1/completions",
            json!({"prompt": prompt, "max_tokens": 2}),
            "/usage/prompt_tokens_details/cached_tokens",
        ),
        (
            "/v1/messages",
            json!({"messages": message, "max_tokens": 2}),
            "/usage/cache_read_input_tokens",
        ),
        (
            "/v1/responses",
            json!({"input": prompt, "max_output_tokens": 16}),
            "/usage/input_tokens_details/cached_tokens",
        ),
    ];
    for (i, (path, body, place)) in formats.into_iter().enumerate() {
        let mut body = body;
        body["cache_salt"] = json!(format!("format {i}"));
        let found = |name: &str| {
            let fields = format!("host: localhost\r\nx-api-key: {}\r\n", secret(name));
            let reply = super::reply(&rig, "POST", path, &fields, &body.to_string());
            assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
            reply.json().pointer(place).and_then(Value::as_u64).unwrap()
        };
        let told = [found("a"), found("b"), found("a")];
        assert_eq!(told, [0, 0, CACHED], "{path}");
    }
    rig.wait_until_empty();
}
