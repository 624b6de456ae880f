//! OpenAI's Responses: byte for byte, kept and gone on from, read again from any event, refused.
//!
//! Promise (APIs): the bytes of Responses; they are stored, continued, cancelled, deleted, and visible to their owner
//! only and within limits; events after any number are exactly the missing ones.
//! Also held by `gateway/src/stored/fair_lru.rs`.

mod again;
mod bytes;
mod kept;
mod refused;
mod tools;

use crate::support::client::{Reply, post};
use crate::support::named::{call, get, set_fields};
use crate::support::owners::rejection as code;
use crate::support::{Rig, vocab, wait_until};
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";

/// A response that always says "hello": the model may want something else, the bias does not let it.
fn hello(over: &Value) -> Value {
    let mut body = json!({
        "model": "fake", "input": "hi", "temperature": 0,
        "logit_bias": {vocab::WORD.to_string(): 100}, "max_output_tokens": 3,
    });
    set_fields(&mut body, over);
    body
}

/// Creates one; it must be taken.
fn create(rig: &Rig, over: &Value) -> Reply {
    let reply = post(rig.addr, RESPONSES, &hello(over));
    assert_eq!(reply.head.status, 200, "{over}: {}", reply.body);
    reply
}

fn path_of(response: &Value) -> String {
    format!("{RESPONSES}/{}", response["id"].as_str().expect("an id"))
}

/// The response as it is kept, once it has ended.
fn ended(rig: &Rig, path: &str) -> Value {
    let mut last = Value::Null;
    wait_until("the response ends", || {
        last = get(rig, path, "").json();
        !matches!(last["status"].as_str(), Some("queued" | "in_progress"))
    });
    last
}

fn text_of(response: &Value) -> &str {
    let text = &response["output"][0]["content"][0]["text"];
    text.as_str().expect("text")
}

fn delete(rig: &Rig, path: &str) -> Reply {
    call(rig, "DELETE", path, "", &Value::Null)
}
