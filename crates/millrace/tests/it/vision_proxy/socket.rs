//! Images over a WebSocket: the model that sees is the small trained one with a tower, the one that answers reads text only.

use super::local::mini;
use super::{OTHER, chat, serve_with};
use crate::support::Serving;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use testing::wait::PATIENCE;

/// First bytes of a frame: the last of its message, with a text; the mask bit and the lengths behind it.
const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const MASKED: u8 = 0x80;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;
/// Bytes of the handshake's answer.
const HEAD_BYTES_MAX: usize = 4096;

/// A client of `/v1/realtime/streams`.
pub(crate) struct Socket(TcpStream);

impl Socket {
    /// Connects, and reads the greeting.
    pub(crate) fn open(serving: &Serving) -> Self {
        let address = serving.url();
        let mut socket = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
        socket.set_read_timeout(Some(2 * PATIENCE)).unwrap();
        let head = "GET /v1/realtime/streams HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        socket.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
            assert!(answer.len() < HEAD_BYTES_MAX);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101"), "{answer:?}");
        let mut socket = Self(socket);
        assert_eq!(socket.next()["type"], "welcome");
        socket
    }

    /// Sends a message in one frame, with a mask of zeros.
    fn say(&mut self, message: &Value) {
        let text = message.to_string();
        let length = text.len() as u64;
        let mut frame = vec![TEXT, MASKED | LENGTH_64];
        frame.extend(length.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.0.write_all(&frame).unwrap();
    }

    /// The next message.
    fn next(&mut self) -> Value {
        loop {
            let [kind, short] = self.bytes();
            assert_ne!(kind, CLOSE, "the server closed the connection");
            let length = match short {
                LENGTH_16 => u64::from(u16::from_be_bytes(self.bytes())),
                LENGTH_64 => u64::from_be_bytes(self.bytes()),
                short => u64::from(short),
            };
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut payload).unwrap();
            // Pings are not answered: the test is over before one is missed.
            if kind == TEXT {
                return serde_json::from_slice(&payload).unwrap();
            }
        }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The messages of a request to the end of its stream.
    pub(crate) fn ask(&mut self, body: &Value) -> Vec<Value> {
        self.say(&json!({"type": "open", "dialect": "openai.chat", "body": body}));
        let mut messages = Vec::new();
        while messages
            .last()
            .is_none_or(|last: &Value| last["type"] != "ended")
        {
            let message = self.next();
            assert_ne!(message["type"], "error", "{message}");
            messages.push(message);
        }
        messages
    }
}

/// Images of a stream: number, state, and whether the description was known.
fn images_of(messages: &[Value]) -> Vec<(u64, &str, Option<bool>)> {
    let images = messages.iter().filter(|message| message["type"] == "image");
    images
        .map(|image| {
            let index = image["index"].as_u64().unwrap();
            let state = image["state"].as_str().unwrap();
            (index, state, image["cached"].as_bool())
        })
        .collect()
}

/// The text of a stream.
pub(crate) fn text_of(messages: &[Value]) -> String {
    let tokens = messages.iter().filter(|message| message["type"] == "token");
    tokens.map(|token| token["t"].as_str().unwrap()).collect()
}

fn at(messages: &[Value], kind: &str) -> usize {
    let found = messages.iter().position(|message| message["type"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {messages:?}"))
}

/// Promise (Images): over a WebSocket, the client sees that an image is being described, then the answer; the usage of the end
/// names the model that described. The next request of the socket has the description at once.
#[test]
fn image_of_a_socket_is_described_before_the_answer() {
    let folder = mini().display().to_string();
    let serving = serve_with(
        &["millrace-mini"],
        &[
            ("MILLRACE_VISION_PROXY_MODEL", "millrace-mini-vision"),
            ("MILLRACE_VISION_PROXY_MAX_TOKENS", "24"),
            ("MILLRACE_MODELS_DIRECTORIES", &folder),
        ],
    );
    let mut socket = Socket::open(&serving);
    let request = chat(&[OTHER], &json!({}));
    let first = socket.ask(&request);
    let images = images_of(&first);
    assert_eq!(images.last(), Some(&(0, "described", Some(false))));
    assert!(images.contains(&(0, "describing", None)), "{images:?}");
    let (image, token) = (at(&first, "image"), at(&first, "token"));
    assert!(at(&first, "opened") < image && image < token, "{first:?}");
    let ended = &first[first.len() - 1];
    let usage = &ended["usage"]["vision_proxy"];
    assert_eq!(
        (&ended["reason"], &usage["model"], &usage["cached"]),
        (
            &json!("MAX_TOKENS"),
            &json!("millrace-mini-vision"),
            &json!(0)
        )
    );
    assert!(usage["completion_tokens"].as_u64().unwrap() > 0, "{usage}");
    let again = socket.ask(&request);
    assert_eq!(images_of(&again), [(0, "described", Some(true))]);
    let usage = &again[again.len() - 1]["usage"]["vision_proxy"];
    assert_eq!(usage["cached"], 1);
    assert_eq!(text_of(&again), text_of(&first));
    // Over the socket a failure is the end of the stream, and names the model.
    let broken = chat(&[&OTHER[..OTHER.len() / 2]], &json!({}));
    let failed = socket.ask(&broken);
    let ended = &failed[failed.len() - 1];
    assert_eq!(
        (at(&failed, "ended"), &ended["reason"]),
        (failed.len() - 1, &json!("ERROR"))
    );
}
