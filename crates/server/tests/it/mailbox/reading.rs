//! Readers: who waits, who resumes, who shares a mailbox, and who sends nonsense.

use super::{
    MAILBOX, events, gated_rig, incomplete, names, next_page, open_response, post, rig_with,
};
use crate::support::client::Client;
use crate::support::named::{get, send};
use crate::support::owners::{call_as, owners_rig, rejection};
use crate::support::sse::{Frame, frames};
use crate::support::{Rig, wait_until};
use serde_json::{Value, json};
use server::MailboxSettings;

/// A stream of the mailbox's events, and how much of it was read.
struct Streamed {
    client: Client,
    text: String,
}

impl Streamed {
    fn open(rig: &Rig, fields: &str) -> Self {
        let fields = format!("accept: text/event-stream\r\n{fields}");
        let mut client = send(rig, "GET", MAILBOX, &fields, &Value::Null);
        let head = client.head();
        assert_eq!(head.get("content-type"), Some("text/event-stream"));
        let text = String::new();
        Self { client, text }
    }

    /// Waits for so many events from the beginning.
    fn wait_for(&mut self, count: usize) -> Vec<Frame> {
        while frames(&self.text).len() < count {
            self.text += &self.client.chunk().expect("the stream goes on");
        }
        frames(&self.text)
    }
}

fn object_id(frame: &Frame) -> String {
    let event: Value = serde_json::from_str(&frame.data).expect("JSON");
    event["data"]["id"].as_str().expect("an id").to_owned()
}

#[test]
fn waiting_reader_gets_the_event_as_it_comes() {
    let rig = gated_rig();
    let id = open_response(&rig);
    let path = format!("{MAILBOX}?wait_ms=60000");
    let mut waiting = send(&rig, "GET", &path, "", &Value::Null);
    assert!(events(&rig).is_empty());
    rig.gate.open();
    let page = waiting.reply().json();
    let data = page["data"].as_array().expect("a list");
    assert_eq!(names(data), [incomplete("response", &id)]);
}

#[test]
fn empty_mailbox_answers_at_once_or_after_the_wait() {
    let rig = gated_rig();
    for query in ["", "?wait_ms=1"] {
        let page = get(&rig, &format!("{MAILBOX}{query}"), "").json();
        assert_eq!(
            (&page["data"], &page["has_more"]),
            (&json!([]), &json!(false))
        );
        let cursor = page["cursor"].as_str().expect("a cursor");
        let again = get(&rig, &format!("{MAILBOX}?after={cursor}"), "").json();
        assert_eq!(again, page);
    }
}

#[test]
fn stream_of_events_resumes_after_the_last_id() {
    let rig = gated_rig();
    rig.gate.open();
    let mut stream = Streamed::open(&rig, "");
    let first = open_response(&rig);
    let got = stream.wait_for(1);
    assert_eq!(object_id(&got[0]), first);
    assert!(
        stream.text.contains("event: response.incomplete\n"),
        "{}",
        stream.text
    );
    assert!(stream.text.contains("retry: 250\n"), "{}", stream.text);
    let last = got[0].id.clone().expect("an id");
    drop(stream);
    let second = open_response(&rig);
    let mut resumed = Streamed::open(&rig, &format!("last-event-id: {last}\r\n"));
    let got = resumed.wait_for(1);
    assert_eq!((got.len(), object_id(&got[0])), (1, second.clone()));
    // The id is a cursor.
    let cursor = got[0].id.clone().expect("an id");
    let acknowledged = post(&rig, "/v1/mailbox/ack", &json!({"cursor": cursor}));
    assert_eq!(acknowledged.json()["removed"], 2);
    let third = open_response(&rig);
    assert_eq!(object_id(&resumed.wait_for(2)[1]), third);
}

