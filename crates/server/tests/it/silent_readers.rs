//! What happens to a stream whose reader is there and takes nothing.
//!
//! Promise (Streams): a stream whose reader does not read is cancelled, detached or kept according to the policy, and
//! resumed without loss.

use crate::support::client::Client;
use crate::support::named::{CHAT, RESUMABLE, call, chat, fake, get, stream_id, with};
use crate::support::sse::{Heard, frames};
use crate::support::{Rig, wait_until};
use engine::Policy;
use serde_json::{Value, json};
use server::{ServerConfig, StreamClocks, StreamLimits};
use std::time::Duration;

/// More than all buffers of a connection hold.
const TOKENS: u64 = 1 << 11;
/// What a reader has that is meant to be found silent.
const SOON: Duration = Duration::from_millis(30);

/// A server whose readers have this long.
fn rig(policy: Policy, patience: Duration) -> Rig {
    let mut long = fake();
    long.dims.context_max = 1 << 14;
    long.dims.pages = 2 << 10;
    let limits = StreamLimits {
        detached_tokens: 16,
        detached_wait: Duration::from_secs(3600),
        retention: Duration::from_secs(3600),
        ..StreamLimits::default()
    };
    let config = ServerConfig {
        send_buffer_bytes: 4096,
        clocks: StreamClocks {
            reader: Some(patience),
            policy,
            ..StreamClocks::default()
        },
        ..with(limits)
    };
    Rig::with(long, config)
}

fn body() -> Value {
    chat(&json!({"max_tokens": TOKENS}))
}

/// A client that asked and has read the head of its answer, and the path of its stream.
fn deaf(rig: &Rig, fields: &str) -> (Client, String) {
    let mut client = Client::narrow(rig.addr, 4096);
    let body = body().to_string();
    let head = "host: localhost\r\ncontent-type: application/json";
    let length = body.len();
    client.send(
        format!("POST {CHAT} HTTP/1.1\r\n{head}\r\n{fields}content-length: {length}\r\n\r\n{body}")
            .as_bytes(),
    );
    let head = client.head();
    assert_eq!(head.status, 200);
    (client, format!("/v1/streams/{}", stream_id(&head)))
}

fn told(rig: &Rig, path: &str, field: &str) -> Value {
    get(rig, path, "").json()[field].clone()
}

/// What an unhindered client hears.
fn whole(rig: &Rig) -> Heard {
    Heard::of(&frames(&call(rig, "POST", CHAT, "", &body()).body))
}

#[test]
fn cancel_policy_ends_the_stream_with_its_reason() {
    let rig = rig(Policy::Cancel, SOON);
    let (mut client, path) = deaf(&rig, "");
    wait_until("its clock fires", || {
        rig.engine.stats().endings().timed_out == 1
    });
    let rest = client.body();
    assert!(
        rest.contains("\"error\"") && rest.contains("reader"),
        "{rest}"
    );
    assert!(!rest.contains("[DONE]"), "{rest}");
    wait_until("it is forgotten", || {
        get(&rig, &path, "").head.status == 410
    });
    rig.wait_until_empty();
}

#[test]
fn keep_policy_keeps_waiting() {
    let rig = rig(Policy::Keep, SOON);
    let (mut client, path) = deaf(&rig, "");
    let older = |age: u64| {
        wait_until("time passes", || {
            told(&rig, &path, "timings_ms")["age"].as_u64() > Some(age)
        });
    };
    older(400);
    wait_until("the system's buffers are full", || {
        told(&rig, &path, "state") == "parked"
    });
    let made = told(&rig, &path, "completion_tokens");
    // Much more than its time.
    older(900);
    assert_eq!(told(&rig, &path, "state"), "parked");
    assert_eq!(told(&rig, &path, "completion_tokens"), made);
    assert_eq!(told(&rig, &path, "resumable"), false);
    assert_eq!(told(&rig, &path, "attached"), true);
    assert_eq!(Heard::of(&frames(&client.body())), whole(&rig));
}

#[test]
fn detach_policy_keeps_the_stream_for_resumption() {
    let rig = rig(Policy::Detach, SOON);
    let (client, path) = deaf(&rig, "");
    wait_until("it is let go of", || told(&rig, &path, "resumable") == true);
    // The kernel may take another frame for it, and it is let go of again.
    wait_until("nobody reads", || told(&rig, &path, "attached") == false);
    wait_until("it made what it may make alone", || {
        let choice = told(&rig, &path, "choices")[0].clone();
        let (made, accepted) = (choice["tokens"].as_u64(), choice["accepted"].as_u64());
        made == accepted.map(|accepted| accepted + 100 + 16)
    });
    drop(client);
    let rest = get(&rig, &format!("{path}/events"), "");
    assert_eq!(Heard::of(&frames(&rest.body)), whole(&rig));
    assert_eq!(told(&rig, &path, "state"), "ended", "it is retained");
}

#[test]
fn detached_client_that_reads_again_misses_nothing() {
    let rig = rig(Policy::Detach, SOON);
    let (mut client, path) = deaf(&rig, "");
    wait_until("it is let go of", || told(&rig, &path, "resumable") == true);
    let rest = frames(&client.body());
    assert!(
        rest.iter().any(|frame| frame.id.is_some()),
        "it can be resumed"
    );
    assert_eq!(Heard::of(&rest), whole(&rig));
    assert_eq!(told(&rig, &path, "state"), "ended", "it is retained");
}

#[test]
fn stream_ends_with_its_client_before_detachment() {
    let rig = rig(Policy::Detach, Duration::from_secs(3600));
    let (client, path) = deaf(&rig, "");
    wait_until("it waits", || told(&rig, &path, "state") == "parked");
    assert_eq!(told(&rig, &path, "resumable"), false);
    drop(client);
    wait_until("it is forgotten", || {
        get(&rig, &path, "").head.status == 410
    });
    rig.wait_until_empty();
}

#[test]
fn resumable_stream_is_detached_where_others_are_cancelled() {
    let rig = rig(Policy::Cancel, SOON);
    let (client, path) = deaf(&rig, RESUMABLE);
    wait_until("it is let go of", || told(&rig, &path, "attached") == false);
    assert_eq!(rig.engine.stats().endings().timed_out, 0);
    drop(client);
    let rest = get(&rig, &format!("{path}/events"), "");
    assert_eq!(Heard::of(&frames(&rest.body)), whole(&rig));
}
