//! Several models: loaded when they are asked for, let go of when nobody does, within their budget.
//!
//! Promise (Models): a model is loaded once, on demand; a streamed response shows the progress, in each framing, and
//! a non-streaming one waits; the first model continues meanwhile.
//! Also held by `millrace/tests/it/models.rs`.
//!
//! Promise (Models): within the budget the least recently used idle model is evicted, busy models stay, and a model
//! larger than the budget is rejected with the numbers.
//! Also held by `millrace/tests/it/models.rs`.
//!
//! Promise (Models): `keep_alive`, until the model is unloaded, and `models.idle_unload_s` are honored; invalid
//! fields are named also while no model is loaded; an unloaded model is loaded again on demand, and the server stays
//! ready.
//!
//! Promise (Models): a failed load is reported to all waiting requests, and retried; waits are bounded in number and
//! time, and end with the server.

mod manage;
mod rejections;
mod shelf;

use crate::support::client::{Client, get, post};
use crate::support::owners::{key_field, owners_keys};
use crate::support::wait_until;
use serde_json::{Value, json};
use server::ModelLimits;
use shelf::{FIRST, Rig};
use std::sync::atomic::Ordering;
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";
const MIB: u64 = 1 << 20;

fn room(mib: u64) -> ModelLimits {
    ModelLimits {
        memory_bytes: Some(mib * MIB),
        idle: None,
        ..ModelLimits::default()
    }
}

fn ask(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4,
           "input": "hi", "max_output_tokens": 16,
           "temperature": 0, "ignore_eos": true})
}

fn streamed(model: &str) -> Value {
    let mut ask = ask(model);
    ask["stream"] = json!(true);
    ask
}

/// Sends a request and leaves the answer to be read.
fn sent(rig: &Rig, path: &str, body: &Value) -> Client {
    let mut client = Client::connect(rig.addr);
    client.post(path, body);
    client
}

pub(crate) fn loaded(rig: &Rig) -> Vec<String> {
    let ps = get(rig.addr, "/api/ps").json();
    let models = ps["models"].as_array().unwrap().iter();
    models
        .map(|model| {
            model["name"]
                .as_str()
                .unwrap()
                .trim_end_matches(":latest")
                .to_owned()
        })
        .collect()
}

fn answers(rig: &Rig, model: &str) {
    let reply = post(rig.addr, CHAT, &ask(model));
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["model"], model);
}

#[test]
fn stream_reports_load_progress_before_its_answer() {
    let mut expected = None;
    for (path, says_so, is_whole) in [
        (CHAT, ": loading 25 %\n\n", "data: [DONE]\n\n"),
        ("/v1/messages", ": loading 25 %\n\n", "message_stop"),
        (
            "/v1/responses",
            ": loading 25 %\n\n",
            "event: response.incomplete",
        ),
        (
            "/api/chat",
            "\"state\":\"loading\",\"percent\":25}\n",
            "\"done\":true",
        ),
    ] {
        let rig = Rig::start(ModelLimits::default());
        let mut client = sent(&rig, path, &streamed("a"));
        assert_eq!(client.head().status, 200, "{path}");
        let mut told = String::new();
        // It is told again, as the sign of life.
        while told.matches(says_so).count() < 2 {
            told += &client.chunk().expect("it waits");
        }
        assert!(!told.contains("\"content\":\"h"), "{told}");
        rig.allow();
        told += &client.body();
        assert!(told.contains(is_whole), "{path}: {told}");
        assert_eq!(loaded(&rig), [FIRST, "a"]);
        let whole = post(rig.addr, CHAT, &ask("a")).json();
        let text = whole["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(*expected.get_or_insert(text.clone()), text);
        assert_eq!(rig.log(), ["loading a"], "once");
    }
}

#[test]
fn non_streaming_responses_wait_and_every_route_loads() {
    let rig = Rig::start(ModelLimits::default());
    let mut ready = ask("a");
    ready["prompt"] = json!("hi");
    for path in [
        "/v1/completions",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/api/generate",
        "/v1/inference",
    ] {
        let mut body = ready.clone();
        body["stream"] = json!(false);
        if path.contains("messages") {
            body = json!({"model": "a", "messages": body["messages"], "max_tokens": 4});
        } else {
            body.as_object_mut().unwrap().remove("messages");
        }
        rig.allow();
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 200, "{path}: {}", reply.body);
        let gone = post(
            rig.addr,
            "/api/generate",
            &json!({"model": "a", "keep_alive": 0}),
        );
        assert_eq!(gone.json()["done_reason"], "unload");
        wait_until("it left", || loaded(&rig) == [FIRST]);
    }
}

