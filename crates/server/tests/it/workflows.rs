//! Workflows over HTTP: a run is a stream like any other.
//!
//! Promise (Workflows): a key is charged once for the tokens that its runs compute, emitted or not.
//!
//! Promise (Workflows): a run over HTTP gives the output of a job, streamed, non-streaming and resumed from any
//! position; it is paused, resumed and cancelled as any stream, and its client writes its channels.

use crate::support::named::{call, get, kept, stream_id};
use crate::support::owners::key;
use crate::support::{Rig, fake, vocab, wait_until};
use serde_json::{Value, json};
use server::{Key, KeyLimits, Keys, Scope, ServerConfig};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

fn bounds() -> ServerConfig {
    ServerConfig {
        workflows: Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../workflows")),
        ..kept()
    }
}

fn start(rig: &Rig, name: &str, body: &Value) -> crate::support::client::Reply {
    call(rig, "POST", &format!("/v1/workflows/{name}/runs"), "", body)
}

/// What a run came to, once it has ended.
fn outcome(rig: &Rig, id: &str) -> Value {
    let path = format!("/v1/runs/{id}");
    wait_until("it ends", || get(rig, &path, "").json()["end"].is_string());
    get(rig, &path, "").json()
}

/// The text of a streamed job, and for each frame with an `id:` that and the text up to there.
fn told(body: &str) -> (String, Vec<(String, String)>) {
    let mut text = String::new();
    let mut places = Vec::new();
    for frame in body.split_terminator("\n\n") {
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
        let json: Value = field("data: ")
            .and_then(|data| serde_json::from_str(data).ok())
            .unwrap_or(Value::Null);
        if json["type"] == "token" {
            text.push_str(json["t"].as_str().unwrap());
        }
        if let Some(id) = field("id: ") {
            places.push((id.to_owned(), text.clone()));
        }
    }
    (text, places)
}

/// What a plain job says to this.
fn plain(rig: &Rig, prompt: &str, max_tokens: usize) -> String {
    let body = json!({"messages": [{"role": "user", "content": prompt}], "temperature": 0,
        "max_tokens": max_tokens, "stream": false});
    let whole = call(rig, "POST", "/v1/inference", "", &body).json();
    whole["text"].as_str().unwrap().to_owned()
}

