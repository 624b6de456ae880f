//! What a client with one short question waits for, beside others who want much or stand still.
//!
//! Promise (Admission and keys): a new request is admitted at once next to a stream and embeddings of 5 or 24 texts,
//! waits for one text at most where all slots are taken, and for a few steps next to another key's two requests with
//! `n = 16`.
//! Also held by `admission/src/tests/shares.rs`.
//!
//! Promise (Admission and keys): a stream that is paused, or waits for its reader for half a second, holds no slot,
//! page or place in the batch; it continues before new requests of its key, loses nothing, and its answer is that of
//! an undisturbed request.
//! Also held by `engine/tests/it/permits.rs`.

use super::{CHAT, ask, finishes, with};
use crate::support::client::{Client, post};
use crate::support::named::{call, stream_id};
use crate::support::owners::key;
use crate::support::{self, Rig, fake, wait_until};
use serde_json::{Value, json};
use server::{AdaptiveLimits, Keys, Scope, ServerConfig};
use std::sync::Arc;
use std::time::Duration;

const EMBEDDINGS: &str = "/v1/embeddings";
/// Places of the server as it starts.
const PLACES: usize = 5;
const KEYS: [&str; 2] = ["key_a_0123456789", "key_b_0123456789"];

fn config() -> ServerConfig {
    ServerConfig {
        adaptive_limits: AdaptiveLimits {
            min_streams: PLACES,
            // The places stay as many, however long a test takes.
            adjustment_interval: Duration::from_secs(3600),
            ..AdaptiveLimits::default()
        },
        ..support::config()
    }
}

fn keyed() -> Rig {
    let keys = KEYS.map(|name| key(name, name, &[Scope::Inference, Scope::Metrics]));
    let keys = Arc::new(Keys::new(&keys).expect("good keys"));
    Rig::behind(fake(), config(), keys)
}

fn posted(rig: &Rig, key: Option<&str>, path: &str, body: &Value) -> Client {
    let mut client = Client::connect(rig.addr);
    let (body, key) = (
        body.to_string(),
        key.map(|key| format!("x-api-key: {key}\r\n")),
    );
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{}\
         content-length: {}\r\n\r\n{body}",
        key.unwrap_or_default(),
        body.len()
    );
    client.send(head.as_bytes());
    client
}

/// The question was let in, and not after a wait.
fn is_let_in(client: &mut Client) {
    assert_eq!(client.head().status, 200);
    let first = client.chunk().unwrap();
    assert!(first.contains("\"role\""), "{first}");
}

/// A question of one token.
fn question() -> Value {
    with(ask(true), "max_tokens", 1)
}

fn texts(count: usize) -> Value {
    let texts: Vec<String> = (0..count).map(|i| "word ".repeat(30 + i)).collect();
    json!({"input": texts})
}

fn many(n: usize) -> Value {
    let body = with(ask(true), "n", n);
    with(with(body, "max_tokens", 60), "temperature", 1)
}

fn metrics(rig: &Rig) -> String {
    let key = format!("x-api-key: {}\r\n", KEYS[0]);
    support::named::get(rig, "/metrics", &key).body
}

/// Streams that have ended.
fn endings(rig: &Rig) -> u64 {
    let text = metrics(rig);
    let lines = text
        .lines()
        .filter(|line| line.starts_with("millrace_endings_total{"));
    let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    counts.sum()
}

/// Places held, limit, requests that wait.
fn places(rig: &Rig) -> [usize; 3] {
    let text = metrics(rig);
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{name} in {text}")) as usize
    };
    [
        of("millrace_admission_streams{state=\"running\"}"),
        of("millrace_admission_streams{state=\"limit\"}"),
        of("millrace_admission_waiting"),
    ]
}

#[test]
fn bystander_beside_embeddings_of_many_texts() {
    for count in [5, 24] {
        let rig = Rig::gated(fake(), config());
        let mut talks = posted(&rig, None, CHAT, &with(ask(true), "max_tokens", 200));
        is_let_in(&mut talks);
        let mut embeds = posted(&rig, None, EMBEDDINGS, &texts(count));
        // As many as leave one place.
        wait_until("texts have places", || {
            places(&rig) == [PLACES - 1, PLACES, 0]
        });
        let mut first = posted(&rig, None, CHAT, &question());
        is_let_in(&mut first);
        // Nobody else is before the next: it has the place of the first text that is done.
        let mut second = posted(&rig, None, CHAT, &question());
        assert_eq!(second.head().status, 200);
        assert_eq!(second.chunk().unwrap(), ": queued, position 1\n\n");
        wait_until("the second is in", || {
            rig.gate.allow_waiting();
            places(&rig)[2] == 0
        });
        rig.gate.open();
        for client in [&mut first, &mut second, &mut talks] {
            finishes(client);
        }
        let told = embeds.reply();
        assert_eq!(told.head.status, 200, "{}", told.body);
        let vectors = told.json()["data"].as_array().map(Vec::len);
        assert_eq!(vectors, Some(count));
        rig.wait_until_empty();
    }
}

