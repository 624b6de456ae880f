//! Instances that differ in keys, models or the version of records.
//!
//! Promise (Cluster): instances with other keys, models or versions of records are named at both, and stay ready.

use super::super::conversation::SETTINGS;
use super::super::nats_server;
use super::super::processes::Cluster;
use super::super::raw_nats::RawNats;
use super::Logged;
use crate::support::{Folder, millrace, stdout};
use cluster::messages::{Heartbeat, Role};
use cluster::names::InstanceId;
use testing::wait::wait_until;

/// A key file with one key for everything, and the header field of the key.
pub(super) fn make_keys(folder: &Folder, name: &str) -> (String, String) {
    let file = folder.0.join(name).display().to_string();
    let made = millrace(&["keys", "--file", &file, "new", "root", "--scope", "admin"]);
    let field = format!("authorization: Bearer {}\r\n", stdout(&made).trim());
    (file, field)
}

fn synth(folder: &Folder, seed: &str) -> String {
    let path = folder.0.join(seed);
    std::fs::create_dir(&path).unwrap();
    let path = path.join("a.gguf").display().to_string();
    let made = millrace(&["synth", &path, "--preset", "tiny-qwen3", "--seed", seed]);
    stdout(&made);
    path
}

/// Two gateways with other keys, two engines with other weights under one name, and an instance of another version.
#[test]
fn differences_are_told_at_both_instances() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("said-differences");
    let cluster = Cluster::new(program, "said-differences-nats", "", &SETTINGS);
    let [first, second] = ["1", "2"].map(|seed| synth(&folder, seed));
    let [alice, bob] = ["alice", "bob"].map(|name| make_keys(&folder, name));
    let launch = |name, role, keys: &str, model: &str| {
        let vars = [("MILLRACE_KEYS_FILE", keys)];
        Logged::launch(&cluster, (&folder, name), role, &vars, &[model])
    };
    let gateways = [
        launch("g1", "gateway", &alice.0, &first),
        launch("g2", "gateway", &bob.0, &second),
    ];
    let engines = [
        launch("e1", "engine", &alice.0, &first),
        launch("e2", "engine", &bob.0, &second),
    ];
    let fields = [&alice.1, &bob.1];
    let gateway_ids = [0, 1].map(|i| gateways[i].id(fields[i]));
    let engine_ids = [0, 1].map(|i| engines[i].id(fields[i]));
    for (i, other) in [(0, 1), (1, 0)] {
        gateways[i].wait_warned(&[&gateway_ids[other], "other API keys"]);
        engines[i].wait_warned(&[&engine_ids[other], "model \"a\" with other weights"]);
        gateways[i].wait_warned(&[&engine_ids[other], "model \"a\" with other weights"]);
    }
    let stranger = Heartbeat {
        cluster: "millrace".to_owned(),
        record_version: 4000,
        ..Heartbeat::new(InstanceId(0xFF), Role::Engine)
    };
    let beat = stranger.encode().unwrap();
    let mut nats = RawNats::connect(&cluster.nats);
    let all = || gateways.iter().chain(&engines);
    wait_until("the version is told at all instances", || {
        nats.publish("mr.millrace.hb", "", &beat);
        nats.flush();
        let line = "millrace_cluster_differences{kind=\"record_version\"} 1";
        let mut fields = [&alice.1, &bob.1].into_iter().cycle();
        all().all(|process| process.has_metric(fields.next().expect("a key"), line))
    });
    for process in all() {
        nats.publish("mr.millrace.hb", "", &beat);
        let ours = format!("here {}", journal::OPEN_VERSION);
        process.wait_warned(&["00000000000000ff", "stream records of version 4000", &ours]);
    }
    assert!(gateways[0].has_metric(&alice.1, "millrace_cluster_differences{kind=\"keys\"} 2"));
}
