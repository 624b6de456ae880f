//! `GET /v1/streams?unread=true`: ended streams whose end no reader has, until a client acknowledges it.
//!
//! Promise (Streams): an ended resumable stream whose end no reader has is unread, for its key only and in the order
//! of ends, until it is read or acknowledged, also after `kill -9`; an acknowledged end is not unread after `kill
//! -9`, and one that was read not after a restart; places in the list stay valid.
//! Also held by `server/tests/it/restarts/unread.rs`, `millrace/tests/it/kill/unread.rs`.

use super::sharing::in_the_engine;
use crate::support::client::Reply;
use crate::support::named::{CHAT, RESUMABLE, call, chat, fake, get, kept, send, stream_id};
use crate::support::owners::{call_as, key_field, owners_keys, rejection};
use crate::support::{Rig, wait_until};
use serde_json::{Value, json};

const UNREAD: &str = "/v1/streams?unread=true";

fn gated_rig() -> Rig {
    Rig::gated(fake(), kept())
}

/// Opens a job with this many tokens; returns the id of its stream.
fn open_job(rig: &Rig, tokens: usize) -> String {
    let body = json!({"prompt": "hi", "max_tokens": tokens, "seed": 3});
    stream_id(&call(rig, "POST", "/v1/jobs", "", &body).head)
}

/// The ids of the streams of a page.
fn ids(page: &Value) -> Vec<String> {
    let streams = page["data"].as_array().expect("a list").iter();
    let id = |stream: &Value| stream["id"].as_str().expect("an id").to_owned();
    streams.map(id).collect()
}

fn unread(rig: &Rig) -> Vec<String> {
    ids(&get(rig, UNREAD, "").json())
}

fn wait_unread(rig: &Rig, expected: &[&String]) {
    let expected: Vec<String> = expected.iter().copied().cloned().collect();
    wait_until("the list of unread streams", || unread(rig) == expected);
}

fn acknowledge(rig: &Rig, id: &str) -> Reply {
    let path = format!("/v1/streams/{id}/ack");
    call(rig, "POST", &path, "", &json!({"end": true}))
}

#[test]
fn ends_without_a_reader_are_listed_in_their_order_until_they_are_acknowledged() {
    let rig = gated_rig();
    let late = open_job(&rig, 30);
    let early = open_job(&rig, 3);
    let response = json!({"input": "hi", "background": true, "max_output_tokens": 12, "seed": 3});
    let response = call(&rig, "POST", "/v1/responses", "", &response);
    let middle = stream_id(&response.head);
    assert!(unread(&rig).is_empty(), "nothing has ended");
    in_the_engine(&rig, "", 3);
    // Each ends alone: ends of neighboring passes are noted in the order in which their tasks run.
    rig.gate.allow(6);
    wait_unread(&rig, &[&early]);
    rig.gate.allow(10);
    wait_unread(&rig, &[&early, &middle]);
    rig.gate.open();
    wait_unread(&rig, &[&early, &middle, &late]);
    let (mut read, mut after) = (Vec::new(), json!(0));
    while !after.is_null() {
        let page = get(&rig, &format!("{UNREAD}&limit=1&after={after}"), "").json();
        assert_eq!(page["has_more"], !page["next"].is_null());
        assert!(page["data"].as_array().is_some_and(|data| data.len() == 1));
        assert_eq!(page["data"][0]["unread"], true);
        read.extend(ids(&page));
        after = page["next"].clone();
    }
    assert_eq!(read, unread(&rig));
    // The state of a response is not its end.
    let path = format!("/v1/responses/{}", response.json()["id"].as_str().unwrap());
    assert_eq!(get(&rig, &path, "").json()["status"], "incomplete");
    assert_eq!(unread(&rig).len(), 3);
    for _ in 0..2 {
        let acknowledged = acknowledge(&rig, &middle);
        assert_eq!(acknowledged.head.status, 200, "{}", acknowledged.body);
        assert_eq!(acknowledged.json()["unread"], Value::Null);
        assert_eq!(unread(&rig), [early.clone(), late.clone()]);
    }
    let all = get(&rig, "/v1/streams?unread=false", "").json();
    assert_eq!(ids(&all), [late, early, middle], "in the order of opening");
}