#[test]
fn first_model_continues_while_another_loads() {
    let rig = Rig::start(ModelLimits::default());
    let mut waiting = sent(&rig, CHAT, &ask("a"));
    wait_until("it is being loaded", || rig.log() == ["loading a"]);
    let mut long = streamed(FIRST);
    long["max_tokens"] = json!(400);
    let mut stream = sent(&rig, CHAT, &long);
    assert!(stream.reply().body.ends_with("data: [DONE]\n\n"));
    for (path, ready) in [("/v1/ready", true), ("/health/readiness", true)] {
        assert_eq!(get(rig.addr, path).head.status == 200, ready, "{path}");
    }
    rig.allow();
    assert_eq!(waiting.reply().head.status, 200);
}

#[test]
fn least_recently_used_model_is_evicted() {
    let rig = Rig::start(room(310));
    rig.allow();
    answers(&rig, "a");
    assert_eq!(loaded(&rig), [FIRST, "a"]);
    rig.allow();
    answers(&rig, "b");
    assert_eq!(loaded(&rig), ["a", "b"], "the first was asked longest ago");
    answers(&rig, "a");
    rig.allow();
    answers(&rig, FIRST);
    assert_eq!(loaded(&rig), [FIRST, "a"]);
    let happened = [
        "loading a",
        "closed first",
        "loading b",
        "closed b",
        "loading first",
    ];
    assert_eq!(rig.log(), happened);
    let metrics = get(rig.addr, "/metrics").body;
    for line in [
        "\nmillrace_models_loaded 2\n",
        "\nmillrace_model_loads_total 4\n",
        "\nmillrace_model_unloads_total 2\n",
        "\nmillrace_models_bytes 262144000\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[test]
fn busy_model_is_not_evicted() {
    let rig = Rig::start(room(290));
    rig.shelf.shut.store(true, Ordering::SeqCst);
    rig.allow();
    let mut long = streamed("a");
    long["max_tokens"] = json!(50);
    let mut working = sent(&rig, CHAT, &long);
    wait_until("it is at work", || loaded(&rig) == [FIRST, "a"]);
    working.head();
    rig.shelf.shut.store(false, Ordering::SeqCst);
    let gate = rig.shelf.gate("a");
    let mut waiting = sent(&rig, CHAT, &streamed("b"));
    waiting.head();
    assert_eq!(waiting.chunk().unwrap(), ": queued 0 %\n\n");
    wait_until("the idle one left", || loaded(&rig) == ["a"]);
    // It would have had room in the place of the one that works.
    for _ in 0..10 {
        assert_eq!(waiting.chunk().unwrap(), ": queued 0 %\n\n");
    }
    assert_eq!(rig.log(), ["loading a", "closed first"]);
    rig.allow();
    gate.open();
    assert!(working.body().ends_with("data: [DONE]\n\n"));
    assert!(waiting.body().ends_with("data: [DONE]\n\n"));
    assert_eq!(loaded(&rig), ["b"]);
}

#[test]
fn model_larger_than_the_budget_is_rejected_with_the_numbers() {
    let rig = Rig::start(room(300));
    let reply = post(rig.addr, CHAT, &ask("huge"));
    assert_eq!(reply.head.status, 503);
    let error = &reply.json()["error"];
    assert_eq!(error["code"], "model_failed");
    let words = error["message"].as_str().unwrap();
    for number in ["1000 MiB", "300 MiB", "models.memory_budget_mib"] {
        assert!(words.contains(number), "{words}");
    }
    assert_eq!(loaded(&rig), [FIRST], "nobody left for it");
    // Told in the stream where its head was out.
    let mut client = sent(&rig, "/v1/messages", &streamed("huge"));
    client.head();
    let told = client.body();
    let last = told.split("event: error\n").last().unwrap();
    assert!(
        last.starts_with("data: {") && last.contains("1000 MiB"),
        "{told}"
    );
    let mut typed = sent(&rig, "/v1/responses", &streamed("huge"));
    typed.head();
    let told = typed.body();
    let last = told.split("event: error\n").last().unwrap();
    let event: Value = serde_json::from_str(last.trim().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(
        (&event["type"], &event["code"], &event["sequence_number"]),
        (&json!("error"), &json!("model_failed"), &json!(0))
    );
}

/// Promise (Models): a load for which a device has no memory unloads the model that was idle longest and is tried once more; a
/// second refusal is the response, with the driver's numbers.
/// Also held by `millrace/tests/it/device/memory.rs`.
#[test]
fn load_without_device_memory_evicts_one_model_and_is_tried_again() {
    let rig = Rig::start(ModelLimits::default());
    rig.allow();
    answers(&rig, "a");
    rig.refuse_memory();
    rig.allow();
    answers(&rig, "b");
    assert_eq!(loaded(&rig), ["a", "b"]);
    let happened = ["loading a", "loading b", "closed first", "loading b"];
    assert_eq!(rig.log(), happened);
    // The last request, and no idle model is left then.
    for loads in [2, 2, 1] {
        let before = rig.log().len();
        (0..loads).for_each(|_| rig.refuse_memory());
        let reply = post(rig.addr, CHAT, &ask("huge"));
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.head.status, &error["code"]),
            (503, &json!("model_failed"))
        );
        assert_eq!(error["message"], "no memory for 4096 bytes");
        let log = rig.log().split_off(before);
        let tried = log.iter().filter(|what| *what == "loading huge");
        assert_eq!(tried.count(), loads, "{log:?}");
    }
    assert_eq!(loaded(&rig), [""; 0]);
    // The device may have memory again.
    rig.allow();
    answers(&rig, "huge");
}

#[test]
fn failed_load_is_retried() {
    let rig = Rig::start(ModelLimits::default());
    rig.refuse();
    let reply = post(rig.addr, CHAT, &ask("a"));
    assert_eq!(
        (
            reply.head.status,
            reply.json()["error"]["code"].as_str().unwrap()
        ),
        (503, "model_failed")
    );
    rig.allow();
    answers(&rig, "a");
    assert_eq!(rig.log(), ["loading a", "loading a"]);
}

#[test]
fn invalid_fields_are_named_while_the_model_is_not_loaded() {
    let rig = Rig::start(ModelLimits::default());
    let with = |name: &str, value: Value| {
        let mut body = ask("a");
        body[name] = value;
        body
    };
    let rows = [
        (CHAT, with("stream", json!("true")), "stream"),
        (CHAT, with("model", json!(5)), "model"),
        ("/api/chat", with("model", json!(5)), "model"),
        ("/tokenize", json!({"model": 5, "content": "x"}), "model"),
        ("/v1/jobs", with("model", json!(5)), "model"),
    ];
    for (path, body, field) in rows {
        let gone = post(rig.addr, "/api/generate", &json!({"keep_alive": 0}));
        assert_eq!(gone.head.status, 200);
        // The request before may hold the model for a moment after its response.
        wait_until("the model is unloaded", || loaded(&rig).is_empty());
        rig.allow();
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 400, "{path}: {body}");
        let told = reply.json().to_string();
        assert!(told.contains(field), "{path}: {told}");
    }
}

