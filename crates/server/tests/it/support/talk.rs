//! A WebSocket client that keeps every message.

use super::named::set_fields;
use super::{PATIENCE, Rig};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// Deadline of an expected message.
fn patience() -> Instant {
    Instant::now() + PATIENCE
}

/// A connection, with the messages that were received and not yet taken.
pub(crate) struct Talk {
    runtime: Runtime,
    socket: WebSocketStream<TcpStream>,
    heard: VecDeque<Value>,
}

impl Talk {
    /// Connects, and reads the welcome.
    pub(crate) fn with(rig: &Rig) -> Self {
        let mut talk = Self::try_with(rig.addr, &[]).expect("101");
        assert_eq!(talk.next()["type"], "welcome");
        talk
    }

    /// Connects with these header fields; the error is the status of the response.
    pub(crate) fn try_with(addr: SocketAddr, fields: &[(&'static str, &str)]) -> Result<Self, u16> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let url = format!("ws://localhost:{}/v1/realtime/streams", addr.port());
        let mut request = url.into_client_request().unwrap();
        for (name, value) in fields {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let connected = runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            // The kernel buffers little for a client that does not read.
            socket.set_recv_buffer_size(4096).unwrap();
            client_async(request, socket.connect(addr).await.unwrap()).await
        });
        match connected {
            Ok((socket, _)) => Ok(Self {
                runtime,
                socket,
                heard: VecDeque::new(),
            }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.send(Message::text(message.to_string()));
    }

    pub(crate) fn send(&mut self, message: Message) {
        self.runtime.block_on(self.socket.send(message)).unwrap();
    }

    /// Sends a message; false if the server has closed the connection.
    pub(crate) fn try_send(&mut self, message: Message) -> bool {
        self.runtime.block_on(self.socket.send(message)).is_ok()
    }

    fn receive(&mut self, until: Instant) -> Option<Message> {
        let next = self.socket.next();
        let came = self
            .runtime
            .block_on(async { timeout_at(until, next).await });
        let came = came.unwrap_or_else(|_| panic!("nothing came; before: {:#?}", self.heard));
        came.map(Result::unwrap)
    }

    /// Reads the next JSON message before the deadline, which pings do not extend.
    fn hear(&mut self, until: Instant) -> Value {
        loop {
            match self.receive(until).expect("it is open") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Takes the next message of any type.
    pub(crate) fn next(&mut self) -> Value {
        match self.heard.pop_front() {
            Some(message) => message,
            None => self.hear(patience()),
        }
    }

    /// Takes the next message that satisfies `is`; others are kept.
    pub(crate) fn wait(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.heard.iter().position(&is) {
            return self.heard.remove(at).expect("it is there");
        }
        let until = patience();
        while Instant::now() < until {
            let message = self.hear(until);
            if is(&message) {
                return message;
            }
            self.heard.push_back(message);
        }
        panic!("waited in vain: {what}; heard meanwhile: {:#?}", self.heard)
    }

    /// Takes the next message of a stream with this type.
    pub(crate) fn of(&mut self, stream: &str, kind: &str) -> Value {
        let is = |m: &Value| m["stream"] == stream && m["type"] == kind;
        self.wait(&format!("{kind} of {stream}"), is)
    }

    /// Takes the reply to a request.
    pub(crate) fn answer(&mut self, request: &str) -> Value {
        self.wait(request, |m| m["request"] == request)
    }

    /// Opens a stream, and returns the stream id.
    pub(crate) fn open(&mut self, request: &str, over: &Value, body: &Value) -> String {
        let mut message = json!({"type": "open", "request": request, "body": body});
        set_fields(&mut message, over);
        self.say(&message);
        let told = self.answer(request);
        assert_eq!(told["type"], "opened", "{told}");
        told["stream"].as_str().unwrap().to_owned()
    }

    /// Takes all messages of a stream up to the end.
    pub(crate) fn whole(&mut self, stream: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let message = self.wait("the ending", |m| m["stream"] == stream);
            let is_over = message["type"] == "ended";
            all.push(message);
            if is_over {
                return all;
            }
        }
    }

    /// Closes the connection, and returns the messages that arrived before the close.
    pub(crate) fn left_over(mut self) -> Vec<Value> {
        let mut said: Vec<Value> = self.heard.drain(..).collect();
        // The server may have closed first.
        let _ = self.runtime.block_on(self.socket.close(None));
        let until = patience();
        loop {
            let next = self.socket.next();
            let came = self
                .runtime
                .block_on(async { timeout_at(until, next).await });
            match came.expect("it closes") {
                Some(Ok(Message::Text(text))) => {
                    said.push(serde_json::from_str(&text).expect("JSON"));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return said,
            }
        }
    }

    /// Waits until the server closes, and returns the close code.
    pub(crate) fn closed(&mut self) -> u16 {
        let until = patience();
        loop {
            match self.receive(until) {
                Some(Message::Close(Some(close))) => return close.code.into(),
                Some(_) => {}
                None => panic!("closed without a word"),
            }
        }
    }

    /// Whether no kept message is about this stream.
    pub(crate) fn is_silent(&self, stream: &str) -> bool {
        self.heard.iter().all(|m| m["stream"] != stream)
    }
}

/// The text of a stream; checks that token indices have no gap and that there is one end.
pub(crate) fn text(messages: &[Value], from: u64) -> String {
    let mut next = from;
    let mut text = String::new();
    for token in messages.iter().filter(|m| m["type"] == "token") {
        assert_eq!(token["i"], next, "tokens are counted without a gap");
        next += token.get("n").map_or(1, |n| n.as_u64().unwrap());
        text += token["t"].as_str().unwrap();
    }
    let endings = messages.iter().filter(|m| m["type"] == "ended").count();
    assert_eq!(endings, 1, "one ending");
    text
}
