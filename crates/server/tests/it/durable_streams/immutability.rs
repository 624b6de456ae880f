//! The bytes after an offset are the same in every read, at every time, however the reads are cut.
//!
//! Promise (Streams): the messages of `/v1/stream/{id}` after an offset have the same bytes in every read, at every
//! time, however the reads are cut: catch-up, long poll and events, every protocol, end and number of choices; the
//! unmodified client reads through three `kill -9` of the server.
//! Also held by `server/tests/it/restarts/offsets.rs`, `cargo xtask clients`,
//! `tools/clients/durable_streams_suite.mjs`.

use super::{EventBody, field, head, inner, joined, read, text_and_last};
use crate::support::Rig;
use crate::support::dialects::ALL_DIALECTS;
use crate::support::named::{
    CHAT, COMPLETIONS, RESUMABLE, call, chat, completion, fake, get, kept, send, stream_id,
};
use crate::support::vocab;
use engine::fake::{Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use text::{AnswerFormat, ReasoningFamily, ToolFamily};

/// All offsets of a stream, by its description.
fn offsets(rig: &Rig, id: &str) -> Vec<String> {
    let description = get(rig, &format!("/v1/streams/{id}"), "").json();
    let choices = description["choices"].as_array().expect("choices").clone();
    let each = choices.iter().enumerate().flat_map(|(index, choice)| {
        let steps = choice["tokens"].as_u64().expect("a number") + 2;
        let prefix = match choices.len() {
            1 => String::new(),
            _ => format!("{index:06}_"),
        };
        (0..=steps).map(move |steps| format!("{prefix}{steps:016}"))
    });
    each.collect()
}

/// Reads an ended stream from each of its offsets in each mode; returns the whole list.
fn check_ended(case: &str, rig: &Rig, id: &str) -> String {
    let whole = read(rig, id, "offset=-1");
    let tail = field(&whole.head, "stream-next-offset").to_owned();
    let whole = inner(&whole);
    let mut left = whole.clone();
    let offsets = offsets(rig, id);
    assert!(offsets.is_sorted(), "{case}");
    for (at, offset) in offsets.iter().enumerate() {
        let caught_up = read(rig, id, &format!("offset={offset}"));
        assert_eq!(
            field(&caught_up.head, "stream-closed"),
            "true",
            "{case}: {offset}"
        );
        assert_eq!(
            field(&caught_up.head, "stream-next-offset"),
            tail.max_offset(offset),
            "{case}"
        );
        let rest = inner(&caught_up);
        assert!(left.ends_with(&rest), "{case}: after {offset}: {rest}");
        assert!(at > 0 || rest == whole, "{case}: {rest}");
        let polled = read(rig, id, &format!("offset={offset}&live=long-poll"));
        match polled.head.status {
            204 => assert_eq!(rest, "", "{case}: {offset}"),
            _ => assert_eq!(inner(&polled), rest, "{case}: {offset}"),
        }
        let events = read(rig, id, &format!("offset={offset}&live=sse"));
        assert_eq!(
            EventBody::of(&events.body).closed().0,
            rest,
            "{case}: {offset}"
        );
        left = rest;
    }
    assert_eq!(field(&head(rig, id), "stream-next-offset"), tail, "{case}");
    whole
}

trait MaxOffset {
    /// The next offset of a read from `from`: an offset after the last message stays.
    fn max_offset(&self, from: &str) -> String;
}

impl MaxOffset for String {
    fn max_offset(&self, from: &str) -> String {
        std::cmp::max(&**self, from).to_owned()
    }
}

/// Answers a request, and reads the stream from each of its offsets.
fn check(case: &str, rig: &Rig, path: &str, body: &Value) -> String {
    let opened = call(rig, "POST", path, RESUMABLE, body);
    assert_eq!(opened.head.status, 200, "{case}: {}", opened.body);
    check_ended(case, rig, &stream_id(&opened.head))
}

#[test]
fn reads_from_any_offset_are_equal() {
    let rig = Rig::with(fake(), kept());
    let bias = json!({vocab::WORD.to_string(): 3, (vocab::WORD + 2).to_string(): 7, (vocab::WORD + 3).to_string(): 7,
        (vocab::WORD + 4).to_string(): 7, (vocab::WORD + 5).to_string(): 7});
    let rows = [
        ("chat", CHAT, chat(&json!({}))),
        ("two choices", CHAT, chat(&json!({"n": 2}))),
        (
            "log-probabilities",
            CHAT,
            chat(&json!({"n": 2, "logprobs": true, "top_logprobs": 2, "max_tokens": 6})),
        ),
        (
            "stop",
            CHAT,
            chat(&json!({"stop": ["STOP"], "logit_bias": bias, "max_tokens": 40})),
        ),
        (
            "text held back",
            CHAT,
            chat(
                &json!({"n": 2, "stop": ["STSTSTSTST", "aOPOPOPOP"], "logit_bias": bias, "max_tokens": 40}),
            ),
        ),
        (
            "echo",
            COMPLETIONS,
            completion(&json!({"echo": true, "n": 2, "max_tokens": 5})),
        ),
    ];
    for (case, path, body) in rows {
        let whole = check(case, &rig, path, &body);
        let (text, last) = text_and_last(&whole);
        assert!(!text.is_empty() && last["type"] == "end", "{case}: {whole}");
    }
}

#[test]
fn reasoning_and_tool_calls_are_equal_from_any_offset() {
    let format = AnswerFormat {
        tools: ToolFamily::Hermes,
        reasoning: ReasoningFamily::Think,
    };
    let rig = Rig::echoing(format, kept());
    let tool_call = r#"<tool_call>{"name": "now", "arguments": {"a": "b"}}</tool_call>"#;
    let script = format!("<think>hm</think>I look.{tool_call}{tool_call} so");
    let body = json!({
        "messages": [{"role": "user", "content": script}], "temperature": 0, "max_tokens": 400, "stream": true,
        "tools": [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}],
    });
    let whole = check("tool calls", &rig, CHAT, &body);
    for part in [
        "\"kind\":\"reasoning\"",
        "\"type\":\"tool_call\"",
        "\"type\":\"tool_args\"",
        "\"type\":\"tool_end\"",
    ] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
}