#[test]
fn stream_of_events_tells_of_dropped_ones_and_ends_with_the_server() {
    let mut rig = rig_with(MailboxSettings {
        events_max: 1,
        ..MailboxSettings::default()
    });
    open_response(&rig);
    open_response(&rig);
    wait_until("one is dropped", || {
        get(&rig, MAILBOX, "").json()["dropped"] == 1
    });
    let mut stream = Streamed::open(&rig, "");
    let got = stream.wait_for(2);
    assert_eq!(got[0].data, r#"{"type":"mailbox.dropped","dropped":1}"#);
    assert_eq!(got[0].id, None);
    let path = format!(
        "{MAILBOX}?wait_ms=60000&after={}",
        got[1].id.clone().unwrap()
    );
    let mut waiting = send(&rig, "GET", &path, "", &Value::Null);
    rig.ask_to_stop();
    while stream.client.chunk().is_some() {}
    // The server may have closed the other connection before it had read the request.
    if let Some(head) = waiting.try_head() {
        assert_eq!(head.status, 200);
    }
}

#[test]
fn two_readers_see_all_events_until_one_acknowledges() {
    let rig = gated_rig();
    rig.gate.open();
    let (mut one, mut other) = (Streamed::open(&rig, ""), Streamed::open(&rig, ""));
    let first = open_response(&rig);
    let [seen, too] = [&mut one, &mut other].map(|reader| reader.wait_for(1).remove(0));
    assert_eq!((object_id(&seen), &seen.id), (first, &too.id));
    let second = open_response(&rig);
    assert_eq!(object_id(&one.wait_for(2)[1]), second);
    let cursor = one.wait_for(2)[1].id.clone().expect("an id");
    post(&rig, "/v1/mailbox/ack", &json!({"cursor": cursor}));
    assert!(events(&rig).is_empty(), "for both");
    // Another reader is where it was: what one has acknowledged does not come, what follows does.
    let third = open_response(&rig);
    let after = too.id.expect("an id");
    let page = next_page(&rig, &format!("&after={after}"));
    let data = page["data"].as_array().expect("a list");
    assert_eq!(names(data), [incomplete("response", &third)]);
}

#[test]
fn mailbox_belongs_to_one_key() {
    let rig = owners_rig();
    let body = json!({"input": "hi", "background": true, "max_output_tokens": 4});
    let response = call_as(&rig, "one", "POST", "/v1/responses", &body).json();
    let path = format!("{MAILBOX}?wait_ms=60000");
    let page = call_as(&rig, "one", "GET", &path, &Value::Null).json();
    assert_eq!(page["data"][0]["data"]["id"], response["id"]);
    let cursor = json!({"cursor": page["cursor"]});
    for other in ["two", "admin"] {
        let page = call_as(&rig, other, "GET", MAILBOX, &Value::Null).json();
        assert_eq!(page["data"], json!([]), "{other}");
        let acknowledged = call_as(&rig, other, "POST", "/v1/mailbox/ack", &cursor);
        assert_eq!(acknowledged.json()["removed"], 0, "{other}");
    }
    let acknowledged = call_as(&rig, "one", "POST", "/v1/mailbox/ack", &cursor);
    assert_eq!(acknowledged.json()["removed"], 1);
    assert_eq!(get(&rig, MAILBOX, "").head.status, 401);
}

#[test]
fn invalid_requests_name_the_field_and_the_bound() {
    let rig = gated_rig();
    for (query, code, word) in [
        (
            "wait_ms=60001",
            "invalid_value",
            "wait_ms: must be an integer from 0 to 60000",
        ),
        (
            "limit=101",
            "invalid_value",
            "limit: must be an integer from 0 to 100",
        ),
        ("after=x", "invalid_cursor", "after: must be a cursor"),
        ("stream=1", "invalid_value", "stream: must be true or false"),
    ] {
        let reply = get(&rig, &format!("{MAILBOX}?{query}"), "");
        assert_eq!(rejection(&reply), (400, code.to_owned()), "{query}");
        assert!(reply.body.contains(word), "{}", reply.body);
    }
    let reply = get(&rig, MAILBOX, "last-event-id: x\r\n");
    assert_eq!(rejection(&reply), (400, "invalid_cursor".to_owned()));
    for body in [
        json!({}),
        json!({"cursor": 7}),
        json!({"cursor": ""}),
        json!({"cursor": "AAAA"}),
    ] {
        let reply = post(&rig, "/v1/mailbox/ack", &body);
        assert_eq!(reply.head.status, 400, "{body}: {}", reply.body);
        assert!(reply.body.contains("cursor"), "{}", reply.body);
    }
}
