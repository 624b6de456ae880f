//! Adapters of a model whose engines are other processes.
//!
//! Promise (Cluster): answers of a gateway with adapters are those of one process, also when an engine dies in
//! between; engines without the adapters get no requests.

use super::conversation::SETTINGS;
use super::processes::{Cluster, wait_for_engines};
use super::{metric, nats_server};
use crate::adapters::{AdapterFiles, answer};
use crate::support::Serving;
use serde_json::{Value, json};
use std::process::Stdio;
use testing::wait::wait_until;

/// The adapters of a request: by default, by a model's name, by the field, and none.
fn requests() -> [Value; 5] {
    [
        json!({}),
        json!({"model": "sql"}),
        json!({"lora": [{"id": 0, "scale": 0.5}]}),
        json!({"lora": [{"name": "a", "scale": -0.5}, {"name": "sql"}]}),
        json!({"lora": []}),
    ]
}

/// The text of each request, all of them at a time.
fn answers(server: &Serving) -> Vec<String> {
    std::thread::scope(|scope| {
        let one = |request: Value| scope.spawn(move || answer(server, &request));
        let all: Vec<_> = requests().map(one).into_iter().collect();
        let all = all.into_iter();
        all.map(|text| text.join().expect("an answer")).collect()
    })
}

#[test]
fn adapters_are_those_of_one_process_while_an_engine_dies() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let files = AdapterFiles::new("cluster-adapters");
    let (model, a, b) = (
        files.path("tiny.gguf"),
        files.path("a.gguf"),
        files.path("b.gguf"),
    );
    let sql = format!("sql={b}");
    let args = [&model, "--lora", &a, "--lora-modules", &sql];
    let serve = [&["serve", "--bind", "127.0.0.1:0"], &args[..]].concat();
    let alone = Serving::start_with(&serve, &SETTINGS, Stdio::inherit());
    let expected = answers(&alone);
    let mut different = expected.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), expected.len(), "{expected:?}");

    let in_turn = [("MILLRACE_CLUSTER_PLACEMENT", "round_robin")];
    let settings = [&SETTINGS[..], &in_turn].concat();
    let mut cluster = Cluster::new(program, "cluster-adapters", "", &settings);
    // An engine without the adapters has another model.
    cluster.start_engine_of(&model);
    cluster.start_engine_with(&args);
    cluster.start_engine_with(&args);
    let gateway = cluster.start_gateway_with(&args);
    wait_for_engines(&gateway, 3);
    assert_eq!(answers(&gateway), expected);

    // A stopped engine keeps what it got until it is killed.
    cluster.engine(1).signal("STOP");
    let attempts = metric(&gateway, "millrace_relay_attempts_total");
    let received = std::thread::scope(|scope| {
        let received = scope.spawn(|| answers(&gateway));
        wait_until("both engines have requests", || {
            metric(&gateway, "millrace_relay_attempts_total") >= attempts + 4.0
        });
        cluster.kill_engine(1);
        received.join().expect("answers")
    });
    assert_eq!(received, expected);
    assert!(metric(&gateway, "millrace_relay_resubmitted_total") > 0.0);
    assert_eq!(metric(&gateway, "millrace_relay_diverged_total"), 0.0);

    // Default scales are the gateway's.
    let set = gateway.post("/lora-adapters", r#"[{"id": 1, "scale": 1}]"#);
    assert!(set.starts_with("HTTP/1.1 200"), "{set}");
    assert_eq!(answer(&gateway, &json!({})), expected[1]);
    assert!(gateway.terminate().success());
}
