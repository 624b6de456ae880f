//! Mailboxes: what is put into them, and how clients read and acknowledge.

mod reading;

use crate::support::client::Reply;
use crate::support::named::{CHAT, RESUMABLE, call, chat, fake, get, send, stream_id};
use crate::support::webhook_receiver::{Receiver, config_with, webhook_settings};
use crate::support::{Rig, config, wait_until};
use serde_json::{Value, json};
use server::{MailboxSettings, ServerConfig};

const MAILBOX: &str = "/v1/mailbox";

/// A rig whose model waits for the gate.
fn gated_rig() -> Rig {
    Rig::gated(fake(), config())
}

fn rig_with(mailbox: MailboxSettings) -> Rig {
    let config = ServerConfig {
        mailbox,
        ..config()
    };
    let rig = Rig::gated(fake(), config);
    rig.gate.open();
    rig
}

fn post(rig: &Rig, path: &str, body: &Value) -> Reply {
    call(rig, "POST", path, "", body)
}

/// Opens a background response; returns its id.
fn open_response(rig: &Rig) -> String {
    let body = json!({"input": "hi", "background": true, "max_output_tokens": 4, "seed": 3});
    let response = post(rig, "/v1/responses", &body).json();
    response["id"].as_str().expect("an id").to_owned()
}

/// Waits for one event after a cursor.
fn next_page(rig: &Rig, query: &str) -> Value {
    get(rig, &format!("{MAILBOX}?wait_ms=60000{query}"), "").json()
}

fn events(rig: &Rig) -> Vec<Value> {
    let page = get(rig, MAILBOX, "").json();
    page["data"].as_array().expect("a list").clone()
}

/// Types of events, and ids of their objects.
fn names(events: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let name = |event: &Value| (text(&event["type"]), text(&event["data"]["id"]));
    events.iter().map(name).collect()
}

fn incomplete(kind: &str, id: &str) -> (String, String) {
    (format!("{kind}.incomplete"), id.to_owned())
}

