//! Stored responses and chat completions after a restart.
//!
//! Promise (Journal): ended responses and stored chat completions survive a restart with their bytes, order, metadata
//! and owner; deleted and evicted ones do not come back; one of a later version stays in the journal.
//! Also held by `gateway/src/stored/response_store_tests.rs`, `gateway/src/stored/stored_snapshot.rs`.

use super::copies::Journaled;
use crate::support::named::{CHAT, RESUMABLE, call, chat, fake, get, kept, set_fields, stream_id};
use crate::support::wait_until;
use journal::Record;
use serde_json::{Value, json};
use server::ServerConfig;

const RESPONSES: &str = "/v1/responses";

fn request(over: &Value) -> Value {
    let mut body = json!({"model": "fake", "input": "hi", "max_output_tokens": 8, "seed": 3});
    set_fields(&mut body, over);
    body
}

impl Journaled {
    fn post(&self, path: &str, fields: &str, body: &Value) -> Value {
        let reply = call(&self.rig, "POST", path, fields, body);
        assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
        reply.json()
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let reply = get(&self.rig, path, "");
        (reply.head.status, reply.json())
    }

    /// A server on a copy of the journal, as soon as the copy has the answers at these paths.
    fn restarted_with(&self, paths: &[&str], config: &ServerConfig) -> Self {
        let mut found = None;
        wait_until("the answers are in the journal", || {
            let restarted = self.copy().start(fake(), config.clone());
            restarted.rig.gate.open();
            let is_there = paths.iter().all(|path| restarted.get(path).0 == 200);
            found = is_there.then_some(restarted);
            is_there
        });
        found.expect("found")
    }
}

fn path_of(root: &str, answer: &Value) -> String {
    format!("{root}/{}", answer["id"].as_str().expect("an id"))
}

#[test]
fn ended_answers_are_there_after_restarts() {
    let first = Journaled::gated("stored", fake(), kept());
    first.rig.gate.open();
    let one = first.post(RESPONSES, "", &request(&json!({})));
    let over = json!({"previous_response_id": one["id"], "input": "more", "metadata": {"a": "b"}});
    let two = first.post(RESPONSES, "", &request(&over));
    let body = chat(
        &json!({"stream": false, "store": true, "n": 2, "logprobs": true, "metadata": {"a": "b"}}),
    );
    let completion = first.post(CHAT, "", &body);
    let unstored = first.post(RESPONSES, "", &request(&json!({"store": false})));
    let private = first.post(RESPONSES, "x-stream-durable: 0\r\n", &request(&json!({})));
    let paths = [
        path_of(RESPONSES, &one),
        path_of(RESPONSES, &two),
        path_of(CHAT, &completion),
    ];
    let [_, two_path, completion_path] = &paths;
    let (items, messages) = (
        format!("{two_path}/input_items"),
        format!("{completion_path}/messages"),
    );
    let list = format!("{CHAT}?metadata[a]=b");
    let all: Vec<&str> = paths
        .iter()
        .chain([&items, &messages, &list])
        .map(String::as_str)
        .collect();
    assert_eq!(first.get(&path_of(RESPONSES, &private)).0, 200, "in memory");
    let second = first.restarted_with(&all[..3], &kept());
    let third = second.restarted_with(&all[..3], &kept());
    for restarted in [&second, &third] {
        for path in &all {
            assert_eq!(restarted.get(path), first.get(path), "{path}");
        }
        for answer in [&unstored, &private] {
            assert_eq!(restarted.get(&path_of(RESPONSES, answer)).0, 404);
        }
        // The conversation goes on, with all responses before.
        let over = json!({"previous_response_id": two["id"], "input": "and more"});
        let next = restarted.post(RESPONSES, "", &request(&over));
        let uninterrupted = first.post(RESPONSES, "", &request(&over));
        assert_eq!(
            next["usage"]["input_tokens"],
            uninterrupted["usage"]["input_tokens"]
        );
        assert_eq!(
            next["output"][0]["content"],
            uninterrupted["output"][0]["content"]
        );
    }
}

#[test]
fn changes_of_answers_are_there_after_a_restart() {
    let first = Journaled::gated("stored-changes", fake(), kept());
    first.rig.gate.open();
    let body = chat(&json!({"stream": false, "store": true}));
    let (kept_one, deleted) = (first.post(CHAT, "", &body), first.post(CHAT, "", &body));
    let response = first.post(RESPONSES, "", &request(&json!({})));
    let (path, deleted) = (path_of(CHAT, &kept_one), path_of(CHAT, &deleted));
    let response = path_of(RESPONSES, &response);
    let all = [&*path, &*deleted, &*response];
    drop(first.restarted_with(&all, &kept()));
    let updated = first.post(&path, "", &json!({"metadata": {"n": "1"}}));
    for path in [&deleted, &response] {
        assert_eq!(
            call(&first.rig, "DELETE", path, "", &Value::Null)
                .head
                .status,
            200
        );
    }
    wait_until("the deletions are in the journal", || {
        let restarted = first.copy().start(fake(), kept());
        restarted.rig.gate.open();
        assert_eq!(
            restarted.get(&path).1,
            updated,
            "written before the response"
        );
        restarted.get(&deleted).0 == 404 && restarted.get(&response).0 == 404
    });
}