#[test]
fn keep_alive_is_honored() {
    let brief = ModelLimits {
        idle: Some(Duration::from_millis(1)),
        ..ModelLimits::default()
    };
    let rig = Rig::start(brief);
    rig.allow();
    answers(&rig, "a");
    wait_until("its time is over", || loaded(&rig) == [FIRST]);
    rig.allow();
    let mut keeps = ask("a");
    keeps["keep_alive"] = json!(-1);
    assert_eq!(post(rig.addr, "/api/chat", &keeps).head.status, 200);
    let ps = get(rig.addr, "/api/ps").json();
    let of = |name: &str| {
        let mut all = ps["models"].as_array().unwrap().iter();
        all.find(|model| model["name"] == name).unwrap()["expires_at"].clone()
    };
    let forever = of("first:latest");
    assert_eq!(of("a:latest"), forever, "both forever");
    let stays = post(
        rig.addr,
        "/api/generate",
        &json!({"model": "a", "keep_alive": "1h"}),
    );
    assert_eq!(stays.json()["done_reason"], "load");
    assert_eq!(loaded(&rig), [FIRST, "a"]);
    // And after an answer, not at all.
    let mut goes = ask("a");
    goes["keep_alive"] = json!(0);
    assert_eq!(post(rig.addr, "/api/chat", &goes).head.status, 200);
    wait_until("it was told to go", || loaded(&rig) == [FIRST]);
    for time in ["the first", "the second"] {
        let gone = post(rig.addr, "/api/generate", &json!({"keep_alive": 0}));
        assert_eq!(
            (gone.head.status, loaded(&rig)),
            (200, Vec::new()),
            "{time}"
        );
    }
    assert_eq!(
        get(rig.addr, "/health/readiness").head.status,
        200,
        "it comes when it is asked"
    );
    rig.allow();
    answers(&rig, FIRST);
    let ps = get(rig.addr, "/api/ps").json();
    assert_eq!(
        ps["models"][0]["expires_at"], forever,
        "keep_alive: 0 ended with the unload"
    );
}