#[test]
fn documents_are_listed_with_their_inputs() {
    let rig = Rig::with(fake(), bounds());
    let listed = get(&rig, "/v1/workflows", "").json();
    let names: Vec<&str> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|workflow| workflow["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 8);
    assert!(names.contains(&"batched_generation"), "{names:?}");
    let one = get(&rig, "/v1/workflows/text_generation", "").json();
    let heat = &one["inputs"][2];
    assert_eq!(
        heat,
        &json!({"name": "temperature", "type": "f32", "hidden": false, "label": "Temperature",
            "description": "0 takes the likeliest", "default": 0.0, "min": 0.0, "max": 2.0, "step": 0.1})
    );
    for name in ["nothing", "..%2FCargo", "a.b"] {
        let reply = get(&rig, &format!("/v1/workflows/{name}"), "");
        assert_eq!(reply.head.status, 404, "{name}");
    }
    let without = Rig::start();
    assert_eq!(get(&without, "/v1/workflows", "").json()["data"], json!([]));
    assert_eq!(
        start(&without, "text_generation", &json!({})).head.status,
        404
    );
}

#[test]
fn run_equals_a_job_streamed_non_streaming_and_resumed() {
    let rig = Rig::with(fake(), bounds());
    for prompt in ["hi", "what is a mill"] {
        let wanted = plain(&rig, prompt, 30);
        for (name, more) in [
            ("streamed_generation", json!({})),
            (
                "batched_generation",
                json!({"batch_size": 3, "ahead": true}),
            ),
            ("batched_generation", json!({"batch_size": 7})),
        ] {
            let mut kwargs = json!({"prompt": prompt, "max_tokens": 30});
            for (key, value) in more.as_object().unwrap() {
                kwargs[key] = value.clone();
            }
            let streamed = start(&rig, name, &json!({"kwargs": kwargs}));
            assert_eq!(streamed.head.status, 200, "{}", streamed.body);
            let (text, places) = told(&streamed.body);
            assert_eq!(text, wanted, "{name}");
            let id = stream_id(&streamed.head);
            let run = outcome(&rig, &id);
            assert_eq!(
                (&run["state"], &run["value"]),
                (&json!("ended"), &json!(wanted))
            );
            // From any place that was told, the rest is the same.
            assert!(!places.is_empty(), "{}", streamed.body);
            for (place, before) in places.iter().step_by(5) {
                let rest = get(&rig, &format!("/v1/streams/{id}/events?after={place}"), "");
                assert_eq!(
                    format!("{before}{}", told(&rest.body).0),
                    wanted,
                    "after {place}"
                );
            }
            let whole = start(&rig, name, &json!({"kwargs": kwargs, "stream": false})).json();
            assert_eq!(whole["text"], wanted, "{whole}");
        }
    }
}

#[test]
fn invalid_fields_are_named() {
    let rig = Rig::with(fake(), bounds());
    let cases = [
        (json!({"kwargs": {}}), "prompt"),
        (json!({"kwargs": {"prompt": 3}}), "prompt"),
        (
            json!({"kwargs": {"prompt": "x", "max_tokens": 0}}),
            "max_tokens",
        ),
        (json!({"kwargs": {"prompt": "x", "colour": 1}}), "colour"),
        (json!({"kwargs": 3}), "kwargs"),
        (
            json!({"kwargs": {"prompt": "x"}, "max_tokens": 0}),
            "max_tokens",
        ),
        (
            json!({"kwargs": {"prompt": "x"}, "images": ["QUJD"]}),
            "images",
        ),
    ];
    for (body, field) in cases {
        let reply = start(&rig, "text_generation", &body);
        assert_eq!(reply.head.status, 400, "{body}: {}", reply.body);
        assert_eq!(reply.json()["errors"][0]["field"], field, "{}", reply.body);
    }
    let kwargs = json!({"prompt": "x", "max_tokens": 1});
    let body = json!({"kwargs": kwargs, "images": [], "temperature": 0, "stream": false});
    let reply = start(&rig, "text_generation", &body);
    let ignored = reply.head.get("x-millrace-ignored-fields");
    assert_eq!(ignored, Some("temperature"), "{}", reply.body);
    rig.wait_until_empty();
}

#[test]
fn client_writes_and_closes_a_channel() {
    let rig = Rig::with(fake(), bounds());
    for (body, end, value) in [
        (
            json!({"ids": [97, 98, 99, vocab::EOS]}),
            "stop",
            json!("abc"),
        ),
        (json!({"ids": [97], "close": true}), "failed", json!(null)),
    ] {
        let path = "/v1/workflows/external_sampling/runs";
        let ask = json!({"kwargs": {"prompt": "hi"}});
        let mut client = crate::support::named::send(&rig, "POST", path, "", &ask);
        let id = stream_id(&client.head());
        let channel = format!("/v1/runs/{id}/channels/chosen");
        wait_until("the channel is there", || {
            let nothing = json!({"ids": []});
            call(&rig, "POST", &channel, "", &nothing).head.status == 200
        });
        let written = call(&rig, "POST", &channel, "", &body).json();
        assert_eq!(written["written"], body["ids"].as_array().unwrap().len());
        let run = outcome(&rig, &id);
        assert_eq!((&run["end"], &run["value"]), (&json!(end), &value), "{run}");
        let late = call(&rig, "POST", &channel, "", &json!({"ids": [1]}));
        assert_eq!(late.head.status, 409);
    }
}

#[test]
fn run_pauses_resumes_and_cancels() {
    let rig = Rig::gated(fake(), bounds());
    let path = "/v1/workflows/streamed_generation/runs";
    let ask = json!({"kwargs": {"prompt": "hi", "max_tokens": 30}});
    let mut client = crate::support::named::send(&rig, "POST", path, "", &ask);
    let id = stream_id(&client.head());
    let order = |what: &str| {
        let reply = call(
            &rig,
            "POST",
            &format!("/v1/streams/{id}/{what}"),
            "",
            &Value::Null,
        );
        assert_eq!(reply.head.status, 200, "{what}: {}", reply.body);
    };
    order("pause");
    assert_eq!(
        get(&rig, &format!("/v1/runs/{id}"), "").json()["state"],
        "paused"
    );
    rig.gate.open();
    order("resume");
    assert_eq!(outcome(&rig, &id)["value"], plain(&rig, "hi", 30));

    let rig = Rig::gated(fake(), bounds());
    let mut client = crate::support::named::send(&rig, "POST", path, "", &ask);
    let id = stream_id(&client.head());
    let gone = call(
        &rig,
        "DELETE",
        &format!("/v1/streams/{id}"),
        "",
        &Value::Null,
    );
    assert_eq!(gone.head.status, 202);
    assert_eq!(outcome(&rig, &id)["end"], "cancelled");
    rig.gate.open();
    wait_until("pages are given back", || {
        rig.engine.stats().pages_used() == 0
    });
}

#[test]
fn key_is_charged_for_all_tokens_of_its_runs() {
    let secret = "mr_runs_0123456789";
    let fields = format!("authorization: Bearer {secret}\r\n");
    let chat = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1});
    let per_min = 6;
    for (name, n, tokens) in [
        ("streamed_generation", json!(null), 2 + 20), // all told, and charged once
        ("best_of_n", json!(2), 2 * (2 + 20)),        // none told
    ] {
        let key = Key {
            limits: KeyLimits {
                tokens_per_min: NonZeroU32::new(per_min),
                ..KeyLimits::default()
            },
            ..key("runs", secret, &[Scope::Inference])
        };
        let keys = Arc::new(Keys::new(&[key]).expect("a key"));
        let rig = Rig::behind(crate::support::named::fake(), bounds(), keys);
        rig.gate.open();
        let mut kwargs = json!({"prompt": "hi", "max_tokens": 20});
        if n.is_number() {
            kwargs["n"] = n;
        }
        let path = format!("/v1/workflows/{name}/runs");
        let ask = json!({"kwargs": kwargs, "stream": false});
        let ran = call(&rig, "POST", &path, &fields, &ask);
        assert_eq!(ran.head.status, 200, "{}", ran.body);
        let refused = call(&rig, "POST", "/v1/chat/completions", &fields, &chat);
        assert_eq!(refused.head.status, 429, "{name}: {}", refused.body);
        let told = refused.head.get("retry-after-ms").expect("when");
        let wait_ms: u64 = told.parse().unwrap();
        // What it owes, with the next prompt and without what may be used at once; some passed since.
        let owed_ms = u64::from(tokens + 2 - per_min) * 60_000 / u64::from(per_min);
        assert!(
            (owed_ms * 3 / 4..=owed_ms).contains(&wait_ms),
            "{name}: {wait_ms}"
        );
    }
}
