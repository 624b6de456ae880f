//! The binary sends its figures where the environment says.

use crate::support::{Serving, millrace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

/// Takes one message: its head's lines and its body.
fn take(listener: &TcpListener) -> (Vec<String>, Vec<u8>) {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let length = head.iter().find_map(|l| l.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    reader.get_mut().write_all(answer).unwrap();
    (head, body)
}

fn holds(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn last_export_counts_the_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let collector = std::thread::spawn(move || take(&listener));
    let vars = [
        ("MILLRACE_METRICS_OTLP_ENDPOINT", endpoint.as_str()),
        ("MILLRACE_METRICS_EXPORT_INTERVAL_MS", "3600000"),
        ("MILLRACE_OTLP_HEADERS", "x-key=sesame"),
    ];
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let serving = Serving::start_with(&args, &vars, Stdio::null());
    let ask = r#"{"messages":[{"role":"user","content":"Hello"}],"max_tokens":8,"seed":1}"#;
    let reply = serving.post("/v1/chat/completions", ask);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(serving.terminate().success());
    let (head, body) = collector.join().unwrap();
    assert_eq!(head[0], "POST /v1/metrics HTTP/1.1");
    assert!(head.contains(&"x-key: sesame".to_owned()), "{head:?}");
    assert!(holds(&body, "gen_ai.server.request.duration"));
    assert!(!holds(&body, "Hello"), "no word of a prompt");
}

#[test]
fn settings_show_the_endpoint_without_secrets() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_millrace"))
        .arg("config")
        .env("MILLRACE_METRICS_OTLP_ENDPOINT", "http://otel.lan:4318")
        .env("MILLRACE_OTLP_HEADERS", "x-key=sesame")
        .output()
        .unwrap();
    let shown = crate::support::stdout(&output);
    assert!(
        shown.contains("http://otel.lan:4318") && !shown.contains("sesame"),
        "{shown}"
    );
    let bare = crate::support::stdout(&millrace(&["config"]));
    assert!(bare.contains("otlp_endpoint: null"), "{bare}");
}
