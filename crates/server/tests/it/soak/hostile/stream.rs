//! Hostile readers of a stream: gone at every stage, with cursors that are none, at streams that are not theirs.

use super::wire::Wire;
use crate::soak::deeds::{Actor, Outcome, field};
use crate::support::Rig;
use crate::support::named::{self, stream_id};
use serde_json::{Value, json};
use std::time::Duration;

pub(super) fn reset_after_request(actor: &mut Actor, rig: &Rig) -> Outcome {
    let wire = asked(actor, Wire::connect(rig));
    actor.rest(Duration::from_millis(1));
    wire.reset();
    Outcome::Done
}

pub(super) fn reset_after_head(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut wire = asked(actor, Wire::connect(rig));
    wire.receive(12).expect_no_failure("a head");
    wire.reset();
    Outcome::Done
}

pub(super) fn reset_in_stream(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut wire = asked(actor, Wire::connect(rig));
    let most = actor.below(1500);
    wire.receive(most).expect_no_failure("a stream");
    wire.reset();
    Outcome::Done
}

pub(super) fn close_in_stream(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut wire = asked(actor, Wire::connect(rig));
    let most = actor.below(1500);
    wire.receive(most).expect_no_failure("a stream");
    Outcome::Done
}

/// Reads nothing until it goes.
pub(super) fn reset_unread(actor: &mut Actor, rig: &Rig) -> Outcome {
    let wire = asked(actor, Wire::connect_narrow(rig));
    actor.rest(Duration::from_millis(20));
    wire.reset();
    Outcome::Done
}

/// Goes on from a place that never was.
pub(super) fn bad_cursor(actor: &mut Actor, rig: &Rig) -> Outcome {
    const CURSORS: [&str; 8] = [
        "x",
        "-1",
        "1:2:3:4:5:6:7:8:9",
        "99999999999999999999999999",
        "\u{fe}\u{ff}",
        "0.0.0.0.0",
        "'; DROP TABLE streams; --",
        "1e400",
    ];
    let (path, client) = match named_stream(actor, rig) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    let cursor = CURSORS[actor.below(CURSORS.len())];
    let fields = format!("{}last-event-id: {cursor}\r\n", actor.field());
    let reply = named::get(rig, &format!("{path}/events"), &fields);
    let status = reply.head.status;
    assert!((400..500).contains(&status), "{cursor}: {}", reply.body);
    drop(client);
    named::call(rig, "DELETE", &path, &actor.field(), &Value::Null);
    Outcome::Done
}

/// A stream of one key is nothing to another, whatever is asked of it.
pub(super) fn foreign_control(actor: &mut Actor, rig: &Rig) -> Outcome {
    const VERBS: [(&str, &str); 6] = [
        ("GET", ""),
        ("GET", "/events"),
        ("POST", "/ack"),
        ("POST", "/control"),
        ("POST", "/pause"),
        ("DELETE", ""),
    ];
    let (path, client) = match named_stream(actor, rig) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    let foreign = field(actor.foreign_key());
    let (method, verb) = VERBS[actor.below(VERBS.len())];
    let body = json!({"index": 1, "temperature": 1});
    let reply = named::call(rig, method, &format!("{path}{verb}"), &foreign, &body);
    assert_eq!(reply.head.status, 404, "{method} {verb}: {}", reply.body);
    drop(client);
    named::call(rig, "DELETE", &path, &actor.field(), &Value::Null);
    Outcome::Done
}

/// Cancelled from many connections that do not wait for the answer.
pub(super) fn cancel_storm(actor: &mut Actor, rig: &Rig) -> Outcome {
    let (path, client) = match named_stream(actor, rig) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    for _ in 0..4 {
        let mut wire = Wire::connect(rig);
        wire.send(
            format!(
                "DELETE {path} HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
                actor.field()
            )
            .as_bytes(),
        );
        wire.reset();
    }
    named::call(rig, "DELETE", &path, &actor.field(), &Value::Null);
    drop(client);
    Outcome::Done
}

/// A connection on which a stream was asked for.
fn asked(actor: &mut Actor, mut wire: Wire) -> Wire {
    wire.send(&actor.question(&json!({})).bytes());
    wire
}

/// The path of a resumable stream, and its client.
fn named_stream(
    actor: &mut Actor,
    rig: &Rig,
) -> Result<(String, crate::support::client::Client), Outcome> {
    let mut question = actor.question(&json!({}));
    question.fields += named::RESUMABLE;
    let (client, head) = question.ask(rig)?;
    Ok((format!("/v1/streams/{}", stream_id(&head)), client))
}
