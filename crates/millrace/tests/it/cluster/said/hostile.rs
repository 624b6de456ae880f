//! Messages that nobody of ours sent, on every subject of a gateway and an engine, while streams run.
//!
//! Promise (Cluster): random, truncated and foreign messages on every subject are counted by kind, logged seldom, and
//! change no stream.
//! Also held by `cluster/src/nats/unreadable.rs`.

use super::super::conversation::SETTINGS;
use super::super::nats_server;
use super::super::processes::{Cluster, json};
use super::super::raw_nats::RawNats;
use super::Logged;
use crate::support::Folder;
use cluster::messages::{
    Attempt, Heartbeat, Order, OrderKind, ReadEntry, ReadRequest, Role, Run, RunReply, TokenBatch,
    encode_orders,
};
use cluster::names::InstanceId;
use std::sync::atomic::{AtomicBool, Ordering};
use testing::random::Random;
use testing::wait::wait_until;

/// Streams that run at the same time.
const STREAMS: usize = 4;
/// Random messages for each subject.
const RANDOM: usize = 200;
const STRANGER: InstanceId = InstanceId(0xBAD);
const BODY: &str =
    r#"{"prompt": "Once upon a time", "temperature": 0, "max_tokens": 120, "ignore_eos": true}"#;

/// Valid messages of an instance that is unknown, for requests that are unknown.
fn foreign_messages() -> Vec<Vec<u8>> {
    let (handle, attempt) = (77, 3);
    let mut orders = Vec::new();
    let order = |sequence, kind| Order {
        handle,
        attempt,
        sequence,
        kind,
    };
    let kinds = [order(0, OrderKind::Forget), order(1, OrderKind::Pause)];
    encode_orders(STRANGER, &kinds, &mut orders).unwrap();
    let read = ReadRequest {
        gateway: STRANGER,
        entries: vec![ReadEntry {
            handle,
            attempt,
            have: vec![5],
        }],
    };
    let mut batch = TokenBatch::new(STRANGER);
    batch.push_unknown(Attempt { handle, attempt }).unwrap();
    let mut tokens = Vec::new();
    batch.encode(&mut tokens);
    let run = Run {
        handle,
        attempt,
        gateway: STRANGER,
        model_key: "nothing".to_owned(),
        ..Run::default()
    };
    let claim = [7_u128.to_be_bytes().as_slice(), &9_u64.to_be_bytes()].concat();
    let mut messages = vec![
        orders,
        read.encode().unwrap(),
        tokens,
        heartbeat(),
        RunReply::Accepted.encode(),
        claim,
    ];
    messages.extend(run.encode_parts().unwrap());
    messages
}

fn heartbeat() -> Vec<u8> {
    let heartbeat = Heartbeat {
        cluster: "millrace".to_owned(),
        ..Heartbeat::new(STRANGER, Role::Gateway)
    };
    heartbeat.encode().unwrap()
}

/// A message of random bytes; half of them begin as a message of this version, a quarter with absurd lengths after it.
fn random_message(random: &mut Random) -> Vec<u8> {
    let len = random.below(200) as usize;
    let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    if let [version, rest @ ..] = &mut bytes[..]
        && random.chance(50)
    {
        *version = 1;
        if random.chance(50) {
            rest.iter_mut().take(9).for_each(|byte| *byte = 0xFF);
        }
    }
    bytes
}

/// Sends everything to a subject, with and without a subject for the answer.
fn attack(nats: &mut RawNats, subject: &str, random: &mut Random) {
    for message in foreign_messages() {
        nats.publish(subject, "", &message);
        nats.publish(subject, "_INBOX.nobody.1", &message);
        for cut in 0..message.len().min(64) {
            nats.publish(subject, "_INBOX.nobody.1", &message[..cut]);
        }
    }
    for _ in 0..RANDOM {
        nats.publish(subject, "_INBOX.nobody.1", &random_message(random));
    }
    nats.publish(subject, "_INBOX.nobody.1", &vec![1; 1 << 20]);
    nats.flush();
}

fn complete(gateway: &Logged) -> String {
    let reply = gateway.serving.post("/v1/completions", BODY);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    json(&reply)["choices"][0]["text"].to_string()
}

/// Waits until the process has counted messages of this kind that cannot be read.
fn wait_counted(process: &Logged, subject: &str) {
    let line = format!("millrace_cluster_unreadable_total{{subject=\"{subject}\"}} ");
    wait_until(&line, || {
        let metrics = process.serving.get("/metrics");
        let count = metrics.lines().find_map(|found| found.strip_prefix(&line));
        count.expect("a count").parse::<u64>().unwrap() > 0
    });
}

#[test]
fn hostile_messages_are_counted_and_change_no_stream() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let settings = [
        &SETTINGS[..],
        &[("MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS", "0")],
    ];
    let folder = Folder::new("said-hostile");
    let cluster = Cluster::new(program, "said-hostile-nats", "", &settings.concat());
    let launch = |role| Logged::launch(&cluster, (&folder, role), role, &[], &[]);
    let (engine, gateway) = (launch("engine"), launch("gateway"));
    gateway.wait_ready();
    let expected = complete(&gateway);
    let (own, other) = (engine.id(""), gateway.id(""));
    let subjects = [
        "mr.millrace.hb".to_owned(),
        "mr.millrace.claimed".to_owned(),
        "mr.millrace.find".to_owned(),
        format!("mr.millrace.s.{:032x}", 7),
        format!("mr.millrace.g.{other}.t"),
        format!("mr.millrace.e.{own}.run"),
        format!("mr.millrace.e.{own}.ctl"),
        format!("mr.millrace.e.{own}.read"),
        "_INBOX.nobody.1".to_owned(),
    ];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = || {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(complete(&gateway), expected);
            }
        };
        let clients: Vec<_> = (0..STREAMS).map(|_| scope.spawn(client)).collect();
        let mut nats = RawNats::connect(&cluster.nats);
        let mut random = Random(7);
        for subject in &subjects {
            attack(&mut nats, subject, &mut random);
        }
        is_over.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
    });
    assert_eq!(complete(&gateway), expected);
    for subject in ["heartbeat", "run", "control", "read"] {
        wait_counted(&engine, subject);
    }
    for subject in ["heartbeat", "claimed", "tokens"] {
        wait_counted(&gateway, subject);
    }
    for process in [&engine, &gateway] {
        process.wait_ready();
        let log = process.log.text();
        assert!(!log.contains("panicked"), "{log}");
        let lines = log.matches("that cannot be read arrived").count();
        assert!((1..=9).contains(&lines), "a line for each kind: {log}");
    }
}
