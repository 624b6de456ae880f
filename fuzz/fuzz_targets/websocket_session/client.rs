//! A client that sends a script and checks what comes back.

use crate::script::{Line, frame, lines};
use crate::stream_states::StreamStates;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

const HANDSHAKE: &[u8] = b"GET /v1/realtime/streams HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n\
    connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// The close code of a bug in the server (RFC 6455, section 7.4.1).
const INTERNAL_ERROR: u16 = 1011;
/// How long a script waits for a message of a stream.
const WAIT: Duration = Duration::from_millis(5);
/// How long the server may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Begins the `request` of this client's own commands.
const OWN_REQUEST: &str = "own-";

/// The client's side of one session.
pub struct Client {
    socket: WebSocketStream<DuplexStream>,
    streams: StreamStates,
    /// Own commands so far.
    own: usize,
    is_open: bool,
    /// A message is sent in fragments, or bytes in place of frames.
    in_fragments: bool,
    /// The server may return the close code of this client.
    sent_close: bool,
}

impl Client {
    /// Sends the handshake, and reads the welcome.
    pub async fn connect(mut io: DuplexStream) -> Self {
        io.write_all(HANDSHAKE)
            .await
            .expect("the handshake is read");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(io.read_u8().await.expect("a response"));
        }
        assert!(
            head.starts_with(b"HTTP/1.1 101 "),
            "{}",
            head.escape_ascii()
        );
        let mut client = Self {
            socket: WebSocketStream::from_raw_socket(io, Role::Client, None).await,
            streams: StreamStates::default(),
            own: 0,
            is_open: true,
            in_fragments: false,
            sent_close: false,
        };
        let welcome = client.read().await.expect("a welcome");
        assert_eq!(welcome["type"], "welcome");
        client
    }

    /// Sends a script, ends all streams, and leaves.
    pub async fn run(&mut self, script: &[u8]) {
        for line in lines(script) {
            self.send_line(line).await;
            if !self.is_open {
                return;
            }
        }
        if !self.in_fragments {
            self.cancel_streams().await;
        }
        let _ = self.socket.get_mut().shutdown().await;
        while self.is_open {
            self.read().await;
        }
    }

    async fn send_line(&mut self, line: Line<'_>) {
        match line {
            Line::Command(text) => {
                let text = self.streams.replace_names(text);
                self.send(0x81, &text).await;
                self.synchronize().await;
            }
            Line::Frame(first, payload) => {
                self.sent_close |= first == 0x88;
                // Control frames leave a message in fragments as it is.
                self.in_fragments = match first & 0x0f {
                    0x00..=0x02 => first & 0x80 == 0,
                    _ => self.in_fragments,
                };
                let payload = self.streams.replace_names(payload);
                self.send(first, &payload).await;
                self.synchronize().await;
            }
            Line::Wait => {
                let _ = timeout(WAIT, self.read()).await;
            }
            Line::Raw(bytes) => {
                // What the bytes say is not known.
                (self.in_fragments, self.sent_close) = (true, true);
                self.streams.expect_nothing();
                let _ = self.socket.get_mut().write_all(bytes).await;
            }
        }
    }

    async fn send(&mut self, first: u8, payload: &[u8]) {
        self.streams.observe_sent(payload);
        let frame = frame(first, payload);
        // The server may have left.
        let _ = self.socket.get_mut().write_all(&frame).await;
    }

    /// Reads until the server has done everything that was sent.
    async fn synchronize(&mut self) {
        if self.in_fragments {
            return;
        }
        self.own += 1;
        let request = format!("{OWN_REQUEST}{}", self.own);
        let command = json!({"type": "detach", "stream": "-", "request": request});
        self.send_own(&command).await;
        while let Some(message) = self.read_in_time().await {
            if message["request"] == request.as_str() {
                return;
            }
        }
    }

    /// Cancels all streams; each has exactly one end.
    async fn cancel_streams(&mut self) {
        for id in self.streams.unfinished() {
            self.send_own(&json!({"type": "cancel", "stream": id}))
                .await;
        }
        self.synchronize().await;
        while self.is_open && self.streams.expects_an_end() {
            self.read_in_time().await;
        }
        // Nothing follows an end.
        self.synchronize().await;
    }

    async fn send_own(&mut self, command: &Value) {
        let frame = frame(0x81, command.to_string().as_bytes());
        let _ = self.socket.get_mut().write_all(&frame).await;
    }

    async fn read_in_time(&mut self) -> Option<Value> {
        let read = timeout(ANSWER_TIMEOUT, self.read()).await;
        read.expect("the server answers, and a cancelled stream ends")
    }

    /// The next message; `None` once the connection is closed.
    async fn read(&mut self) -> Option<Value> {
        while self.is_open {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    let message = serde_json::from_str(&text).expect("messages are JSON");
                    self.streams.observe(&message);
                    return Some(message);
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(close))) => {
                    let code = close.map_or(0, |close| close.code.into());
                    assert!(
                        code != INTERNAL_ERROR || self.sent_close,
                        "closed with {code}"
                    );
                    self.is_open = false;
                }
                Some(Ok(other)) => panic!("the server sends text only: {other:?}"),
                Some(Err(error)) => {
                    assert!(is_cut(&error), "an invalid frame: {error:?}");
                    self.is_open = false;
                }
                None => self.is_open = false,
            }
        }
        None
    }
}

/// Whether a connection ended between frames or within one, as opposed to an invalid frame.
fn is_cut(error: &Error) -> bool {
    use tokio_tungstenite::tungstenite::error::ProtocolError;
    matches!(
        error,
        Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Io(_)
            | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)
    )
}
