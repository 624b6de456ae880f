//! Gateways that are killed: their streams continue at another gateway.

use super::nats_server;
use super::processes::{Cluster, address, json, wait_for_engines};
use crate::kill::crashing::{Client, Crashing};
use crate::kill::event_reader::read_events;
use crate::kill::mortal::Mortal;
use crate::kill::requests::{Request, all_requests, in_every_protocol};
use crate::kill::{Onward, SETTINGS, Scene};
use crate::support::{Folder, Serving, millrace, stdout};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use testing::wait::wait_until;

/// Short heartbeats, so that a gateway is soon gone.
pub(super) const HEARTBEAT: (&str, &str) = ("MILLRACE_CLUSTER_HEARTBEAT_MS", "100");

pub(super) fn settings() -> Vec<(&'static str, &'static str)> {
    let threads = ("MILLRACE_MODEL_THREADS", "1");
    [&SETTINGS[..], &[HEARTBEAT, threads]].concat()
}

/// Lines of a NATS configuration with JetStream.
pub(super) fn jet_stream(folder: &Folder) -> String {
    format!("jetstream {{ store_dir: {:?} }}", folder.0.join("nats"))
}

/// A cluster with two engines and two gateways, of which one is killed again and again.
struct Gateways {
    cluster: Cluster,
    serving: Serving,
    next: Option<Serving>,
    started: usize,
    folder: Folder,
}

impl Gateways {
    fn start(program: PathBuf, name: &str, own: &[(&'static str, &'static str)]) -> Self {
        let folder = Folder::new(name);
        let lines = jet_stream(&folder);
        let settings = [&settings()[..], own].concat();
        let mut cluster = Cluster::new(program, &format!("{name}-nats"), &lines, &settings);
        cluster.start_engines(2);
        let start = |number: usize| {
            let gateway = cluster.start_durable_gateway(&folder.0.join(number.to_string()));
            wait_for_engines(&gateway, 2);
            gateway
        };
        let (serving, next) = (start(0), Some(start(1)));
        Self {
            cluster,
            serving,
            next,
            started: 2,
            folder,
        }
    }
}

/// Waits until a gateway has stored all records, so that a kill loses none.
pub(super) fn wait_stored(gateway: &Serving, key: &str) {
    wait_until("all records are stored", || {
        let report = json(&gateway.send("GET", "/v1/cluster", key, ""));
        report["records"]["stored"] == true && report["records"]["behind_bytes"] == 0
    });
}

impl Mortal for Gateways {
    fn serving(&self) -> &Serving {
        &self.serving
    }

    fn replace(&mut self, _: Option<&str>) {
        wait_stored(&self.serving, "");
        let folder = self.folder.0.join(self.started.to_string());
        let next = self.cluster.start_durable_gateway(&folder);
        self.started += 1;
        let living = self.next.replace(next).expect("a second gateway");
        drop(std::mem::replace(&mut self.serving, living)); // the drop kills and waits
    }
}

/// Kills the gateway each seven tokens, and compares what every client received with a single process that is not disturbed.
/// All processes have these settings, too.
pub(super) fn check(
    name: &str,
    requests: fn() -> Vec<Request>,
    own: &[(&'static str, &'static str)],
) {
    let Some(program) = nats_server::program() else {
        return;
    };
    let single = [&SETTINGS[..], own].concat();
    let single = Crashing::start(&format!("{name}-single"), &single);
    let mut whole = Scene::open(single, requests());
    whole.run(Onward::Acknowledged);
    let mut killed = Scene::open(Gateways::start(program, name, own), requests());
    let rounds = killed.run(Onward::Killed);
    assert!(rounds >= 4, "{rounds} kills");
    for (client, undisturbed) in killed.clients.iter().zip(&whole.clients) {
        let received = client.transcript.clone().without_cached();
        let expected = undisturbed.transcript.clone().without_cached();
        assert_eq!(received, expected, "{}", client.case);
    }
    let described = json(&killed.server.serving.get("/v1/streams"));
    let streams = described["data"].as_array().expect("streams");
    let is_claimed = |stream: &serde_json::Value| {
        stream["generation"].as_u64() >= Some(2) && stream["replicated"] == true
    };
    assert!(streams.iter().all(is_claimed), "{described}");
}

