//! Requests about streams with names.

use super::client::{Client, Head, Reply};
use super::{Rig, config};
use engine::fake::FakeConfig;
use serde_json::{Value, json};
use server::{ServerConfig, StreamLimits};
use std::time::Duration;

/// Where chats are posted.
pub const CHAT: &str = "/v1/chat/completions";
/// Where completions are posted.
pub const COMPLETIONS: &str = "/v1/completions";
/// The header field that asks for a stream that outlives its client.
pub const RESUMABLE: &str = "x-stream-resumable: 1\r\n";

/// Ended streams are kept for as long as a test runs.
pub fn kept() -> ServerConfig {
    with(StreamLimits {
        retention: Duration::from_secs(3600),
        ..StreamLimits::default()
    })
}

/// Bounds as in production, but for these.
pub fn with(streams: StreamLimits) -> ServerConfig {
    ServerConfig {
        streams,
        ..config()
    }
}

/// A model that says letters and some longer words, and never ends by itself.
pub fn fake() -> FakeConfig {
    FakeConfig {
        eos_probability: 0.0,
        ..super::fake()
    }
}

/// A request on a connection of its own.
pub fn send(rig: &Rig, method: &str, path: &str, fields: &str, body: &Value) -> Client {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let mut client = Client::connect(rig.addr);
    client.send(
        format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{fields}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    client
}

/// The same, and its whole answer.
pub fn call(rig: &Rig, method: &str, path: &str, fields: &str, body: &Value) -> Reply {
    send(rig, method, path, fields, body).reply()
}

/// A `GET`, and its whole answer.
pub fn get(rig: &Rig, path: &str, fields: &str) -> Reply {
    call(rig, "GET", path, fields, &Value::Null)
}

/// The name an answer gives to its stream.
pub fn stream_id(head: &Head) -> String {
    head.get("x-stream-id")
        .expect("every answer names its stream")
        .to_owned()
}

/// A chat to post, with these fields in place of its own.
pub fn chat(over: &Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "hi"}], "seed": 7, "stream": true,
        "max_tokens": 24, "temperature": 1.5,
    });
    set_fields(&mut body, over);
    body
}

/// A completion to post, likewise.
pub fn completion(over: &Value) -> Value {
    let mut body = chat(over);
    body.as_object_mut().unwrap().remove("messages");
    body["prompt"] = json!("hi");
    body
}

/// A chat of this message, which ends at its limit of tokens.
pub fn ask(content: &str, stream: bool, max_tokens: usize) -> Value {
    json!({
        "messages": [{"role": "user", "content": content}], "seed": 1, "ignore_eos": true,
        "stream": stream, "max_tokens": max_tokens,
    })
}

/// The answer to a chat that outlives its client.
pub fn resumable_chat(rig: &Rig, over: &Value) -> Reply {
    call(rig, "POST", CHAT, RESUMABLE, &chat(over))
}

/// Sets these fields of a body.
pub fn set_fields(body: &mut Value, over: &Value) {
    for (name, value) in over.as_object().expect("fields") {
        body[name] = value.clone();
    }
}
