//! Clients that never read: what their answers hold once the work is done.
//!
//! Promise (Streams): a permit is released at the end of the generation, also without a reader, and undelivered
//! output is bounded.

use crate::support::client::{Client, post};
use crate::support::{Rig, config, fake, wait_until};
use engine::fake::FakeConfig;
use serde_json::{Value, json};
use server::{AdaptiveLimits, QueueLimits, ServerConfig, StreamLimits};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";
/// Streams that may run.
const PLACES: usize = 3;
/// Tokens of an answer that no socket's buffers hold.
const LONG: usize = 1 << 13;

/// A few places and nobody waits; no credit holds an answer back.
fn few(streams: StreamLimits) -> ServerConfig {
    ServerConfig {
        adaptive_limits: AdaptiveLimits {
            enabled: false,
            max_streams: PLACES,
            ..AdaptiveLimits::default()
        },
        queue: QueueLimits {
            max_depth: 0,
            ..QueueLimits::default()
        },
        send_buffer_bytes: 4096,
        credit_window: 0,
        streams,
        ..config()
    }
}

fn long() -> FakeConfig {
    let mut long = fake();
    long.dims.context_max = 1 << 14;
    long.dims.pages = 8 << 10;
    long
}

fn ask(stream: bool, max_tokens: usize) -> Value {
    let messages = json!([{"role": "user", "content": "hi"}]);
    json!({"messages": messages, "stream": stream, "max_tokens": max_tokens, "ignore_eos": true})
}

/// A client that asks and reads nothing.
fn deaf(rig: &Rig) -> Client {
    let mut client = Client::narrow(rig.addr, 4096);
    client.post(CHAT, &ask(true, LONG));
    client
}

/// Its answer is made, and it has read none of it.
fn ended(rig: &Rig, answers: u64) {
    wait_until("their answers are made", || {
        let stats = rig.engine.stats();
        stats.endings().total() == answers && stats.running() == 0
    });
}

#[test]
fn slot_is_released_before_the_answer_is_read() {
    let rig = Rig::with(long(), few(StreamLimits::default()));
    let mut clients: Vec<_> = (0..PLACES).map(|_| deaf(&rig)).collect();
    ended(&rig, PLACES as u64);
    assert_eq!(rig.engine.stats().pages_used(), 0);
    assert!(
        rig.tokens.stats().reserved > 0,
        "what they have to read is kept"
    );
    let next = post(rig.addr, CHAT, &ask(false, 4));
    assert_eq!(next.head.status, 200, "{}", next.body);
    for client in &mut clients {
        assert_eq!(client.head().status, 200);
        let all = client.body();
        assert!(all.ends_with("data: [DONE]\n\n"), "all the time it wants");
    }
    rig.wait_until_empty();
}

#[test]
fn unread_answers_stay_within_the_limits_of_ended_streams() {
    let bytes = LONG * size_of::<engine::Token>();
    let rig = Rig::with(
        long(),
        few(StreamLimits {
            retention_bytes: bytes * 5 / 2,
            retention: Duration::from_secs(3600),
            ..StreamLimits::default()
        }),
    );
    let mut clients = Vec::new();
    for n in 1..=5 {
        clients.push(deaf(&rig));
        ended(&rig, n);
    }
    let segments = LONG.div_ceil(stream::SEGMENT_ITEMS);
    wait_until("those that ended first are let go", || {
        rig.tokens.stats().reserved == 2 * segments
    });
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.head().status, 200);
        let whole = read_out(client);
        assert_eq!(whole, n >= 3, "client {n}");
    }
    rig.wait_until_empty();
}

/// Whether the stream came to its end; a client that was cut finds the connection closed.
fn read_out(client: &mut Client) -> bool {
    let read = std::panic::AssertUnwindSafe(|| client.body());
    std::panic::catch_unwind(read).is_ok_and(|all| all.ends_with("data: [DONE]\n\n"))
}
