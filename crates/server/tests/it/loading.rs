//! A server whose socket is bound and whose model is not there yet.
//!
//! Promise (Settings and operation): until the model is ready the server is alive, not ready, rejects in each wire
//! protocol with the progress (with model directories it waits), and shuts down on request.
//! Also held by `millrace/tests/it/early.rs`.
//!
//! Promise (Settings and operation): `/health/liveness` fails while an engine is stuck, and recovers.
//! Also held by `millrace/src/liveness.rs`.

use crate::support::client::{Client, Reply, get, post};
use crate::support::{Rig, config, fake};
use engine::{EngineConfig, Rejected};
use serde_json::{Value, json};
use server::{Keys, LoadPhase, LoadProgress};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn early() -> Rig {
    let rig = Rig::early(
        fake(),
        EngineConfig::default(),
        config(),
        Arc::new(Keys::anonymous()),
    );
    rig.gate.open();
    rig
}

fn halfway() -> LoadProgress {
    LoadProgress {
        phase: LoadPhase::Weights,
        bytes_done: 500,
        bytes_total: 1000,
        tensors_done: 3,
        tensors_total: 9,
    }
}

fn ask() -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "max_tokens": 4})
}

fn waits(reply: &Reply) {
    assert_eq!(reply.head.status, 503, "{}", reply.body);
    let seconds = reply.head.get("retry-after").expect("when to come back");
    assert!(
        (1..=60).contains(&seconds.parse::<u64>().unwrap()),
        "{seconds}"
    );
}

#[test]
fn server_with_a_stuck_engine_is_not_live() {
    let stuck = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stuck);
    Rig::set_next_server(move |server| {
        server.with_stall_watch(move || {
            seen.load(Ordering::Relaxed)
                .then(|| "an engine has ended no step for 300 s".to_owned())
        })
    });
    let rig = Rig::start();
    let live = || {
        let reply = get(rig.addr, "/health/liveness");
        (reply.head.status, reply.json())
    };
    assert_eq!(live(), (200, json!({"status": "ok"})));
    stuck.store(true, Ordering::Relaxed);
    let told = json!({"status": "stuck", "reason": "an engine has ended no step for 300 s"});
    assert_eq!(live(), (503, told));
    assert_eq!(
        get(rig.addr, "/health/readiness").head.status,
        200,
        "another question"
    );
    stuck.store(false, Ordering::Relaxed);
    assert_eq!(live().0, 200);
}

#[test]
fn loading_server_is_live_not_ready_and_reports_progress() {
    let mut rig = early();
    rig.loading().report_progress(halfway());
    let told = json!({
        "phase": "weights", "bytes_done": 500, "bytes_total": 1000, "tensors_done": 3, "tensors_total": 9,
    });
    assert_eq!(get(rig.addr, "/health/liveness").head.status, 200);
    let health = get(rig.addr, "/health");
    assert_eq!(health.head.status, 503);
    let error = json!({"code": 503, "message": "Loading model", "type": "unavailable_error"});
    assert_eq!(
        health.json(),
        json!({"status": "loading", "model": "fake", "engine": null, "error": error})
    );
    for (path, state) in [("/health/readiness", "status"), ("/v1/ready", "state")] {
        let reply = get(rig.addr, path);
        waits(&reply);
        let json = reply.json();
        assert_eq!(
            (&json[state], &json["progress"]),
            (&json!("loading"), &told)
        );
        assert_eq!(json["progress_url"], "/v1/loading/progress");
        assert_eq!(json["percent"], 50);
    }
    let card = &get(rig.addr, "/v1/models").json()["data"][0];
    assert_eq!(
        (&card["id"], &card["state"]),
        (&json!("fake"), &json!("loading"))
    );
    let metrics = get(rig.addr, "/metrics").body;
    assert!(metrics.contains("\nmillrace_model_ready 0\n"), "{metrics}");
    assert!(
        metrics.contains("\nmillrace_model_load_ratio 0.5\n"),
        "{metrics}"
    );
    rig.ready();
    for path in ["/health/readiness", "/v1/ready"] {
        let reply = get(rig.addr, path);
        assert_eq!(
            (reply.head.status, reply.head.get("retry-after")),
            (200, None)
        );
    }
    assert!(
        get(rig.addr, "/metrics")
            .body
            .contains("\nmillrace_model_ready 1\n")
    );
}

