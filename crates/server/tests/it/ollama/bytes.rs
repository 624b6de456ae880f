//! What is streamed and what is whole, byte for byte.

use super::{CHAT, GENERATE, chat, generate};
use crate::support::client::{Client, Head, post};
use crate::support::named::call;
use crate::support::{Rig, config, fake, vocab};
use serde_json::{Value, json};

/// The text with times and durations made equal.
fn fixed(text: &str) -> String {
    let cut = |text: &str, before: &str, until: char| {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(before) {
            let (head, tail) = rest.split_at(at + before.len());
            out.push_str(head);
            out.push('T');
            rest = &tail[tail.find(until).expect("it ends")..];
        }
        out + rest
    };
    let text = cut(text, "\"created_at\":\"", '"');
    let text = cut(&text, "\"load_duration\":", ',');
    let text = cut(&text, "\"total_duration\":", ',');
    let text = cut(&text, "\"prompt_eval_duration\":", ',');
    let text = cut(&text, "logprob\":", ',');
    // The last of an object.
    let text = text.replace("}\n", ",}\n");
    let text = cut(&text, "\"eval_duration\":", ',');
    text.replace(",}\n", "}\n")
}

/// One line at a time: the model does a pass, the client reads what it gave.
fn stepwise(path: &str, body: &Value, last: &str) -> (Head, String) {
    let rig = Rig::gated(fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(path, body);
    let mut text = String::new();
    rig.gate.allow(1);
    let head = client.head();
    while !text.contains(last) {
        text.push_str(&client.chunk().expect("it goes on"));
        rig.gate.allow(1);
    }
    assert_eq!(client.chunk(), None);
    (head, fixed(&text))
}

const OPEN: &str = r#"{"model":"fake","created_at":"T","message":{"role":"assistant","content":""#;
const DONE: &str = r#""total_duration":T,"load_duration":T,"prompt_eval_count":2,"prompt_eval_duration":T,"eval_count":3,"eval_duration":T"#;

#[test]
fn streamed_chat() {
    let (head, text) = stepwise(CHAT, &chat(&json!({}), &json!({})), "\"done\":true");
    assert_eq!(head.status, 200);
    for (name, value) in [
        ("content-type", "application/x-ndjson"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
        ("transfer-encoding", "chunked"),
    ] {
        assert_eq!(head.get(name), Some(value));
    }
    let delta = format!("{OPEN}hello\"}},\"done\":false}}\n");
    let last = format!("{OPEN}\"}},\"done\":true,\"done_reason\":\"length\",{DONE}}}\n");
    assert_eq!(text, delta.repeat(3) + &last);
}

#[test]
fn chat_streamed_as_events() {
    let body = chat(&json!({}), &json!({}));
    let want = {
        let delta = format!("data: {OPEN}hello\"}},\"done\":false}}\n\n");
        let last =
            format!("data: {OPEN}\"}},\"done\":true,\"done_reason\":\"length\",{DONE}}}\n\n");
        delta.repeat(3) + &last + "data: [DONE]\n\n"
    };
    let (head, text) = stepwise("/api/chat?format=sse", &body, "[DONE]");
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    assert_eq!(text, want);
    let rig = Rig::start();
    for (accept, kind) in [
        ("text/event-stream", "text/event-stream"),
        ("*/*", "application/x-ndjson"),
        ("application/json", "application/x-ndjson"),
    ] {
        let fields = format!("accept: {accept}\r\n");
        let reply = call(&rig, "POST", CHAT, &fields, &body);
        assert_eq!(reply.head.get("content-type"), Some(kind), "{accept}");
    }
}

#[test]
fn generate_streamed_and_non_streaming() {
    let open = r#"{"model":"fake","created_at":"T","response":""#;
    let context = format!("[104,105{}]", format!(",{}", vocab::WORD).repeat(3));
    let last = format!("\"done\":true,\"done_reason\":\"length\",{DONE},\"context\":{context}}}");
    let (_, text) = stepwise(GENERATE, &generate(&json!({}), &json!({})), "\"done\":true");
    let delta = format!("{open}hello\",\"done\":false}}\n");
    assert_eq!(text, delta.repeat(3) + open + "\"," + &last + "\n");
    let rig = Rig::start();
    let whole = post(
        rig.addr,
        GENERATE,
        &generate(&json!({"stream": false}), &json!({})),
    );
    assert_eq!(whole.head.get("content-type"), Some("application/json"));
    let text = fixed(&(whole.body + "\n"));
    assert_eq!(text, format!("{open}hellohellohello\",{last}\n"));
}

#[test]
fn non_streaming_chat() {
    let rig = Rig::start();
    let reply = post(rig.addr, CHAT, &chat(&json!({"stream": false}), &json!({})));
    let want =
        format!("{OPEN}hellohellohello\"}},\"done\":true,\"done_reason\":\"length\",{DONE}}}\n");
    assert_eq!(fixed(&(reply.body + "\n")), want);
}
