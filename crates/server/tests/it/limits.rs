//! Bad input and too much of it: a clear answer each, and the next client is served.
//!
//! Promise (APIs): an answer before the end of a request's body reaches a client that writes all of it first.

use crate::support::client::{Client, get, post, request};
use crate::support::{MODEL, Rig, config, fake, wait_until};
use serde_json::{Value, json};
use server::ServerConfig;
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";

fn ask() -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
}

/// Status and code of the answer to these bytes.
fn answer(rig: &Rig, bytes: &[u8]) -> (u16, String) {
    let mut client = Client::connect(rig.addr);
    client.send(bytes);
    let reply = client.reply();
    let error = &reply.json()["error"];
    for field in ["message", "type", "code"] {
        assert!(error[field].is_string(), "{}", reply.body);
    }
    assert!(error.get("param").is_some(), "{}", reply.body);
    assert!(reply.head.get("x-request-id").is_some(), "{:?}", reply.head);
    (
        reply.head.status,
        error["code"].as_str().unwrap().to_owned(),
    )
}

fn post_bytes(path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\n{kind}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

const JSON: &str = "content-type: application/json; charset=utf-8\r\n";

/// Bodies that are JSON by name: what they are, and the answer.
const BODIES: &[(&str, &[u8], u16, &str)] = &[
    ("truncated", b"{\"messages\": [", 400, "invalid_json"),
    ("no JSON", b"\0\x01", 400, "invalid_json"),
    ("empty", b"", 400, "invalid_json"),
    ("broken UTF-8", b"{\"user\": \"\xff\"}", 400, "invalid_utf8"),
    (
        "wrong field",
        b"{\"temperature\": []}",
        400,
        "invalid_value",
    ),
    (
        "other model",
        b"{\"model\": \"gpt-9\"}",
        404,
        "model_not_found",
    ),
    ("too large", &[b' '; 10_001], 413, "body_too_large"),
];

#[test]
fn rejected_bodies() {
    let rig = Rig::with(
        fake(),
        ServerConfig {
            body_bytes_max: 10_000,
            ..config()
        },
    );
    for &(label, body, status, code) in BODIES {
        let bytes = post_bytes(CHAT, JSON, body);
        assert_eq!(answer(&rig, &bytes), (status, code.to_owned()), "{label}");
    }
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{JSON}transfer-encoding: chunked\r\n\r\n"
    );
    let chunk = format!("2000\r\n{}\r\n", " ".repeat(0x2000));
    let grows = [head, chunk.clone(), chunk].concat();
    assert_eq!(
        answer(&rig, grows.as_bytes()),
        (413, "body_too_large".to_owned())
    );
    let empty = request("/v1/completions", &json!({"prompt": ""}));
    assert_eq!(answer(&rig, &empty), (400, "invalid_value".to_owned()));
    assert_eq!(
        post(rig.addr, CHAT, &ask()).head.status,
        200,
        "and a good one is served"
    );
    rig.wait_until_empty();
}

/// The answer to a client that writes 64 MiB before it reads a byte.
fn answer_after_writing(rig: &Rig, head: &str) -> String {
    use std::io::{Read, Write};
    const PIECES: usize = 1024;
    let is_chunked = head.contains("chunked");
    let piece = vec![b' '; (64 << 20) / PIECES];
    let mut socket = std::net::TcpStream::connect(rig.addr).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    socket
        .set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    socket.write_all(head.as_bytes()).unwrap();
    for written in 0..PIECES {
        let begin = format!("{:x}\r\n", piece.len());
        let parts: [&[u8]; 3] = if is_chunked {
            [begin.as_bytes(), &piece, b"\r\n"]
        } else {
            [b"", &piece, b""]
        };
        for part in parts {
            let sent = socket.write_all(part);
            sent.unwrap_or_else(|why| panic!("{head}: after {written} pieces: {why}"));
        }
    }
    let mut reply = String::new();
    let read = socket.read_to_string(&mut reply);
    read.unwrap_or_else(|why| panic!("{head}: {why}, after {reply:?}"));
    reply
}

#[test]
fn client_that_writes_before_it_reads_gets_its_answer() {
    let rig = Rig::with(
        fake(),
        ServerConfig {
            body_bytes_max: 10_000,
            ..config()
        },
    );
    let length = format!("content-length: {}", 64 << 20);
    for (line, framing, answer) in [
        (format!("POST {CHAT}"), &*length, "HTTP/1.1 413 "),
        (
            format!("POST {CHAT}"),
            "transfer-encoding: chunked",
            "HTTP/1.1 413 ",
        ),
        ("POST /v2/nothing".to_owned(), &*length, "HTTP/1.1 404 "),
        (format!("PUT {CHAT}"), &*length, "HTTP/1.1 405 "),
    ] {
        let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\n{JSON}{framing}\r\n\r\n");
        let reply = answer_after_writing(&rig, &head);
        assert!(reply.starts_with(answer), "{head}: {reply}");
        assert!(reply.contains("\"error\":{"), "{head}: {reply}");
    }
    rig.wait_until_empty();
}

