//! Messages through the gate, as the WebSocket library gives them.

use super::*;
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

const PLAIN_MAX: usize = 1000;
const LONG_MAX: usize = 200_000;
const BODIES_MAX: u64 = 250_000;

const TEXT: u8 = 1;
const PING: u8 = 9;
const MASK: [u8; 4] = [1, 2, 3, 4];

fn text(length: usize) -> String {
    let letters = (0..length).map(|at| char::from(b'a' + (at % 23) as u8));
    letters.collect()
}

/// The head of a frame, in the longest form of its length.
fn head(first: u8, length: u64) -> Vec<u8> {
    let mut head = vec![first, MASKED | LENGTH_64];
    head.extend(length.to_be_bytes());
    head.extend(MASK);
    head
}

fn frame(first: u8, payload: &str) -> Vec<u8> {
    let mut frame = head(first, payload.len() as u64);
    let masked = payload.bytes().zip(MASK.into_iter().cycle());
    frame.extend(masked.map(|(byte, mask)| byte ^ mask));
    frame
}

fn whole(length: usize) -> Vec<u8> {
    frame(FINAL | TEXT, &text(length))
}

/// Messages that come of these bytes of a client, each with what the gate says of it, up to an error of the library.
/// Shares are kept to the end.
fn received(bytes: &[u8]) -> Vec<(Message, String)> {
    let limits = GateLimits {
        plain_max: PLAIN_MAX,
        long_max: LONG_MAX,
        bodies: Arc::new(ByteBudget::default()),
        bodies_max: BODIES_MAX,
        retry_after: Duration::from_secs(1),
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .max_message_size(Some(LONG_MAX))
        .max_frame_size(Some(LONG_MAX));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let (mut client, server) = tokio::io::duplex(bytes.len().max(1));
        client.write_all(bytes).await.expect("room for all");
        client.shutdown().await.expect("the end");
        let gate = MessageGate::new(server, limits);
        let mut socket = WebSocketStream::from_raw_socket(gate, Role::Server, Some(config)).await;
        let (mut all, mut kept) = (Vec::new(), Vec::new());
        while let Some(Ok(message)) = socket.next().await {
            let said = match &message {
                Message::Text(_) => match socket.get_mut().take_arrival() {
                    None => "plain".to_owned(),
                    Some(Err(error)) => error.code.to_owned(),
                    Some(Ok(share)) => {
                        kept.push(share);
                        "long".to_owned()
                    }
                },
                _ => "control".to_owned(),
            };
            all.push((message, said));
        }
        assert!(socket.get_ref().frames.long.is_empty());
        all
    })
}

#[test]
fn messages_arrive_whole_up_to_the_longest() {
    for length in [0, 1, PLAIN_MAX, PLAIN_MAX + 1, 100_000, LONG_MAX] {
        let bytes = [whole(length), whole(5)].concat();
        let said = if length > PLAIN_MAX { "long" } else { "plain" };
        let want = [
            (Message::text(text(length)), said.to_owned()),
            (Message::text(text(5)), "plain".to_owned()),
        ];
        assert!(received(&bytes) == want, "{length}");
    }
}

#[test]
fn frames_of_a_message_count_together() {
    let all = text(70_000);
    let bytes = [
        frame(TEXT, &all[..600]),
        frame(FINAL | PING, "p"),
        frame(0, &all[600..1300]),
        frame(FINAL, &all[1300..]),
        whole(5),
    ];
    let said = received(&bytes.concat());
    let want = [
        (Message::Ping("p".into()), "control".to_owned()),
        (Message::text(all), "long".to_owned()),
        (Message::text(text(5)), "plain".to_owned()),
    ];
    assert!(said == want);
}

/// Each row: frames of which the first message is dropped, and the code of its error.
#[test]
fn message_that_is_dropped_leaves_the_next_ones() {
    let rows = [
        (whole(LONG_MAX + 1), "message_too_large"),
        (
            [
                frame(TEXT, &text(150_000)),
                frame(0, &text(60_000)),
                frame(FINAL | PING, "p"),
                frame(0, &text(60_000)),
                frame(FINAL, ""),
            ]
            .concat(),
            "message_too_large",
        ),
    ];
    for (dropped, code) in rows {
        let mut said = received(&[dropped, whole(7), whole(2000)].concat());
        said.retain(|(_, said)| said != "control");
        let codes: Vec<&str> = said.iter().map(|(_, said)| &**said).collect();
        assert_eq!(codes, [code, "plain", "long"]);
        assert_eq!(said[1].0, Message::text(text(7)));
    }
}

#[test]
fn long_messages_share_their_bytes() {
    let said = received(&[whole(150_000), whole(150_000), whole(90_000)].concat());
    let codes: Vec<&str> = said.iter().map(|(_, said)| &**said).collect();
    assert_eq!(codes, ["long", "media_full", "long"]);
    assert_eq!(said[1].0, Message::text(""));
}

#[test]
fn endless_message_ends_the_socket() {
    for length in [DROPPED_BYTES_MAX + 1, 1 << 40, u64::MAX] {
        let bytes = [head(FINAL | TEXT, length), vec![0; 10_000]].concat();
        assert_eq!(received(&bytes), []);
    }
}