#[test]
fn stream_is_listed_if_its_last_reader_left_before_the_end_and_not_once_it_was_read() {
    let rig = gated_rig();
    let body = chat(&json!({"max_tokens": 4}));
    let open = || send(&rig, "POST", CHAT, RESUMABLE, &body);
    let (mut left, mut stayed) = (open(), open());
    let id = stream_id(&left.head());
    let stayed_head = stayed.head();
    drop(left);
    rig.gate.open();
    stayed.rest(&stayed_head);
    wait_unread(&rig, &[&id]);
    let read = get(&rig, &format!("/v1/streams/{id}/events"), "");
    assert_eq!(read.head.status, 200);
    wait_unread(&rig, &[]);
}

#[test]
fn answers_that_were_waited_for_and_plain_streams_are_not_listed() {
    let rig = gated_rig();
    rig.gate.open();
    for (fields, is_streamed) in [("", true), (RESUMABLE, true), (RESUMABLE, false)] {
        let body = chat(&json!({"max_tokens": 4, "stream": is_streamed}));
        assert_eq!(call(&rig, "POST", CHAT, fields, &body).head.status, 200);
    }
    let rejected = chat(&json!({"max_tokens": 4, "prompt": "", "min_tokens": 9}));
    assert_eq!(
        call(&rig, "POST", CHAT, RESUMABLE, &rejected).head.status,
        400
    );
    let last = open_job(&rig, 4);
    wait_unread(&rig, &[&last]);
}

#[test]
fn cancelled_stream_is_listed() {
    let rig = gated_rig();
    let id = open_job(&rig, 400);
    let path = format!("/v1/streams/{id}");
    let cancelled = call(&rig, "DELETE", &path, "", &Value::Null);
    assert_eq!(cancelled.head.status, 202);
    rig.gate.open();
    wait_unread(&rig, &[&id]);
}

#[test]
fn unread_streams_belong_to_one_key() {
    let rig = Rig::keyed(kept(), &owners_keys());
    let body = json!({"prompt": "hi", "max_tokens": 4});
    let id = stream_id(&call_as(&rig, "one", "POST", "/v1/jobs", &body).head);
    let listed = |owner| ids(&call_as(&rig, owner, "GET", UNREAD, &Value::Null).json());
    wait_until("the end", || listed("one") == [id.clone()]);
    assert!(listed("two").is_empty() && listed("admin").is_empty());
    let path = format!("/v1/streams/{id}/ack");
    let acknowledge = |owner| call_as(&rig, owner, "POST", &path, &json!({"end": true}));
    assert_eq!(acknowledge("two").head.status, 404);
    assert_eq!(listed("one"), std::slice::from_ref(&id));
    assert_eq!(acknowledge("one").head.status, 200);
    assert!(listed("one").is_empty());
    assert_eq!(get(&rig, UNREAD, "").head.status, 401);
    let (_, admin) = (key_field("one"), key_field("admin"));
    assert_eq!(get(&rig, UNREAD, &admin).head.status, 200);
}

#[test]
fn invalid_requests_name_the_field() {
    let rig = gated_rig();
    let reply = get(&rig, "/v1/streams?unread=1", "");
    assert_eq!(rejection(&reply), (400, "invalid_value".to_owned()));
    assert!(reply.body.contains("unread: must be true or false"));
    let id = open_job(&rig, 4);
    let reply = acknowledge(&rig, &id);
    assert_eq!(rejection(&reply), (409, "stream_not_ended".to_owned()));
    for body in [
        json!({}),
        json!({"end": 1}),
        json!({"index": -1, "end": true}),
    ] {
        let reply = call(&rig, "POST", &format!("/v1/streams/{id}/ack"), "", &body);
        assert_eq!(reply.head.status, 400, "{body}: {}", reply.body);
    }
    rig.gate.open();
    wait_unread(&rig, &[&id]);
    let both = json!({"index": 4, "end": true});
    let reply = call(&rig, "POST", &format!("/v1/streams/{id}/ack"), "", &both);
    assert_eq!(reply.json()["choices"][0]["accepted"], 4, "{}", reply.body);
    assert!(unread(&rig).is_empty());
}
