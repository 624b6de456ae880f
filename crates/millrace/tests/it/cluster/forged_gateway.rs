//! Heartbeats of a gateway that does not exist, as an engine's machine may publish them: no caller's key reaches the address
//! that they name, and what answers there is not believed.

use super::limits_of_keys::key_of_alice;
use super::nats_server;
use super::processes::{Cluster, address, json};
use super::raw_nats::RawNats;
use crate::support::{Folder, Serving};
use serde_json::{Value, json as value};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testing::wait::wait_until;

const INVENTED: &str = "deadbeefdeadbeef";
const SUBJECT: &str = "mr.millrace.hb";
/// What the invented gateway says that it has.
const STREAM: &str = "ffffffffffffffffffffffffffffffff";

/// An HTTP server that answers every request with a list, and keeps the heads.
fn listen() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (local, heads) = (
        listener.local_addr().unwrap().to_string(),
        Arc::<Mutex<Vec<String>>>::default(),
    );
    let kept = Arc::clone(&heads);
    // Ends with the process.
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (mut socket, kept) = (socket.unwrap(), Arc::clone(&kept));
            std::thread::spawn(move || {
                let lines = BufReader::new(socket.try_clone().unwrap()).lines();
                let lines = lines.map_while(Result::ok);
                let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
                if head.is_empty() {
                    return; // a look whether the port is open
                }
                kept.lock().unwrap().push(head.join("\n"));
                let body = value!({
                    "object": "list", "has_more": false, "data": [
                        {"id": STREAM, "state": "running", "cursor": "x", "created_at": 1},
                    ],
                })
                .to_string();
                let length = body.len();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
                let _ = write!(socket, "{head}\r\ncontent-length: {length}\r\n\r\n{body}");
            });
        }
    });
    (local, heads)
}

/// Publishes these heartbeats again and again, until dropped.
struct Forger(Arc<AtomicBool>);

impl Forger {
    fn start(mut nats: RawNats, forged: Vec<Value>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let mut number = u64::from(u32::MAX) << 16;
            while !seen.load(Ordering::Relaxed) {
                for heartbeat in &forged {
                    let mut heartbeat = heartbeat.clone();
                    number += 1;
                    heartbeat["number"] = number.into();
                    nats.publish(SUBJECT, "", heartbeat.to_string().as_bytes());
                }
                nats.flush();
                std::thread::park_timeout(Duration::from_millis(50));
            }
        });
        Self(is_over)
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The requests that once went to the invented gateway with the caller's key.
fn ask_everything(gateway: &Serving, key: &str, number: usize) -> Vec<(String, String)> {
    let unknown = format!("/v1/streams/{}", "a".repeat(32));
    let paths = [
        "/v1/streams",
        "/v1/streams?unread=true",
        "/v1/chat/completions",
        "/v1/chat/completions/chatcmpl-unknown",
        &unknown,
        "/metrics?scope=cluster",
    ];
    let mut replies: Vec<_> = paths
        .iter()
        .map(|path| ((*path).to_owned(), gateway.send("GET", path, key, "")))
        .collect();
    let job = value!({"prompt": "A", "max_tokens": 2, "job_id": format!("job-{number}")});
    let reply = gateway.post_with(key, "/v1/jobs", &job.to_string());
    replies.push(("/v1/jobs".to_owned(), reply));
    replies
}

