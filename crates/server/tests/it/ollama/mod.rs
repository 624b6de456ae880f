//! Ollama's format over sockets.
//!
//! Promise (APIs): the bytes of Ollama's lines, and the same as events; `context` continues where an answer ended;
//! unsupported features are errors.

mod answers;
mod around;
mod bytes;

use crate::support::client::Reply;
use crate::support::named::set_fields;
use crate::support::vocab;
use serde_json::{Value, json};

pub(crate) const CHAT: &str = "/api/chat";
pub(crate) const GENERATE: &str = "/api/generate";

/// Options that make the model say "hello" three times.
pub(crate) fn hello(over: &Value) -> Value {
    let mut options = json!({
        "temperature": 0, "num_predict": 3, "repeat_penalty": 1,
        "logit_bias": {vocab::WORD.to_string(): 100},
    });
    set_fields(&mut options, over);
    options
}

pub(crate) fn chat(over: &Value, options: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let mut body = json!({"model": "fake", "messages": messages, "options": hello(options)});
    set_fields(&mut body, over);
    body
}

pub(crate) fn generate(over: &Value, options: &Value) -> Value {
    let mut body = chat(over, options);
    body.as_object_mut().unwrap().remove("messages");
    body["prompt"] = json!("hi");
    body
}

pub(crate) fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    let lines = reply.body.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

pub(crate) fn text(lines: &[Value]) -> String {
    let piece = |line: &Value| {
        let text = line["message"]["content"].as_str();
        text.or(line["response"].as_str()).unwrap().to_owned()
    };
    lines.iter().map(piece).collect()
}