#[test]
fn failed_and_cancelled_streams_are_equal_from_any_offset() {
    for kind in [FaultKind::Panic, FaultKind::NotANumber] {
        let mut faulty = fake();
        faulty.tokens = 97..101;
        let at = FaultAt::Token(u32::from(b'c'));
        faulty.faults = vec![Fault { at, kind }];
        let rig = Rig::with(faulty, kept());
        let whole = check("failure", &rig, CHAT, &chat(&json!({"seed": 5})));
        assert_eq!(text_and_last(&whole).1["type"], "error", "{whole}");
    }
    let rig = Rig::gated(fake(), kept());
    let body = chat(&json!({"n": 2, "max_tokens": 50}));
    let mut client = send(&rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&client.head());
    rig.gate.allow(5);
    while !client.chunk().expect("text").contains("\"content\":\"") {}
    call(
        &rig,
        "DELETE",
        &format!("/v1/streams/{id}"),
        "",
        &Value::Null,
    );
    rig.gate.open();
    client.body();
    let whole = check_ended("cancelled", &rig, &id);
    assert_eq!(
        text_and_last(&whole).1["stop_reason"],
        "CANCELLED",
        "{whole}"
    );
}

/// Reads a stream while it is generated; every position that the reader is sent has the same messages before and
/// after, then and later.
#[test]
fn live_reads_have_the_bytes_of_later_reads() {
    let bodies = [
        chat(&json!({"max_tokens": 40})),
        chat(&json!({"n": 3, "max_tokens": 40})),
    ];
    for body in bodies {
        let rig = Rig::gated(fake(), kept());
        let mut client = send(&rig, "POST", CHAT, RESUMABLE, &body);
        let id = stream_id(&client.head());
        let path = format!("/v1/stream/{id}?offset=-1&live=sse");
        let mut reader = send(&rig, "GET", &path, "", &Value::Null);
        assert_eq!(reader.head().status, 200);
        let (mut text, mut during) = (String::new(), Vec::new());
        for passes in [1, 1, 1, 2, 3, 5, 8] {
            rig.gate.allow(passes);
            text += &reader.chunk().expect("a position");
            let caught_up = read(&rig, &id, "");
            let next = field(&caught_up.head, "stream-next-offset").to_owned();
            during.push((inner(&caught_up), next));
        }
        rig.gate.open();
        text += &reader.body();
        client.body();
        let events = EventBody::of(&text);
        let controls = events.controls.iter();
        let live = controls.map(|(before, control)| {
            let offset = control["streamNextOffset"].as_str().expect("an offset");
            (before.clone(), offset.to_owned())
        });
        during.extend(live);
        let whole = inner(&read(&rig, &id, ""));
        assert_eq!(events.closed().0, whole);
        for (before, offset) in &during {
            let after = inner(&read(&rig, &id, &format!("offset={offset}")));
            assert_eq!(joined(before, &after), whole, "at {offset}");
        }
        check_ended("afterwards", &rig, &id);
    }
}

#[test]
fn streams_of_every_protocol_are_read() {
    let rig = Rig::with(fake(), kept());
    for dialect in &ALL_DIALECTS {
        let mut body = json!({"stream": true, "temperature": 1.5, "max_tokens": 6, "seed": 7});
        (dialect.prompt)(&mut body, "hi");
        (dialect.shape)(&mut body);
        let whole = check(dialect.name, &rig, dialect.path, &body);
        let (text, last) = text_and_last(&whole);
        assert!(
            !text.is_empty() && last["stop_reason"] == "MAX_TOKENS",
            "{}: {whole}",
            dialect.name
        );
    }
}
