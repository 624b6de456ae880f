//! A server of `/v1/completions` whose next token is a function of all tokens before: where an answer continues exactly, it
//! is the same answer.

use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Ends an answer.
pub(crate) const EOS: u32 = 2;
/// Ids that the model generates: 3 to 62.
const IDS: u32 = 60;

/// The model's next token.
pub(crate) fn next_token(ids: &[u32]) -> u32 {
    let mixed = ids
        .iter()
        .fold(7u32, |sum, id| sum.wrapping_mul(31).wrapping_add(*id));
    3 + (mixed >> 3) % IDS
}

/// The answer to a prompt.
pub(crate) fn answer(prompt: &[u32], tokens: usize) -> Vec<u32> {
    let mut ids = prompt.to_vec();
    for _ in 0..tokens {
        ids.push(next_token(&ids));
    }
    ids.split_off(prompt.len())
}

/// How a server behaves.
#[derive(Clone)]
pub(crate) enum Behavior {
    /// As the model.
    Serve,
    /// Closes the connection after so many tokens of a request.
    Cut(usize),
    /// Answers with this status and body.
    Status(u16, &'static str),
    /// Sends this after the head of a good response, and then nothing.
    Body(Vec<u8>),
    /// Ends with an end-of-sequence token after so many tokens.
    Eos(usize),
    /// Sends an unending line.
    EndlessLine,
}

/// A running server, and what it was asked.
pub(crate) struct FakeServer {
    pub(crate) address: String,
    pub(crate) requests: Arc<Mutex<Vec<Value>>>,
    /// Connections that the relay closed before the end.
    pub(crate) closed: Arc<AtomicUsize>,
    /// Tokens that were written.
    pub(crate) written: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl FakeServer {
    pub(crate) async fn start(behavior: Behavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (requests, closed, written) =
            <(Arc<Mutex<Vec<Value>>>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let shared = (
            Arc::clone(&requests),
            Arc::clone(&closed),
            Arc::clone(&written),
        );
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (requests, closed, written) = shared.clone();
                let behavior = behavior.clone();
                connections.spawn(async move {
                    let served = serve(socket, &behavior, &requests, &written).await;
                    if served.is_err() {
                        closed.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        Self {
            address,
            requests,
            closed,
            written,
            task,
        }
    }

    /// Ends the server and all of its connections, as a kill does.
    pub(crate) fn kill(&self) {
        self.task.abort();
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut socket: TcpStream,
    behavior: &Behavior,
    requests: &Mutex<Vec<Value>>,
    written: &AtomicUsize,
) -> std::io::Result<()> {
    let body = read_request(&mut socket).await?;
    requests.lock().unwrap().push(body.clone());
    if let Behavior::Status(status, text) = behavior {
        let length = text.len();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{text}");
        return socket.write_all(head.as_bytes()).await;
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    match behavior {
        Behavior::Body(bytes) => {
            socket.write_all(bytes).await?;
            return wait_for_close(&mut socket).await;
        }
        Behavior::EndlessLine => loop {
            socket.write_all(&[b'x'; 4096]).await?;
        },
        _ => {}
    }
    let mut ids: Vec<u32> = serde_json::from_value(body["prompt"].clone())?;
    // Long, so that sockets do not take a whole answer.
    let text = "x".repeat(2000);
    let tokens = body["max_tokens"].as_u64().unwrap() as usize;
    for count in 1..=tokens {
        let (id, finish) = match behavior {
            Behavior::Cut(after) if count > *after => return Ok(()),
            Behavior::Eos(after) if count > *after => (EOS, json!("stop")),
            _ if count == tokens => (next_token(&ids), json!("length")),
            _ => (next_token(&ids), Value::Null),
        };
        ids.push(id);
        let choice = json!({"index": 0, "text": &text, "token_ids": [id], "finish_reason": finish});
        let event = format!("data: {}\n\n", json!({"choices": [choice]}));
        socket.write_all(event.as_bytes()).await?;
        written.fetch_add(1, Ordering::SeqCst);
        if !finish.is_null() {
            break;
        }
    }
    socket.write_all(b"data: [DONE]\n\n").await
}

/// Ok where the peer closes after the end; an error never happens before.
async fn wait_for_close(socket: &mut TcpStream) -> std::io::Result<()> {
    let mut byte = [0];
    match socket.read(&mut byte).await? {
        0 => Err(std::io::ErrorKind::ConnectionAborted.into()),
        _ => Ok(()),
    }
}

async fn read_request(socket: &mut TcpStream) -> std::io::Result<Value> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break end + 4;
        }
        if socket.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    assert!(
        head.starts_with("post /v1/completions http/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("authorization: bearer sk-test\r\n"), "{head}");
    let length = head.split("content-length: ").nth(1).unwrap();
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    while bytes.len() < end + length {
        socket.read_buf(&mut bytes).await?;
    }
    Ok(serde_json::from_slice(&bytes[end..end + length])?)
}
