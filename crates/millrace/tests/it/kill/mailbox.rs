//! The mailbox of a process that is killed with SIGKILL: no event is lost, and cursors stay valid.

use super::crashing::Crashing;
use serde_json::{Value, json};
use std::collections::HashSet;
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

/// Ids of the responses after a cursor, and the cursor after them.
fn read(server: &Crashing, after: &str) -> (Vec<String>, String) {
    let reply = server.serving().get(&format!("/v1/mailbox?after={after}"));
    let page = body_of(&reply);
    let events = page["data"].as_array().expect("a list").iter();
    let id = |event: &Value| event["data"]["id"].as_str().expect("an id").to_owned();
    let cursor = page["cursor"].as_str().expect("a cursor");
    (events.map(id).collect(), cursor.to_owned())
}

#[test]
fn events_survive_kills_until_they_are_acknowledged() {
    let mut server = Crashing::start("kill-mailbox", &[("MILLRACE_LOG_FILTER", "warn")]);
    // The first has ended and was read; the second is killed in the middle.
    let ended = submit(&server, 4);
    wait_until("an event", || read(&server, "").0 == [ended.clone()]);
    let (_, after_first) = read(&server, "");
    let running = submit(&server, 600);
    server.kill();
    server.restart();
    wait_until("the second ends", || read(&server, "").0.len() == 2);
    let (all, after_both) = read(&server, "");
    assert_eq!(all[0], ended, "in the order of their ends");
    assert_eq!(
        read(&server, &after_first).0,
        std::slice::from_ref(&running)
    );
    // The events are in the journal once a later stream is.
    let later = submit(&server, 4);
    server.kill();
    server.restart();
    wait_until("the third ends", || read(&server, "").0.len() == 3);
    let (all, after_all) = read(&server, "");
    assert_eq!(
        read(&server, &after_both).0,
        std::slice::from_ref(&later),
        "the cursor holds"
    );
    let expected = HashSet::from([ended, running, later]);
    assert_eq!(all.into_iter().collect::<HashSet<_>>(), expected);
    let acknowledgement = json!({"cursor": after_all}).to_string();
    let reply = server.serving().post("/v1/mailbox/ack", &acknowledgement);
    assert_eq!(body_of(&reply)["removed"], 3);
    // The acknowledgement is in the journal once a later stream is.
    let last = submit(&server, 4);
    wait_until("the last ends", || read(&server, "").0 == [last.clone()]);
    server.kill();
    server.restart();
    wait_until("the last is the only one", || {
        read(&server, "").0 == [last.clone()]
    });
}