#[test]
fn bystander_beside_two_requests_for_sixteen_choices() {
    let rig = keyed();
    let [a, b] = KEYS.map(Some);
    let mut large: Vec<Client> = (0..2).map(|_| posted(&rig, a, CHAT, &many(16))).collect();
    large.iter_mut().for_each(is_let_in);
    // They share what leaves one place, and others take that.
    wait_until("they generate", || {
        rig.gate.allow_waiting();
        places(&rig) == [PLACES - 1, PLACES, 0]
    });
    let mut talks = posted(&rig, b, CHAT, &with(ask(true), "max_tokens", 200));
    is_let_in(&mut talks);
    assert_eq!(places(&rig), [PLACES, PLACES, 0]);
    // Each question has a place at the next step but one: a pass that is under way is not cut.
    for _ in 0..3 {
        let ended = endings(&rig);
        let mut asks = posted(&rig, b, CHAT, &question());
        assert_eq!(asks.head().status, 200);
        // The head does not wait for the queue. The first chunk says that the question is there, queued or not; only the end says
        // that it was in.
        asks.chunk().unwrap();
        let steps = rig.engine.stats().steps();
        wait_until("it has ended", || {
            rig.gate.allow_waiting();
            endings(&rig) > ended
        });
        finishes(&mut asks);
        let steps = rig.engine.stats().steps() - steps;
        assert!(
            steps < 60,
            "{steps} steps: no answer of the others has ended"
        );
    }
    rig.gate.open();
    large.iter_mut().chain([&mut talks]).for_each(finishes);
    rig.wait_until_empty();
}

/// Promise (Admission and keys): answers do not depend on how many choices of a request run at one time.
/// Also held by `engine/tests/it/permits.rs`.
#[test]
fn choices_are_independent_of_their_concurrency() {
    let answers = |places: usize| {
        let one = ServerConfig {
            adaptive_limits: AdaptiveLimits {
                enabled: false,
                max_streams: places,
                ..AdaptiveLimits::default()
            },
            ..config()
        };
        let rig = Rig::with(fake(), one);
        let body = json!({"prompt": ["abc", "de"], "n": 3, "max_tokens": 40, "temperature": 1,
            "seed": 5, "ignore_eos": true});
        let told = post(rig.addr, "/v1/completions", &body);
        assert_eq!(told.head.status, 200, "{}", told.body);
        rig.wait_until_empty();
        told.json()["choices"].clone()
    };
    let all = answers(50);
    assert_eq!(all.as_array().map(Vec::len), Some(6));
    for places in [1, 2, 5] {
        assert_eq!(answers(places), all, "{places} places");
    }
}

/// Starts a job of these tokens and waits until it generates; its stream's path.
fn job(rig: &Rig) -> String {
    let body = json!({"prompt": "hi", "max_tokens": 400, "ignore_eos": true});
    let reply = call(rig, "POST", "/v1/jobs", "", &body);
    assert_eq!(reply.head.status, 202, "{}", reply.body);
    format!("/v1/streams/{}", stream_id(&reply.head))
}

fn shown(rig: &Rig, path: &str) -> Value {
    call(rig, "GET", path, "", &Value::Null).json()
}

fn pauses(rig: &Rig, path: &str, pause: bool) {
    let control = format!("{path}/control");
    let told = call(rig, "POST", &control, "", &json!({"pause": pause}));
    assert_eq!(told.head.status, 200, "{}", told.body);
}

#[test]
fn bystander_beside_paused_jobs_which_resume_before_newcomers() {
    let rig = Rig::gated(fake(), config());
    let jobs: Vec<String> = (0..PLACES).map(|_| job(&rig)).collect();
    wait_until("all generate", || {
        rig.gate.allow_waiting();
        jobs.iter()
            .all(|path| shown(&rig, path)["completion_tokens"].as_u64() > Some(2))
    });
    assert_eq!(places(&rig), [PLACES, PLACES, 0]);
    jobs.iter().for_each(|path| pauses(&rig, path, true));
    wait_until("they give their places back", || {
        rig.gate.allow_waiting();
        places(&rig) == [0, PLACES, 0]
    });
    // Who comes now is let in at once, as many as there are places.
    let mut newcomers: Vec<Client> = (0..PLACES)
        .map(|_| posted(&rig, None, CHAT, &with(ask(true), "max_tokens", 30)))
        .collect();
    newcomers.iter_mut().for_each(is_let_in);
    // The jobs go on: they wait, before whoever comes later, and lose nothing.
    jobs.iter().for_each(|path| pauses(&rig, path, false));
    wait_until("they wait for places", || {
        rig.gate.allow_waiting();
        jobs.iter().all(|path| {
            let shown = shown(&rig, path);
            shown["state"] == "parked" && shown["parked"] == "place"
        })
    });
    let mut later = posted(&rig, None, CHAT, &question());
    assert_eq!(later.head().status, 200);
    let place = format!(": queued, position {}\n\n", PLACES + 1);
    assert_eq!(later.chunk().unwrap(), place);
    rig.gate.open();
    for client in newcomers.iter_mut().chain([&mut later]) {
        finishes(client);
    }
    for path in &jobs {
        wait_until("it ends", || shown(&rig, path)["state"] == "ended");
        assert_eq!(shown(&rig, path)["completion_tokens"], 400);
    }
}

#[test]
fn bystander_beside_clients_that_never_read() {
    let small = ServerConfig {
        credit_window: 3,
        ..config()
    };
    let rig = Rig::with(fake(), small);
    let explicit = "x-stream-acks: explicit\r\nx-stream-resumable: 1\r\n";
    let mut silent: Vec<Client> = (0..PLACES)
        .map(|_| {
            let body = with(ask(true), "max_tokens", 300);
            crate::support::named::send(&rig, "POST", CHAT, explicit, &body)
        })
        .collect();
    silent.iter_mut().for_each(is_let_in);
    wait_until("they wait for their readers", || {
        rig.engine.stats().parked() == PLACES as u64
    });
    let told = post(rig.addr, CHAT, &with(ask(false), "max_tokens", 1));
    assert_eq!(told.head.status, 200, "{}", told.body);
    wait_until("all places are given back", || places(&rig)[0] == 0);
    drop(silent);
}
