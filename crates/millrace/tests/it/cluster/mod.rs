//! A gateway with engines in other processes, over a real NATS server.

mod adapters;
mod any_gateway;
pub(crate) mod conversation;
mod cut_off;
#[cfg(all(feature = "gpu", target_os = "linux"))]
mod device_failed;
mod embeddings;
mod encoders;
mod events;
mod forged_gateway;
mod gateway_killed;
mod images;
mod job_names;
mod limits_of_keys;
mod lost;
mod moved;
mod named_models;
#[path = "../../../../cluster/tests/it/nats_server.rs"]
mod nats_server;
pub(crate) mod processes;
mod raw_nats;
mod restarted;
mod resting;
mod resumed;
mod said;
mod several_models;
mod unread;
mod vision_proxy;

use crate::support::{Folder, Serving, millrace, stdout};
use conversation::{Conversation, SETTINGS};
use processes::{Cluster, json, wait_for_engines};
use std::process::Stdio;
use testing::wait::wait_until;

/// The value of a metric without labels.
fn metric(server: &Serving, name: &str) -> f64 {
    let reply = server.get("/metrics");
    let line = reply
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}"))
        .trim()
        .parse()
        .unwrap()
}

/// What each client receives of one process that is not disturbed.
fn undisturbed() -> Vec<(&'static str, crate::kill::transcript::Transcript)> {
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let server = Serving::start_with(&args, &SETTINGS, Stdio::inherit());
    Conversation::open(&server).run(&server, |_| {})
}

/// Streams of all kinds while engines are killed, stopped and shut down, and while the NATS server is started again.
///
/// Promise (Cluster): streams of every protocol and kind of state have the text of one undisturbed process, over
/// unbroken connections, while engines are killed, stopped and shut down and NATS is restarted.
#[test]
fn streams_outlive_engines_and_nats() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let mut cluster = Cluster::new(program, "cluster-faults", "", &SETTINGS);
    cluster.start_engines(2);
    let gateway = cluster.start_gateway();
    wait_for_engines(&gateway, 2);
    let conversation = Conversation::open(&gateway);
    let received = conversation.run(&gateway, |round| match round {
        0 => {
            cluster.kill_engine(0);
            cluster.start_engines(1);
        }
        // Round 1 has control updates, whose place among the tokens an engine's death would change.
        2 => cluster.engine(1).signal("STOP"),
        3 => {
            cluster.engine(1).signal("CONT");
            wait_for_engines(&gateway, 2);
            let leaving = cluster.engines[2].take().expect("the third engine");
            assert!(leaving.terminate().success());
        }
        4 => {
            cluster.nats.kill();
            cluster.nats.start();
        }
        _ => {}
    });
    assert!(metric(&gateway, "millrace_relay_resubmitted_total") > 0.0);
    assert_eq!(metric(&gateway, "millrace_relay_diverged_total"), 0.0);
    assert!(metric(&gateway, "millrace_nats_connects_total") >= 2.0);
    for (received, expected) in received.iter().zip(undisturbed()) {
        assert_eq!(received, &expected);
    }
    assert!(gateway.terminate().success());
}

/// Promise (Cluster): a gateway is ready while NATS and an engine with its content are there, and says why not; an
/// engine serves no clients.
#[test]
fn gateway_is_ready_while_nats_and_an_engine_are_there() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let mut cluster = Cluster::new(program, "cluster-ready", "", &SETTINGS);
    let mut gateway = cluster.launch("gateway");
    let reason = |part: &str| {
        wait_until(part, || {
            let reply = gateway.get("/health/readiness");
            let reason = json(&reply)["reason"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            reply.starts_with("HTTP/1.1 503") && reason.contains(part)
        });
    };
    reason("there is no engine");
    cluster.start_engines(1);
    wait_for_engines(&gateway, 1);
    wait_until("the gateway is ready", || {
        gateway.get("/health/readiness").starts_with("HTTP/1.1 200")
    });
    let engine = cluster.engine(0);
    assert!(engine.get("/health/readiness").starts_with("HTTP/1.1 200"));
    let reply = engine.post("/v1/chat/completions", "{}");
    assert!(reply.contains("not_a_gateway"), "{reply}");
    cluster.nats.kill();
    reason("NATS is not reachable");
    cluster.nats.start();
    wait_until("the gateway is ready again", || {
        gateway.get("/health/readiness").starts_with("HTTP/1.1 200")
    });
    cluster.kill_engine(0);
    reason("there is no engine for model");
    assert!(gateway.line().contains(" serves "));
}

/// The rights in `deploy` with nkeys of the program, and a request whose answer needs all subjects.
///
/// Promise (Cluster): the rights of `deploy/nats/rights.conf` are sufficient, with nkeys.
#[test]
fn rights_of_the_example_suffice() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nats/rights.conf");
    let mut rights = std::fs::read_to_string(path).unwrap();
    let folder = Folder::new("cluster-nkeys");
    for role in ["gateway", "engine"] {
        let variable = format!("${}_NKEY", role.to_uppercase());
        assert!(rights.contains(&variable));
        let made = millrace(&["nkey", &folder.0.join(role).display().to_string()]);
        rights = rights.replace(&variable, stdout(&made).trim());
    }
    let lines = format!(
        "jetstream {{ store_dir: {:?} }}\n{rights}",
        folder.0.join("nats")
    );
    let mut cluster = Cluster::new(program, "cluster-rights", &lines, &SETTINGS);
    cluster.nkeys = Some(folder.0.clone());
    cluster.start_engines(1);
    let gateway = cluster.start_durable_gateway(&folder.0);
    wait_until("records are stored", || {
        let report = json(&gateway.get("/v1/cluster"));
        report["records"]["stored"] == true
    });
    let body = r#"{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 30}"#;
    let resumable = "x-stream-resumable: 1\r\n";
    let reply = gateway.post_with(resumable, "/v1/chat/completions", body);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    wait_until("the stream is stored", || {
        metric(&gateway, "millrace_records_messages_total") > 0.0
    });
    for server in [&gateway, cluster.engine(0)] {
        let report = json(&server.get("/v1/cluster"));
        assert_eq!(report["nats"]["denied"], serde_json::json!([]), "{report}");
        wait_until("both instances are known", || {
            let report = json(&server.get("/v1/cluster"));
            report["instances"].as_array().map(Vec::len) == Some(2)
        });
    }
}
