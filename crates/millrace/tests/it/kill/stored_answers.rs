//! Stored answers of a process that is killed with SIGKILL directly after the answer.
//!
//! Promise (Journal): a stored response or chat completion, whole, streamed or resumable, whose end a client has received is
//! there after `kill -9` directly afterwards.

use super::crashing::Crashing;
use super::event_reader::read_watched;
use crate::encoders::body;
use serde_json::{Value, json};
use testing::wait::PATIENCE;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
/// Kills after each kind of answer.
const ROUNDS: usize = 2;

/// The last words of a streamed answer.
const END: [(&str, &str); 2] = [(CHAT, "[DONE]"), (RESPONSES, "event: response.incomplete")];

fn request(path: &str, stream: bool) -> Value {
    match path {
        CHAT => json!({
            "messages": [{"role": "user", "content": "hello"}], "store": true, "max_tokens": 8, "stream": stream, "ignore_eos": true,
        }),
        _ => {
            json!({"input": "hello", "max_output_tokens": 8, "stream": stream, "ignore_eos": true})
        }
    }
}

/// Asks for a whole answer, and kills the server; returns the id and the text of the answer.
fn whole(server: &mut Crashing, path: &str) -> (Value, Value) {
    let reply = server
        .serving()
        .post(path, &request(path, false).to_string());
    server.kill();
    let answer = body(&reply, 200);
    (answer["id"].clone(), text_of(&answer))
}

/// Asks for a streamed answer, and kills the server when the end has come; returns the id and the text of the answer.
fn streamed(server: &mut Crashing, path: &str, fields: &str) -> (Value, Value) {
    let (_, end) = END.iter().find(|(of, _)| *of == path).expect("an end");
    let address = server.address();
    let mut kill_at_end = |bytes: &[u8]| {
        let is_over = bytes
            .windows(end.len())
            .any(|words| words == end.as_bytes());
        if is_over {
            server.kill();
        }
        !is_over
    };
    let head = format!("POST {path} HTTP/1.1{fields}");
    let body = request(path, true).to_string();
    let reading = read_watched(&address, &head, &body, PATIENCE, &mut kill_at_end);
    let events = reading.expect("a response").events.into_iter();
    let events = events.filter_map(|event| serde_json::from_str::<Value>(&event.data).ok());
    let events: Vec<_> = events.collect();
    let pieces = events.iter().filter_map(|event| match path {
        CHAT => event["choices"][0]["delta"]["content"].as_str(),
        _ if event["type"] == "response.output_text.delta" => event["delta"].as_str(),
        _ => None,
    });
    let text: String = pieces.collect();
    let id = match path {
        CHAT => &events[0]["id"],
        _ => &events[0]["response"]["id"],
    };
    (id.clone(), text.into())
}

fn text_of(answer: &Value) -> Value {
    match answer["object"].as_str() {
        Some("response") => answer["output"][0]["content"][0]["text"].clone(),
        _ => answer["choices"][0]["message"]["content"].clone(),
    }
}

#[test]
fn answer_that_a_client_has_is_there_after_a_kill() {
    let mut server = Crashing::start("kill-stored", &[("MILLRACE_LOG_FILTER", "warn")]);
    for round in 0..ROUNDS {
        for path in [CHAT, RESPONSES] {
            for kind in ["whole", "streamed", "resumable"] {
                let (id, text) = match kind {
                    "whole" => whole(&mut server, path),
                    "streamed" => streamed(&mut server, path, ""),
                    _ => streamed(&mut server, path, "\r\nx-stream-resumable: 1"),
                };
                server.restart();
                let found = server
                    .serving()
                    .get(&format!("{path}/{}", id.as_str().expect("an id")));
                let case = format!("{path}, {kind}, round {round}: {found}");
                assert!(found.starts_with("HTTP/1.1 200"), "{case}");
                assert_eq!(text_of(&body(&found, 200)), text, "{case}");
            }
        }
    }
}
