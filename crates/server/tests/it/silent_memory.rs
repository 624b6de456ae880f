//! Many clients that ask and never read: what the server and the kernel hold for each stays within the sum of the
//! bounds that docs/memory.md names.
//!
//! Promise (Hostile input and memory): clients that never read: heap and socket bytes of each stay within the sum of
//! the limits in docs/memory.md, also on a connection that carried a long response before.
//!
//! Promise (Hostile input and memory): an open connection keeps nothing of an earlier large response.

#![expect(clippy::print_stdout, reason = "the figures")]

use crate::support::client::{Client, Reply, request};
use crate::support::exported::Exported;
use crate::support::named::{self, CHAT, fake};
use crate::support::{Rig, config, wait_until};
use engine::fake::FakeConfig;
use serde_json::{Value, json};
use server::{AdaptiveLimits, ServerConfig};
use stream::SEGMENT_ITEMS;
use testing::child::run_in_child;
use testing::heap;

/// Those that are counted.
const SILENT: usize = 120;
/// Those before them: what the engine, the pools and the allocator need in any case.
const FIRST: usize = 24;
/// More than all buffers on the way hold.
const TOKENS: usize = 4000;
/// The client's own, which the kernel doubles.
const RECEIVE_BUFFER: usize = 4096;
/// Connections that stay open after a large answer.
const IDLE: usize = 64;
/// Ids of a large answer, which has each twice as a letter.
const LARGE_IDS: usize = 200_000;
/// Ids of an answer that is longer than `send_buffer_bytes`.
const LONG_IDS: usize = 40_000;
const SENT: &str = "millrace_http_bytes_total{direction=\"sent\"}";

/// What one of them may hold, by the names in docs/memory.md.
struct Bounds {
    /// A stream beside its log and its frames (`STREAM_BYTES_MAX`).
    stream: usize,
    /// A sequence, per position it may have (`sequences_max`), and its pages.
    sequence: usize,
    /// Its log, up to `max_tokens`, and what a segment needs beside its items.
    log: usize,
    /// The alternatives' log.
    alternatives: usize,
    /// Two buffers, each grown to 16 KiB and one event of at most 32 tokens.
    frames: usize,
    /// `send_buffer_bytes`, doubled by the kernel; and the client's own.
    sockets: usize,
}

impl Bounds {
    fn of(top_n: usize, config: &ServerConfig) -> Self {
        const SEGMENT_BESIDE: usize = 204;
        /// What a token takes in a frame, and each of its alternatives.
        const TOKEN_BYTES: usize = 300;
        let positions = TOKENS + 16;
        let log =
            |items: usize| items.div_ceil(SEGMENT_ITEMS) * (SEGMENT_ITEMS * 8 + SEGMENT_BESIDE);
        Self {
            stream: 10 << 10,
            sequence: 4 * positions + 4 * positions.div_ceil(16),
            log: log(TOKENS),
            alternatives: log(TOKENS * top_n),
            frames: 2 * ((16 << 10) + 32 * (1 + top_n) * TOKEN_BYTES),
            sockets: 2 * config.send_buffer_bytes + 2 * RECEIVE_BUFFER,
        }
    }

    fn heap(&self) -> usize {
        self.stream + self.sequence + self.log + self.alternatives + self.frames
    }
}

fn bounds() -> ServerConfig {
    ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams: SILENT + FIRST,
            ..AdaptiveLimits::default()
        },
        ..config()
    }
}

fn rig() -> Rig {
    let model = FakeConfig {
        dims: model::Dims {
            context_max: 1 << 13,
            pages: (SILENT + FIRST) * (TOKENS / 16 + 2),
            ..fake().dims
        },
        ..fake()
    };
    Rig::with(model, bounds())
}

fn ask(i: usize, top_n: usize) -> Value {
    let mut ask = named::ask(&format!("client {i:08}"), true, TOKENS);
    if top_n > 0 {
        ask["logprobs"] = json!(true);
        ask["top_logprobs"] = json!(top_n);
    }
    ask
}