fn instance(gateway: &Serving, key: &str, id: &str) -> Option<Value> {
    let report = json(&gateway.send("GET", "/v1/cluster", key, ""));
    let mut instances = report["instances"].as_array()?.iter();
    instances.find(|instance| instance["id"] == id).cloned()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn forged_gateway_gets_no_key_and_is_not_believed() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("cluster-forged");
    let (settings, secret) = key_of_alice(&folder, &["--scope", "metrics"]);
    let key = format!("authorization: Bearer {secret}\r\n");
    let mut cluster = Cluster::new(program, "cluster-forged", "", &settings);
    cluster.start_engines(1);
    let gateways = [cluster.start_gateway(), cluster.start_gateway()];
    let of_role = |role: &'static str| {
        let is_wanted = move |payload: &[u8]| {
            serde_json::from_slice::<Value>(payload).is_ok_and(|it| it["role"] == role)
        };
        let mut nats = RawNats::connect(&cluster.nats);
        let payload = nats.hear(SUBJECT, is_wanted);
        serde_json::from_slice::<Value>(&payload).unwrap()
    };
    let (local, heads) = listen();
    let mut invented = of_role("gateway");
    (invented["id"], invented["http"]) = (INVENTED.into(), local.clone().into());
    let living = |serving: &Serving| {
        let known = json(&serving.send("GET", "/v1/cluster", &key, ""));
        known["instance"].as_str().map(str::to_owned)
    };
    let second = living(&gateways[1]).expect("the id of the second gateway");
    wait_until("the second gateway is known", || {
        instance(&gateways[0], &key, &second).is_some()
    });
    let mut in_its_name = invented.clone();
    in_its_name["id"] = second.clone().into();
    let nats = RawNats::connect(&cluster.nats);
    let forger = Forger::start(nats, vec![invented.clone(), in_its_name]);
    wait_until("the invented gateway is known", || {
        instance(&gateways[0], &key, INVENTED).is_some()
    });

    for (path, reply) in ask_everything(&gateways[0], &key, 0) {
        assert!(!reply.contains(STREAM), "{path}: {reply}");
        let status: u16 = reply[9..12].parse().unwrap();
        // 503: the gateway that is not asked could own the stream.
        assert!(status < 500 || status == 503, "{path}: {reply}");
    }
    assert_eq!(*heads.lock().unwrap(), Vec::<String>::new());
    let known = instance(&gateways[0], &key, &second).expect("the second gateway");
    assert_eq!(known["address"], address(&gateways[1]), "{known}");
    let list = json(&gateways[0].send("GET", "/v1/streams", &key, ""));
    let unanswered = list["unanswered"].as_array().cloned().unwrap_or_default();
    assert_eq!(unanswered.len(), 1, "the second gateway is asked: {list}");
    assert_eq!(unanswered[0]["instance"], INVENTED, "{list}");
    drop(forger);

    // As an engine it is asked for metrics, without a key and without a name.
    invented["role"] = "engine".into();
    let forger = Forger::start(RawNats::connect(&cluster.nats), vec![invented]);
    wait_until("the invented engine is asked", || {
        ask_everything(&gateways[0], &key, 1);
        !heads.lock().unwrap().is_empty()
    });
    for head in heads.lock().unwrap().iter() {
        assert!(head.starts_with("GET /metrics "), "{head}");
        assert!(
            !head.contains(&secret) && head.contains("x-millrace-forwarded: 1"),
            "{head}"
        );
    }
    drop(forger);
    expect_no_calls_without_the_secret(&mut cluster, &key, &gateways[0]);
}

/// A gateway without the secret asks nobody, and its requests are not believed.
fn expect_no_calls_without_the_secret(cluster: &mut Cluster, key: &str, other: &Serving) {
    cluster.gives_secret = false;
    let bare = cluster.start_gateway();
    wait_until("the others are named as not asked", || {
        let list = json(&bare.send("GET", "/v1/streams", key, ""));
        let unanswered = list["unanswered"].as_array().cloned().unwrap_or_default();
        let is_told = |row: &Value| row["reason"].to_string().contains("cluster.secret_file");
        unanswered.len() >= 2 && unanswered.iter().all(is_told)
    });
    let forged = format!("x-millrace-forwarded: 1.1.1.{0}.{0}\r\n", "a".repeat(64));
    let reply = other.send("GET", "/v1/streams", &forged, "");
    assert!(
        reply.starts_with("HTTP/1.1 401") && reply.contains("invalid_seal"),
        "{reply}"
    );
}
