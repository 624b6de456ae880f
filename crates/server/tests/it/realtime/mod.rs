//! Several streams over one WebSocket, as its client sees them.
//!
//! Promise (Streams): streams of one WebSocket are independent, cursors continue over SSE and back, one end each.

mod hostile;
mod slow;

use crate::support::client::get;
use crate::support::named::{chat, completion, fake, kept, stream_id};
use crate::support::talk::{Talk, text};
use crate::support::{Rig, sse, wait_until};
use engine::fake::{Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use server::ServerConfig;

/// Tokens a stream may be ahead.
const WINDOW: u64 = 4;

const DIALECTS: [&str; 7] = [
    "native.job",
    "openai.chat",
    "openai.completions",
    "openai.responses",
    "anthropic.messages",
    "ollama.chat",
    "ollama.generate",
];

fn narrow() -> ServerConfig {
    ServerConfig {
        credit_window: WINDOW,
        ..kept()
    }
}

fn job(max_tokens: u64) -> Value {
    json!({"prompt": "hi", "seed": 7, "max_tokens": max_tokens, "ignore_eos": true})
}

/// What a job said over HTTP.
fn job_events(reply: &crate::support::client::Reply) -> Vec<Value> {
    let frames = sse::frames(&reply.body);
    let events = frames.iter().filter(|frame| frame.data.starts_with('{'));
    events
        .map(|frame| serde_json::from_str(&frame.data).unwrap())
        .collect()
}

fn explicit() -> Value {
    json!({"acks": "explicit"})
}

fn ack(stream: &str, index: u64) -> Value {
    json!({"type": "ack", "stream": stream, "index": index})
}

#[test]
fn concurrent_streams_have_their_own_pace() {
    let rig = Rig::with(fake(), narrow());
    let mut talk = Talk::with(&rig);
    let a = talk.open("a", &explicit(), &job(10));
    let chat = chat(&json!({"max_tokens": 400, "n": 2}));
    let b = talk.open(
        "b",
        &json!({"acks": "explicit", "dialect": "openai.chat"}),
        &chat,
    );
    let completion = completion(&json!({"max_tokens": 20}));
    let c = talk.open("c", &json!({"dialect": "openai.completions"}), &completion);
    // Who reads by its socket is not held up by the two that wait for acknowledgements.
    let whole = talk.whole(&c);
    assert_eq!(whole.first().map(|m| &m["type"]), Some(&json!("started")));
    let ended = whole.last().unwrap();
    assert_eq!(
        (&ended["reason"], &ended["usage"]["completion_tokens"]),
        (&json!("MAX_TOKENS"), &json!(20))
    );
    text(&whole, 0);
    talk.of(&a, "backpressure");
    talk.of(&b, "backpressure");
    // One stands still by order, also when it has credit.
    talk.say(&json!({"type": "pause", "stream": a, "request": "pause"}));
    assert_eq!(talk.answer("pause")["type"], "ok");
    assert_eq!(talk.of(&a, "parked")["reason"], "paused");
    talk.say(&ack(&a, WINDOW));
    talk.say(&json!({"type": "cancel", "stream": b}));
    let whole = talk.whole(&b);
    assert_eq!(whole.last().unwrap()["reason"], "CANCELLED");
    let tokens = |choice| {
        let of = |m: &&Value| m["type"] == "token" && m["choice"] == choice;
        whole
            .iter()
            .filter(of)
            .map(|m| m.get("n").map_or(1, |n| n.as_u64().unwrap()))
            .sum::<u64>()
    };
    assert_eq!(
        (tokens(0), tokens(1)),
        (WINDOW, WINDOW),
        "no more than the window, of each"
    );
    talk.say(&json!({"type": "resume", "stream": a}));
    talk.of(&a, "backpressure");
    talk.say(&ack(&a, 2 * WINDOW));
    let whole = talk.whole(&a);
    assert_eq!(whole.last().unwrap()["reason"], "MAX_TOKENS");
    assert!(whole.iter().any(|m| m["type"] == "resumed"));
    text(&whole, 0);
    for stream in [&a, &b, &c] {
        assert!(talk.is_silent(stream), "nothing follows the ending");
    }
    wait_until("pages are given back", || {
        rig.engine.stats().pages_used() == 0
    });
}

#[test]
fn explicit_acknowledgements_park_and_unpark_streams() {
    let rig = Rig::with(fake(), narrow());
    let mut talk = Talk::with(&rig);
    let a = talk.open("a", &explicit(), &job(12));
    let b = talk.open("b", &explicit(), &job(12));
    let mut told = [Vec::new(), Vec::new()];
    for upto in [WINDOW, 2 * WINDOW] {
        for (stream, told) in [&a, &b].into_iter().zip(&mut told) {
            loop {
                let message = talk.wait("a message", |m| m["stream"] == **stream);
                let stands = message["type"] == "backpressure";
                told.push(message);
                if stands {
                    break;
                }
            }
            let tokens = told.iter().filter(|m| m["type"] == "token");
            let tokens: u64 = tokens
                .map(|m| m.get("n").map_or(1, |n| n.as_u64().unwrap()))
                .sum();
            assert!(tokens <= upto, "{tokens} tokens without credit");
        }
        let acks = json!([{"stream": a, "index": upto}, {"stream": b, "index": upto, "choice": 0}]);
        talk.say(&json!({"type": "ack", "acks": acks, "request": "both"}));
        assert_eq!(talk.answer("both")["type"], "ok");
    }
    for (stream, told) in [&a, &b].into_iter().zip(&mut told) {
        told.extend(talk.whole(stream));
        text(told, 0);
        let backs = told.iter().filter(|m| m["type"] == "resumed").count();
        assert!(backs > 0, "it was told when it went on");
    }
    assert!(rig.engine.stats().parks() >= 4);
    wait_until("pages are given back", || {
        rig.engine.stats().pages_used() == 0
    });
}

#[test]
fn stream_opened_over_a_socket_is_readable_over_http() {
    let rig = Rig::with(fake(), kept());
    let mut talk = Talk::with(&rig);
    let body = chat(&json!({"max_tokens": 60, "stop": ["zq"]}));
    let over = json!({"dialect": "openai.chat", "resumable": true});
    let id = talk.open("a", &over, &body);
    let whole = talk.whole(&id);
    let all = text(&whole, 0);
    let listed = get(rig.addr, "/v1/streams").json();
    assert_eq!(listed["data"][0]["id"], *id);
    // As server-sent events, from each place the client was at.
    for (i, token) in whole
        .iter()
        .enumerate()
        .filter(|(_, m)| m["type"] == "token")
    {
        let cursor = token["cursor"].as_str().unwrap();
        let reply = get(rig.addr, &format!("/v1/streams/{id}/events?after={cursor}"));
        let heard = sse::Heard::of(&sse::frames(&reply.body));
        let before = whole[..=i]
            .iter()
            .filter_map(|m| m["t"].as_str())
            .collect::<String>();
        let after = heard.texts.get(&0).cloned().unwrap_or_default();
        assert_eq!(before + &after, all, "after {cursor}");
        assert!(heard.is_over());
    }
    // And here, from a number of tokens and from a cursor.
    let mut other = Talk::with(&rig);
    other.say(&json!({"type": "attach", "stream": id, "from": 10, "request": "x"}));
    assert_eq!(other.answer("x")["type"], "attached");
    let again = other.whole(&id);
    assert!(all.ends_with(&text(&again, 10)));
    let cursor = again.iter().find(|m| m["type"] == "token").unwrap()["cursor"].clone();
    other.say(&json!({"type": "attach", "stream": id, "after": cursor}));
    other.of(&id, "attached");
    let last = other.whole(&id);
    assert!(all.ends_with(&text(
        &last,
        again.iter().find(|m| m["type"] == "token").map_or(0, |m| {
            m["i"].as_u64().unwrap() + m.get("n").map_or(1, |n| n.as_u64().unwrap())
        })
    )));
    assert_eq!(
        last.last().unwrap()["reason"],
        whole.last().unwrap()["reason"]
    );
}

#[test]
fn complete_reader_gets_the_end_in_every_dialect() {
    let mut faulty = fake();
    faulty.tokens = 97..101;
    faulty.faults = vec![Fault {
        at: FaultAt::Token(u32::from(b'c')),
        kind: FaultKind::NotANumber,
    }];
    for (case, model) in [("a good ending", fake()), ("a bad one", faulty)] {
        let rig = Rig::with(model, kept());
        let mut talk = Talk::with(&rig);
        let over = json!({"dialect": "openai.chat", "resumable": true});
        let two = chat(&json!({"n": 2, "max_tokens": 8, "seed": 5}));
        let id = talk.open("a", &over, &two);
        let mut ended = talk.whole(&id).pop().unwrap();
        // Times are measured, and not what this is about.
        ended["decode_time_ms"] = Value::Null;
        let cursor = ended["cursor"].as_str().unwrap().to_owned();
        for dialect in DIALECTS {
            let path = format!("/v1/streams/{id}/events?after={cursor}&dialect={dialect}");
            let status = get(rig.addr, &path).head.status;
            assert_eq!(status, 204, "{case}: nothing is left to tell in {dialect}");
        }
        // Each attachment has one ending, this one too.
        talk.say(&json!({"type": "attach", "stream": id, "after": cursor}));
        talk.of(&id, "attached");
        let mut again = talk.whole(&id);
        again.retain(|message| message["type"] != "started");
        again[0]["decode_time_ms"] = Value::Null;
        assert_eq!(again, [ended], "{case}");
    }
}

#[test]
fn stream_of_any_route_is_readable_over_a_socket() {
    let rig = Rig::with(fake(), kept());
    let reply = crate::support::client::post(rig.addr, "/v1/inference", &job(30));
    let id = stream_id(&reply.head);
    let spoken: String = job_events(&reply)
        .iter()
        .filter_map(|m| m["t"].as_str().map(str::to_owned))
        .collect();
    let mut talk = Talk::with(&rig);
    talk.say(&json!({"type": "attach", "stream": id}));
    assert_eq!(text(&talk.whole(&id), 0), spoken);
}

#[test]
fn lost_connection_ends_plain_streams_only() {
    let rig = Rig::with(fake(), narrow());
    let mut talk = Talk::with(&rig);
    let plain = talk.open(
        "a",
        &json!({"acks": "explicit", "resumable": false}),
        &job(400),
    );
    let kept = talk.open("b", &explicit(), &job(20));
    talk.of(&plain, "backpressure");
    talk.of(&kept, "backpressure");
    drop(talk);
    wait_until("the plain one is gone", || {
        get(rig.addr, &format!("/v1/streams/{plain}")).head.status != 200
    });
    // The other had its credit and what it may make alone.
    wait_until("the other has ended", || {
        get(rig.addr, &format!("/v1/streams/{kept}")).json()["state"] == "ended"
    });
    let mut talk = Talk::with(&rig);
    talk.say(&json!({"type": "attach", "stream": kept}));
    assert_eq!(talk.whole(&kept).last().unwrap()["reason"], "MAX_TOKENS");
    wait_until("pages are given back", || {
        rig.engine.stats().pages_used() == 0
    });
}

#[test]
fn socket_that_is_not_read_parks_its_own_streams_only() {
    let config = ServerConfig {
        credit_window: 20,
        send_buffer_bytes: 4096,
        unsent_bytes_max: 4096,
        ..kept()
    };
    let rig = Rig::with(fake(), config);
    let mut talk = Talk::with(&rig);
    // Two kilobytes a token: more than all buffers on the way hold.
    let wide = chat(&json!({"max_tokens": 480, "logprobs": true, "top_logprobs": 20}));
    let over = json!({"dialect": "openai.chat"});
    let streams = ["a", "b"].map(|name| talk.open(name, &over, &wide));
    wait_until("both are parked", || {
        let state =
            |id: &String| get(rig.addr, &format!("/v1/streams/{id}")).json()["state"].clone();
        streams.iter().all(|id| state(id) == "parked")
    });
    let other = crate::support::client::post(rig.addr, "/v1/inference", &job(300));
    assert_eq!(job_events(&other).last().unwrap()["tokens_out"], 300);
    // A command is heard although nothing is read.
    talk.say(&json!({"type": "cancel", "stream": streams[1]}));
    wait_until("one is cancelled", || {
        rig.engine.stats().endings().cancelled == 1
    });
    let whole = talk.whole(&streams[0]);
    text(&whole, 0);
    assert_eq!(whole.last().unwrap()["usage"]["completion_tokens"], 480);
    assert_eq!(
        talk.whole(&streams[1]).last().unwrap()["reason"],
        "CANCELLED"
    );
    wait_until("pages are given back", || {
        rig.engine.stats().pages_used() == 0
    });
}

#[test]
fn shutdown_is_announced_over_the_socket() {
    let mut rig = Rig::with(fake(), narrow());
    let mut talk = Talk::with(&rig);
    let id = talk.open("a", &json!({}), &job(30));
    talk.whole(&id);
    rig.ask_to_stop();
    assert_eq!(talk.closed(), 1001);
    drop(talk);
    assert_eq!(rig.stopped().cut, 0);
}

#[test]
fn updates_over_a_socket_equal_updates_over_http() {
    let rig = Rig::gated(fake(), kept());
    let mut talk = Talk::with(&rig);
    let id = talk.open("a", &json!({}), &job(30));
    rig.gate.allow(4);
    wait_until("it has tokens", || {
        get_stream(&rig, &id)["completion_tokens"] == 4
    });
    talk.say(
        &json!({"type": "control", "request": "r", "stream": id, "text": "XYZ", "temperature": 0}),
    );
    assert_eq!(talk.answer("r")["type"], "ok");
    talk.say(&json!({"type": "control", "request": "s", "stream": id, "temperature": -1, "text": "x", "tokens": [1]}));
    let wrong = talk.answer("s");
    assert_eq!(wrong["type"], "error");
    let fields: Vec<&Value> = wrong["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["field"])
        .collect();
    assert_eq!(fields, ["temperature", "text"]);
    talk.say(&json!({"type": "control", "request": "t", "stream": id, "end_thinking": true}));
    assert_eq!(
        talk.answer("t")["type"],
        "error",
        "this model has no such token"
    );
    talk.say(&json!({"type": "control", "request": "p", "stream": id, "pause": true}));
    assert_eq!(talk.answer("p")["type"], "ok");
    assert_eq!(get_stream(&rig, &id)["state"], "paused");
    talk.say(&json!({"type": "control", "request": "g", "stream": id, "pause": false}));
    assert_eq!(talk.answer("g")["type"], "ok");
    rig.gate.open();
    let whole = text(&talk.whole(&id), 0);
    assert!(matches!(whole.find("XYZ"), Some(4 | 5)), "{whole}");
    assert_eq!(get_stream(&rig, &id)["control"]["told"], 3);
    talk.say(&json!({"type": "control", "request": "late", "stream": id, "stop": true}));
    assert_eq!(talk.answer("late")["code"], "stream_not_running");

    let rig = Rig::gated(fake(), kept());
    let mut talk = Talk::with(&rig);
    let id = talk.open("b", &json!({}), &job(30));
    rig.gate.allow(4);
    wait_until("it has tokens", || {
        get_stream(&rig, &id)["completion_tokens"] == 4
    });
    talk.say(&json!({"type": "control", "request": "s", "stream": id, "stop": true}));
    assert_eq!(talk.answer("s")["type"], "ok", "before it may go on");
    rig.gate.open();
    let ended = talk.of(&id, "ended");
    assert_eq!(ended["reason"], "CANCELLED");
}

fn get_stream(rig: &Rig, id: &str) -> Value {
    crate::support::named::get(rig, &format!("/v1/streams/{id}"), "").json()
}