#[test]
fn ends_without_a_reader_are_kept_until_they_are_acknowledged() {
    let rig = gated_rig();
    rig.gate.open();
    let first = open_response(&rig);
    wait_until("the first event", || events(&rig).len() == 1);
    let job = json!({"job_id": "j", "prompt": "hi", "max_tokens": 4});
    assert_eq!(post(&rig, "/v1/jobs", &job).head.status, 202);
    wait_until("the second event", || events(&rig).len() == 2);
    let page = next_page(&rig, "&limit=1");
    assert_eq!(
        names(page["data"].as_array().expect("a list")),
        [incomplete("response", &first)]
    );
    let result = page["data"][0]["data"]["links"]["result"].as_str();
    let result = get(&rig, result.expect("a path"), "");
    assert_eq!(
        (result.head.status, &result.json()["id"]),
        (200, &json!(first))
    );
    assert_eq!(
        (&page["has_more"], &page["dropped"]),
        (&json!(true), &json!(0))
    );
    let cursor = page["cursor"].as_str().expect("a cursor");
    let rest = next_page(&rig, &format!("&after={cursor}"));
    let rest = names(rest["data"].as_array().expect("a list"));
    assert_eq!(rest, [incomplete("job", "j")]);
    assert_eq!(events(&rig).len(), 2, "reading removes nothing");
    let acknowledge = || post(&rig, "/v1/mailbox/ack", &json!({"cursor": cursor}));
    let acknowledged = acknowledge();
    assert_eq!(acknowledged.head.status, 200, "{}", acknowledged.body);
    assert_eq!(acknowledged.json()["removed"], 1);
    assert_eq!(acknowledge().json()["removed"], 0);
    assert_eq!(names(&events(&rig)), [incomplete("job", "j")]);
    let metrics = get(&rig, "/metrics", "").body;
    for line in [
        "millrace_mailbox_events 1\n",
        "millrace_mailbox_added_total 2\n",
        "millrace_mailbox_acknowledged_total 1\n",
        "millrace_mailbox_dropped_total 0\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[test]
fn stream_is_kept_if_its_last_reader_left_before_the_end() {
    let rig = gated_rig();
    let open = || {
        send(
            &rig,
            "POST",
            CHAT,
            RESUMABLE,
            &chat(&json!({"max_tokens": 4})),
        )
    };
    let (mut left, mut stayed) = (open(), open());
    let left_id = stream_id(&left.head());
    let stayed_head = stayed.head();
    drop(left);
    rig.gate.open();
    stayed.rest(&stayed_head);
    wait_until("an event", || !events(&rig).is_empty());
    let last = open_response(&rig);
    wait_until("another event", || events(&rig).len() == 2);
    let expected = [
        incomplete("stream", &left_id),
        incomplete("response", &last),
    ];
    assert_eq!(names(&events(&rig)), expected);
}

#[test]
fn stream_that_is_read_later_stays_in_the_mailbox() {
    let rig = gated_rig();
    rig.gate.open();
    let job = json!({"job_id": "j", "prompt": "hi", "max_tokens": 4});
    post(&rig, "/v1/jobs", &job);
    wait_until("the event", || events(&rig).len() == 1);
    assert_eq!(get(&rig, "/v1/jobs/j/stream", "").head.status, 200);
    assert_eq!(names(&events(&rig)), [incomplete("job", "j")]);
}

#[test]
fn answers_that_were_waited_for_and_plain_streams_are_not_kept() {
    let rig = gated_rig();
    rig.gate.open();
    for (fields, is_streamed) in [("", true), (RESUMABLE, true), (RESUMABLE, false)] {
        let body = chat(&json!({"max_tokens": 4, "stream": is_streamed}));
        assert_eq!(call(&rig, "POST", CHAT, fields, &body).head.status, 200);
    }
    let too_long = chat(&json!({"max_tokens": 4, "prompt": "", "min_tokens": 9}));
    assert_eq!(
        call(&rig, "POST", CHAT, RESUMABLE, &too_long).head.status,
        400
    );
    let last = open_response(&rig);
    wait_until("an event", || !events(&rig).is_empty());
    assert_eq!(names(&events(&rig)), [incomplete("response", &last)]);
}

#[test]
fn cancelled_job_is_in_the_mailbox() {
    let rig = gated_rig();
    let job = json!({"job_id": "j", "prompt": "hi", "max_tokens": 400});
    post(&rig, "/v1/jobs", &job);
    post(&rig, "/v1/jobs/j/cancel", &json!({}));
    rig.gate.open();
    let page = next_page(&rig, "");
    assert_eq!(page["data"][0]["type"], "job.cancelled", "{page}");
}

#[test]
fn webhook_and_mailbox_get_the_same_event() {
    Rig::set_next_secrets(vec![None]);
    let receiver = Receiver::start([]);
    let rig = Rig::gated(fake(), config_with(webhook_settings()));
    rig.gate.open();
    let body = json!({"prompt": "hi", "max_tokens": 4, "webhook": receiver.url("/")});
    post(&rig, "/v1/jobs", &body);
    let sent: Value = serde_json::from_str(&receiver.wait_for(1)[0].body).expect("JSON");
    assert_eq!(next_page(&rig, "")["data"], json!([sent]));
}

#[test]
fn events_beyond_the_bound_are_dropped_and_counted() {
    let rig = rig_with(MailboxSettings {
        events_max: 2,
        ..MailboxSettings::default()
    });
    let ids: Vec<String> = (0..4).map(|_| open_response(&rig)).collect();
    let page = || get(&rig, MAILBOX, "").json();
    wait_until("two are dropped", || page()["dropped"] == 2);
    let kept = names(&events(&rig));
    assert_eq!(kept.len(), 2);
    assert!(kept.iter().all(|(_, id)| ids.contains(id)));
}

#[test]
fn mailbox_that_is_off_stays_empty() {
    let rig = rig_with(MailboxSettings {
        events_max: 0,
        ..MailboxSettings::default()
    });
    let id = open_response(&rig);
    let path = format!("/v1/responses/{id}");
    wait_until("the response has ended", || {
        get(&rig, &path, "").json()["status"] == "incomplete"
    });
    assert_eq!(events(&rig), Vec::<Value>::new());
    assert!(
        get(&rig, "/metrics", "")
            .body
            .contains("millrace_mailbox_added_total 0\n")
    );
}
