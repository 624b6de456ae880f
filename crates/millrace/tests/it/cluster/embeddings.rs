//! Embeddings at gateways.

use super::conversation::SETTINGS;
use super::processes::{Cluster, json, wait_for_engines};
use super::{metric, nats_server};
use crate::support::Serving;
use serde_json::{Value, json};
use std::process::Stdio;
use testing::wait::wait_until;

/// The model that every process has.
const MODEL: &str = "millrace-mini";
/// Texts of one request.
const TEXTS: usize = 24;

/// Texts that are short, long, and equal to another one.
fn texts() -> Vec<String> {
    let text = |number: usize| format!("{} {}", "A river and a mill.".repeat(number), number % 20);
    (0..TEXTS).map(text).collect()
}

/// The vectors of every route that gives some, as the routes write them.
fn embed(server: &Serving) -> Vec<Value> {
    let post = |path: &str, body: Value| {
        let reply = server.post(path, &body.to_string());
        assert!(reply.starts_with("HTTP/1.1 200"), "{path}: {reply}");
        json(&reply)
    };
    let floats = json!({"input": texts()});
    let bytes = json!({"input": texts(), "encoding_format": "base64", "dimensions": 17});
    vec![
        post("/v1/embeddings", floats)["data"].clone(),
        post("/v1/embeddings", bytes)["data"].clone(),
        post("/api/embed", json!({"model": MODEL, "input": texts()}))["embeddings"].clone(),
        post(
            "/api/embeddings",
            json!({"model": MODEL, "prompt": "mills"}),
        )["embedding"]
            .clone(),
    ]
}

/// The vectors of a gateway are those of one process bit for bit, also while an engine dies.
#[test]
fn embeddings_of_a_gateway_are_those_of_one_process() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let in_turn = [("MILLRACE_CLUSTER_PLACEMENT", "round_robin")];
    let settings = [&SETTINGS[..], &in_turn].concat();
    let mut cluster = Cluster::new(program, "cluster-embeddings", "", &settings);
    cluster.start_engines(2);
    let gateway = cluster.start_gateway();
    wait_for_engines(&gateway, 2);
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let alone = Serving::start_with(&args, &SETTINGS, Stdio::inherit());
    let expected = embed(&alone);
    assert_eq!(expected[0].as_array().map(Vec::len), Some(TEXTS));
    assert_eq!(embed(&gateway), expected);
    // A stopped engine keeps what it got until it is killed.
    cluster.engine(0).signal("STOP");
    let received = std::thread::scope(|scope| {
        let received = scope.spawn(|| embed(&gateway));
        let attempts = metric(&gateway, "millrace_relay_attempts_total");
        wait_until("both engines have texts", || {
            metric(&gateway, "millrace_relay_attempts_total") >= attempts + 4.0
        });
        cluster.kill_engine(0);
        received.join().expect("vectors")
    });
    assert_eq!(received, expected);
    assert!(metric(&gateway, "millrace_relay_resubmitted_total") > 0.0);
    assert_eq!(metric(&gateway, "millrace_relay_diverged_total"), 0.0);
    assert!(gateway.terminate().success());
}
