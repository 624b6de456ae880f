//! After warm-up a token costs no allocation from the model's step to the socket, whichever way it goes: on no thread
//! of the server, HTTP library, WebSocket library and runtime included.
//!
//! Promise (Journal): after warm-up a token of a durable stream costs no allocation, the journal's thread included.

#![expect(clippy::print_stdout, reason = "the figures")]

use crate::support::client::{Client, get, request};
use crate::support::dialects::{DIALECTS, Dialect};
use crate::support::disk::Disk;
use crate::support::talk::Talk;
use crate::support::{Rig, named, wait_until};
use serde_json::{Value, json};
use server::StreamLimits;
use testing::child::run_in_child;
use testing::heap;

/// Tokens of an answer.
const TOKENS: usize = 400;
/// The first ones: what is kept for the rest of a stream is made then.
const WARM: usize = 64;
/// The last ones: what is done at an end is done while they are read.
const LAST: usize = 16;
/// The first may find the pool of segments empty, or a table that everybody shares full.
const STREAMS: usize = 4;

/// How often each dialect's frames say this: once for each token.
const MARKS: [(&str, &str); 10] = [
    ("openai.chat", "\"delta\":{\"content\":"),
    ("openai.completions", "\"text\":"),
    ("native.job", "\"type\":\"token\""),
    ("anthropic.messages", "\"text_delta\""),
    ("openai.responses", "event: response.output_text.delta"),
    ("ollama.chat", "\"done\":false"),
    ("ollama.generate", "\"done\":false"),
    ("ai-sdk.ui", "\"type\":\"text-delta\""),
    ("llama.completion", "\"stop\":false"),
    ("llama.infill", "\"stop\":false"),
];

fn body(dialect: &Dialect) -> Value {
    let mut body = json!({
        "model": crate::support::MODEL, "max_tokens": TOKENS, "stream": true, "seed": 1,
    });
    (dialect.prompt)(&mut body, "hi");
    (dialect.shape)(&mut body);
    body
}

/// Allocations of the tokens between the first ones and the last ones: each is made when the one before it was read.
fn taken(rig: &Rig, mut read: impl FnMut() -> usize) -> u64 {
    let (mut tokens, mut before) = (0, 0);
    while tokens < TOKENS - LAST {
        if tokens == WARM {
            before = heap::process_allocations();
        }
        rig.gate.allow(1);
        let came = read();
        assert_eq!(came, 1, "one for each step");
        tokens += came;
    }
    let taken = heap::process_allocations() - before;
    rig.gate.allow(LAST as u64);
    taken
}

fn over_http(rig: &Rig, dialect: &Dialect, fields: &str) -> u64 {
    let mark = MARKS.iter().find(|mark| mark.0 == dialect.name);
    let mark = mark.expect("each dialect has its mark").1;
    let mut client = named::send(rig, "POST", dialect.path, fields, &body(dialect));
    let mut is_open = false;
    let taken = taken(rig, || {
        if !is_open {
            assert_eq!(client.head().status, 200, "{}", dialect.name);
            is_open = true;
        }
        loop {
            let chunk = client.chunk().expect("it goes on");
            match chunk.matches(mark).count() {
                0 => {}
                tokens => return tokens,
            }
        }
    });
    while client.chunk().is_some() {}
    taken
}

fn over_a_websocket(rig: &Rig, talk: &mut Talk, request: &str) -> u64 {
    let body = json!({"prompt": "hi", "max_tokens": TOKENS, "seed": 1});
    let stream = talk.open(request, &json!({"resumable": false}), &body);
    let taken = taken(rig, || {
        let token = talk.of(&stream, "token");
        token
            .get("n")
            .map_or(1, |n| n.as_u64().expect("a count") as usize)
    });
    talk.of(&stream, "ended");
    taken
}

/// Some streams of a kind, one after the other: there are those that cost nothing.
fn expect_none(label: &str, mut stream: impl FnMut() -> u64) {
    let taken: Vec<u64> = (0..STREAMS).map(|_| stream()).collect();
    let tokens = TOKENS - WARM - LAST;
    println!("{label}: allocations for {tokens} tokens of each of {STREAMS} streams: {taken:?}");
    assert_eq!(taken.iter().min(), Some(&0), "{label}: {taken:?}");
}

#[test]
fn tokens_cost_no_allocation_from_the_step_to_the_socket() {
    if run_in_child(tokens_cost_no_allocation_from_the_step_to_the_socket) {
        return;
    }
    heap::count_process_without_this_thread();
    // One that ended is kept: then the next one's log is made of the segments of the one before that.
    let streams = StreamLimits {
        retained_max: 1,
        ..StreamLimits::default()
    };
    let rig = Rig::gated(named::fake(), named::with(streams));
    wait_until("it serves", || get(rig.addr, "/health").head.status == 200);
    let before = heap::process_allocations();
    Client::connect(rig.addr).send(&request("/v1/chat/completions", &json!({})));
    wait_until("the counter counts", || {
        heap::process_allocations() > before
    });
    for dialect in &DIALECTS {
        expect_none(dialect.name, || over_http(&rig, dialect, ""));
        let label = format!("{}, resumable", dialect.name);
        expect_none(&label, || over_http(&rig, dialect, named::RESUMABLE));
    }
    let mut talk = Talk::with(&rig);
    let mut n = 0;
    expect_none("WebSocket", || {
        n += 1;
        over_a_websocket(&rig, &mut talk, &n.to_string())
    });
    drop(talk);
    rig.gate.open();
}

#[test]
fn durable_tokens_cost_no_allocation_on_the_journal_s_thread_either() {
    if run_in_child(durable_tokens_cost_no_allocation_on_the_journal_s_thread_either) {
        return;
    }
    heap::count_process_without_this_thread();
    let streams = StreamLimits {
        retained_max: 1,
        ..StreamLimits::default()
    };
    let disk = Disk::new("allocations");
    let rig = Rig::recorded(named::fake(), named::with(streams), disk);
    wait_until("it serves", || get(rig.addr, "/health").head.status == 200);
    for dialect in &DIALECTS {
        let label = format!("{}, durable", dialect.name);
        expect_none(&label, || over_http(&rig, dialect, named::RESUMABLE));
    }
    rig.gate.open();
}
