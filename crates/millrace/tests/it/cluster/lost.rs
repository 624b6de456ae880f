//! Two processes with engines of their own, of which the first dies while it has told more than is stored.

use super::gateway_killed::{jet_stream, settings, wait_stored};
use super::nats_server;
use super::processes::{Cluster, address, json};
use crate::kill::SETTINGS;
use crate::kill::crashing::{Client, Crashing, description};
use crate::kill::event_reader::read_events;
use crate::support::{Folder, Serving};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use testing::wait::wait_until;

/// Tokens after which the stream is parked, until they are acknowledged.
const WINDOW: u64 = 7;

/// Starts a process with an engine, a journal in this folder, and this type of KV cache.
pub(super) fn start_all(cluster: &Cluster, folder: &Path, kv_type: &str) -> Serving {
    let journal = folder.join("journal").display().to_string();
    let vars = [
        ("MILLRACE_JOURNAL_DIRECTORY", journal.as_str()),
        ("MILLRACE_MODEL_KV_TYPE", kv_type),
    ];
    let mut process = cluster.launch_with("all", &vars);
    let line = process.line();
    assert!(line.contains(" serves "), "{line:?}");
    process
}

/// Opens a stream that is parked after each window.
pub(super) fn open(process: &Serving) -> String {
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nx-stream-resumable: 1\r\nx-stream-acks: explicit";
    let body = json!({
        "messages": [{"role": "user", "content": "Tell me a story."}], "stream": true, "seed": 11,
        "max_tokens": 5 * WINDOW, "ignore_eos": true, "temperature": 1.0,
    });
    let silence = Duration::from_millis(1);
    let reading = read_events(&address(process), head, &body.to_string(), silence);
    reading.unwrap().header("x-stream-id").expect("an id")
}

/// Opens such a stream as a response.
fn open_response(process: &Serving) -> String {
    let head = "POST /v1/responses HTTP/1.1\r\nx-stream-resumable: 1\r\nx-stream-acks: explicit";
    let body = json!({
        "input": "Tell me a story.", "stream": true, "seed": 5, "max_output_tokens": 5 * WINDOW,
        "ignore_eos": true, "temperature": 1.0,
    });
    let silence = Duration::from_millis(1);
    let reading = read_events(&address(process), head, &body.to_string(), silence);
    reading.unwrap().header("x-stream-id").expect("an id")
}

/// The status of a read after a sequence number, and the largest number that came.
fn read_response(process: &Serving, id: &str, after: Option<u64>) -> (u16, u64) {
    let mut head = format!("GET /v1/responses/resp_{id}?stream=true");
    if let Some(after) = after {
        head += &format!("&starting_after={after}");
    }
    let silence = Duration::from_millis(60);
    let reading = read_events(&address(process), &format!("{head} HTTP/1.1"), "", silence);
    let reading = reading.expect("a response");
    let numbers = reading.events.iter().map(|event| {
        let data: serde_json::Value = serde_json::from_str(&event.data).expect("JSON");
        data["sequence_number"].as_u64().expect("a number")
    });
    (reading.status, numbers.max().unwrap_or(0))
}

/// Reads until the client has this many tokens.
fn read_to(client: &mut Client, process: &Serving, count: u64) {
    wait_until("the client has the tokens", || {
        client.read_on(&address(process));
        let steps = client.last_id().split(':').nth(1);
        steps.and_then(|steps| steps.parse().ok()) >= Some(count)
    });
}

fn tokens(process: &Serving, id: &str) -> u64 {
    let described = description(process, id);
    described["completion_tokens"].as_u64().unwrap_or(0)
}

/// Waits until the stream has so many tokens.
pub(super) fn wait_for_tokens(process: &Serving, id: &str, count: u64) {
    wait_until("the tokens of the window", || tokens(process, id) == count);
}

fn acknowledge(process: &Serving, id: &str, count: u64) {
    let body = json!({"index": count}).to_string();
    process.post(&format!("/v1/streams/{id}/ack"), &body);
}

/// Reads to the end, on a connection for each window.
fn finish(client: &mut Client, process: &Serving, mut count: u64) {
    while count < 5 * WINDOW {
        acknowledge(process, &client.stream, count);
        count += WINDOW;
        wait_for_tokens(process, &client.stream, count);
        assert_eq!(client.read_on(&address(process)), Some(200));
    }
    client.read_to_end(&address(process));
}

/// What came of a stream whose first owner has died.
struct TakenOver {
    _cluster: Cluster,
    _folder: Folder,
    second: Serving,
    /// A client with the tokens that were stored.
    stored: Client,
    /// One with more.
    ahead: Client,
    /// A response, and the last number of a client that has as much more.
    response: (String, u64),
}

