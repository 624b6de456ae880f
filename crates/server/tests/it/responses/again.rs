//! Responses whose events are read again, from any of them on.

use super::{RESPONSES, code, create, hello};
use crate::support::client::Reply;
use crate::support::named::{call, fake, get, kept, send};
use crate::support::{Rig, automaton, framing, responses};
use engine::fake::{Fault, FaultAt, FaultKind};
use framing::Event;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use text::{AnswerFormat, ReasoningFamily, ToolFamily};

const RESUMABLE: &str = "x-stream-resumable: 1\r\n";

/// The events of a body, each with its number.
fn numbered(body: &str) -> Vec<(u64, Event)> {
    let events = framing::sse(body).expect("whole events");
    let number = |event: &Event| match event {
        Event::Data { data, .. } => {
            let data: Value = serde_json::from_str(data).expect("JSON");
            data["sequence_number"].as_u64()
        }
        Event::Comment => None,
    };
    let events = events.into_iter();
    events
        .filter_map(|event| Some((number(&event)?, event)))
        .collect()
}

fn story(case: &str, events: &[(u64, Event)]) -> automaton::Story {
    let numbers: Vec<u64> = events.iter().map(|(number, _)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{case}: {numbers:?}");
    let events: Vec<Event> = events.iter().map(|(_, event)| event.clone()).collect();
    let items = responses::frames(&events).unwrap_or_else(|why| panic!("{case}: {why}"));
    let rules = automaton::Rules {
        choices: 1,
        closes: automaton::Closes::Good,
        counts: true,
        counts_errors: true,
    };
    automaton::accept(rules, &items).unwrap_or_else(|why| panic!("{case}: {why}"))
}

/// Reads it from every number on: what came before and what comes after are all of it, and nothing twice.
fn check(case: &str, rig: &Rig, over: &Value) {
    let mut body = hello(over);
    body["stream"] = json!(true);
    let whole = call(rig, "POST", RESPONSES, RESUMABLE, &body);
    assert_eq!(whole.head.status, 200, "{case}: {}", whole.body);
    let events = numbered(&whole.body);
    let told = story(case, &events);
    let stream = whole.head.get("x-stream-id").expect("a name");
    let path = format!("{RESPONSES}/resp_{stream}?stream=true");
    let beginning = numbered(&get(rig, &path, "").body);
    assert_eq!(story(case, &beginning), told, "{case}");
    for at in 0..events.len() {
        let (number, _) = events[at];
        let reply = get(rig, &format!("{path}&starting_after={number}"), "");
        assert_eq!(reply.head.status, 200, "{case}, {number}: {}", reply.body);
        let rest = numbered(&reply.body);
        let both: Vec<_> = events[..=at].iter().cloned().chain(rest).collect();
        assert_eq!(story(case, &both), told, "{case} after {number}");
        assert_eq!(both.last(), events.last(), "{case} after {number}");
    }
}

#[test]
fn events_resume_after_any_number() {
    let rig = Rig::with(fake(), kept());
    let letters = json!({"logit_bias": {}, "temperature": 1.5, "seed": 7, "max_output_tokens": 24});
    check("letters", &rig, &letters);
    check("hello", &rig, &json!({}));
    let mut stops = letters.clone();
    stops["stop"] = json!(["zz", "nothing says this"]);
    check("held back", &rig, &stops);
    check("a stop string", &rig, &json!({"stop": "lohe"}));
    let mut probable = letters.clone();
    probable["top_logprobs"] = json!(2);
    check("log-probabilities", &rig, &probable);
    let mut faulty = fake();
    faulty.tokens = 97..101;
    faulty.faults = vec![Fault {
        at: FaultAt::Token(u32::from(b'c')),
        kind: FaultKind::NotANumber,
    }];
    let rig = Rig::with(faulty, kept());
    let mut fails = letters;
    fails["seed"] = json!(5);
    check("fails", &rig, &fails);
}

/// What each item says, by its place, and the last event.
fn items_of(events: &[(u64, Event)]) -> (BTreeMap<u64, String>, Value) {
    let numbers: Vec<u64> = events.iter().map(|(number, _)| *number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let (mut items, mut last) = (BTreeMap::new(), Value::Null);
    for (_, event) in events {
        let Event::Data { data, .. } = event else {
            continue;
        };
        last = serde_json::from_str(data).expect("JSON");
        let Some(index) = last["output_index"].as_u64() else {
            continue;
        };
        let kind = last["type"].as_str().unwrap_or_default();
        let said: &mut String = items.entry(index).or_default();
        if kind.ends_with(".delta") {
            said.push_str(last["delta"].as_str().expect("a delta"));
        }
        for name in ["text", "arguments", "input"] {
            if kind.ends_with(".done") && last[name].is_string() {
                assert_eq!(last[name], **said, "{last}");
            }
        }
    }
    (items, last)
}

#[test]
fn reasoning_and_tool_calls_resume_after_any_number() {
    let format = AnswerFormat {
        tools: ToolFamily::Hermes,
        reasoning: ReasoningFamily::Think,
    };
    let rig = Rig::echoing(format, kept());
    let call = r#"<tool_call>{"name": "now", "arguments": {"a": "b"}}</tool_call>"#;
    let patch = r#"<tool_call>{"name": "patch", "arguments": {"input": "*** \"\u00e9\"\n\ud83d\ude42"}}</tool_call>"#;
    let script = format!("<think>hm</think>I look.{call}{patch} so");
    let body = json!({
        "input": script, "temperature": 0, "max_output_tokens": 400, "stream": true,
        "tools": [
            {"type": "function", "name": "now", "parameters": {"type": "object"}},
            {"type": "custom", "name": "patch"},
        ],
    });
    let whole = call_for(&rig, &body);
    let events = numbered(&whole.body);
    let told = items_of(&events);
    let said: Vec<&str> = told.0.values().map(String::as_str).collect();
    assert_eq!(said[..2], ["hm", "I look."]);
    assert_eq!(said.len(), 5, "{said:?}");
    assert_eq!(said[3], "*** \"\u{e9}\"\n\u{1f642}");
    let stream = whole.head.get("x-stream-id").expect("a name");
    let path = format!("{RESPONSES}/resp_{stream}?stream=true");
    assert_eq!(
        items_of(&numbered(&get(&rig, &path, "").body)),
        told,
        "merged"
    );
    for at in 0..events.len() {
        let (number, _) = events[at];
        let reply = get(&rig, &format!("{path}&starting_after={number}"), "");
        assert_eq!(reply.head.status, 200, "{number}: {}", reply.body);
        let rest = numbered(&reply.body);
        let both: Vec<_> = events[..=at].iter().cloned().chain(rest).collect();
        assert_eq!(items_of(&both), told, "after {number}");
    }
}

fn call_for(rig: &Rig, body: &Value) -> Reply {
    let reply = call(rig, "POST", RESPONSES, RESUMABLE, body);
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    reply
}

#[test]
fn events_of_a_running_response_are_followed() {
    let rig = Rig::gated(fake(), kept());
    let over = json!({"background": true, "max_output_tokens": 40});
    let told = create(&rig, &over).json();
    let path = format!("{}?stream=true", super::path_of(&told));
    rig.gate.allow(5);
    let mut reader = send(&rig, "GET", &path, "", &Value::Null);
    assert_eq!(reader.head().status, 200);
    let mut got = String::new();
    // Its beginning has four events; the tokens that are there may be one.
    while numbered(&got).len() < 5 {
        got += &reader.chunk().expect("it goes on");
    }
    drop(reader);
    let got = numbered(&got);
    let after = got.last().expect("events").0;
    let never = get(&rig, &format!("{path}&starting_after={}", after + 1000), "");
    assert_eq!(code(&never), (400, "invalid_cursor".to_owned()));
    let path = format!("{path}&starting_after={after}");
    let mut reader = send(&rig, "GET", &path, "", &Value::Null);
    assert_eq!(reader.head().status, 200);
    rig.gate.open();
    let all: Vec<_> = got.into_iter().chain(numbered(&reader.body())).collect();
    let told = story("while it is made", &all);
    assert_eq!(told.text(), "hello".repeat(40));
}

#[test]
fn missing_events_are_reported_as_gone() {
    let rig = Rig::with(fake(), kept());
    let told = create(&rig, &json!({})).json();
    let path = super::path_of(&told);
    let gone = get(&rig, &format!("{path}?stream=true"), "");
    assert_eq!(code(&gone), (410, "stream_gone".to_owned()));
    assert_eq!(get(&rig, &path, "").json(), told);
    for query in ["stream=yes", "stream=true&starting_after=x"] {
        assert_eq!(get(&rig, &format!("{path}?{query}"), "").head.status, 400);
    }
}
