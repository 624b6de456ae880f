//! The mailbox at two gateways: read, waited for and acknowledged at one of them, while the other is silent or killed.

use super::gateway_killed::{HEARTBEAT, jet_stream, wait_stored};
use super::processes::{Cluster, address, json, wait_for_engines};
use super::{SETTINGS, metric, nats_server};
use crate::support::{Folder, Serving};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use testing::wait::{PATIENCE, wait_until};

/// Runs a background response; returns the id of its event.
fn submit(gateway: &Serving) -> String {
    let body = json!({
        "input": "Tell me a story.", "background": true, "max_output_tokens": 4, "ignore_eos": true, "seed": 3,
    });
    let reply = json(&gateway.post("/v1/responses", &body.to_string()));
    let id = reply["id"].as_str().expect("an id");
    id.replace("resp_", "evt_")
}

fn ids(page: &Value) -> Vec<&str> {
    let events = page["data"].as_array().expect("a list").iter();
    events
        .map(|event| event["id"].as_str().expect("an id"))
        .collect()
}

fn read(gateway: &Serving, query: &str) -> Value {
    json(&gateway.get(&format!("/v1/mailbox?{query}")))
}

fn acknowledge(gateway: &Serving, cursor: &Value) -> Value {
    let body = json!({"cursor": cursor}).to_string();
    json(&gateway.post("/v1/mailbox/ack", &body))
}

/// A reader of server-sent events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(gateway: &Serving) -> Self {
        let mut client = TcpStream::connect(address(gateway)).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let request =
            "GET /v1/mailbox HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
        client.write_all(request.as_bytes()).unwrap();
        let mut events = Self(BufReader::new(client));
        while !events.line().trim().is_empty() {}
        events
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(
            self.0.read_line(&mut line).unwrap() > 0,
            "the stream goes on"
        );
        line
    }

    /// The next event that has an id of its own.
    fn next(&mut self) -> Value {
        loop {
            if let Some(data) = self.line().strip_prefix("data: ") {
                let event: Value = serde_json::from_str(data).expect("JSON");
                if event["id"].is_string() {
                    return event;
                }
            }
        }
    }
}

/// Two gateways that hear each other.
fn start_gateways(cluster: &Cluster, folder: &Folder) -> [Serving; 2] {
    let gateways = ["a", "b"].map(|name| {
        let gateway = cluster.start_durable_gateway(&folder.0.join(name));
        wait_for_engines(&gateway, 1);
        gateway
    });
    wait_until("the gateways hear each other", || {
        let known = |gateway: &Serving| json(&gateway.get("/v1/cluster"))["instances"].clone();
        let known = gateways.each_ref().map(known);
        known.map(|instances| instances.as_array().map(Vec::len)) == [Some(3); 2]
    });
    gateways
}

#[test]
fn mailbox_is_one_at_all_gateways() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("gateways-mailbox");
    let lines = jet_stream(&folder);
    let settings = [&SETTINGS[..], &[HEARTBEAT]].concat();
    let mut cluster = Cluster::new(program, "gateways-mailbox-nats", &lines, &settings);
    cluster.start_engines(1);
    let [here, there] = start_gateways(&cluster, &folder);

    // An event at the other gateway wakes both kinds of readers here.
    let mut events = Events::open(&here);
    let (woken, first) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| read(&here, "wait_ms=60000"));
        let first = submit(&there);
        (waiting.join().expect("a page"), first)
    });
    assert_eq!(ids(&woken), [first.as_str()]);
    assert_eq!(events.next()["id"], first.as_str());
    assert_eq!(acknowledge(&here, &woken["cursor"])["removed"], 1);
    for gateway in [&here, &there] {
        assert!(ids(&read(gateway, "scope=instance")).is_empty());
    }

    // One event is acknowledged while the other gateway does not answer, and one is not.
    let second = submit(&there);
    wait_until("the second", || ids(&read(&here, "")) == [second.as_str()]);
    let cursor = read(&here, "")["cursor"].clone();
    let third = submit(&there);
    wait_until("the third", || ids(&read(&here, "")).len() == 2);
    assert_eq!(events.next()["id"], second.as_str());
    assert_eq!(events.next()["id"], third.as_str());
    wait_stored(&there, "");
    let name = json(&there.get("/v1/cluster"))["instance"].clone();
    there.signal("STOP");
    let reply = acknowledge(&here, &cursor);
    assert_eq!(
        (&reply["removed"], &reply["unanswered"][0]["instance"]),
        (&json!(0), &name)
    );
    drop(there); // killed
    // Two events, and the three responses.
    wait_until("all is taken over", || {
        metric(&here, "millrace_streams_claimed_total") >= 5.0
    });
    let page = read(&here, "");
    assert!(ids(&page).contains(&third.as_str()), "{page}");
    // A gateway that is killed before it has noted a report leaves the end to be reported once more: a new event.
    if ids(&page).contains(&second.as_str()) {
        assert!(
            metric(&here, "millrace_mailbox_added_total") > 0.0,
            "{page}"
        );
    }
    while events.next()["id"] != third.as_str() {}
    wait_until("nothing is left", || {
        let page = read(&here, "");
        acknowledge(&here, &page["cursor"]);
        ids(&page).is_empty()
    });
}