/// Promise (Cluster): streams of every protocol and kind of state have the text of one undisturbed process while
/// gateways are killed one after another, read at another gateway each time.
/// Also held by `millrace/tests/it/cluster/gateway_killed.rs :: every_protocol_survives_gateways`.
#[test]
fn every_kind_of_state_survives_gateways() {
    check("gateways-state", all_requests, &[]);
}

#[test]
fn every_protocol_survives_gateways() {
    check("gateways-protocols", in_every_protocol, &[]);
}

/// The response for a key that may not see a stream, also while a gateway that may have it does not answer.
fn assert_denied(reply: &str) {
    let is_denied = reply.starts_with("HTTP/1.1 404") || reply.contains("recovering");
    assert!(is_denied, "{reply}");
}

/// The header fields of two keys and of an administrator.
fn make_keys(file: &str) -> [String; 3] {
    let keys = [
        ("alice", "inference"),
        ("bob", "inference"),
        ("carol", "admin"),
    ];
    keys.map(|(name, scope)| {
        let made = millrace(&["keys", "--file", file, "new", name, "--scope", scope]);
        format!("authorization: Bearer {}\r\n", stdout(&made).trim())
    })
}

/// Describing, control, cancellation and reading where the stream is not, and a key that may not.
///
/// Promise (Cluster): a stream is described, read, controlled and cancelled at any gateway, and another key gets 404
/// there before anything is read.
#[test]
fn stream_is_served_at_both_gateways_for_its_key_alone() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("gateways-keys");
    let file: &str = folder.0.join("keys.yaml").display().to_string().leak();
    let [own, other, admin] = make_keys(file);
    let settings = [&settings()[..], &[("MILLRACE_KEYS_FILE", file)]].concat();
    let lines = jet_stream(&folder);
    let mut cluster = Cluster::new(program, "gateways-keys-nats", &lines, &settings);
    cluster.start_engines(1);
    let gateways = ["a", "b"].map(|name| cluster.start_durable_gateway(&folder.0.join(name)));
    let [first, second] = gateways;
    let body = json!({
        "messages": [{"role": "user", "content": "Tell me a story."}], "stream": true, "max_tokens": 400,
        "ignore_eos": true, "seed": 5,
    });
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nx-stream-resumable: 1\r\nx-stream-acks: explicit\r\n{}",
        own.trim_end()
    );
    let silence = Duration::from_millis(50);
    let reading = read_events(&address(&first), &head, &body.to_string(), silence);
    let id = reading.unwrap().header("x-stream-id").expect("an id");
    let path = format!("/v1/streams/{id}");
    let get = |gateway: &Serving, key: &str| gateway.send("GET", &path, key, "");
    wait_until("the second gateway knows the stream", || {
        get(&second, &own).starts_with("HTTP/1.1 200")
    });
    let described = json(&get(&second, &own));
    assert_eq!(described["id"], id.as_str());
    assert_eq!(described["instance"], json(&get(&first, &own))["instance"]);
    let control = format!("{path}/control");
    let steered = second.send("POST", &control, &own, r#"{"temperature": 0.2}"#);
    assert!(steered.starts_with("HTTP/1.1 200"), "{steered}");
    assert_eq!(json(&get(&first, &own))["control"]["told"], 1);
    let watch = format!("GET {path}/events HTTP/1.1\r\n{}", own.trim_end());
    let reading = read_events(&address(&second), &watch, "", silence).unwrap();
    assert_eq!((reading.status, reading.events.is_empty()), (200, false));
    for gateway in [&first, &second] {
        let denied = get(gateway, &other);
        assert!(denied.starts_with("HTTP/1.1 404"), "{denied}");
    }
    wait_stored(&first, &admin);
    drop(first); // killed
    // As for an id that nobody has: until the killed gateway is known to be gone, it might have the stream.
    let expect_denial = || assert_denied(&get(&second, &other));
    expect_denial();
    wait_until("the second gateway has the stream", || {
        let reply = get(&second, &own);
        expect_denial();
        reply.starts_with("HTTP/1.1 200") && json(&reply)["generation"] == 2
    });
    wait_until("the killed gateway is not asked any more", || {
        get(&second, &other).starts_with("HTTP/1.1 404")
    });
    let cancelled = second.send("DELETE", &path, &own, "");
    assert!(cancelled.starts_with("HTTP/1.1 202"), "{cancelled}");
    wait_until("the stream has ended", || {
        json(&get(&second, &own))["state"] == "ended"
    });
}