#[test]
fn rejected_request_heads() {
    let rig = Rig::start();
    let mut wrong = Client::connect(rig.addr);
    wrong.send(b"DELETE /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(wrong.reply().head.get("allow"), Some("GET,HEAD"));
    let good = ask().to_string();
    let with = |fields: &str| post_bytes(CHAT, fields, good.as_bytes());
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes();
    let put = |path: &str| format!("PUT {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes();
    let patience = format!("{JSON}request-timeout-ms: soon\r\n");
    for (label, bytes, status, code) in [
        ("no such path", get("/v2"), 404, "not_found"),
        ("wrong method", put(CHAT), 405, "method_not_allowed"),
        (
            "a page's without content type",
            with("origin: http://localhost\r\n"),
            415,
            "unsupported_media_type",
        ),
        (
            "another",
            with("origin: http://localhost\r\ncontent-type: text/plain\r\n"),
            415,
            "unsupported_media_type",
        ),
        ("patience in words", with(&patience), 400, "invalid_value"),
    ] {
        assert_eq!(answer(&rig, &bytes), (status, code.to_owned()), "{label}");
    }
}

#[test]
fn too_long_prompt_is_rejected_with_the_numbers() {
    let rig = Rig::start();
    let ask =
        |tokens: usize| json!({"messages": [{"role": "user", "content": "x".repeat(tokens)}]});
    for tokens in [512, 600] {
        let reply = post(rig.addr, CHAT, &ask(tokens));
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.head.status, &error["code"]),
            (400, &json!("context_length_exceeded"))
        );
        assert_eq!(
            (&error["param"], &error["type"]),
            (&json!("messages"), &json!("invalid_request_error"))
        );
        let message = error["message"].as_str().unwrap();
        let start = format!(
            "This model's maximum context length is 512 tokens. However, messages has {tokens} tokens"
        );
        assert!(message.starts_with(&start), "{message}");
    }
    let fits = post(rig.addr, CHAT, &ask(511)).json();
    assert_eq!(
        fits["usage"]["total_tokens"], 512,
        "one token is what there is room for"
    );
}

/// Agents compact a conversation when they read these words.
///
/// Promise (APIs): the error of a full context has the wording of the wire protocol, in every API.
#[test]
fn full_context_has_the_words_of_the_protocol() {
    let rig = Rig::start();
    let long = "x".repeat(600);
    let messages = json!([{"role": "user", "content": long}]);
    let of_openai = "This model's maximum context length is 512 tokens. However, ";
    let of_anthropic = "prompt is too long: 600 tokens > 512 maximum";
    for (path, body, place, words) in [
        (
            CHAT,
            json!({"messages": messages}),
            "/error/message",
            of_openai,
        ),
        (
            "/v1/completions",
            json!({"prompt": long}),
            "/error/message",
            of_openai,
        ),
        (
            "/v1/responses",
            json!({"input": long, "model": MODEL}),
            "/error/message",
            of_openai,
        ),
        (
            "/v1/messages",
            json!({"model": MODEL, "max_tokens": 5, "messages": messages}),
            "/error/message",
            of_anthropic,
        ),
        (
            "/api/chat",
            json!({"model": MODEL, "messages": messages, "stream": false, "truncate": false}),
            "/error",
            of_openai,
        ),
        (
            "/api/generate",
            json!({"model": MODEL, "prompt": long, "stream": false, "truncate": false}),
            "/error",
            of_openai,
        ),
    ] {
        let reply = post(rig.addr, path, &body);
        assert_eq!(reply.head.status, 400, "{path}: {}", reply.body);
        let body = reply.json();
        let message = body.pointer(place).and_then(|message| message.as_str());
        assert!(
            message.is_some_and(|message| message.starts_with(words)),
            "{path}: {body}"
        );
    }
    rig.wait_until_empty();
}

