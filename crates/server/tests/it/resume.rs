//! Streams that are cut and read again.

use crate::support::Rig;
use crate::support::dialects::ALL_DIALECTS;
use crate::support::named::{
    CHAT, COMPLETIONS, RESUMABLE, call, chat, completion, fake, get, kept, resumable_chat, send,
    stream_id,
};
use crate::support::sse::{Frame, Heard, frames};
use crate::support::vocab;
use engine::fake::{Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Cuts the answer at every byte, resumes with the id of the last whole frame, and expects that both
/// parts together say what the uncut answer says.
fn check(case: &str, rig: &Rig, path: &str, body: &Value) {
    let uncut = call(rig, "POST", path, RESUMABLE, body);
    assert_eq!(uncut.head.status, 200, "{case}: {}", uncut.body);
    let id = stream_id(&uncut.head);
    let whole = frames(&uncut.body);
    let heard = Heard::of(&whole);
    assert!(heard.is_over(), "{case}: {}", uncut.body);
    let events = format!("/v1/streams/{id}/events");
    let mut resumed: HashMap<Option<String>, Option<Vec<Frame>>> = HashMap::new();
    for cut in 0..=uncut.body.len() {
        let mut got = frames(&uncut.body[..cut]);
        let last = got.iter().rev().find_map(|frame| frame.id.clone());
        let rest = resumed.entry(last.clone()).or_insert_with(|| {
            let field = last.map(|last| format!("last-event-id: {last}\r\n"));
            let reply = get(rig, &events, &field.unwrap_or_default());
            assert_eq!(stream_id(&reply.head), id);
            match reply.head.status {
                204 => None,
                _ => Some(frames(&reply.body)),
            }
        });
        match rest {
            // Nothing is left to tell: it was all there.
            None => assert_eq!(Heard::of(&got), heard, "{case}: cut at {cut}"),
            Some(rest) => {
                got.extend(rest.iter().cloned());
                assert_eq!(Heard::of(&got), heard, "{case}: cut at {cut}");
            }
        }
    }
    assert!(resumed.len() >= 3, "{case}: {} places", resumed.len());
}

#[test]
fn stream_cut_at_any_byte_resumes() {
    let rig = Rig::with(fake(), kept());
    let usage = json!({"include_usage": true});
    check("chat", &rig, CHAT, &chat(&json!({})));
    check(
        "chat, usage",
        &rig,
        CHAT,
        &chat(&json!({"stream_options": usage})),
    );
    check(
        "chat, n=2",
        &rig,
        CHAT,
        &chat(&json!({"n": 2, "stream_options": usage})),
    );
    let bias = json!({vocab::WORD.to_string(): 3, (vocab::WORD + 2).to_string(): 7, (vocab::WORD + 3).to_string(): 7,
        (vocab::WORD + 4).to_string(): 7, (vocab::WORD + 5).to_string(): 7});
    let stops = chat(
        &json!({"n": 2, "stop": ["STOP", "nothing says this"], "logit_bias": bias, "max_tokens": 40}),
    );
    check("chat, stops", &rig, CHAT, &stops);
    let mut held = stops.clone();
    held["stop"] = json!(["STSTSTSTST", "aOPOPOPOP"]);
    check("chat, stops that hold back", &rig, CHAT, &held);
    let logprobs = json!({"n": 2, "logprobs": true, "top_logprobs": 2, "max_tokens": 6});
    check("chat, logprobs", &rig, CHAT, &chat(&logprobs));
    check(
        "completion",
        &rig,
        COMPLETIONS,
        &completion(&json!({"stream_options": usage})),
    );
    let echo = json!({"echo": true, "n": 2, "max_tokens": 5});
    check("completion, echo", &rig, COMPLETIONS, &completion(&echo));
    let logprobs = json!({"logprobs": 2, "max_tokens": 6, "stop": "STOP"});
    check(
        "completion, logprobs",
        &rig,
        COMPLETIONS,
        &completion(&logprobs),
    );
}

#[test]
fn missed_error_is_replayed() {
    for kind in [FaultKind::Panic, FaultKind::NotANumber] {
        let mut faulty = fake();
        faulty.tokens = 97..101;
        faulty.faults = vec![Fault {
            at: FaultAt::Token(u32::from(b'c')),
            kind,
        }];
        let rig = Rig::with(faulty, kept());
        let body = chat(&json!({"stream_options": {"include_usage": true}, "seed": 5}));
        check("chat", &rig, CHAT, &body);
        check(
            "completion",
            &rig,
            COMPLETIONS,
            &completion(&json!({"seed": 5})),
        );
    }
}

#[test]
fn running_stream_resumes_after_a_cut() {
    let rig = Rig::gated(fake(), kept());
    let body = chat(&json!({"max_tokens": 60}));
    let mut client = send(&rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&client.head());
    let mut got = String::new();
    while frames(&got).len() < 6 {
        rig.gate.allow(1);
        got += &client.chunk().expect("it goes on");
    }
    drop(client);
    let mut got = frames(&got);
    let last = got
        .iter()
        .rev()
        .find_map(|frame| frame.id.clone())
        .expect("marked");
    rig.gate.allow(20);
    let fields = format!("last-event-id: {last}\r\n");
    let mut again = send(
        &rig,
        "GET",
        &format!("/v1/streams/{id}/events"),
        &fields,
        &Value::Null,
    );
    assert_eq!(again.head().status, 200);
    rig.gate.open();
    got.extend(frames(&again.body()));
    let plain = call(&rig, "POST", CHAT, "", &body);
    assert!(!plain.body.contains("id: "), "a plain stream is not marked");
    assert_eq!(
        Heard::of(&got),
        Heard::of(&frames(&plain.body)),
        "same seed, same text"
    );
}

#[test]
fn readers_in_two_dialects_agree() {
    let rig = Rig::gated(fake(), kept());
    let mut chat = send(&rig, "POST", CHAT, RESUMABLE, &chat(&json!({"n": 2})));
    let path = format!(
        "/v1/streams/{}/events?dialect=openai.completions",
        stream_id(&chat.head())
    );
    let mut completion = send(&rig, "GET", &path, "", &Value::Null);
    assert_eq!(completion.head().status, 200);
    rig.gate.open();
    let (one, other) = (chat.body(), completion.body());
    assert!(one.contains("chat.completion.chunk") && other.contains("text_completion"));
    assert_eq!(Heard::of(&frames(&one)), Heard::of(&frames(&other)));
}

#[test]
fn non_streaming_response_is_replayable_as_a_stream() {
    let rig = Rig::with(fake(), kept());
    let whole = resumable_chat(&rig, &json!({"stream": false}));
    let text = whole.json()["choices"][0]["message"]["content"].clone();
    let path = format!("/v1/streams/{}/events", stream_id(&whole.head));
    let heard = Heard::of(&frames(&get(&rig, &path, "").body));
    assert_eq!(json!(heard.texts[&0]), text);
}

#[test]
fn unknown_cursors_are_rejected() {
    let rig = Rig::with(fake(), kept());
    let reply = resumable_chat(&rig, &json!({"max_tokens": 4}));
    let path = format!("/v1/streams/{}/events", stream_id(&reply.head));
    for after in [
        "7",
        "1.1.1",
        "x",
        "-1",
        "00000000000000000000000000000000:1",
        "1.4",
    ] {
        let reply = get(&rig, &format!("{path}?after={after}"), "");
        assert_eq!(
            (reply.head.status, &reply.json()["error"]["code"]),
            (400, &json!("invalid_cursor")),
            "{after}"
        );
    }
    assert_eq!(
        get(&rig, &format!("{path}?after=6"), "").head.status,
        200,
        "its end"
    );
    assert_eq!(
        get(&rig, &format!("{path}?after=6.3"), "").head.status,
        204,
        "everything"
    );
    let reply = get(&rig, &format!("{path}?dialect=latin"), "");
    assert_eq!(reply.head.status, 400);
    let reply = call(
        &rig,
        "POST",
        CHAT,
        "x-stream-resumable: yes\r\n",
        &chat(&json!({})),
    );
    assert_eq!(reply.head.status, 400);
}

/// Promise (Streams): the first event of a resumable stream's body sets the reconnection time of an `EventSource`, in
/// every wire protocol and once; plain streams have none.
/// Also held by `cargo xtask clients`.
#[test]
fn resumable_streams_set_the_reconnection_time_once() {
    let rig = Rig::with(fake(), kept());
    for dialect in &ALL_DIALECTS {
        let mut body = json!({"stream": true, "temperature": 1.5, "max_tokens": 6, "seed": 7});
        (dialect.prompt)(&mut body, "hi");
        (dialect.shape)(&mut body);
        let path = match dialect.name {
            name if name.starts_with("ollama") => format!("{}?format=sse", dialect.path),
            _ => dialect.path.to_owned(),
        };
        let retries = |body: &str| {
            let data = body
                .split_terminator("\n\n")
                .filter(|event| event.contains("data: "));
            let retry = |event: &str| event.starts_with("retry: 250\n");
            assert_eq!(
                body.matches("retry").count(),
                data.clone().filter(|e| retry(e)).count()
            );
            data.map(retry).collect::<Vec<_>>()
        };
        let check = |what: &str, reply: &str, once: bool| {
            let retries = retries(reply);
            let (first, rest) = retries.split_first().expect("an event");
            assert_eq!(*first, once, "{}, {what}: {reply}", dialect.name);
            assert!(
                rest.iter().all(|retry| !retry),
                "{}, {what}: {reply}",
                dialect.name
            );
        };
        let opened = call(&rig, "POST", &path, RESUMABLE, &body);
        assert_eq!(opened.head.status, 200, "{}: {}", dialect.name, opened.body);
        check("opened", &opened.body, true);
        let events = format!("/v1/streams/{}/events?format=sse", stream_id(&opened.head));
        check("read again", &get(&rig, &events, "").body, true);
        let resumed = format!("{events}&after=3");
        check("resumed", &get(&rig, &resumed, "").body, true);
        let plain = call(&rig, "POST", &path, "x-stream-resumable: 0\r\n", &body);
        check("plain", &plain.body, false);
    }
}
