//! Streams whose client has to say what it has, and does not.
//!
//! Promise (Streams): a client that never acknowledges: a plain stream is ended by the reader timeout, a resumable
//! one is detached and retained.

use crate::support::Rig;
use crate::support::client::Client;
use crate::support::named::{CHAT, RESUMABLE, chat, fake, get, kept, send, stream_id};
use serde_json::json;
use server::ServerConfig;
use std::time::Duration;

const WINDOW: usize = 4;
const EXTRA: usize = 3;

/// A server that waits for nobody's word, and the path of a stream whose client has to give it.
fn unacknowledged(resumable: &str) -> (Rig, Client, String) {
    let mut config = ServerConfig {
        credit_window: WINDOW as u64,
        ..kept()
    };
    config.clocks.reader = Some(Duration::from_millis(20));
    config.streams.detached_tokens = EXTRA as u64;
    config.streams.detached_wait = Duration::from_millis(50);
    let rig = Rig::with(fake(), config);
    let fields = format!("{resumable}x-stream-acks: explicit\r\n");
    let body = chat(&json!({"max_tokens": 100}));
    let mut client = send(&rig, "POST", CHAT, &fields, &body);
    let path = format!("/v1/streams/{}", stream_id(&client.head()));
    (rig, client, path)
}

fn ends_badly(told: &str, code: &str) {
    assert!(told.contains(&format!("\"code\":\"{code}\"")), "{told}");
    assert!(!told.contains("[DONE]"), "{told}");
}

#[test]
fn plain_stream_ends_at_the_reader_timeout() {
    let (rig, mut client, _) = unacknowledged("");
    let told = client.body();
    assert!(told.contains("(reader)"), "{told}");
    ends_badly(&told, "timeout");
    rig.wait_until_empty();
}

/// It is let go of: it gets what a stream without a client gets, and no more, and waits for so long.
#[test]
fn resumable_stream_is_detached_and_ends_without_a_reader() {
    for client_stays in [true, false] {
        let (rig, mut client, path) = unacknowledged(RESUMABLE);
        let told = if client_stays {
            client.body()
        } else {
            drop(client);
            get(&rig, &format!("{path}/events"), "").body
        };
        ends_badly(&told, "cancelled");
        let made = get(&rig, &path, "").json()["completion_tokens"].as_u64();
        assert_eq!(made, Some((WINDOW + EXTRA) as u64));
    }
}
