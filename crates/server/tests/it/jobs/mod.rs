//! Jobs as clients see them: run, watched by many, left and come back to, cancelled.

mod speech;
mod state;

use crate::support::client::{Client, Head, get, post};
use crate::support::owners::key;
use crate::support::{Rig, config, fake, vocab, wait_until};
use serde_json::json;
use server::{Keys, Scope};
use speech::*;
use std::sync::Arc;

#[test]
fn job_streams_to_its_end_and_equals_the_non_streaming_response() {
    let rig = Rig::start();
    let streamed = post(rig.addr, INFERENCE, &ask(&json!({"job_id": "my-job"})));
    assert_eq!(
        (
            streamed.head.status,
            streamed.head.get("content-type").unwrap()
        ),
        (200, "text/event-stream")
    );
    let told = frames(&streamed.body);
    let started = told[0].json();
    assert_eq!(
        (&started["type"], &started["job_id"], &started["model"]),
        (&json!("started"), &json!("my-job"), &json!("fake"))
    );
    assert_eq!(told[0].id, None, "no place to come back to");
    let end = ending(&told);
    assert_eq!(
        (&end["stop_reason"], &end["tokens_out"]),
        (&json!("MAX_TOKENS"), &json!(40))
    );
    let whole = post(rig.addr, INFERENCE, &ask(&json!({"stream": false})));
    assert_eq!(whole.head.get("content-type"), Some("application/json"));
    let whole = whole.json();
    assert_eq!(
        (&whole["stop_reason"], &whole["tokens_out"], &whole["text"]),
        (&json!("MAX_TOKENS"), &json!(40), &json!(text(&told, 0)))
    );
    assert_eq!(whole["job_id"].as_str().unwrap().len(), 32, "its stream's");
}

#[test]
fn stop_string_and_end_of_sequence_are_named() {
    let rig = Rig::start();
    let hello = json!({"logit_bias": {vocab::WORD.to_string(): 100}, "temperature": 0, "stop": ["x", "lohe"]});
    let told = frames(&post(rig.addr, INFERENCE, &ask(&hello)).body);
    let end = ending(&told);
    assert_eq!(text(&told, 0), "hel");
    assert_eq!(
        (&end["stop_reason"], &end["stop_sequence_matched"]),
        (&json!("STOP_SEQUENCE"), &json!("lohe"))
    );
    let eos = json!({"logit_bias": {vocab::EOS.to_string(): 100}, "ignore_eos": false});
    let told = frames(&post(rig.addr, INFERENCE, &ask(&eos)).body);
    assert_eq!(ending(&told)["stop_reason"], "EOS");
}

#[test]
fn job_has_several_readers() {
    let rig = Rig::gated(fake(), config());
    let (id, url) = submit(&rig, &ask(&json!({})));
    let mut readers: Vec<_> = (0..4).map(|_| send(&rig, "GET", &url, "")).collect();
    let heads: Vec<Head> = readers.iter_mut().map(Client::head).collect();
    assert!(heads.iter().all(|head| head.status == 200));
    rig.gate.open();
    let told: Vec<_> = readers.iter_mut().map(|r| frames(&r.body())).collect();
    for other in &told {
        assert_eq!(text(other, 0), text(&told[0], 0));
        assert_eq!(ending(other)["tokens_out"], 40);
        assert_eq!(other[0], told[0][0], "the same start, at the same time");
    }
    let late = frames(&call(&rig, "GET", &url, "").body);
    assert_eq!(text(&late, 0), text(&told[0], 0), "also when it is over");
    let shown = get(rig.addr, &format!("{JOBS}/{id}")).json();
    assert_eq!(
        (&shown["state"], &shown["tokens_out"], &shown["ending"]),
        (
            &json!("ended"),
            &json!(40),
            &json!({"stop_reason": "MAX_TOKENS"})
        )
    );
    assert_eq!(shown["started_at"], told[0][0].json()["started_at"]);
}

