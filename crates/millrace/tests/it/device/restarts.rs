//! A server that is killed, and started again with another device.
//!
//! Promise (Journal): a stream that a device computes when the process is killed continues on the processor with the next
//! process, and the other way round: its tokens stay, it has one end, and its description says that another arithmetic
//! computes the rest.

use super::has_device;
use crate::kill::crashing::{Client, Crashing, description};
use crate::kill::event_reader::read_events;
use serde_json::json;
use std::time::Duration;

/// Tokens of the answer: many more than the process has computed when it is killed.
const TOKENS: u64 = 150;

/// Events that arrive before the kill.
const EVENTS: usize = 12;

/// A server whose streams are at most 16 tokens ahead of their readers.
fn start(name: &str, device: &str) -> Crashing {
    let settings = [
        ("MILLRACE_BACKPRESSURE_MAX_UNACKED_TOKENS", "16"),
        ("MILLRACE_BACKPRESSURE_ACK_TIMEOUT_MS", "600000"),
        ("MILLRACE_STREAMS_DETACHED_TOKENS", "0"),
        ("MILLRACE_LOG_FILTER", "warn"),
        ("MILLRACE_MODEL_DEVICE", device),
    ];
    Crashing::start(&format!("device-moved-{name}"), &settings)
}

/// A client of a new stream.
fn open(server: &Crashing) -> Client {
    let body = json!({
        "messages": [{"role": "user", "content": "Who are you?"}], "stream": true, "temperature": 0,
        "max_tokens": TOKENS, "ignore_eos": true,
    });
    let head = "POST /v1/chat/completions HTTP/1.1\r\nx-stream-resumable: 1";
    let silence = Duration::from_millis(1);
    let reading = read_events(&server.address(), head, &body.to_string(), silence);
    let stream = reading.expect("a response").header("x-stream-id");
    Client::new("moved", &stream.expect("an id"), "openai.chat")
}

/// Whether a processor computes the model, by the metrics.
fn is_on_processor(server: &Crashing) -> bool {
    let metrics = server.serving().get("/metrics");
    let line = |line: &&str| line.starts_with("millrace_device_info{");
    let line = metrics.lines().find(line).expect("a device");
    line.contains("device=\"cpu\"")
}

#[test]
fn stream_continues_on_another_device_after_a_kill() {
    if !has_device() {
        return;
    }
    let whole = start("whole", "cpu");
    let mut uninterrupted = open(&whole);
    uninterrupted.read_to_end(&whole.address());
    for [first, next] in [["vulkan", "cpu"], ["cpu", "vulkan"]] {
        let mut server = start(first, first);
        assert_eq!(is_on_processor(&server), first == "cpu");
        let mut client = open(&server);
        client.read_until_killed(&mut server, EVENTS);
        let is_begun = !client.transcript.is_empty() && !client.is_over;
        assert!(is_begun, "{first}: {:?}", client.transcript);
        server.set_variable("MILLRACE_MODEL_DEVICE", next);
        server.restart();
        assert_eq!(is_on_processor(&server), next == "cpu");
        client.read_to_end(&server.address());
        // What both processes sent is what the second one has, and as one process would have sent it.
        let mut again = Client::new("again", &client.stream, client.dialect);
        again.read_to_end(&server.address());
        assert_eq!(client.transcript, again.transcript, "{first}");
        assert_eq!(client.transcript, uninterrupted.transcript, "{first}");
        let told = description(server.serving(), &client.stream);
        let [state, recovered, recomputed] =
            ["state", "recovered", "recomputed"].map(|field| &told[field]);
        assert_eq!(
            [state, recovered, recomputed],
            [&json!("ended"), &json!(1), &json!(true)]
        );
        assert_eq!(told["choices"][0]["tokens"], TOKENS, "{told}");
    }
}
