//! A thousand streams at once: their threads, their memory, their texts.
#![expect(clippy::print_stdout, reason = "the figures")]

use crate::support::client::{Client, request};
use crate::support::named::{CHAT, ask, fake};
use crate::support::{Rig, config, wait_until};
use engine::fake::FakeConfig;
use serde_json::Value;
use server::{AdaptiveLimits, ServerConfig};
use std::collections::HashSet;
use std::ops::Range;
use stream::SEGMENT_ITEMS;
use testing::child::run_in_child;
use testing::heap;

const STREAMS: usize = 1000;
/// Tokens of an answer: some are out while its stream is idle.
const TOKENS: usize = 160;
/// What an idle stream may hold beyond its log: tasks, buffers, the request, the engine's part.
const STREAM_BYTES_MAX: i64 = 10 << 10;

fn wide() -> Rig {
    let model = FakeConfig {
        dims: model::Dims {
            pages: STREAMS * 16,
            logit_rows_max: 1024,
            rows_max: 2048,
            ..fake().dims
        },
        ..fake()
    };
    let bounds = ServerConfig {
        open_requests_max: STREAMS + 8,
        connections_per_ip_max: 2 * STREAMS,
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams: STREAMS + 8,
            ..AdaptiveLimits::default()
        },
        ..config()
    };
    Rig::gated(model, bounds)
}

fn asked(i: usize) -> Value {
    ask(&format!("client {i}"), true, TOKENS)
}

/// Asks for these; they run and nobody has read.
fn ask_all(rig: &Rig, which: Range<usize>) -> Vec<Client> {
    let asks: Vec<_> = which.map(|i| request(CHAT, &asked(i))).collect();
    let mut clients: Vec<_> = asks.iter().map(|_| Client::connect(rig.addr)).collect();
    for (client, ask) in clients.iter_mut().zip(&asks) {
        client.send(ask);
    }
    clients
}

/// So many streams have their prompt computed and some tokens out; then the model stands still.
fn run_some(rig: &Rig, streams: usize) {
    // No step before all are there: who came first would be done when the last one comes.
    let segments = streams * TOKENS.div_ceil(SEGMENT_ITEMS);
    wait_until("all are in", || rig.tokens.stats().reserved == segments);
    let all = || rig.engine.stats().running() == streams as u64;
    wait_until("all run", || {
        rig.gate.allow(1);
        all()
    });
    let before = rig.engine.stats().tokens_generated();
    wait_until("all have some tokens", || {
        rig.gate.allow(1);
        rig.engine.stats().tokens_generated() >= before + 2 * streams as u64
    });
}

#[cfg(target_os = "linux")]
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[cfg(not(target_os = "linux"))]
fn threads() -> usize {
    0
}

/// All of them, idle: what was sent is in the sockets, and each waits for a token. A part of them comes before, with what
/// the engine and the allocator need in any case.
fn measured(rig: &Rig) -> Vec<Client> {
    let part = STREAMS / 5;
    let mut clients = ask_all(rig, 0..part);
    run_some(rig, part);
    let segment_bytes = (SEGMENT_ITEMS * size_of::<engine::Token>()) as i64;
    let log_bytes = || rig.tokens.stats().allocated as i64 * segment_bytes;
    let (held, logs, resident) = (heap::process_held(), log_bytes(), resident());
    clients.extend(ask_all(rig, part..STREAMS));
    run_some(rig, STREAMS);
    let each = |before: i64, now: i64| (now - before) / (STREAMS - part) as i64;
    let log = each(logs, log_bytes());
    let heap = each(held, heap::process_held()) - log;
    println!(
        "an idle stream beside its log of {log} bytes: {heap} bytes of heap; resident: {}",
        each(resident, self::resident()) - log
    );
    assert!(heap > 0 && heap < STREAM_BYTES_MAX, "{heap} bytes each");
    clients
}

/// Resident bytes of this process; 0 where nobody says so.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<i64>().ok());
    kib.unwrap_or(0) << 10
}

#[test]
fn thousand_streams_cost_no_thread_and_little_memory_and_do_not_mix() {
    if run_in_child(thousand_streams_cost_no_thread_and_little_memory_and_do_not_mix) {
        return;
    }
    heap::count_process_without_this_thread();
    let rig = wide();
    wait_until("it serves", || {
        crate::support::client::get(rig.addr, "/health").head.status == 200
    });
    let count = threads();
    let mut clients = measured(&rig);
    assert_eq!(threads(), count, "streams need no threads");
    rig.gate.open();
    let texts: Vec<_> = clients.iter_mut().map(|c| c.reply().chat_text()).collect();
    assert!(texts.iter().all(|text| text.len() == TOKENS));
    let differ: HashSet<_> = texts.iter().collect();
    assert_eq!(differ.len(), STREAMS, "no two are the same");
    for i in (0..STREAMS).step_by(40) {
        let mut alone = Client::connect(rig.addr);
        alone.post(CHAT, &asked(i));
        assert_eq!(alone.reply().chat_text(), texts[i], "client {i}");
    }
    drop(clients);
    rig.wait_until_empty();
    let warm = rig.tokens.stats();
    for _ in 0..3 {
        for mut client in ask_all(&rig, 0..STREAMS) {
            client.reply().chat_text();
        }
        rig.wait_until_empty();
    }
    let steady = rig.tokens.stats();
    let (reused, fresh) = (
        steady.reused - warm.reused,
        steady.allocated - warm.allocated,
    );
    assert!(
        reused + fresh as u64 >= 3 * STREAMS as u64 && fresh as u64 * 20 < reused,
        "{reused} segments used again, {fresh} fresh ones"
    );
    assert_eq!(threads(), count);
}