#[test]
fn keep_alive_of_a_key_without_admin_unloads_nothing() {
    let rig = Rig::keyed(ModelLimits::default(), owners_keys());
    let call = |owner: &str, path: &str, body: &Value| {
        let body = body.to_string();
        let mut client = Client::connect(rig.addr);
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            key_field(owner),
            body.len()
        );
        client.send(&[head.as_bytes(), body.as_bytes()].concat());
        client.reply()
    };
    let expiry = || {
        let mut client = Client::connect(rig.addr);
        let head = format!(
            "GET /api/ps HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
            key_field("two")
        );
        client.send(head.as_bytes());
        let ps = client.reply().json();
        let mut models = ps["models"].as_array().unwrap().iter();
        let found = models.find(|model| model["name"] == "a:latest");
        found.map(|model| model["expires_at"].to_string())
    };
    rig.allow();
    let forever = json!({"model": "a", "keep_alive": -1});
    assert_eq!(call("one", "/api/generate", &forever).head.status, 200);
    let before = expiry();
    assert!(before.is_some());
    for keep in [json!(0), json!("1ms"), json!("0s")] {
        let mut chat = ask("a");
        chat["keep_alive"] = keep.clone();
        assert_eq!(call("two", "/api/chat", &chat).head.status, 200, "{keep}");
        assert_eq!(expiry(), before, "{keep}");
    }
    let unload = json!({"model": "a", "keep_alive": 0});
    let refused = call("two", "/api/generate", &unload);
    assert_eq!(refused.head.status, 403, "{}", refused.body);
    assert!(refused.body.contains("admin"), "{}", refused.body);
    assert_eq!(expiry(), before);
    let gone = call("admin", "/api/generate", &unload);
    assert_eq!(gone.json()["done_reason"], "unload", "{}", gone.body);
    assert_eq!(expiry(), None);
}

#[test]
fn waiting_requests_are_limited() {
    let rig = Rig::start(ModelLimits {
        waiting_max: 1,
        ..ModelLimits::default()
    });
    let mut waiting = sent(&rig, CHAT, &ask("a"));
    wait_until("it is being loaded", || rig.log() == ["loading a"]);
    let refused = post(rig.addr, CHAT, &ask("a"));
    assert_eq!(
        (
            refused.head.status,
            refused.json()["error"]["code"].as_str().unwrap()
        ),
        (503, "overloaded")
    );
    answers(&rig, FIRST);
    rig.allow();
    assert_eq!(waiting.reply().head.status, 200);
    answers(&rig, "a");
}

#[test]
fn wait_ends_at_its_timeout_and_at_shutdown() {
    let mut rig = Rig::start(ModelLimits {
        patience: Duration::from_millis(50),
        ..ModelLimits::default()
    });
    let late = post(rig.addr, CHAT, &ask("a"));
    assert_eq!(
        (
            late.head.status,
            late.json()["error"]["code"].as_str().unwrap()
        ),
        (503, "timeout")
    );
    let mut waiting = sent(&rig, "/api/chat", &streamed("a"));
    waiting.head();
    waiting.chunk();
    rig.ask_to_stop();
    let told = waiting.body();
    assert!(told.contains("\"error\":"), "{told}");
    rig.allow();
    let serving = rig.serving.take().unwrap();
    assert_eq!(rig.runtime.block_on(serving).unwrap().cut, 0);
}

#[test]
fn all_models_are_listed_and_others_not_found() {
    let rig = Rig::start(ModelLimits::default());
    rig.allow();
    answers(&rig, "a");
    let listed = get(rig.addr, "/v1/models").json();
    let cards: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|card| {
            (
                card["id"].as_str().unwrap(),
                card["state"].as_str().unwrap_or("ready"),
            )
        })
        .collect();
    assert_eq!(
        cards,
        [
            (FIRST, "ready"),
            ("a", "ready"),
            ("b", "unloaded"),
            ("huge", "unloaded")
        ]
    );
    let tags = get(rig.addr, "/api/tags").json();
    assert_eq!(tags["models"].as_array().unwrap().len(), 4);
    assert_eq!(get(rig.addr, "/v1/models/b").json()["state"], "unloaded");
    for path in ["/v1/models/nobody", "/v1/models/..%2F..%2Fetc%2Fpasswd"] {
        assert_eq!(get(rig.addr, path).head.status, 404, "{path}");
    }
    for name in ["nobody", "../a", "/etc/passwd", "%2e%2e/a"] {
        assert_eq!(post(rig.addr, CHAT, &ask(name)).head.status, 404, "{name}");
    }
    let shown = post(rig.addr, "/api/show", &json!({"model": "b"})).json();
    assert_eq!(shown["details"]["family"], "fake");
}
