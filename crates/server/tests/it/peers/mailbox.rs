//! The mailbox of a key at two gateways.

use super::{Gateway, start_pair};
use crate::support::named::send;
use crate::support::owners::key_field;
use crate::support::wait_until;
use serde_json::{Value, json};

const MAILBOX: &str = "/v1/mailbox";

/// The streams of the events of a page.
fn streams_of(page: &Value) -> Vec<String> {
    let events = page["data"].as_array().expect("a list").iter();
    let stream = |event: &Value| event["data"]["stream_id"].as_str().map(str::to_owned);
    events.map(|event| stream(event).expect("an id")).collect()
}

/// The streams in the mailbox of a key, as this gateway shows it.
fn streams(gateway: &Gateway, owner: &str) -> Vec<String> {
    let (status, page) = gateway.show(owner, MAILBOX);
    assert_eq!((status, &page["unanswered"]), (200, &Value::Null), "{page}");
    streams_of(&page)
}

/// Runs a job, and waits until its event is in the mailbox.
fn run_job(gateway: &Gateway, owner: &str) -> String {
    let id = gateway.run_job(owner, None);
    wait_until("the event", || streams(gateway, owner).contains(&id));
    id
}

#[test]
fn mailbox_of_both_gateways_is_read_and_acknowledged_at_each() {
    let Some(mut pair) = start_pair() else { return };
    let (first, second) = (&pair.first, &pair.second);
    let own = [first, second, second, first].map(|gateway| run_job(gateway, "one"));
    let foreign = run_job(second, "two");
    let mut cursor = Value::Null;
    for gateway in [first, second] {
        assert_eq!(streams(gateway, "one"), own);
        assert_eq!(streams(gateway, "two"), [foreign.as_str()]);
        assert!(streams(gateway, "admin").is_empty(), "another key's events");
        let (_, here) = gateway.show("one", "/v1/mailbox?scope=instance");
        assert_eq!(streams_of(&here).len(), 2);
        // Page by page, at both gateways in turn.
        let (mut read, mut after) = (Vec::new(), String::new());
        for gateway in [first, second].into_iter().cycle() {
            let (_, page) = gateway.show("one", &format!("{MAILBOX}?limit=1&after={after}"));
            read.extend(streams_of(&page));
            after = page["cursor"].as_str().expect("a cursor").to_owned();
            cursor = page["cursor"].clone();
            if page["has_more"] == false {
                break;
            }
        }
        assert_eq!(read, own);
    }
    let path = format!("{MAILBOX}?wait_ms=60000&after={}", cursor.as_str().unwrap());
    let mut waiting = send(first.rig(), "GET", &path, &key_field("one"), &Value::Null);
    let next = second.run_job("one", None);
    let page = waiting.reply().json();
    assert_eq!(streams_of(&page), [next.as_str()]);

    let acknowledge = |gateway: &Gateway| {
        let path = format!("{MAILBOX}/ack");
        let (status, reply) = gateway.ask("one", "POST", &path, &json!({"cursor": cursor}));
        assert_eq!(status, 200, "{reply}");
        reply
    };
    assert_eq!(acknowledge(first)["removed"], 4);
    assert_eq!(acknowledge(second)["removed"], 0);
    for gateway in [first, second] {
        assert_eq!(streams(gateway, "one"), [next.as_str()]);
        assert_eq!(streams(gateway, "two"), [foreign.as_str()]);
    }

    // The second gateway is there and does not answer.
    let id = pair.second.id.clone();
    drop(pair.second.rig.take());
    let last = pair.first.run_job("one", None);
    let seen = || pair.first.show("one", MAILBOX).1;
    wait_until("the event", || streams_of(&seen()) == [last.as_str()]);
    assert_eq!(seen()["unanswered"][0]["instance"], id.as_str());
    let reply = acknowledge(&pair.first);
    assert_eq!(reply["unanswered"][0]["instance"], id.as_str(), "{reply}");
}
