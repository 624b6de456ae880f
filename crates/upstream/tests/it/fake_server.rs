//! Servers whose next token is a function of all tokens before: where an answer continues exactly, it is the same answer.

use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Ends an answer.
pub(crate) const EOS: u32 = 2;
/// Ends an answer of llama.cpp's server, whose other ids are bytes.
pub(crate) const LLAMA_EOS: u32 = 256;
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
    /// As Millrace with random numbers of the seed, which closes the connection after so many tokens.
    Millrace(usize),
    /// As llama.cpp's server with an answer of these tokens, which closes the connection after so many events.
    LlamaCpp(Vec<u32>, usize),
    /// Without token ids, in these pieces of text.
    Text(Vec<&'static str>),
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
    /// Id that ends the server's answers.
    pub(crate) eos: u32,
    /// Whether the server answers at all.
    pub(crate) is_alive: AtomicBool,
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
        let eos = match &behavior {
            Behavior::LlamaCpp(..) | Behavior::Text(_) => LLAMA_EOS,
            _ => EOS,
        };
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
            eos,
            is_alive: AtomicBool::new(true),
            requests,
            closed,
            written,
            task,
        }
    }

    /// Ends the server and all of its connections, as a kill does.
    pub(crate) fn kill(&self) {
        self.is_alive.store(false, Ordering::SeqCst);
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
    let (line, body) = read_request(&mut socket).await?;
    let route = match behavior {
        Behavior::LlamaCpp(..) => "post /completion http/1.1",
        _ => "post /v1/completions http/1.1",
    };
    if line != route {
        return describe(&mut socket, &line, behavior).await;
    }
    requests.lock().unwrap().push(body.clone());
    if let Behavior::Status(status, text) = behavior {
        return respond(&mut socket, *status, text).await;
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
        Behavior::LlamaCpp(answer, most) => {
            let done = body["prompt"].as_array().unwrap().len() - crate::rig::PROMPT.len();
            let events = llama_events(&answer[done..], &body);
            return write_events(&mut socket, events, *most).await;
        }
        Behavior::Text(pieces) => {
            return write_events(&mut socket, text_events(pieces), usize::MAX).await;
        }
        Behavior::Millrace(most) => {
            let events = millrace_events(&body);
            return write_events(&mut socket, events, *most).await;
        }
        _ => {}
    }
    serve_ids(&mut socket, behavior, &body, written).await
}

async fn serve_ids(
    socket: &mut TcpStream,
    behavior: &Behavior,
    body: &Value,
    written: &AtomicUsize,
) -> std::io::Result<()> {
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
        write_events(socket, vec![json!({"choices": [choice]})], 1).await?;
        written.fetch_add(1, Ordering::SeqCst);
        if !finish.is_null() {
            break;
        }
    }
    socket.write_all(b"data: [DONE]\n\n").await
}

fn text_events(pieces: &[&str]) -> Vec<Value> {
    let event =
        |text: &str, finish: Value| json!({"choices": [{"text": text, "finish_reason": finish}]});
    let mut events: Vec<Value> = pieces.iter().map(|text| event(text, Value::Null)).collect();
    events.push(event("", json!("stop")));
    events
}

async fn write_events(
    socket: &mut TcpStream,
    mut events: Vec<Value>,
    most: usize,
) -> std::io::Result<()> {
    events.truncate(most);
    for event in events {
        socket
            .write_all(format!("data: {event}\n\n").as_bytes())
            .await?;
    }
    Ok(())
}

/// The whole answer, with the tokens that were given at its beginning.
fn millrace_events(body: &Value) -> Vec<Value> {
    let prompt: Vec<u32> = serde_json::from_value(body["prompt"].clone()).unwrap();
    let given = body.get("continue_token_ids").cloned().unwrap_or(json!([]));
    let given: Vec<u32> = serde_json::from_value(given).unwrap();
    let tokens = body["max_tokens"].as_u64().unwrap() as usize;
    let ids = seeded_answer(&prompt, body, tokens);
    assert!(
        ids.starts_with(&given),
        "the answer so far is of this seed and choice"
    );
    let event = |ids: &[u32], finish: Value| json!({"choices": [{"text": "x", "token_ids": ids, "finish_reason": finish}]});
    let rest = ids[given.len()..]
        .iter()
        .map(|&id| event(&[id], Value::Null));
    let first = event(&given, Value::Null);
    std::iter::once(first)
        .chain(rest)
        .chain([event(&[], json!("length"))])
        .collect()
}