#[test]
fn reader_that_reconnects_resumes_at_its_cursor() {
    let rig = Rig::start();
    let (_, url) = submit(&rig, &ask(&json!({"max_tokens": 12})));
    let all = frames(&call(&rig, "GET", &url, "").body);
    let ids = all.iter().filter(|frame| frame.id.is_some()).count();
    assert!(ids >= 3, "tokens, the end, [DONE]: {all:?}");
    for (at, frame) in all.iter().enumerate() {
        let Some(id) = &frame.id else { continue };
        let reply = call(&rig, "GET", &url, &format!("last-event-id: {id}\r\n"));
        if frame.data == "[DONE]" {
            assert_eq!(reply.head.status, 204, "EventSource stops asking");
            continue;
        }
        let rest = frames(&reply.body);
        let next = all[..=at].iter().filter(|f| f.kind() == "token");
        let next = next
            .map(|f| f.json().get("n").map_or(1, |n| n.as_u64().unwrap()))
            .sum();
        let told = text(&all[..=at], 0) + &text(&rest, next);
        assert_eq!(told, text(&all, 0), "after {id}");
        assert!(
            rest.iter().all(|frame| frame.kind() != "started"),
            "{rest:?}"
        );
        assert_eq!(rest.last(), all.last());
        if frame.kind() != "end" {
            assert_eq!(ending(&rest), ending(&all), "after {id}");
        }
    }
}

#[test]
fn cancellation_is_idempotent() {
    let rig = Rig::gated(fake(), config());
    let (id, url) = submit(&rig, &ask(&json!({"job_id": "doomed"})));
    let mut reader = send(&rig, "GET", &url, "");
    assert_eq!(reader.head().status, 200);
    let cancel = || {
        call(
            &rig,
            "POST",
            &format!("{JOBS}/{id}/cancel"),
            "content-length: 0\r\n",
        )
    };
    let delete = || call(&rig, "DELETE", &format!("{JOBS}/{id}"), "");
    // A model without weight is done with a job in less time than it takes to note that it began.
    wait_until("the engine has it", || {
        get(rig.addr, &format!("{JOBS}/{id}")).json()["state"] != "queued"
    });
    for _ in 0..2 {
        assert_eq!(cancel().head.status, 202);
    }
    rig.gate.open();
    let told = frames(&reader.body());
    assert_eq!(ending(&told)["stop_reason"], "CANCELLED");
    wait_until("it is over", || {
        get(rig.addr, &format!("{JOBS}/{id}")).json()["state"] == "ended"
    });
    assert_eq!(cancel().head.status, 202);
    let shown = get(rig.addr, &format!("{JOBS}/{id}")).json();
    assert_eq!(shown["ending"], json!({"stop_reason": "CANCELLED"}));
    for _ in 0..3 {
        assert_eq!(delete().head.status, 202, "cancelled, forgotten, gone");
    }
    assert_eq!(cancel().head.status, 202);
    let gone = call(&rig, "GET", &url, "");
    assert_eq!(gone.head.status, 410);
    assert_eq!(gone.json()["error"]["code"], "INVALID_REQUEST");
    let again = submit(&rig, &ask(&json!({"job_id": "doomed"})));
    assert_eq!(again.0, "doomed", "the name is free");
}