/// So many more that ask and never read, once no buffer takes more of any.
fn silent(rig: &Rig, count: usize, top_n: usize, after_long_answer: bool) -> Vec<Client> {
    let before = rig.engine.stats().parked();
    let deaf = |i: usize| {
        let mut client = Client::narrow(rig.addr, RECEIVE_BUFFER);
        if after_long_answer {
            detokenize(&mut client, LONG_IDS);
        }
        client.send(&request(CHAT, &ask(i, top_n)));
        client
    };
    let clients = (0..count).map(deaf).collect();
    let mut last = 0;
    wait_until("all are parked, and no token is made", || {
        let stats = rig.engine.stats();
        let made = stats.tokens_generated();
        let still = made == last && stats.parked() == before + count as u64;
        last = made;
        still
    });
    clients
}

/// A whole answer of twice as many bytes as ids, read to its end.
fn detokenize(client: &mut Client, ids: usize) -> Reply {
    client.post("/detokenize", &json!({"tokens": vec![97; ids]}));
    let reply = client.reply();
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    assert!(reply.body.len() > 2 * ids);
    reply
}

#[test]
fn clients_that_never_read_stay_within_memory_limits() {
    if run_in_child(clients_that_never_read_stay_within_memory_limits) {
        return;
    }
    heap::count_process_without_this_thread();
    for (top_n, after_long_answer) in [(0, false), (0, true), (5, false)] {
        let bounds = Bounds::of(top_n, &bounds());
        let rig = rig();
        let sent = || Exported::from(&rig).value(SENT) as i64;
        // Bytes of each that are not of its stream.
        let read = if after_long_answer {
            detokenize(&mut Client::connect(rig.addr), LONG_IDS)
                .body
                .len()
        } else {
            0
        };
        let first = silent(&rig, FIRST, top_n, after_long_answer);
        let generated = || rig.engine.stats().tokens_generated() as i64;
        let (held, given, made) = (heap::process_held(), sent(), generated());
        let rest = silent(&rig, SILENT, top_n, after_long_answer);
        let each =
            |before: i64, now: i64| usize::try_from((now - before) / SILENT as i64).unwrap_or(0);
        let heap = each(held, heap::process_held());
        let sockets = each(given, sent()) - read;
        let tokens = each(made, generated());
        println!(
            "{SILENT} that never read, {top_n} alternatives, {tokens} tokens each: {heap} bytes of heap each of at \
             most {}; {sockets} bytes in sockets of at most {}",
            bounds.heap(),
            bounds.sockets,
        );
        assert!(
            tokens > 0 && tokens < TOKENS,
            "it is not read: {tokens} tokens"
        );
        assert!(
            heap > 0 && heap <= bounds.heap(),
            "{heap} bytes of heap each"
        );
        assert!(
            sockets > 0 && sockets <= bounds.sockets,
            "{sockets} bytes in sockets each"
        );
        drop((first, rest));
        rig.wait_until_empty();
    }
}

#[test]
fn idle_connection_releases_buffers_of_a_large_response() {
    if run_in_child(idle_connection_releases_buffers_of_a_large_response) {
        return;
    }
    heap::count_process_without_this_thread();
    let rig = rig();
    let idle = |count: usize| -> Vec<Client> {
        let one = |_| {
            let mut client = Client::connect(rig.addr);
            detokenize(&mut client, LARGE_IDS);
            client
        };
        (0..count).map(one).collect()
    };
    let first = idle(4);
    let held = heap::process_held();
    let rest = idle(IDLE);
    let each = usize::try_from((heap::process_held() - held) / IDLE as i64).unwrap_or(0);
    let most = bounds().connection_buffer_bytes * 6;
    println!(
        "{IDLE} idle connections after large answers: {each} bytes of heap each of at most {most}"
    );
    assert!(each > 0 && each <= most, "{each} bytes of heap each");
    drop((first, rest));
}
