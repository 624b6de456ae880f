//! Hostile requests: cut, slow, malformed, too many.

use super::wire::Wire;
use crate::soak::deeds::{Actor, Outcome};
use crate::support::Rig;
use serde_json::json;
use std::time::Duration;

/// Connections of one storm.
const STORM: usize = 16;
/// Between two bytes of a slow client: the server's patience for a head or a body is half a second.
const DRIP: Duration = Duration::from_millis(20);

pub(super) fn connect_only(_: &mut Actor, rig: &Rig) -> Outcome {
    drop(Wire::connect(rig));
    Outcome::Done
}

pub(super) fn cut_head(actor: &mut Actor, rig: &Rig) -> Outcome {
    let (head, _) = request(actor);
    let length = actor.below(head.len());
    Wire::connect(rig).send(&head[..length]);
    Outcome::Done
}

pub(super) fn cut_body(actor: &mut Actor, rig: &Rig) -> Outcome {
    let (head, body) = request(actor);
    let mut wire = Wire::connect(rig);
    wire.send(&head);
    wire.send(&body[..actor.below(body.len())]);
    Outcome::Done
}

/// A client that sends no more is answered, or closed; it is not left waiting.
pub(super) fn half_close(actor: &mut Actor, rig: &Rig) -> Outcome {
    let (head, body) = request(actor);
    let mut wire = Wire::connect(rig);
    wire.send(&[head, body].concat());
    wire.half_close();
    wire.receive_all().expect_no_failure("half-close");
    Outcome::Done
}

pub(super) fn slow_head(actor: &mut Actor, rig: &Rig) -> Outcome {
    let (head, _) = request(actor);
    let mut wire = Wire::connect(rig);
    wire.drip(&head, DRIP);
    let status = wire.receive_all().status();
    assert!(matches!(status, None | Some(408)), "{status:?}");
    Outcome::Done
}

pub(super) fn slow_body(actor: &mut Actor, rig: &Rig) -> Outcome {
    let (head, body) = request(actor);
    let mut wire = Wire::connect(rig);
    wire.send(&head);
    wire.drip(&body, DRIP);
    wire.half_close();
    wire.receive_all().expect_no_failure("slow body");
    Outcome::Done
}

/// Many connections at once; half of them ask for something; all are reset.
pub(super) fn storm(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut wires: Vec<_> = (0..STORM).map(|_| Wire::connect(rig)).collect();
    for wire in wires.iter_mut().step_by(2) {
        let (head, body) = request(actor);
        wire.send(&[head, body].concat());
    }
    wires.into_iter().for_each(Wire::reset);
    Outcome::Done
}

/// Several requests in one write; the client reads a part of the answers.
pub(super) fn pipeline(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut wire = Wire::connect(rig);
    let requests: Vec<u8> = (0..3)
        .flat_map(|_| {
            let (head, body) = request(actor);
            [head, body].concat()
        })
        .collect();
    wire.send(&requests);
    let most = actor.below(2000);
    wire.receive(most).expect_no_failure("pipelined");
    Outcome::Done
}

pub(super) fn random_bytes(actor: &mut Actor, rig: &Rig) -> Outcome {
    let length = 1 + actor.below(4000);
    let bytes = bytes(actor, length);
    let mut wire = Wire::connect(rig);
    wire.send(&bytes);
    wire.half_close();
    let status = wire.receive_all().status();
    assert!(matches!(status, None | Some(400..=499)), "{status:?}");
    Outcome::Done
}

/// A body with some bytes replaced: refused, or another request.
pub(super) fn mutated_body(actor: &mut Actor, rig: &Rig) -> Outcome {
    let (head, mut body) = request(actor);
    for _ in 0..1 + actor.below(6) {
        let at = actor.below(body.len());
        body[at] = actor.below(256) as u8;
    }
    let mut wire = Wire::connect(rig);
    wire.send(&[closing(&head), body].concat());
    wire.receive_all().expect_no_failure("mutated body");
    Outcome::Done
}

pub(super) fn absurd_length(actor: &mut Actor, rig: &Rig) -> Outcome {
    let path = actor.dialect().path;
    let length = [
        "99999999999",
        "18446744073709551615",
        "99999999999999999999999",
    ];
    let length = length[actor.below(length.len())];
    let mut wire = Wire::connect(rig);
    let kind = "content-type: application/json\r\nconnection: close";
    wire.send(
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{}{kind}\r\ncontent-length: {length}\r\n\r\n", actor.field())
            .as_bytes(),
    );
    wire.half_close();
    let status = wire.receive_all().status();
    assert!(matches!(status, None | Some(400..=499)), "{status:?}");
    Outcome::Done
}

/// A chunked body whose chunks are wrong.
pub(super) fn broken_chunks(actor: &mut Actor, rig: &Rig) -> Outcome {
    const CHUNKS: [&str; 6] = [
        "zz\r\n{}\r\n0\r\n\r\n",
        "5\r\n{}\r\n0\r\n\r\n",
        "-1\r\n{}\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}0\r\n\r\n",
        "2\r\n{}\r\n",
    ];
    let path = actor.dialect().path;
    let kind = "content-type: application/json\r\nconnection: close";
    let chunks = CHUNKS[actor.below(CHUNKS.len())];
    let mut wire = Wire::connect(rig);
    wire.send(
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{}{kind}\r\ntransfer-encoding: chunked\r\n\r\n{chunks}", actor.field())
            .as_bytes(),
    );
    wire.half_close();
    let status = wire.receive_all().status();
    assert!(matches!(status, None | Some(400..=499)), "{status:?}");
    Outcome::Done
}

/// Methods and paths that are not there.
pub(super) fn wrong_route(actor: &mut Actor, rig: &Rig) -> Outcome {
    const LINES: [&str; 8] = [
        "BREW /v1/chat/completions",
        "TRACE /",
        "PUT /v1/models",
        "GET /v1/streams/%00%ff",
        "GET /v1/streams/../../etc/passwd",
        "GET //",
        "DELETE /v1/jobs/0",
        "POST /v1/streams/none/ack",
    ];
    let line = LINES[actor.below(LINES.len())];
    let mut wire = Wire::connect(rig);
    wire.send(
        format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\n{}connection: close\r\n\r\n",
            actor.field()
        )
        .as_bytes(),
    );
    wire.receive_all().expect_no_failure(line);
    Outcome::Done
}

/// Head and body of a request in any dialect, streamed or not.
fn request(actor: &mut Actor) -> (Vec<u8>, Vec<u8>) {
    let stream = actor.below(2) == 0;
    let bytes = actor.question(&json!({ "stream": stream })).bytes();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = bytes.split_at(end.expect("a head") + 4);
    (head.to_vec(), body.to_vec())
}

/// The head of a request after which the connection is closed.
fn closing(head: &[u8]) -> Vec<u8> {
    let head = head.strip_suffix(b"\r\n").expect("an empty line");
    [head, b"connection: close\r\n\r\n"].concat()
}

fn bytes(actor: &mut Actor, length: usize) -> Vec<u8> {
    (0..length).map(|_| actor.below(256) as u8).collect()
}