fn take_over(name: &str, kv_type: &str) -> Option<TakenOver> {
    let program = nats_server::program()?;
    let folder = Folder::new(name);
    let lines = jet_stream(&folder);
    let mut cluster = Cluster::new(program, &format!("{name}-nats"), &lines, &settings());
    let first = start_all(&cluster, &folder.0.join("a"), "f16");
    let second = start_all(&cluster, &folder.0.join("b"), kv_type);
    let (id, response) = (open(&first), open_response(&first));
    for id in [&id, &response] {
        wait_for_tokens(&first, id, WINDOW);
    }
    wait_stored(&first, "");
    let mut stored = Client::new("stored", &id, "openai.chat");
    read_to(&mut stored, &first, WINDOW);
    // From now on nothing is stored, and the streams go on.
    cluster.nats.kill();
    for id in [&id, &response] {
        acknowledge(&first, id, WINDOW);
        wait_for_tokens(&first, id, 2 * WINDOW);
    }
    let mut ahead = stored.clone();
    read_to(&mut ahead, &first, 2 * WINDOW);
    let mut number = 0;
    wait_until("the events of the response", || {
        number = read_response(&first, &response, None).1;
        number > 2 * WINDOW
    });
    drop(first); // killed
    cluster.nats.start();
    wait_until("the second process has the stream", || {
        let reply = second.get(&format!("/v1/streams/{id}"));
        reply.starts_with("HTTP/1.1 200") && json(&reply)["generation"] == 2
    });
    Some(TakenOver {
        _cluster: cluster,
        _folder: folder,
        second,
        stored,
        ahead,
        response: (response, number),
    })
}

/// Promise (Cluster): a stream that was taken over ends `lost`, once, where the engines compute otherwise; a client
/// that has more than was stored gets an error with the position of the end, in every kind of read; no client gets a
/// second text.
/// Also held by `server/tests/it/gateways.rs :: stream_ends_lost_once_where_the_next_gateway_computes_otherwise`.
#[test]
fn stream_ends_lost_with_the_position_where_engines_compute_otherwise() {
    let Some(mut taken) = take_over("lost", "q8_0") else {
        return;
    };
    let (second, id) = (&taken.second, taken.stored.stream.clone());
    let path = format!("/v1/streams/{id}/events?after={}", taken.ahead.last_id());
    let reply = second.get(&path);
    assert!(reply.starts_with("HTTP/1.1 409"), "{reply}");
    let error = &json(&reply)["error"];
    assert_eq!(error["code"], "stream_lost", "{reply}");
    let place = error["resume_after"]
        .as_str()
        .expect("a position")
        .to_owned();
    let header = format!("x-stream-resume-after: {place}\r\n");
    assert!(reply.contains(&header), "{reply}");
    assert_eq!(place, format!("{id}:{WINDOW}"), "what was stored");
    let described = description(second, &id);
    assert_eq!(described["state"], "ended", "{described}");
    assert_eq!(described["choices"][0]["end"], "lost", "{described}");
    assert_eq!(described["completion_tokens"], WINDOW, "{described}");
    // In every kind of read.
    let offset = |steps: u64| second.get(&format!("/v1/stream/{id}?offset={steps:016}"));
    let reply = offset(2 * WINDOW);
    assert!(reply.starts_with("HTTP/1.1 409"), "{reply}");
    let stored = format!("{WINDOW:016}");
    assert_eq!(json(&reply)["error"]["resume_after"], stored, "{reply}");
    let reply = offset(WINDOW);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(reply.contains("stream-closed: true"), "{reply}");
    let (response, number) = &taken.response;
    let path = format!("/v1/responses/resp_{response}?stream=true&starting_after={number}");
    let reply = second.get(&path);
    assert!(reply.starts_with("HTTP/1.1 409"), "{reply}");
    let number_before = json(&reply)["error"]["resume_after"].clone();
    let after: u64 = number_before.as_str().unwrap().parse().expect("a number");
    assert!(after < *number, "{after}, {number}");
    assert_eq!(read_response(second, response, Some(after)).0, 200);
    // Both clients get the one end, after the same text.
    taken.ahead.transcript = taken.stored.transcript.clone();
    taken.ahead.resume_after(&place);
    let mut whole = Client::new("whole", &id, "openai.chat");
    for client in [&mut taken.stored, &mut taken.ahead, &mut whole] {
        client.read_to_end(&address(second));
    }
    assert_eq!(taken.stored.transcript, whole.transcript);
    assert_eq!(taken.ahead.transcript, whole.transcript);
    let told = second.get(&format!("/v1/streams/{id}/events?dialect=openai.chat"));
    assert_eq!(told.matches(r#""code":"lost""#).count(), 1, "{told}");
    assert!(!told.contains("[DONE]"), "{told}");
}

#[test]
fn client_that_is_ahead_waits_where_the_arithmetic_is_equal() {
    let Some(mut taken) = take_over("ahead", "f16") else {
        return;
    };
    let second = &taken.second;
    let (response, number) = &taken.response;
    assert_eq!(read_response(second, response, Some(*number)).0, 200);
    wait_for_tokens(second, &taken.ahead.stream, 2 * WINDOW);
    finish(&mut taken.ahead, second, 2 * WINDOW);
    let single = Crashing::start("ahead-single", &SETTINGS);
    let id = open(single.serving());
    let mut whole = Client::new("whole", &id, "openai.chat");
    wait_for_tokens(single.serving(), &id, WINDOW);
    finish(&mut whole, single.serving(), WINDOW);
    let received = taken.ahead.transcript.without_cached();
    assert_eq!(received, whole.transcript.without_cached());
}