#[test]
fn requests_while_loading_are_rejected_in_their_dialect() {
    let mut rig = early();
    rig.loading().report_progress(halfway());
    let openai = ["/v1/chat/completions", "/v1/completions"];
    let native = ["/v1/inference", "/v1/jobs"];
    for path in openai {
        let reply = post(rig.addr, path, &ask());
        waits(&reply);
        assert!(reply.head.get("retry-after-ms").is_some());
        let error = &reply.json()["error"];
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!("model_loading"), &json!("server_error"))
        );
        let words = error["message"].as_str().unwrap();
        assert!(
            words.contains("50 %") && words.contains("3 of 9 tensors"),
            "{words}"
        );
    }
    for path in native {
        let reply = post(rig.addr, path, &ask());
        waits(&reply);
        let error = &reply.json()["error"];
        assert_eq!(
            (&error["code"], &error["retriable"]),
            (&json!("WORKER_UNHEALTHY"), &json!(true))
        );
    }
    let mut other = ask();
    other["model"] = json!("other");
    assert_eq!(
        post(rig.addr, openai[0], &other).head.status,
        404,
        "no model of ours"
    );
    rig.ready();
    for path in openai.into_iter().chain(native) {
        let mut body = ask();
        if native.contains(&path) {
            body.as_object_mut().unwrap().remove("messages");
            body["stream"] = json!(path == "/v1/jobs");
        }
        let status = post(rig.addr, path, &body).head.status;
        assert!(status == 200 || status == 202, "{path}: {status}");
    }
}

#[test]
fn load_progress_is_streamed_until_complete() {
    for ready in [true, false] {
        let mut rig = early();
        let mut client = Client::connect(rig.addr);
        client.send(b"GET /v1/loading/progress HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let head = client.head();
        assert_eq!(head.get("content-type"), Some("text/event-stream"));
        assert_eq!(event(&mut client)["percent"], 0);
        rig.loading().report_progress(halfway());
        let half = event(&mut client);
        assert_eq!(half["percent"], 50);
        assert_eq!(half["progress"]["tensors_done"], 3);
        if ready {
            rig.ready();
        } else {
            rig.failed();
        }
        let last = client.body();
        let state = if ready { "ready" } else { "failed" };
        assert!(last.contains(&format!("\"state\":\"{state}\"")), "{last}");
        assert!(last.ends_with("data: [DONE]\n\n"), "{last}");
        assert_eq!(get(rig.addr, "/v1/ready").json()["state"], state);
    }
}

fn event(client: &mut Client) -> Value {
    let chunk = client.chunk().expect("an event");
    serde_json::from_str(chunk.strip_prefix("data: ").unwrap().trim_end()).unwrap()
}

#[test]
fn failed_load_ends_all_waits() {
    let mut rig = early();
    rig.failed();
    let refused = post(rig.addr, "/v1/chat/completions", &ask());
    assert_eq!(
        (refused.head.status, refused.head.get("retry-after")),
        (503, None)
    );
    assert_eq!(refused.json()["error"]["code"], "model_failed");
    assert_eq!(
        get(rig.addr, "/health/readiness").json()["status"],
        "failed"
    );
}

#[test]
fn loading_server_shuts_down_on_request() {
    let mut rig = early();
    let mut watcher = Client::connect(rig.addr);
    watcher.send(b"GET /v1/loading/progress HTTP/1.1\r\nhost: localhost\r\n\r\n");
    watcher.head();
    event(&mut watcher);
    rig.ask_to_stop();
    let last = watcher.body();
    assert!(last.contains("\"state\":\"draining\""), "{last}");
    assert_eq!(rig.stopped().cut, 0);
    rig.ready();
    let refused = rig.engine.submit(request(&rig));
    assert!(
        matches!(refused, Err(Rejected::Closed(_))),
        "who becomes ready then is told to leave too"
    );
}

fn request(rig: &Rig) -> engine::Request {
    let (tokens, _reader) = stream::open(&rig.tokens, 1).unwrap();
    let choice = engine::Choice::new(tokens);
    engine::Request {
        choices: vec![choice],
        ..engine::Request::new(vec![1], 1)
    }
}