/// Running streams, whose gateway is killed while clients read; each goes on at the other gateway with its last position.
///
/// Promise (Cluster): a client that has more than the records waits until the tokens were computed again, where the
/// arithmetic is equal.
/// Also held by `millrace/tests/it/cluster/lost.rs :: client_that_is_ahead_waits_where_the_arithmetic_is_equal`.
#[test]
fn running_stream_is_resumed_at_another_gateway() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("gateways-running");
    let lines = jet_stream(&folder);
    let mut cluster = Cluster::new(program, "gateways-running-nats", &lines, &settings());
    cluster.start_engines(1);
    let [first, second] =
        ["a", "b"].map(|name| cluster.start_durable_gateway(&folder.0.join(name)));
    let body = json!({
        "messages": [{"role": "user", "content": "Tell me a long story."}], "stream": true, "seed": 11,
        "max_tokens": 300, "ignore_eos": true, "temperature": 1.0, "n": 2,
    });
    let head = "POST /v1/chat/completions HTTP/1.1\r\nx-stream-resumable: 1";
    let open = |address: &str| {
        let reading = read_events(address, head, &body.to_string(), Duration::from_millis(1));
        reading.unwrap().header("x-stream-id").expect("an id")
    };
    let single = Crashing::start("gateways-running-single", &SETTINGS);
    let mut whole = Client::new("whole", &open(&single.address()), "openai.chat");
    whole.read_to_end(&single.address());
    let (at, id) = (address(&first), open(&address(&first)));
    let mut client = Client::new("killed", &id, "openai.chat");
    let mut killed = Some(first);
    client.read_until(&at, 40, &mut || drop(killed.take()));
    assert!(!client.is_over, "the stream outlives its gateway");
    wait_until("the second gateway serves the stream", || {
        let reply = second.get(&format!("/v1/streams/{id}"));
        reply.starts_with("HTTP/1.1 200")
    });
    client.read_to_end(&address(&second));
    let received = client.transcript.without_cached();
    assert_eq!(received, whole.transcript.without_cached());
}

/// A NATS server without JetStream: the reason is said, and streams are served without a copy.
///
/// Promise (Cluster): without JetStream streams are served and not replicated, and the reason is logged.
#[test]
fn streams_without_jetstream_are_served_and_not_replicated() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("gateways-plain");
    let mut cluster = Cluster::new(program, "gateways-plain-nats", "", &settings());
    cluster.start_engines(1);
    let gateway = cluster.start_durable_gateway(&folder.0);
    wait_until("the reason", || {
        let report = json(&gateway.get("/v1/cluster"));
        let reason = report["records"]["reason"].as_str().unwrap_or_default();
        reason.contains("JetStream is not enabled")
    });
    assert!(gateway.get("/health/readiness").starts_with("HTTP/1.1 200"));
    let body = r#"{"prompt": "A", "max_tokens": 4}"#;
    let resumable = "x-stream-resumable: 1\r\n";
    let reply = gateway.post_with(resumable, "/v1/completions", body);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(
        reply.to_ascii_lowercase().contains("x-stream-durable: 1"),
        "{reply}"
    );
    let streams = json(&gateway.get("/v1/streams"));
    assert_eq!(streams["data"][0]["replicated"], false, "{streams}");
}