#[test]
fn job_continues_without_its_client() {
    let rig = Rig::gated(fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(INFERENCE, &ask(&json!({"job_id": "left"})));
    assert_eq!(client.head().status, 200);
    drop(client);
    rig.gate.open();
    let told = frames(&call(&rig, "GET", "/v1/jobs/left/stream", "").body);
    assert_eq!(ending(&told)["tokens_out"], 40);
}

#[test]
fn jobs_are_visible_to_their_owner_only() {
    let names = ["key_a_0123456789", "key_b_0123456789"];
    let keys = Keys::new(&names.map(|name| key(name, name, &[Scope::Inference]))).unwrap();
    let rig = Rig::keyed(config(), &Arc::new(keys));
    let as_key = |name: &str, method: &str, path: &str, body: &str| {
        let fields = format!(
            "authorization: Bearer {name}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        let mut client = send(&rig, method, path, &fields);
        client.send(body.as_bytes());
        client.reply()
    };
    let [a, b] = names;
    let body = ask(&json!({"job_id": "mine"})).to_string();
    let mine = as_key(a, "POST", JOBS, &body);
    assert_eq!(mine.head.status, 202, "{}", mine.body);
    let url = mine.json()["sse_url"].as_str().unwrap().to_owned();
    let stream_id = url.split('/').nth(3).unwrap().to_owned();
    for id in ["mine", &stream_id] {
        for (method, rest) in [
            ("GET", ""),
            ("GET", "/stream"),
            ("DELETE", ""),
            ("POST", "/cancel"),
        ] {
            let path = format!("{JOBS}/{id}{rest}");
            let other = as_key(b, method, &path, "");
            assert_eq!(other.head.status, 404, "{method} {path}: {}", other.body);
            assert_eq!(other.json()["error"]["code"], "INVALID_REQUEST");
        }
        let path = format!("{JOBS}/{id}");
        assert_eq!(as_key(a, "GET", &path, "").head.status, 200);
    }
    let taken = as_key(a, "POST", JOBS, &body);
    assert_eq!(taken.head.status, 409, "{}", taken.body);
    assert_eq!(taken.json()["errors"][0]["field"], "job_id");
    let same_name = as_key(b, "POST", JOBS, &body);
    assert_eq!(same_name.head.status, 202, "another's names are another's");
    assert_ne!(same_name.json()["sse_url"], json!(url));
}

#[test]
fn errors_have_the_native_shape() {
    let rig = Rig::start();
    let bad = post(rig.addr, JOBS, &json!({"max_tokens": 0, "temperature": 3}));
    assert_eq!(bad.head.status, 400);
    let told = bad.json();
    let fields: Vec<_> = told["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["field"])
        .collect();
    assert_eq!(fields, ["prompt", "max_tokens", "temperature"]);
    let long = post(
        rig.addr,
        INFERENCE,
        &ask(&json!({"prompt": "x".repeat(600)})),
    );
    assert_eq!(
        (long.head.status, &long.json()["errors"][0]["field"]),
        (400, &json!("prompt"))
    );
    let missing = get(rig.addr, "/v1/jobs/nobody");
    assert_eq!(
        (missing.head.status, &missing.json()["error"]["retriable"]),
        (404, &json!(false))
    );
    let (_, url) = submit(&rig, &ask(&json!({})));
    let nonsense = call(&rig, "GET", &url, "last-event-id: nonsense\r\n");
    assert_eq!(
        (nonsense.head.status, &nonsense.json()["error"]["code"]),
        (400, &json!("INVALID_REQUEST"))
    );
    let model = post(rig.addr, INFERENCE, &ask(&json!({"model": "other"})));
    assert_eq!(model.head.status, 404);
}

#[test]
fn stream_of_another_api_is_readable_as_a_job() {
    let rig = Rig::start();
    let chat = json!({"messages": [{"role": "user", "content": "hi"}], "stream": true, "n": 2, "max_tokens": 5,
        "ignore_eos": true});
    let body = chat.to_string();
    let mut client = send(
        &rig,
        "POST",
        "/v1/chat/completions",
        &format!(
            "x-stream-resumable: 1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        ),
    );
    client.send(body.as_bytes());
    let reply = client.reply();
    let id = reply.head.get("x-stream-id").unwrap().to_owned();
    let told = frames(&call(&rig, "GET", &format!("{JOBS}/{id}/stream"), "").body);
    let chunks: Vec<_> = frames(&reply.body).iter().map(Frame::json).collect();
    for choice in 0..2 {
        let of = |f: &&Frame| f.json()["choice"] == choice;
        let mine: Vec<_> = told.iter().filter(of).cloned().collect();
        let theirs = chunks.iter().map(|chunk| &chunk["choices"][0]);
        let theirs: String = theirs
            .filter(|delta| delta["index"] == choice)
            .filter_map(|delta| delta["delta"]["content"].as_str())
            .collect();
        assert_eq!(text(&mine, 0), theirs, "two dialects agree");
        assert_eq!(mine.iter().filter(|f| f.kind() == "end").count(), 1);
    }
}
