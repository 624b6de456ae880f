//! Custom tools of chat completions: the model calls functions with one argument, the client reads custom calls.

use crate::support::Rig;
use crate::support::named::{CHAT, RESUMABLE, call, get, kept, set_fields, stream_id};
use crate::support::sse::frames;
use serde_json::{Value, json};
use text::{AnswerFormat, ReasoningFamily, ToolFamily};

/// The calls that the model writes: a custom tool, a function, a custom tool by arguments of another form.
const SCRIPT: &str = concat!(
    r#"<tool_call>{"name": "patch", "arguments": {"input": "*** Begin\n+\"é\"\n"}}</tool_call>"#,
    r#"<tool_call>{"name": "spawn", "arguments": {"task": "t"}}</tool_call>"#,
    r#"<tool_call>{"name": "run", "arguments": {"code": "1 + 1"}}</tool_call>"#,
);

fn rig() -> Rig {
    let hermes = AnswerFormat {
        tools: ToolFamily::Hermes,
        reasoning: ReasoningFamily::Think,
    };
    Rig::echoing(hermes, kept())
}

fn body(over: &Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": SCRIPT}], "temperature": 0, "max_tokens": 900, "tools": [
            {"type": "custom", "custom": {"name": "patch", "description": "d"}},
            {"type": "function", "function": {"name": "spawn"}},
            {"type": "custom", "custom": {"name": "run", "format": {"type": "text"}}},
        ],
    });
    set_fields(&mut body, over);
    body
}

/// The calls in the deltas of a stream.
fn streamed(text: &str) -> Vec<Value> {
    let mut calls: Vec<Value> = Vec::new();
    for frame in frames(text) {
        let Ok(chunk) = serde_json::from_str::<Value>(&frame.data) else {
            continue;
        };
        let delta = &chunk["choices"][0]["delta"]["tool_calls"][0];
        let Some(index) = delta["index"].as_u64() else {
            continue;
        };
        let index = usize::try_from(index).expect("an index");
        if index == calls.len() {
            let mut begun = delta.clone();
            begun.as_object_mut().expect("a call").remove("index");
            calls.push(begun);
            continue;
        }
        for (kind, member) in [("custom", "input"), ("function", "arguments")] {
            if let Some(more) = delta[kind][member].as_str() {
                let so_far = calls[index][kind][member].as_str().expect("text");
                calls[index][kind][member] = json!(format!("{so_far}{more}"));
            }
        }
    }
    calls
}

#[test]
fn custom_calls_have_the_form_of_the_client() {
    let rig = rig();
    let whole = call(&rig, "POST", CHAT, "", &body(&json!({}))).json();
    let message = &whole["choices"][0]["message"];
    let calls = message["tool_calls"].as_array().expect("calls").clone();
    let without_ids: Vec<Value> = calls
        .iter()
        .map(|call| {
            let mut call = call.clone();
            call.as_object_mut().expect("a call").remove("id");
            call
        })
        .collect();
    assert_eq!(
        without_ids,
        [
            json!({"type": "custom", "custom": {"name": "patch", "input": "*** Begin\n+\"é\"\n"}}),
            json!({"type": "function", "function": {"name": "spawn", "arguments": "{\"task\": \"t\"}"}}),
            json!({"type": "custom", "custom": {"name": "run", "input": "1 + 1"}}),
        ]
    );
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    // The stream, also cut after each event.
    let reply = call(
        &rig,
        "POST",
        CHAT,
        RESUMABLE,
        &body(&json!({"stream": true})),
    );
    let uncut = streamed(&reply.body);
    let names = |calls: &[Value]| {
        calls
            .iter()
            .map(|call| call["custom"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&uncut), names(&calls), "{}", reply.body);
    let path = format!("/v1/streams/{}/events", stream_id(&reply.head));
    let mut read = String::new();
    for event in reply.body.split_inclusive("\n\n") {
        read.push_str(event);
        let Some(id) = frames(event).iter().find_map(|frame| frame.id.clone()) else {
            continue;
        };
        let rest = get(&rig, &path, &format!("last-event-id: {id}\r\n"));
        let rest = if rest.head.status == 204 {
            String::new()
        } else {
            rest.body
        };
        assert_eq!(streamed(&format!("{read}{rest}")), uncut, "after {id}");
    }
}

#[test]
fn custom_calls_are_sent_back_with_their_results() {
    let rig = rig();
    let whole = call(&rig, "POST", CHAT, "", &body(&json!({}))).json();
    let message = &whole["choices"][0]["message"];
    let calls = message["tool_calls"].as_array().expect("calls").iter();
    let results =
        calls.map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": null}));
    let mut messages = vec![json!({"role": "user", "content": "a"}), message.clone()];
    messages.extend(results);
    messages.push(json!({"role": "user", "content": "no calls"}));
    let choice = json!({"type": "custom", "custom": {"name": "run"}});
    for over in [
        json!({"messages": messages}),
        json!({"messages": messages, "tool_choice": choice, "max_tokens": 1}),
    ] {
        let reply = call(&rig, "POST", CHAT, "", &body(&over));
        assert_eq!(reply.head.status, 200, "{}", reply.body);
    }
}