#[test]
fn every_invalid_field_is_named() {
    let rig = Rig::start();
    let reply = post(
        rig.addr,
        CHAT,
        &json!({"messages": 1, "temperature": 9, "n": "x", "stream": true}),
    );
    let error = &reply.json()["error"];
    let fields: Vec<&str> = error["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["field"].as_str().unwrap())
        .collect();
    assert_eq!(
        (reply.head.status, fields),
        (400, vec!["messages", "temperature", "n"])
    );
    assert_eq!(error["param"], "messages");
    assert!(
        ["messages", "temperature", "n"]
            .iter()
            .all(|f| error["message"].as_str().unwrap().contains(f))
    );
}

#[test]
fn large_prompt_tokenized_off_thread_has_the_same_answer() {
    let small = Rig::start();
    let large = Rig::with(
        fake(),
        ServerConfig {
            inline_prompt_bytes_max: 0,
            ..config()
        },
    );
    let ask =
        json!({"messages": [{"role": "user", "content": "tell"}], "seed": 3, "max_tokens": 20});
    let text =
        |rig: &Rig| post(rig.addr, CHAT, &ask).json()["choices"][0]["message"]["content"].clone();
    assert_eq!(text(&small), text(&large));
}

#[test]
fn slow_request_head_times_out() {
    let rig = Rig::with(
        fake(),
        ServerConfig {
            header_timeout: Duration::from_millis(50),
            ..config()
        },
    );
    let mut slow = Client::connect(rig.addr);
    slow.send(b"POST /v1/chat/comp");
    let status = slow.try_head().map(|head| head.status);
    assert!(status.is_none() || status == Some(408), "{status:?}");
    assert!(slow.is_closed());
}

#[test]
fn idle_connection_is_closed() {
    let header_timeout = Duration::from_millis(50);
    let rig = Rig::with(
        fake(),
        ServerConfig {
            header_timeout,
            ..config()
        },
    );
    let mut idle = Client::connect(rig.addr);
    idle.send(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(idle.reply().head.status, 200);
    assert!(idle.is_closed());
}

#[test]
fn slow_body_times_out() {
    let rig = Rig::with(
        fake(),
        ServerConfig {
            body_timeout: Duration::from_millis(50),
            ..config()
        },
    );
    let bytes = request(CHAT, &ask());
    assert_eq!(
        answer(&rig, &bytes[..bytes.len() - 1]),
        (408, "body_timeout".to_owned())
    );
}

#[test]
fn request_heads_are_limited() {
    let rig = Rig::with(
        fake(),
        ServerConfig {
            header_bytes_max: 8 << 10,
            headers_max: 8,
            ..config()
        },
    );
    let many: String = (0..20).map(|i| format!("x-{i}: 1\r\n")).collect();
    let long = format!("x: {}\r\n", "y".repeat(9 << 10));
    for (label, fields) in [("too many", many), ("too long", long)] {
        let mut client = Client::connect(rig.addr);
        client.send(format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n").as_bytes());
        assert_eq!(client.head().status, 431, "{label}");
    }
}

#[test]
fn garbage_is_answered_or_closed_and_affects_no_client() {
    let rig = Rig::start();
    let rows: [&[u8]; 5] = [
        b"\x16\x03\x01\x02\0\x01\0",
        b"GET\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\n\r\n",
    ];
    for bytes in rows {
        let mut client = Client::connect(rig.addr);
        client.send(bytes);
        client.finish_sending();
        let status = client.try_head().map(|head| head.status);
        assert!(
            matches!(status, None | Some(400 | 505)),
            "{bytes:?}: {status:?}"
        );
    }
    assert_eq!(get(rig.addr, "/health").head.status, 200);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let rig = Rig::start();
    let mut client = Client::connect(rig.addr);
    let mut bytes = request(CHAT, &ask());
    bytes.extend(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    bytes.extend(request(CHAT, &json!({"n": 0})));
    client.send(&bytes);
    assert_eq!(client.reply().json()["object"], "chat.completion");
    assert_eq!(client.reply().json()["status"], "ok");
    assert_eq!(client.reply().head.status, 400);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a deadline passes when it does")]
fn deadline_ends_a_queued_request() {
    const DEADLINE: Duration = Duration::from_millis(500);
    let rig = Rig::gated(fake(), config());
    let fields = "content-type: application/json\r\nrequest-timeout-ms: 500\r\n";
    let asked = Instant::now();
    let mut ask = json!({"messages": [{"role": "user", "content": "hi"}], "ignore_eos": true});
    let mut whole = Client::connect(rig.addr);
    whole.send(&post_bytes(CHAT, fields, ask.to_string().as_bytes()));
    ask["stream"] = json!(true);
    let mut streamed = Client::connect(rig.addr);
    streamed.send(&post_bytes(CHAT, fields, ask.to_string().as_bytes()));
    assert_eq!(
        streamed.head().status,
        200,
        "headers are out before the model did anything"
    );
    let reading = std::thread::spawn(move || (whole.reply(), streamed.body()));
    // The model does nothing before it is too late: nobody has an answer by then.
    wait_until("the deadline is over", || asked.elapsed() > DEADLINE);
    wait_until("both are answered", || {
        rig.gate.allow(1);
        reading.is_finished()
    });
    let (reply, text) = reading.join().unwrap();
    assert!(
        text.contains(r#""type":"timeout""#)
            && text.contains("(deadline)")
            && !text.contains("[DONE]"),
        "{text}"
    );
    assert_eq!(
        (reply.head.status, &reply.json()["error"]["code"]),
        (504, &json!("timeout"))
    );
    assert_eq!(reply.head.get("x-should-retry"), Some("false"));
    rig.wait_until_empty();
}
