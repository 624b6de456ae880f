//! Stored answers on the way to their clients: the end of an answer is sent after the answer is in the journal.
//!
//! Promise (Journal): the body of a stored answer, and the last event of a streamed one, are sent when the answer is in the
//! journal, also over a WebSocket; a journal that stalls or is full delays them by a second at most, and an answer that is
//! deleted meanwhile or whose client leaves holds nothing up.
//! Also held by `millrace/tests/it/kill/stored_answers.rs`.

use crate::support::disk::{Disk, Writes};
use crate::support::named::{CHAT, call, chat, fake, get, kept, send};
use crate::support::talk::Talk;
use crate::support::{Rig, wait_until};
use serde_json::{Value, json};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const RESPONSES: &str = "/v1/responses";
/// Requests that the server answers while a snapshot is being written.
const TURNS: usize = 10;
/// How long an end waits for its snapshot at most.
const END_WAIT: Duration = Duration::from_secs(1);

/// An answer that a thread reads to the end, and returns.
type Reading = JoinHandle<String>;

fn response(stream: bool) -> Value {
    json!({"model": "fake", "input": "hi", "max_output_tokens": 8, "stream": stream})
}

fn completion(stream: bool) -> Value {
    chat(&json!({"store": true, "stream": stream, "max_tokens": 8}))
}

/// Ways to get an answer that is stored: a name, and the last words of the answer.
const WAYS: [(&str, &str); 6] = [
    ("whole response", "}"),
    ("streamed response", "response.incomplete"),
    ("whole completion", "}"),
    ("streamed completion", "[DONE]"),
    ("response over a WebSocket", "\"type\":\"ended\""),
    ("completion over a WebSocket", "\"type\":\"ended\""),
];

fn ask(rig: &Rig, way: &str) -> Reading {
    let stream = way.starts_with("streamed");
    let (path, body) = match way {
        "whole response" | "streamed response" => (RESPONSES, response(stream)),
        "whole completion" | "streamed completion" => (CHAT, completion(stream)),
        "response over a WebSocket" => return talk(rig, "openai.responses", &response(true)),
        _ => return talk(rig, "openai.chat", &completion(true)),
    };
    let mut client = send(rig, "POST", path, "", &body);
    thread::spawn(move || {
        let reply = client.reply();
        assert_eq!(reply.head.status, 200, "{}", reply.body);
        reply.body
    })
}

fn talk(rig: &Rig, dialect: &str, body: &Value) -> Reading {
    let mut talk = Talk::with(rig);
    let stream = talk.open("a", &json!({"dialect": dialect}), body);
    thread::spawn(move || {
        let messages = talk.whole(&stream);
        messages.iter().map(Value::to_string).collect()
    })
}

/// Stored answers in the journal.
fn snapshots(disk: &Disk) -> usize {
    let streams = disk.read().streams.into_iter();
    streams
        .filter(|stream| String::from_utf8_lossy(&stream.description).contains("stored_blob"))
        .count()
}

/// Asks for an answer whose snapshot is written late. True if the end came after it. False if that is not known: after a
/// second an end comes in any case.
#[expect(
    clippy::disallowed_methods,
    reason = "an end that comes without its snapshot must not be early; a late one proves nothing"
)]
fn comes_after_its_snapshot(rig: &Rig, disk: &Disk, (way, end): (&str, &str)) -> bool {
    // It does not, for a while, after a long stall.
    wait_until("the journal works", || {
        get(rig, "/health", "").json()["journal"]["durable"] == true
    });
    let (before, asked) = (snapshots(disk), Instant::now());
    let is_early = || asked.elapsed() < END_WAIT;
    disk.set_writes(Writes::Held);
    let reading = ask(rig, way);
    wait_until("the snapshot is being written", || {
        disk.is_waiting() || reading.is_finished()
    });
    // Meanwhile the threads that would send and read the end have their turns.
    let comes_before = (0..TURNS).any(|_| {
        get(rig, "/v1/models", "");
        reading.is_finished() && is_early()
    });
    disk.set_writes(Writes::Done);
    assert!(!comes_before, "{way}: not written");
    let answer = reading.join().expect("an answer");
    assert!(answer.contains(end), "{way}: {answer}");
    let is_known = is_early();
    assert!(snapshots(disk) > before || !is_known, "{way}: not written");
    is_known
}

#[test]
fn end_of_an_answer_comes_after_its_snapshot() {
    let disk = Disk::new("snapshot-first");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    rig.gate.open();
    for way in WAYS.repeat(2) {
        wait_until(way.0, || comes_after_its_snapshot(&rig, &disk, way));
    }
}

#[test]
fn stalled_or_full_journal_delays_no_answer_without_bound() {
    for writes in [Writes::Held, Writes::Full] {
        let disk = Disk::new("snapshot-never");
        let rig = Rig::recorded(fake(), kept(), disk.clone());
        rig.gate.open();
        disk.set_writes(writes);
        for (way, end) in WAYS {
            let answer = ask(&rig, way).join().expect("an answer");
            assert!(answer.contains(end), "{way}, {writes:?}: {answer}");
        }
        assert_eq!(snapshots(&disk), 0);
        let listed = get(&rig, CHAT, "").json();
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(3), "{listed}");
        disk.set_writes(Writes::Done);
    }
}

#[test]
fn answer_that_is_deleted_or_left_meanwhile_holds_nothing_up() {
    let disk = Disk::new("snapshot-deleted");
    let rig = Rig::recorded(fake(), kept(), disk.clone());
    rig.gate.open();
    disk.set_writes(Writes::Held);
    let reading = ask(&rig, "whole completion");
    wait_until("the snapshot is being written", || disk.is_waiting());
    let listed = get(&rig, CHAT, "").json();
    let path = format!("{CHAT}/{}", listed["data"][0]["id"].as_str().unwrap());
    let mut deletion = send(&rig, "DELETE", &path, "", &Value::Null);
    disk.set_writes(Writes::Done);
    assert_eq!(deletion.reply().head.status, 200);
    assert!(reading.join().is_ok());
    assert_eq!(get(&rig, &path, "").head.status, 404);
    wait_until("nothing is stored", || snapshots(&disk) == 0);
    disk.set_writes(Writes::Held);
    let client = send(&rig, "POST", CHAT, "", &completion(false));
    wait_until("the snapshot is being written", || disk.is_waiting());
    drop(client);
    disk.set_writes(Writes::Done);
    wait_until("the answer is stored", || snapshots(&disk) == 1);
    let other = call(&rig, "POST", CHAT, "", &completion(false));
    assert_eq!(other.head.status, 200, "{}", other.body);
}
