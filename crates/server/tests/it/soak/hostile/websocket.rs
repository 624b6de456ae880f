//! Hostile WebSocket clients.

use super::wire::Wire;
use crate::soak::deeds::{Actor, Outcome};
use crate::support::Rig;
use serde_json::json;
use std::time::Duration;

/// Gone right after the handshake.
pub(super) fn vanish(actor: &mut Actor, rig: &Rig) -> Outcome {
    let wire = upgraded(actor, rig);
    if actor.below(2) == 0 {
        wire.reset();
    }
    Outcome::Done
}

/// Bytes that are no frames.
pub(super) fn random_bytes(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut wire = upgraded(actor, rig);
    let bytes: Vec<u8> = (0..1 + actor.below(600))
        .map(|_| actor.below(256) as u8)
        .collect();
    wire.send(&bytes);
    wire.half_close();
    wire.receive_all();
    Outcome::Done
}

/// Frames whose messages are none, then the end without a close frame.
pub(super) fn bad_messages(actor: &mut Actor, rig: &Rig) -> Outcome {
    const MESSAGES: [&str; 8] = [
        "",
        "[]",
        "{",
        "{\"type\": 7}",
        "{\"type\": \"no_such_type\"}",
        "{\"type\": \"open\"}",
        "{\"type\": \"ack\", \"stream\": \"none\", \"index\": -1}",
        "{\"type\": \"open\", \"dialect\": \"openai.chat\", \"body\": []}",
    ];
    let mut wire = upgraded(actor, rig);
    for _ in 0..1 + actor.below(6) {
        let message = MESSAGES[actor.below(MESSAGES.len())];
        wire.send(&frame(message));
    }
    wire.half_close();
    wire.receive_all();
    Outcome::Done
}

/// Streams are open, and one frame is cut, when the connection is reset.
pub(super) fn reset_with_streams(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut wire = upgraded(actor, rig);
    for _ in 0..1 + actor.below(3) {
        let question = actor.question(&json!({}));
        let open = json!({"type": "open", "dialect": question.dialect.name, "body": question.body});
        wire.send(&frame(&open.to_string()));
    }
    actor.rest(Duration::from_millis(2));
    let last = frame("{\"type\": \"ping\"}");
    wire.send(&last[..actor.below(last.len())]);
    wire.reset();
    Outcome::Done
}

/// A connection after its handshake, or after the refusal of one.
fn upgraded(actor: &Actor, rig: &Rig) -> Wire {
    let mut wire = Wire::connect(rig);
    let fields = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                  sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
    wire.send(
        format!(
            "GET /v1/realtime/streams HTTP/1.1\r\nhost: localhost\r\n{}{fields}\r\n\r\n",
            actor.field()
        )
        .as_bytes(),
    );
    wire.receive(12).expect_no_failure("a handshake");
    wire
}

/// One masked text frame (RFC 6455, section 5.2), its mask zero.
fn frame(text: &str) -> Vec<u8> {
    let length = text.len();
    let mut frame = vec![0x81];
    match u8::try_from(length) {
        Ok(short @ ..=125) => frame.push(0x80 | short),
        _ => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}
