//! Streams that are cut and read again.

mod support;

use engine::fake::{FakeConfig, Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use server::{Key, KeyHash, KeyLimits, Keys, Scope, Scopes, ServerConfig, StreamLimits};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use support::client::{Client, Reply};
use support::sse::{Frame, Heard, frames};
use support::{Rig, config, vocab, wait_until};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESUMABLE: &str = "x-stream-resumable: 1\r\n";

/// Ended streams are kept for as long as a test runs.
fn kept() -> ServerConfig {
    with(StreamLimits {
        retention: Duration::from_secs(3600),
        ..StreamLimits::default()
    })
}

fn with(streams: StreamLimits) -> ServerConfig {
    ServerConfig {
        streams,
        ..config()
    }
}

/// A model that says letters and some longer words, and never ends by itself.
fn fake() -> FakeConfig {
    FakeConfig {
        eos_probability: 0.0,
        ..support::fake()
    }
}

fn send(rig: &Rig, method: &str, path: &str, fields: &str, body: &Value) -> Client {
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

fn call(rig: &Rig, method: &str, path: &str, fields: &str, body: &Value) -> Reply {
    send(rig, method, path, fields, body).reply()
}

fn get(rig: &Rig, path: &str, fields: &str) -> Reply {
    call(rig, "GET", path, fields, &Value::Null)
}

fn stream_id(head: &support::client::Head) -> String {
    head.get("x-stream-id")
        .expect("every answer names its stream")
        .to_owned()
}

fn chat(over: &Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "hi"}], "seed": 7, "stream": true,
        "max_tokens": 24, "temperature": 1.5,
    });
    for (name, value) in over.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn completion(over: &Value) -> Value {
    let mut body = chat(over);
    body.as_object_mut().unwrap().remove("messages");
    body["prompt"] = json!("hi");
    body
}

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
fn a_stream_cut_at_every_byte_goes_on_where_it_was() {
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
fn an_error_is_told_again_to_who_missed_it() {
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
fn a_cut_stream_goes_on_while_it_is_made() {
    let rig = Rig::gated(fake(), kept());
    let body = chat(&json!({"max_tokens": 60}));
    let mut client = send(&rig, "POST", CHAT, RESUMABLE, &body);
    let id = stream_id(&client.head());
    rig.gate.allow(12);
    let mut got = String::new();
    while frames(&got).len() < 6 {
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
fn two_readers_in_two_dialects_agree() {
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
fn a_whole_answer_can_be_streamed_again() {
    let rig = Rig::with(fake(), kept());
    let whole = call(
        &rig,
        "POST",
        CHAT,
        RESUMABLE,
        &chat(&json!({"stream": false})),
    );
    let text = whole.json()["choices"][0]["message"]["content"].clone();
    let path = format!("/v1/streams/{}/events", stream_id(&whole.head));
    let heard = Heard::of(&frames(&get(&rig, &path, "").body));
    assert_eq!(json!(heard.texts[&0]), text);
}

#[test]
fn a_plain_stream_is_forgotten_at_its_end() {
    let rig = Rig::with(fake(), kept());
    for stream in [true, false] {
        let reply = call(&rig, "POST", CHAT, "", &chat(&json!({"stream": stream})));
        let path = format!("/v1/streams/{}", stream_id(&reply.head));
        wait_until("it is gone", || get(&rig, &path, "").head.status == 410);
        let gone = get(&rig, &format!("{path}/events"), "");
        assert_eq!(gone.json()["error"]["code"], "stream_gone");
        let deleted = call(&rig, "DELETE", &path, "", &Value::Null);
        assert_eq!(deleted.head.status, 202, "deleting twice is deleting");
    }
    rig.wait_until_empty();
    let unknown = get(&rig, &format!("/v1/streams/{}", "0".repeat(32)), "");
    assert_eq!(
        (unknown.head.status, &unknown.json()["error"]["code"]),
        (404, &json!("stream_not_found"))
    );
    assert_eq!(get(&rig, "/v1/streams/me", "").head.status, 404);
}

#[test]
fn places_that_were_never_told_are_refused() {
    let rig = Rig::with(fake(), kept());
    let reply = call(
        &rig,
        "POST",
        CHAT,
        RESUMABLE,
        &chat(&json!({"max_tokens": 4})),
    );
    let path = format!("/v1/streams/{}/events", stream_id(&reply.head));
    for after in [
        "7",
        "1.1.1",
        "x",
        "-1",
        "00000000000000000000000000000000:1",
        "1.3",
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
        get(&rig, &format!("{path}?after=6.2"), "").head.status,
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

#[test]
fn a_stream_without_its_client_waits_and_goes_on_with_the_next() {
    const WINDOW: u64 = 8;
    const ALONE: u64 = 5;
    let limits = StreamLimits {
        detached_tokens: ALONE,
        detached_wait: Duration::from_secs(3600),
        ..StreamLimits::default()
    };
    let config = ServerConfig {
        credit_window: WINDOW,
        ..with(limits)
    };
    let rig = Rig::gated(fake(), config);
    let body = chat(&json!({"max_tokens": 200}));
    let mut client = send(&rig, "POST", CHAT, RESUMABLE, &body);
    let path = format!("/v1/streams/{}", stream_id(&client.head()));
    rig.gate.allow(3);
    while !client.chunk().expect("some text").contains("id: ") {}
    drop(client);
    rig.gate.open();
    wait_until("it waits for credit", || {
        get(&rig, &path, "").json()["state"] == "parked"
    });
    wait_until("its client is gone", || {
        get(&rig, &path, "").json()["attached"] == false
    });
    wait_until("it used what it may make alone", || {
        let choice = get(&rig, &path, "").json()["choices"][0].clone();
        let (made, accepted) = (&choice["tokens"], &choice["accepted"]);
        made.as_u64() == accepted.as_u64().map(|accepted| accepted + WINDOW + ALONE)
    });
    assert_eq!(get(&rig, &path, "").json()["state"], "parked");
    let rest = get(&rig, &format!("{path}/events"), "");
    let plain = call(&rig, "POST", CHAT, "", &body);
    assert_eq!(
        Heard::of(&frames(&rest.body)),
        Heard::of(&frames(&plain.body))
    );
}

#[test]
fn a_stream_nobody_comes_back_for_is_cancelled_and_leaves_nothing() {
    let limits = StreamLimits {
        detached_tokens: 5,
        detached_wait: Duration::from_millis(20),
        retention: Duration::from_millis(20),
        ..StreamLimits::default()
    };
    let config = ServerConfig {
        credit_window: 8,
        ..with(limits)
    };
    let rig = Rig::gated(fake(), config);
    let mut paths = Vec::new();
    for _ in 0..4 {
        let mut client = send(
            &rig,
            "POST",
            CHAT,
            RESUMABLE,
            &chat(&json!({"max_tokens": 300, "n": 2})),
        );
        paths.push(format!("/v1/streams/{}", stream_id(&client.head())));
    }
    rig.gate.open();
    for path in &paths {
        wait_until("it ends and is forgotten", || {
            get(&rig, path, "").head.status == 410
        });
    }
    rig.wait_until_empty();
    assert_eq!(rig.engine.stats().endings().cancelled, 8);
    assert_eq!(get(&rig, "/v1/streams", "").json()["data"], json!([]));
}

#[test]
fn acknowledgements_return_credit_where_the_client_wants_it_so() {
    const WINDOW: u64 = 8;
    let config = ServerConfig {
        credit_window: WINDOW,
        ..kept()
    };
    let rig = Rig::with(fake(), config);
    let body = chat(&json!({"max_tokens": 20}));
    let mut client = send(&rig, "POST", CHAT, "x-stream-acks: explicit\r\n", &body);
    let path = format!("/v1/streams/{}", stream_id(&client.head()));
    let made = || {
        get(&rig, &path, "").json()["choices"][0]["tokens"]
            .as_u64()
            .unwrap()
    };
    wait_until("it waits", || {
        get(&rig, &path, "").json()["state"] == "parked"
    });
    assert_eq!(made(), WINDOW, "reading returns nothing");
    let ack = |index: u64| {
        call(
            &rig,
            "POST",
            &format!("{path}/ack"),
            "",
            &json!({"index": index}),
        )
    };
    assert_eq!(ack(3).head.status, 200);
    wait_until("it goes on as far as it may", || made() == WINDOW + 3);
    assert_eq!(
        ack(1).json()["choices"][0]["accepted"],
        3,
        "what was said stays said"
    );
    let wrong = call(
        &rig,
        "POST",
        &format!("{path}/ack"),
        "",
        &json!({"index": "x", "choice": 4}),
    );
    assert_eq!(
        (
            wrong.head.status,
            wrong.json()["error"]["errors"].as_array().map(Vec::len)
        ),
        (400, Some(2))
    );
    ack(WINDOW + 3);
    wait_until("and on", || made() >= 19);
    ack(19);
    let plain = call(&rig, "POST", CHAT, "", &body);
    assert_eq!(
        Heard::of(&frames(&client.body())),
        Heard::of(&frames(&plain.body))
    );
}

#[test]
fn a_paused_stream_stands_still() {
    let rig = Rig::gated(fake(), kept());
    let mut client = send(
        &rig,
        "POST",
        CHAT,
        RESUMABLE,
        &chat(&json!({"max_tokens": 50})),
    );
    let path = format!("/v1/streams/{}", stream_id(&client.head()));
    rig.gate.allow(5);
    let made = || {
        get(&rig, &path, "").json()["choices"][0]["tokens"]
            .as_u64()
            .unwrap()
    };
    wait_until("it runs", || made() == 5);
    let paused = call(&rig, "POST", &format!("{path}/pause"), "", &Value::Null);
    assert_eq!(
        (paused.head.status, &paused.json()["state"]),
        (200, &json!("paused"))
    );
    rig.gate.open();
    // Somebody else's whole answer passes it by.
    let other = call(&rig, "POST", CHAT, "", &chat(&json!({"max_tokens": 30})));
    assert_eq!(other.head.status, 200);
    assert!(made() <= 6, "the step under way is the last");
    let resumed = call(&rig, "POST", &format!("{path}/resume"), "", &Value::Null);
    assert_eq!(resumed.head.status, 200);
    assert!(client.body().ends_with("data: [DONE]\n\n"));
    wait_until("it has ended", || {
        get(&rig, &path, "").json()["state"] == "ended"
    });
    let late = call(&rig, "POST", &format!("{path}/pause"), "", &Value::Null);
    assert_eq!(
        (late.head.status, &late.json()["error"]["code"]),
        (409, &json!("stream_not_running"))
    );
}

#[test]
fn a_deleted_stream_ends_for_all_its_readers() {
    let rig = Rig::gated(fake(), kept());
    let mut client = send(
        &rig,
        "POST",
        CHAT,
        RESUMABLE,
        &chat(&json!({"max_tokens": 400})),
    );
    let path = format!("/v1/streams/{}", stream_id(&client.head()));
    let mut watcher = send(&rig, "GET", &format!("{path}/events"), "", &Value::Null);
    assert_eq!(watcher.head().status, 200);
    rig.gate.allow(4);
    wait_until("it runs", || rig.engine.stats().tokens_generated() == 4);
    assert_eq!(
        call(&rig, "DELETE", &path, "", &Value::Null).head.status,
        202
    );
    rig.gate.open();
    for client in [&mut client, &mut watcher] {
        assert!(client.body().contains("\"code\":\"cancelled\""));
    }
    wait_until("it has ended", || {
        get(&rig, &path, "").json()["state"] == "ended"
    });
    assert_eq!(
        get(&rig, &path, "").json()["choices"][0]["end"],
        "cancelled"
    );
    for gone in ["ended", "gone"] {
        assert_eq!(
            call(&rig, "DELETE", &path, "", &Value::Null).json()["state"],
            gone
        );
    }
    assert_eq!(get(&rig, &path, "").head.status, 410);
    rig.wait_until_empty();
}

#[test]
fn nobody_sees_anothers_stream() {
    let (one, two, admin) = ("a".repeat(32), "b".repeat(32), "c".repeat(32));
    let key = |name: &str, secret: &str, scopes: &[Scope]| Key {
        name: name.to_owned(),
        hash: KeyHash::of(secret.as_bytes()),
        scopes: Scopes::of(scopes),
        limits: KeyLimits::default(),
        weight: 1,
    };
    let keys = Keys::new(&[
        key("one", &one, &[Scope::Inference]),
        key("two", &two, &[Scope::Inference]),
        key("admin", &admin, &[Scope::Admin]),
    ]);
    let rig = Rig::keyed(kept(), &Arc::new(keys.expect("good keys")));
    let field = |secret: &str| format!("authorization: Bearer {secret}\r\n");
    let reply = call(
        &rig,
        "POST",
        CHAT,
        &(field(&one) + RESUMABLE),
        &chat(&json!({})),
    );
    let id = stream_id(&reply.head);
    let path = format!("/v1/streams/{id}");
    let known = |secret: &str| {
        let page = get(&rig, "/v1/streams", &field(secret)).json();
        page["data"].as_array().map(Vec::len)
    };
    assert_eq!(
        (known(&one), known(&two), known(&admin)),
        (Some(1), Some(0), Some(1))
    );
    let routes = [
        ("GET", ""),
        ("GET", "/events"),
        ("POST", "/ack"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("DELETE", ""),
    ];
    for (method, route) in routes {
        let path = format!("{path}{route}");
        let reply = call(&rig, method, &path, &field(&two), &json!({"index": 1}));
        assert_eq!(
            (reply.head.status, &reply.json()["error"]["code"]),
            (404, &json!("stream_not_found")),
            "{method} {path}"
        );
    }
    for secret in [&one, &admin] {
        let again = get(&rig, &format!("{path}/events"), &field(secret));
        assert_eq!(
            Heard::of(&frames(&again.body)),
            Heard::of(&frames(&reply.body))
        );
    }
    assert_eq!(
        call(&rig, "DELETE", &path, &field(&one), &Value::Null)
            .head
            .status,
        202
    );
    assert_eq!(get(&rig, &path, &field(&one)).head.status, 410);
    assert_eq!(
        get(&rig, &path, &field(&two)).head.status,
        404,
        "not even that it was"
    );
}

#[test]
fn streams_are_listed_page_by_page() {
    let rig = Rig::with(fake(), kept());
    let ids: Vec<String> = (0..5)
        .map(|_| {
            stream_id(
                &call(
                    &rig,
                    "POST",
                    CHAT,
                    RESUMABLE,
                    &chat(&json!({"max_tokens": 2})),
                )
                .head,
            )
        })
        .collect();
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let page = get(&rig, &format!("/v1/streams?limit=2&after={after}"), "").json();
        let data = page["data"].as_array().unwrap().clone();
        assert!(data.len() <= 2);
        seen.extend(
            data.iter()
                .map(|stream| stream["id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(seen, ids);
    assert_eq!(get(&rig, "/v1/streams?limit=x", "").head.status, 400);
}
