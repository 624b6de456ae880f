//! What the tests of jobs say and hear.

use crate::support::Rig;
use crate::support::client::{Client, Reply, post};
use crate::support::named::set_fields;
use serde_json::{Value, json};

pub(crate) const INFERENCE: &str = "/v1/inference";
pub(crate) const JOBS: &str = "/v1/jobs";

/// A job that says letters, the same each time.
pub(crate) fn ask(over: &Value) -> Value {
    let mut body = json!({"prompt": "hi", "seed": 7, "max_tokens": 40, "ignore_eos": true});
    set_fields(&mut body, over);
    body
}

/// One SSE frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

impl Frame {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or(Value::Null)
    }

    pub(crate) fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap_or("").to_owned()
    }
}

/// The frames of a text; comments and figures, which come by the clock, left out.
pub(crate) fn frames(text: &str) -> Vec<Frame> {
    assert!(text.ends_with("\n\n"), "cut within a frame: {text:?}");
    let of = |frame: &str| {
        let field = |name: &str| {
            let line = frame.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::to_owned)
        };
        let data = field("data: ")?;
        Some(Frame {
            id: field("id: "),
            data,
        })
    };
    let all = text.split_terminator("\n\n").filter_map(of);
    all.filter(|frame| frame.kind() != "metrics").collect()
}

/// The text of the tokens, counted without a gap from `next`.
pub(crate) fn text(frames: &[Frame], mut next: u64) -> String {
    let mut text = String::new();
    for frame in frames.iter().filter(|frame| frame.kind() == "token") {
        let token = frame.json();
        assert_eq!(token["i"], next, "{token}");
        next += token.get("n").map_or(1, |n| n.as_u64().unwrap());
        text += token["t"].as_str().unwrap();
    }
    text
}

pub(crate) fn ending(frames: &[Frame]) -> Value {
    let [.., end, done] = frames else {
        panic!("no ending: {frames:?}")
    };
    assert_eq!(done.data, "[DONE]");
    let endings = frames
        .iter()
        .filter(|frame| matches!(&*frame.kind(), "end" | "error"));
    assert_eq!(endings.count(), 1);
    let end = end.json();
    let last = frames.iter().rfind(|frame| frame.kind() == "token");
    if let (Some(told), Some(out)) = (last.map(Frame::json), end.get("tokens_out")) {
        let after = told["i"].as_u64().unwrap() + told.get("n").map_or(1, |n| n.as_u64().unwrap());
        // Tokens of a stop string are counted and have no frame.
        let told_all = end["stop_reason"] != "STOP_SEQUENCE";
        let out = out.as_u64().unwrap();
        assert!(after <= out, "frames tell {after} tokens, the end {out}");
        assert!(
            !told_all || after == out,
            "frames tell {after} tokens, the end {out}"
        );
    }
    end
}

pub(crate) fn send(rig: &Rig, method: &str, path: &str, fields: &str) -> Client {
    let mut client = Client::connect(rig.addr);
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
    client.send(head.as_bytes());
    client
}

pub(crate) fn call(rig: &Rig, method: &str, path: &str, fields: &str) -> Reply {
    send(rig, method, path, fields).reply()
}

/// Submits a job; where to watch it, and what it is called.
pub(crate) fn submit(rig: &Rig, body: &Value) -> (String, String) {
    let reply = post(rig.addr, JOBS, body);
    assert_eq!(reply.head.status, 202, "{}", reply.body);
    let told = reply.json();
    let word = |name: &str| told[name].as_str().unwrap().to_owned();
    (word("job_id"), word("sse_url"))
}
