//! A scripted HTTP server.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses its part"
)]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A received request.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub path: String,
    pub authorization: Option<String>,
    pub body: Value,
}

/// A listener with a thread per connection; all threads end with the test process.
pub struct ScriptedServer {
    address: SocketAddr,
    request: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl ScriptedServer {
    /// Answers each POST with the bytes that `script` returns, then closes the connection.
    pub fn start(script: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let request = Arc::new(Mutex::new(Vec::new()));
        let (script, log) = (Arc::new(script), Arc::clone(&request));
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                std::thread::spawn(move || serve(socket.unwrap(), &*script, &log));
            }
        });
        Self { address, request }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All POST requests so far.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.request.lock().unwrap().clone()
    }
}

fn serve(
    socket: TcpStream,
    script: &dyn Fn(&ReceivedRequest) -> Vec<u8>,
    log: &Mutex<Vec<ReceivedRequest>>,
) {
    let mut reader = BufReader::new(socket);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let field = |name: &str| {
        let values = lines.iter().filter_map(|line| line.split_once(": "));
        values
            .into_iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.to_owned())
    };
    let length = field("content-length")
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let answer = if lines[0].starts_with("GET /v1/models ") {
        let list = json!({"data": [{"id": "scripted"}]}).to_string();
        head(
            200,
            &format!("content-length: {}\r\n", list.len()),
            list.as_bytes(),
        )
    } else {
        let request = ReceivedRequest {
            path: lines[0].split(' ').nth(1).unwrap().to_owned(),
            authorization: field("authorization"),
            body: serde_json::from_slice(&body).unwrap(),
        };
        log.lock().unwrap().push(request.clone());
        script(&request)
    };
    let mut socket = reader.into_inner();
    // The client may have disconnected.
    let _ = socket.write_all(&answer);
    let _ = socket.shutdown(Shutdown::Both);
}

fn head(status: u16, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{fields}\r\n");
    [head.as_bytes(), body].concat()
}

/// A frame of a streamed chat response.
pub fn chat(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}}]})
}

/// A frame with token counts.
pub fn usage(prompt: usize, completion: usize) -> Value {
    json!({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})
}

/// A response with these bytes as the body, delimited by the close of the connection.
pub fn raw(body: &[u8]) -> Vec<u8> {
    head(200, "content-type: text/event-stream\r\n", body)
}

/// A stream without its last frame.
pub fn cut(frames: &[Value]) -> Vec<u8> {
    raw(frames
        .iter()
        .map(|frame| format!("data: {frame}\n\n"))
        .collect::<String>()
        .as_bytes())
}

/// A complete stream.
pub fn stream(frames: &[Value]) -> Vec<u8> {
    [cut(frames), b"data: [DONE]\n\n".to_vec()].concat()
}

/// A non-streaming chat response.
pub fn collected_response(message: &Value) -> Vec<u8> {
    json_of(&json!({"choices": [{"index": 0, "message": message}]}))
}

/// A non-streaming chat response with a count of prompt tokens.
pub fn counted(message: &Value, prompt: usize) -> Vec<u8> {
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": 1});
    json_of(&json!({"choices": [{"index": 0, "message": message}], "usage": usage}))
}

fn json_of(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = format!("content-length: {}\r\n", body.len());
    head(200, &length, body.as_bytes())
}

/// An error response instead of a stream.
pub fn error_response(status: u16) -> Vec<u8> {
    head(status, "content-length: 2\r\n", b"{}")
}