#[test]
fn running_background_response_is_completed_after_a_restart() {
    let first = Journaled::gated("stored-running", fake(), kept());
    let over = json!({"background": true, "max_output_tokens": 12, "input": "go on", "metadata": {"a": "b"}});
    let begun = first.post(RESPONSES, "", &request(&over));
    let path = path_of(RESPONSES, &begun);
    let output = |journaled: &Journaled| journaled.get(&path).1["output"][0].is_object();
    wait_until("the answer begins", || {
        first.rig.gate.allow(1);
        output(&first)
    });
    let copy = first.copy();
    first.rig.gate.open();
    let restarted = copy.start(fake(), kept());
    let (status, shown) = restarted.get(&path);
    assert_eq!((status, &shown["id"]), (200, &begun["id"]));
    assert!(
        matches!(shown["status"].as_str(), Some("queued" | "in_progress")),
        "{shown}"
    );
    restarted.rig.gate.open();
    let ended = |journaled: &Journaled| {
        wait_until("the response ends", || {
            journaled.get(&path).1["status"] == "incomplete"
        });
        journaled.get(&path).1
    };
    let (uninterrupted, continued) = (ended(&first), ended(&restarted));
    for name in [
        "id",
        "output",
        "metadata",
        "created_at",
        "model",
        "background",
    ] {
        assert_eq!(continued[name], uninterrupted[name], "{name}");
    }
    let items = format!("{path}/input_items");
    assert_eq!(restarted.get(&items), first.get(&items));
    // And once more: the ended response is stored by itself, without the stream.
    let third = restarted.restarted_with(&[&path], &kept());
    assert_eq!(third.get(&path).1, continued);
}

#[test]
fn durable_chat_completion_is_stored_after_a_restart() {
    let first = Journaled::gated("stored-durable", fake(), kept());
    let body = chat(&json!({"store": true, "metadata": {"a": "b"}, "n": 2}));
    let mut client = crate::support::named::send(&first.rig, "POST", CHAT, RESUMABLE, &body);
    let stream = stream_id(&client.head());
    wait_until("the answer begins", || {
        first.rig.gate.allow(1);
        first.shown_tokens(&stream) > 0
    });
    let copy = first.copy();
    first.rig.gate.open();
    let completion = |journaled: &Journaled| {
        wait_until("the completion ends", || {
            journaled.get(CHAT).1["data"][0].is_object()
        });
        journaled.get(CHAT).1["data"][0].clone()
    };
    let restarted = copy.start(fake(), kept());
    assert_eq!(restarted.get(CHAT).1["data"], json!([]), "still running");
    restarted.rig.gate.open();
    let (uninterrupted, continued) = (completion(&first), completion(&restarted));
    for name in ["id", "choices", "metadata", "created", "seed"] {
        assert_eq!(continued[name], uninterrupted[name], "{name}");
    }
    let messages = format!("{}/messages", path_of(CHAT, &continued));
    assert_eq!(restarted.get(&messages), first.get(&messages));
}

#[test]
fn durable_completion_that_ended_before_its_snapshot_is_stored_after_a_restart() {
    let first = Journaled::gated("stored-ended", fake(), kept());
    let body = chat(&json!({"store": true}));
    let mut client = crate::support::named::send(&first.rig, "POST", CHAT, RESUMABLE, &body);
    let stream = stream_id(&client.head());
    first.rig.gate.allow(5);
    wait_until("five tokens", || first.shown_tokens(&stream) == 5);
    let copy = first.copy().append(|_| Record::Ended {
        choice: 0,
        end: stream::End::Length.code(),
        at_unix_us: wire::clock::unix_us(),
    });
    let second = copy.start(fake(), kept());
    wait_until("the completion is stored", || {
        second.get(CHAT).1["data"][0].is_object()
    });
    let completion = second.get(CHAT).1["data"][0].clone();
    assert_eq!(completion["usage"]["completion_tokens"], 5, "{completion}");
    assert_eq!(completion["choices"][0]["finish_reason"], "length");
    let path = path_of(CHAT, &completion);
    // And by itself, without the stream.
    let third = second.restarted_with(&[&path], &kept());
    let removed = call(
        &third.rig,
        "DELETE",
        &format!("/v1/streams/{stream}"),
        "",
        &Value::Null,
    );
    assert_eq!(removed.head.status, 202, "{}", removed.body);
    let fourth = third.copy().start(fake(), kept());
    assert_eq!(fourth.get(&path), (200, completion));
}
