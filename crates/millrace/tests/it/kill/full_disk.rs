//! A disk that fills up: nothing ends, every client is informed, and streams are durable again when there is space.
//!
//! Promise (Journal): a disk that fills up ends no stream, clients are informed, and streams are durable again when
//! space was freed.

use super::SETTINGS;
use super::crashing::{Client, description};
use super::event_reader::read_events;
use crate::support::{Folder, Serving, command, on_small_disk};
use serde_json::json;
use std::process::Stdio;
use std::time::Duration;
use testing::program::note_skipped_test;
use testing::wait::{PATIENCE, wait_until};

/// The reserve for the ends of streams takes 1 MiB of this.
const DISK_KIB: usize = 4096;
/// Streams that fill the disk several times.
const STREAMS_MAX: usize = 400;

/// A server with a journal on a disk of [`DISK_KIB`].
fn start_server(folder: &Folder) -> Option<Serving> {
    let mut program = command(&["serve", "--bind", "127.0.0.1:0"]);
    let journal = folder.0.join("journal");
    program
        .envs(SETTINGS)
        .env("MILLRACE_JOURNAL_DIRECTORY", journal);
    let mut program = on_small_disk(&program, &folder.0, DISK_KIB)?;
    program.stderr(Stdio::inherit());
    let mut serving = Serving::spawn(program);
    assert!(
        serving.line().contains(" serves "),
        "a server on a small disk"
    );
    Some(serving)
}

/// Opens a stream with a large record; the value of `x-stream-durable` and the stream's id.
fn open_stream(address: &str, max_tokens: usize, number: usize) -> (String, String) {
    // Recorded, and not a part of the prompt's tokens.
    let note = json!({"note": "x".repeat(20_000)});
    let body = json!({
        "messages": [{"role": "user", "content": format!("Story {number}")}], "stream": true,
        "max_tokens": max_tokens, "ignore_eos": true, "chat_template_kwargs": note,
    });
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nx-stream-resumable: 1\r\nx-stream-acks: explicit";
    let silence = if max_tokens == 1 {
        PATIENCE
    } else {
        Duration::from_millis(30)
    };
    let reading = read_events(address, head, &body.to_string(), silence).expect("a response");
    assert_eq!(reading.status, 200, "stream {number}: {}", reading.head);
    assert!(
        max_tokens > 1 || reading.is_complete,
        "stream {number} has no end"
    );
    let field = |name| reading.header(name).expect("a header field");
    (field("x-stream-durable"), field("x-stream-id"))
}

#[test]
fn full_disk_ends_no_stream() {
    let folder = Folder::new("full-disk");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let Some(serving) = start_server(&folder) else {
        note_skipped_test("no permission to mount a file system of a few MiB");
        return;
    };
    let address = serving.url().trim_start_matches("http://").to_owned();
    let (durable, running) = open_stream(&address, 60, 0);
    assert_eq!(durable, "1", "there is space for the first");
    let mut ended = Vec::new();
    let full = (1..STREAMS_MAX).find(|&number| {
        let (durable, stream) = open_stream(&address, 1, number);
        ended.push(stream);
        durable == "0"
    });
    assert!(
        full.is_some_and(|full| full > 10),
        "full after {full:?} streams"
    );
    let metrics = serving.get("/metrics");
    assert!(metrics.contains("millrace_journal_durable 0"), "{metrics}");

    let mut client = Client::new("running", &running, "openai.chat");
    wait_until("the running stream comes to its end", || {
        let tokens = &description(&serving, &running)["choices"][0]["tokens"];
        let body = json!({"index": tokens}).to_string();
        serving.post(&format!("/v1/streams/{running}/ack"), &body);
        client.read_on(&address);
        client.is_over
    });
    let end = &description(&serving, &running)["choices"][0]["end"];
    assert_eq!(end, "length", "an ending as on any disk");

    // All records before the end of space are in one file, which the oldest stream needs.
    ended.push(running);
    for stream in &ended {
        let reply = serving.send("DELETE", &format!("/v1/streams/{stream}"), "", "");
        assert!(reply.starts_with("HTTP/1.1 202"), "{reply}");
    }
    wait_until("the journal is durable again", || {
        serving
            .get("/metrics")
            .contains("millrace_journal_durable 1")
    });
    let (durable, _) = open_stream(&address, 1, STREAMS_MAX);
    assert_eq!(durable, "1", "after space was freed");
}
