//! A server with chat completions whose model describes images, as a test says.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

/// Replies that a test gives in advance.
const REPLIES_MAX: usize = 64;

/// A reply to one request.
pub(crate) enum Reply {
    /// A description.
    Text(String),
    /// A rejection.
    Status(u16),
    /// A head, and then the connection breaks off.
    Broken,
    /// Nothing, until the client closes the connection.
    Nothing,
}

/// The server. It waits with each request for the test's next reply.
pub(crate) struct Seer {
    address: String,
    replies: SyncSender<Reply>,
    requests: Arc<Mutex<Vec<Value>>>,
    /// Connections that the client closed while there was no reply.
    closed: Arc<Mutex<usize>>,
}

impl Seer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let (replies, waiting) = sync_channel(REPLIES_MAX);
        let (requests, closed) = (Arc::default(), Arc::default());
        let seer = Self {
            address,
            replies,
            requests: Arc::clone(&requests),
            closed: Arc::clone(&closed),
        };
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let Some(request) = read_request(&socket) else {
                    continue;
                };
                requests.lock().unwrap().push(request);
                if answer(socket, &waiting).is_none() {
                    *closed.lock().unwrap() += 1;
                }
            }
        });
        seer
    }

    /// A server that gives this description once.
    pub(crate) fn saying(text: &str) -> Self {
        let seer = Self::start();
        seer.say(text);
        seer
    }

    pub(crate) fn say(&self, text: &str) {
        self.reply(Reply::Text(text.to_owned()));
    }

    pub(crate) fn reply(&self, reply: Reply) {
        self.replies.send(reply).expect("the server runs");
    }

    pub(crate) fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn closed(&self) -> usize {
        *self.closed.lock().unwrap()
    }

    /// Variables of a server that has images described here by the model `seer`.
    pub(crate) fn variables(&self) -> [(&'static str, &str); 2] {
        [
            ("MILLRACE_VISION_PROXY_MODEL", "seer"),
            ("MILLRACE_VISION_PROXY_ADDRESS", &self.address),
        ]
    }
}

fn read_request(mut socket: &TcpStream) -> Option<Value> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 1 << 16]);
    loop {
        let count = socket.read(&mut buffer).ok().filter(|&count| count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        assert!(head.starts_with("post /v1/chat/completions "), "{head}");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length?.parse().ok()?;
        if bytes.len() >= end + 4 + length {
            return serde_json::from_slice(&bytes[end + 4..]).ok();
        }
    }
}

/// `None`: the client closed the connection.
fn answer(mut socket: TcpStream, replies: &Receiver<Reply>) -> Option<()> {
    let (status, body) = match replies.recv().ok()? {
        Reply::Text(text) => {
            let message = json!({"role": "assistant", "content": text});
            let usage = json!({"prompt_tokens": 90, "completion_tokens": 8});
            let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
            (200, json!({"choices": [choice], "usage": usage}))
        }
        Reply::Status(status) => (
            status,
            json!({"error": {"message": "a secret of the server"}}),
        ),
        Reply::Broken => {
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
            return socket.write_all(head.as_bytes()).ok();
        }
        Reply::Nothing => {
            // Ready with nothing when the client has closed the connection.
            return match socket.read(&mut [0]) {
                Ok(0) | Err(_) => None,
                Ok(_) => Some(()),
            };
        }
    };
    let body = body.to_string();
    let length = body.len();
    let reply = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    // A client that is gone is the test's affair.
    let _ = socket.write_all(reply.as_bytes());
    Some(())
}
