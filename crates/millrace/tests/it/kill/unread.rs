//! Unread ends of a process that is killed with SIGKILL: none is lost, and none that was acknowledged comes again.

use super::crashing::Crashing;
use serde_json::{Value, json};
use testing::wait::wait_until;

fn body_of(reply: &str) -> Value {
    let (head, body) = reply.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{reply}");
    serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {reply}"))
}

/// Opens a background response; returns its id.
fn submit(server: &Crashing, tokens: usize) -> String {
    let body = json!({
        "input": "Tell me a story.", "background": true, "max_output_tokens": tokens, "ignore_eos": true, "seed": 3,
    });
    let reply = server.serving().post("/v1/responses", &body.to_string());
    let id = body_of(&reply)["id"].clone();
    id.as_str().expect("an id").to_owned()
}

/// Ids of the responses with an unread end, and of their streams.
fn unread(server: &Crashing) -> Vec<(String, String)> {
    let page = body_of(&server.serving().get("/v1/streams?unread=true"));
    let streams = page["data"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("an id").to_owned();
    let ids = |stream: &Value| (text(&stream["response_id"]), text(&stream["id"]));
    streams.map(ids).collect()
}

fn wait_unread(server: &Crashing, expected: &[&String]) {
    wait_until("the unread ends", || {
        let unread = unread(server);
        unread
            .iter()
            .map(|(response, _)| response)
            .eq(expected.iter().copied())
    });
}

#[test]
fn unread_ends_survive_kills_until_they_are_acknowledged() {
    let settings = [
        ("MILLRACE_LOG_FILTER", "warn"),
        ("MILLRACE_STREAMS_RETENTION_S", "600"),
    ];
    let mut server = Crashing::start("kill-unread", &settings);
    // The first has ended; the second is killed in the middle.
    let ended = submit(&server, 4);
    wait_unread(&server, &[&ended]);
    let running = submit(&server, 600);
    server.kill();
    server.restart();
    wait_unread(&server, &[&ended, &running]);
    let [(_, first), (_, second)] = &unread(&server)[..] else {
        panic!("two streams");
    };
    let path = format!("/v1/streams/{first}/ack");
    let acknowledged = body_of(&server.serving().post(&path, r#"{"end": true}"#));
    assert_eq!(acknowledged["id"], first.as_str());
    // The acknowledgement is in the journal before its response.
    let second = second.clone();
    server.kill();
    server.restart();
    wait_unread(&server, &[&running]);
    // A reading is noted soon after.
    let events = format!("/v1/streams/{second}/events");
    let events = server.serving().get(&events);
    assert!(events.starts_with("HTTP/1.1 200"), "{events}");
    wait_unread(&server, &[]);
    // The note is in the journal once a later stream is.
    let last = submit(&server, 4);
    wait_unread(&server, &[&last]);
    server.kill();
    server.restart();
    wait_unread(&server, &[&last]);
}
