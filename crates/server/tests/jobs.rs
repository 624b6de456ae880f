//! Jobs as clients see them: run, watched by many, left and come back to, cancelled.

mod support;

use engine::fake::{Fault, FaultAt, FaultKind};
use serde_json::{Value, json};
use server::{
    AdaptiveLimits, Key, KeyHash, KeyLimits, Keys, QueueLimits, Scope, Scopes, ServerConfig,
};
use std::sync::Arc;
use std::time::Duration;
use support::client::{Client, Head, Reply, get, post};
use support::{Rig, config, fake, vocab, wait_until};

const INFERENCE: &str = "/v1/inference";
const JOBS: &str = "/v1/jobs";

/// A job that says letters, the same each time.
fn ask(over: &Value) -> Value {
    let mut body = json!({"prompt": "hi", "seed": 7, "max_tokens": 40, "ignore_eos": true});
    for (name, value) in over.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// One SSE frame.
#[derive(Clone, Debug, PartialEq)]
struct Frame {
    id: Option<String>,
    data: String,
}

impl Frame {
    fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or(Value::Null)
    }

    fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap_or("").to_owned()
    }
}

/// The frames of a text; comments and figures, which come by the clock, left out.
fn frames(text: &str) -> Vec<Frame> {
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
fn text(frames: &[Frame], mut next: u64) -> String {
    let mut text = String::new();
    for frame in frames.iter().filter(|frame| frame.kind() == "token") {
        let token = frame.json();
        assert_eq!(token["i"], next, "{token}");
        next += token.get("n").map_or(1, |n| n.as_u64().unwrap());
        text += token["t"].as_str().unwrap();
    }
    text
}

fn ending(frames: &[Frame]) -> Value {
    let [.., end, done] = frames else {
        panic!("no ending: {frames:?}")
    };
    assert_eq!(done.data, "[DONE]");
    let endings = frames
        .iter()
        .filter(|frame| matches!(&*frame.kind(), "end" | "error"));
    assert_eq!(endings.count(), 1);
    end.json()
}

fn send(rig: &Rig, method: &str, path: &str, fields: &str) -> Client {
    let mut client = Client::connect(rig.addr);
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
    client.send(head.as_bytes());
    client
}

fn call(rig: &Rig, method: &str, path: &str, fields: &str) -> Reply {
    send(rig, method, path, fields).reply()
}

/// Submits a job; where to watch it, and what it is called.
fn submit(rig: &Rig, body: &Value) -> (String, String) {
    let reply = post(rig.addr, JOBS, body);
    assert_eq!(reply.head.status, 202, "{}", reply.body);
    let told = reply.json();
    let word = |name: &str| told[name].as_str().unwrap().to_owned();
    (word("job_id"), word("sse_url"))
}

#[test]
fn a_job_is_told_to_its_end_and_the_whole_is_the_same() {
    let rig = Rig::start();
    let streamed = post(rig.addr, INFERENCE, &ask(&json!({"job_id": "my-job"})));
    assert_eq!(
        (
            streamed.head.status,
            streamed.head.get("content-type").unwrap()
        ),
        (200, "text/event-stream")
    );
    let told = frames(&streamed.body);
    let started = told[0].json();
    assert_eq!(
        (&started["type"], &started["job_id"], &started["model"]),
        (&json!("started"), &json!("my-job"), &json!("fake"))
    );
    assert_eq!(told[0].id, None, "no place to come back to");
    let end = ending(&told);
    assert_eq!(
        (&end["stop_reason"], &end["tokens_out"]),
        (&json!("MAX_TOKENS"), &json!(40))
    );
    let whole = post(rig.addr, INFERENCE, &ask(&json!({"stream": false})));
    assert_eq!(whole.head.get("content-type"), Some("application/json"));
    let whole = whole.json();
    assert_eq!(
        (&whole["stop_reason"], &whole["tokens_out"], &whole["text"]),
        (&json!("MAX_TOKENS"), &json!(40), &json!(text(&told, 0)))
    );
    assert_eq!(whole["job_id"].as_str().unwrap().len(), 32, "its stream's");
}

#[test]
fn stop_strings_and_ends_of_sequence_are_named() {
    let rig = Rig::start();
    let hello = json!({"logit_bias": {vocab::WORD.to_string(): 100}, "temperature": 0, "stop": ["x", "lohe"]});
    let told = frames(&post(rig.addr, INFERENCE, &ask(&hello)).body);
    let end = ending(&told);
    assert_eq!(text(&told, 0), "hel");
    assert_eq!(
        (&end["stop_reason"], &end["stop_sequence_matched"]),
        (&json!("STOP_SEQUENCE"), &json!("lohe"))
    );
    let eos = json!({"logit_bias": {vocab::EOS.to_string(): 100}, "ignore_eos": false});
    let told = frames(&post(rig.addr, INFERENCE, &ask(&eos)).body);
    assert_eq!(ending(&told)["stop_reason"], "EOS");
}

#[test]
fn several_read_one_job() {
    let rig = Rig::gated(fake(), config());
    let (id, url) = submit(&rig, &ask(&json!({})));
    let mut readers: Vec<_> = (0..4).map(|_| send(&rig, "GET", &url, "")).collect();
    let heads: Vec<Head> = readers.iter_mut().map(Client::head).collect();
    assert!(heads.iter().all(|head| head.status == 200));
    rig.gate.open();
    let told: Vec<_> = readers.iter_mut().map(|r| frames(&r.body())).collect();
    for other in &told {
        assert_eq!(text(other, 0), text(&told[0], 0));
        assert_eq!(ending(other)["tokens_out"], 40);
        assert_eq!(other[0], told[0][0], "the same start, at the same time");
    }
    let late = frames(&call(&rig, "GET", &url, "").body);
    assert_eq!(text(&late, 0), text(&told[0], 0), "also when it is over");
    let shown = get(rig.addr, &format!("{JOBS}/{id}")).json();
    assert_eq!(
        (&shown["state"], &shown["tokens_out"], &shown["ending"]),
        (
            &json!("ended"),
            &json!(40),
            &json!({"stop_reason": "MAX_TOKENS"})
        )
    );
    assert_eq!(shown["started_at"], told[0][0].json()["started_at"]);
}

#[test]
fn who_comes_back_goes_on_where_it_was() {
    let rig = Rig::start();
    let (_, url) = submit(&rig, &ask(&json!({"max_tokens": 12})));
    let all = frames(&call(&rig, "GET", &url, "").body);
    let ids = all.iter().filter(|frame| frame.id.is_some()).count();
    assert!(ids >= 3, "tokens, the end, [DONE]: {all:?}");
    for (at, frame) in all.iter().enumerate() {
        let Some(id) = &frame.id else { continue };
        let reply = call(&rig, "GET", &url, &format!("last-event-id: {id}\r\n"));
        if frame.data == "[DONE]" {
            assert_eq!(reply.head.status, 204, "EventSource stops asking");
            continue;
        }
        let rest = frames(&reply.body);
        let next = all[..=at].iter().filter(|f| f.kind() == "token");
        let next = next
            .map(|f| f.json().get("n").map_or(1, |n| n.as_u64().unwrap()))
            .sum();
        let told = text(&all[..=at], 0) + &text(&rest, next);
        assert_eq!(told, text(&all, 0), "after {id}");
        assert!(
            rest.iter().all(|frame| frame.kind() != "started"),
            "{rest:?}"
        );
        assert_eq!(rest.last(), all.last());
        if frame.kind() != "end" {
            assert_eq!(ending(&rest), ending(&all), "after {id}");
        }
    }
}

#[test]
fn cancelling_is_idempotent() {
    let rig = Rig::gated(fake(), config());
    let (id, url) = submit(&rig, &ask(&json!({"job_id": "doomed"})));
    let mut reader = send(&rig, "GET", &url, "");
    assert_eq!(reader.head().status, 200);
    let cancel = || {
        call(
            &rig,
            "POST",
            &format!("{JOBS}/{id}/cancel"),
            "content-length: 0\r\n",
        )
    };
    let delete = || call(&rig, "DELETE", &format!("{JOBS}/{id}"), "");
    for _ in 0..2 {
        assert_eq!(cancel().head.status, 202);
    }
    rig.gate.open();
    let told = frames(&reader.body());
    assert_eq!(ending(&told)["stop_reason"], "CANCELLED");
    wait_until("it is over", || {
        get(rig.addr, &format!("{JOBS}/{id}")).json()["state"] == "ended"
    });
    assert_eq!(cancel().head.status, 202);
    let shown = get(rig.addr, &format!("{JOBS}/{id}")).json();
    assert_eq!(shown["ending"], json!({"stop_reason": "CANCELLED"}));
    for _ in 0..3 {
        assert_eq!(delete().head.status, 202, "cancelled, forgotten, gone");
    }
    assert_eq!(cancel().head.status, 202);
    let gone = call(&rig, "GET", &url, "");
    assert_eq!(gone.head.status, 410);
    assert_eq!(gone.json()["error"]["code"], "INVALID_REQUEST");
    let again = submit(&rig, &ask(&json!({"job_id": "doomed"})));
    assert_eq!(again.0, "doomed", "the name is free");
}

#[test]
fn a_job_goes_on_without_its_client() {
    let rig = Rig::gated(fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(INFERENCE, &ask(&json!({"job_id": "left"})));
    assert_eq!(client.head().status, 200);
    drop(client);
    rig.gate.open();
    let told = frames(&call(&rig, "GET", "/v1/jobs/left/stream", "").body);
    assert_eq!(ending(&told)["tokens_out"], 40);
}

#[test]
fn jobs_are_their_owners_alone() {
    let key = |name: &str| Key {
        name: name.to_owned(),
        hash: KeyHash::of(name.as_bytes()),
        scopes: Scopes::of(&[Scope::Inference]),
        limits: KeyLimits::default(),
        weight: 1,
    };
    let names = ["key_a_0123456789", "key_b_0123456789"];
    let keys = Keys::new(&names.map(key)).unwrap();
    let rig = Rig::keyed(config(), &Arc::new(keys));
    let as_key = |name: &str, method: &str, path: &str, body: &str| {
        let fields = format!(
            "authorization: Bearer {name}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        let mut client = send(&rig, method, path, &fields);
        client.send(body.as_bytes());
        client.reply()
    };
    let [a, b] = names;
    let body = ask(&json!({"job_id": "mine"})).to_string();
    let mine = as_key(a, "POST", JOBS, &body);
    assert_eq!(mine.head.status, 202, "{}", mine.body);
    let url = mine.json()["sse_url"].as_str().unwrap().to_owned();
    let stream_id = url.split('/').nth(3).unwrap().to_owned();
    for id in ["mine", &stream_id] {
        for (method, rest) in [
            ("GET", ""),
            ("GET", "/stream"),
            ("DELETE", ""),
            ("POST", "/cancel"),
        ] {
            let path = format!("{JOBS}/{id}{rest}");
            let other = as_key(b, method, &path, "");
            assert_eq!(other.head.status, 404, "{method} {path}: {}", other.body);
            assert_eq!(other.json()["error"]["code"], "INVALID_REQUEST");
        }
        let path = format!("{JOBS}/{id}");
        assert_eq!(as_key(a, "GET", &path, "").head.status, 200);
    }
    let taken = as_key(a, "POST", JOBS, &body);
    assert_eq!(taken.head.status, 409, "{}", taken.body);
    assert_eq!(taken.json()["errors"][0]["field"], "job_id");
    let same_name = as_key(b, "POST", JOBS, &body);
    assert_eq!(same_name.head.status, 202, "another's names are another's");
    assert_ne!(same_name.json()["sse_url"], json!(url));
}

#[test]
fn refusals_are_in_the_native_shape() {
    let rig = Rig::start();
    let bad = post(rig.addr, JOBS, &json!({"max_tokens": 0, "temperature": 3}));
    assert_eq!(bad.head.status, 400);
    let told = bad.json();
    let fields: Vec<_> = told["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["field"])
        .collect();
    assert_eq!(fields, ["prompt", "max_tokens", "temperature"]);
    let long = post(
        rig.addr,
        INFERENCE,
        &ask(&json!({"prompt": "x".repeat(600)})),
    );
    assert_eq!(
        (long.head.status, &long.json()["errors"][0]["field"]),
        (400, &json!("prompt"))
    );
    let missing = get(rig.addr, "/v1/jobs/nobody");
    assert_eq!(
        (missing.head.status, &missing.json()["error"]["retriable"]),
        (404, &json!(false))
    );
    let (_, url) = submit(&rig, &ask(&json!({})));
    let nonsense = call(&rig, "GET", &url, "last-event-id: nonsense\r\n");
    assert_eq!(
        (nonsense.head.status, &nonsense.json()["error"]["code"]),
        (400, &json!("INVALID_REQUEST"))
    );
    let model = post(rig.addr, INFERENCE, &ask(&json!({"model": "other"})));
    assert_eq!(model.head.status, 404);
}

#[test]
fn a_stream_of_another_format_can_be_read_as_a_job() {
    let rig = Rig::start();
    let chat = json!({"messages": [{"role": "user", "content": "hi"}], "stream": true, "n": 2, "max_tokens": 5,
        "ignore_eos": true});
    let body = chat.to_string();
    let mut client = send(
        &rig,
        "POST",
        "/v1/chat/completions",
        &format!(
            "x-stream-resumable: 1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        ),
    );
    client.send(body.as_bytes());
    let reply = client.reply();
    let id = reply.head.get("x-stream-id").unwrap().to_owned();
    let told = frames(&call(&rig, "GET", &format!("{JOBS}/{id}/stream"), "").body);
    let chunks: Vec<_> = frames(&reply.body).iter().map(Frame::json).collect();
    for choice in 0..2 {
        let of = |f: &&Frame| f.json()["choice"] == choice;
        let mine: Vec<_> = told.iter().filter(of).cloned().collect();
        let theirs = chunks.iter().map(|chunk| &chunk["choices"][0]);
        let theirs: String = theirs
            .filter(|delta| delta["index"] == choice)
            .filter_map(|delta| delta["delta"]["content"].as_str())
            .collect();
        assert_eq!(text(&mine, 0), theirs, "two dialects agree");
        assert_eq!(mine.iter().filter(|f| f.kind() == "end").count(), 1);
    }
}

#[test]
fn the_servers_state_is_told() {
    let rig = Rig::gated(fake(), config());
    assert_eq!(
        get(rig.addr, "/health/liveness").json(),
        json!({"status": "ok"})
    );
    let ready = get(rig.addr, "/health/readiness");
    assert_eq!(
        (ready.head.status, ready.json()),
        (200, json!({"status": "ready"}))
    );
    assert_eq!(
        get(rig.addr, "/v1/ready").json(),
        json!({"ready": true, "state": "ready"})
    );
    let progress = get(rig.addr, "/v1/loading/progress");
    assert_eq!(
        (
            &progress.chunks()[..],
            progress.frames().last().unwrap().as_str()
        ),
        (
            &[json!({"type": "progress", "state": "ready", "percent": 100})][..],
            "[DONE]"
        )
    );
    submit(&rig, &ask(&json!({})));
    rig.gate.allow(1);
    wait_until("the job is counted", || {
        let engine = get(rig.addr, "/health").json()["engine"].clone();
        engine["running"].as_u64().unwrap() + engine["queued"].as_u64().unwrap() == 1
    });
}

#[test]
fn heartbeats_end_with_the_server() {
    let mut rig = Rig::start();
    let mut client = send(&rig, "GET", "/v1/heartbeats/stream", "");
    assert_eq!(client.head().status, 200);
    let first = frames(&client.chunk().unwrap())[0].json();
    assert_eq!(
        (
            &first["type"],
            &first["seq"],
            &first["dropped"],
            &first["state"]
        ),
        (&json!("heartbeat"), &json!(0), &json!(0), &json!("ready"))
    );
    assert!(first["engine"]["pages_free"].as_u64().unwrap() > 0);
    rig.ask_to_stop();
    let last = frames(&client.body()).pop().unwrap().json();
    assert_eq!(last["state"], "draining");
    assert_eq!(rig.stopped().cut, 0);
}

/// A job that goes through every stage, told by what its frames are.
fn kinds(frames: &[Frame]) -> Vec<String> {
    let mut kinds: Vec<_> = frames.iter().map(Frame::kind).collect();
    kinds.dedup();
    kinds
}

#[test]
fn the_start_is_told_when_it_is_so() {
    let rig = Rig::gated(fake(), config());
    let mut client = Client::connect(rig.addr);
    client.post(INFERENCE, &ask(&json!({})));
    assert_eq!(client.head().status, 200);
    let first = client.chunk().expect("the model did not do anything yet");
    assert_eq!(kinds(&frames(&first)), ["started"]);
    rig.gate.open();
    assert_eq!(kinds(&frames(&client.body())), ["token", "end", ""]);
}

/// One job at a time; others wait.
fn one_at_a_time() -> ServerConfig {
    ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams: 1,
            ..AdaptiveLimits::default()
        },
        ..config()
    }
}

#[test]
fn a_job_that_waits_says_where() {
    let rig = Rig::gated(fake(), one_at_a_time());
    let (_, first) = submit(&rig, &ask(&json!({})));
    let (id, url) = submit(&rig, &ask(&json!({})));
    let path = format!("{JOBS}/{id}");
    assert_eq!(get(rig.addr, &path).json()["position"], 1);
    let mut watchers = [send(&rig, "GET", &url, ""), send(&rig, "GET", &url, "")];
    for watcher in &mut watchers {
        assert_eq!(watcher.head().status, 200);
        let queued = &frames(&watcher.chunk().unwrap())[0];
        assert_eq!(queued.json(), json!({"type": "queued", "position": 1}));
        assert_eq!(queued.id, None, "no place to come back to");
    }
    rig.gate.open();
    assert_eq!(
        ending(&frames(&call(&rig, "GET", &first, "").body))["type"],
        "end"
    );
    for watcher in &mut watchers {
        let told = frames(&watcher.body());
        assert_eq!(kinds(&told), ["started", "token", "end", ""]);
    }
    assert_eq!(get(rig.addr, &path).json()["position"], Value::Null);
}

#[test]
fn every_way_to_fail_is_told_once() {
    let impatient = ServerConfig {
        queue: QueueLimits {
            timeout: Duration::from_millis(30),
            ..QueueLimits::default()
        },
        ..one_at_a_time()
    };
    let rig = Rig::gated(fake(), impatient);
    let mut holder = Client::connect(rig.addr);
    holder.post(INFERENCE, &ask(&json!({})));
    assert_eq!(holder.head().status, 200);
    let queued = frames(&post(rig.addr, INFERENCE, &ask(&json!({}))).body);
    assert_eq!(ending(&queued)["code"], "TIMEOUT");
    assert_eq!(ending(&queued)["retriable"], true);
    rig.gate.open();
    assert_eq!(ending(&frames(&holder.body()))["type"], "end");
    for (kind, code) in [
        (FaultKind::Panic, "INTERNAL"),
        (FaultKind::NotANumber, "INFERENCE_FAILED"),
    ] {
        let mut faulty = fake();
        let at = FaultAt::Token(u32::from(b'~'));
        faulty.faults = vec![Fault { at, kind }];
        let rig = Rig::with(faulty, config());
        let bad = frames(&post(rig.addr, INFERENCE, &ask(&json!({"prompt": "~"}))).body);
        assert_eq!(ending(&bad)["code"], code);
        let whole = post(
            rig.addr,
            INFERENCE,
            &ask(&json!({"prompt": "~", "stream": false})),
        );
        assert_eq!(
            (whole.head.status, &whole.json()["error"]["code"]),
            (500, &json!(code))
        );
        let good = frames(&post(rig.addr, INFERENCE, &ask(&json!({}))).body);
        assert_eq!(ending(&good)["type"], "end", "others are not affected");
    }
}

#[test]
fn a_shutdown_is_an_ending_too() {
    let impatient = ServerConfig {
        drain: Duration::ZERO,
        drain_flush: Duration::from_secs(30),
        ..config()
    };
    let mut rig = Rig::gated(fake(), impatient);
    let mut client = Client::connect(rig.addr);
    client.post(INFERENCE, &ask(&json!({"max_tokens": 400})));
    assert_eq!(client.head().status, 200);
    assert_eq!(kinds(&frames(&client.chunk().unwrap())), ["started"]);
    rig.ask_to_stop();
    // The engine is told to end what runs before its next step.
    wait_until("the door is closed", || {
        std::net::TcpStream::connect(rig.addr).is_err()
    });
    rig.gate.open();
    let told = frames(&client.body());
    let end = ending(&told);
    assert!(
        end["code"] == "WORKER_UNHEALTHY" && end["retriable"] == true,
        "{end}"
    );
}