/// The answer that follows from prompt, seed and choice.
pub(crate) fn seeded_answer(prompt: &[u32], body: &Value, tokens: usize) -> Vec<u32> {
    let choice = body["continue_choice"].as_u64().unwrap_or(0);
    let seed = body["seed"].as_u64().unwrap() * 100 + choice;
    let begin = [prompt, &[3 + (seed % u64::from(IDS)) as u32]].concat();
    answer(&begin, tokens)
}

/// The events of llama.cpp's server for an answer of these tokens, each a byte: no event after a token that ends within a
/// character, and no text while it may become a stop string.
fn llama_events(answer: &[u32], body: &Value) -> Vec<Value> {
    let stop = body["stop"][0].as_str();
    let most = body["n_predict"].as_u64().unwrap() as usize;
    let (mut text, mut sent, mut events) = (Vec::new(), 0, Vec::new());
    let mut end = ("limit", "", 0);
    for (at, &id) in answer.iter().take(most).enumerate() {
        end.2 = at + 1;
        if id == LLAMA_EOS {
            end.0 = "eos";
        } else {
            text.push(id as u8);
        }
        let Ok(all) = std::str::from_utf8(&text) else {
            continue;
        };
        let mut unsent = &all[sent..];
        let full = stop.and_then(|stop| unsent.find(stop));
        let is_partial = stop.is_some_and(|stop| {
            (1..stop.len()).any(|len| stop.is_char_boundary(len) && unsent.ends_with(&stop[..len]))
        });
        if let Some(place) = full {
            unsent = &unsent[..place];
            end = ("word", stop.unwrap(), at + 1);
        } else if is_partial && end.0 == "limit" {
            unsent = "";
        }
        sent += unsent.len();
        events.push(json!({
            "index": 0, "content": unsent, "tokens": [id], "stop": false, "id_slot": 0,
            "tokens_predicted": at + 1, "tokens_evaluated": 3,
        }));
        if end.0 != "limit" {
            break;
        }
    }
    let (kind, word, count) = end;
    events.push(json!({
        "index": 0, "content": "", "tokens": [], "id_slot": 0, "stop": true, "model": "m", "tokens_predicted": count,
        "has_new_line": false, "truncated": false, "stop_type": kind, "stopping_word": word, "tokens_cached": 9,
    }));
    events
}

/// What a server says of itself.
async fn describe(socket: &mut TcpStream, line: &str, behavior: &Behavior) -> std::io::Result<()> {
    let owner = match behavior {
        Behavior::Millrace(_) => "millrace",
        Behavior::LlamaCpp(..) => "llamacpp",
        _ => "vllm",
    };
    let body = match line {
        "get /v1/models http/1.1" => {
            json!({"object": "list", "data": [{"id": "m", "owned_by": owner}]})
        }
        "get /version http/1.1" => json!({"version": "1"}),
        "get /props http/1.1" => json!({"default_generation_settings": {"n_ctx": 4096}}),
        other => panic!("{other}"),
    };
    respond(socket, 200, &body.to_string()).await
}

async fn respond(socket: &mut TcpStream, status: u16, text: &str) -> std::io::Result<()> {
    let length = text.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{text}");
    socket.write_all(head.as_bytes()).await
}

/// Ok where the peer closes after the end; an error never happens before.
async fn wait_for_close(socket: &mut TcpStream) -> std::io::Result<()> {
    let mut byte = [0];
    match socket.read(&mut byte).await? {
        0 => Err(std::io::ErrorKind::ConnectionAborted.into()),
        _ => Ok(()),
    }
}

/// The request's first line in lower case, and its JSON.
async fn read_request(socket: &mut TcpStream) -> std::io::Result<(String, Value)> {
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
    assert!(head.contains("authorization: bearer sk-test\r\n"), "{head}");
    let line = head.split("\r\n").next().unwrap().to_owned();
    let Some(length) = head.split("content-length: ").nth(1) else {
        return Ok((line, Value::Null));
    };
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    while bytes.len() < end + length {
        socket.read_buf(&mut bytes).await?;
    }
    let body = serde_json::from_slice(&bytes[end..end + length]);
    Ok((line, body.unwrap_or(Value::Null)))
}
