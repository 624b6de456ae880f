//! A server that says what a script says.
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

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub authorization: Option<String>,
    pub body: Value,
}

/// A listener with a thread for each connection; all end with the test's process.
pub struct Scripted {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Scripted {
    /// Answers every POST with the bytes that `script` gives, and closes.
    pub fn start(script: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (script, log) = (Arc::new(script), Arc::clone(&asked));
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                std::thread::spawn(move || serve(socket.unwrap(), &*script, &log));
            }
        });
        Self { address, asked }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All POSTs so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(socket: TcpStream, script: &dyn Fn(&Asked) -> Vec<u8>, log: &Mutex<Vec<Asked>>) {
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
        let asked = Asked {
            path: lines[0].split(' ').nth(1).unwrap().to_owned(),
            authorization: field("authorization"),
            body: serde_json::from_slice(&body).unwrap(),
        };
        log.lock().unwrap().push(asked.clone());
        script(&asked)
    };
    let mut socket = reader.into_inner();
    // A client that is gone has its reasons.
    let _ = socket.write_all(&answer);
    let _ = socket.shutdown(Shutdown::Both);
}

fn head(status: u16, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{fields}\r\n");
    [head.as_bytes(), body].concat()
}

/// A frame of a chat's answer.
pub fn chat(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}}]})
}

/// The frame of counts.
pub fn usage(prompt: usize, completion: usize) -> Value {
    json!({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})
}

/// An answer whose body is these bytes, up to the close.
pub fn raw(body: &[u8]) -> Vec<u8> {
    head(200, "content-type: text/event-stream\r\n", body)
}

/// Frames without an end.
pub fn cut(frames: &[Value]) -> Vec<u8> {
    raw(frames
        .iter()
        .map(|frame| format!("data: {frame}\n\n"))
        .collect::<String>()
        .as_bytes())
}

/// A whole stream.
pub fn stream(frames: &[Value]) -> Vec<u8> {
    [cut(frames), b"data: [DONE]\n\n".to_vec()].concat()
}

/// A whole chat answer.
pub fn whole(message: &Value) -> Vec<u8> {
    json_of(&json!({"choices": [{"index": 0, "message": message}]}))
}

/// A whole chat answer that says how many tokens its prompt had.
pub fn counted(message: &Value, prompt: usize) -> Vec<u8> {
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": 1});
    json_of(&json!({"choices": [{"index": 0, "message": message}], "usage": usage}))
}

fn json_of(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = format!("content-length: {}\r\n", body.len());
    head(200, &length, body.as_bytes())
}

/// An error before any stream.
pub fn refusal(status: u16) -> Vec<u8> {
    head(status, "content-length: 2\r\n", b"{}")
}
