//! Events about ends where the gateway is killed: another gateway delivers them, and lists the unread ends.
//!
//! Promise (Cluster): events of a killed gateway, delivered or not, and of its background responses in the middle of
//! an answer, are delivered by another gateway, which lists the unread ends.

use super::gateway_killed::{HEARTBEAT, jet_stream, wait_stored};
use super::nats_server;
use super::processes::{Cluster, json};
use crate::kill::webhooks::{Receiver, SETTINGS};
use crate::support::{Folder, Serving};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use testing::wait::wait_until;

/// Opens a background response; returns its id.
fn submit(gateway: &Serving, receiver: Option<&Receiver>, tokens: usize) -> String {
    let mut body = json!({
        "input": "Tell me a story.", "background": true, "max_output_tokens": tokens, "ignore_eos": true, "seed": 3,
    });
    if let Some(receiver) = receiver {
        body["webhook"] = json!(format!("http://{}/", receiver.addr));
    }
    let reply = gateway.post("/v1/responses", &body.to_string());
    let id = json(&reply)["id"].clone();
    id.as_str().expect("an id").to_owned()
}

/// Ids of the responses with an unread end, as this gateway lists them.
fn unread(gateway: &Serving) -> HashSet<String> {
    let page = json(&gateway.get("/v1/streams?unread=true"));
    let streams = page["data"].as_array().expect("a list").iter();
    let id = |stream: &Value| stream["response_id"].as_str().expect("an id").to_owned();
    streams.map(id).collect()
}

/// Ids of the responses with events that a receiver got, accepted or not.
fn received(receiver: &Receiver, is_accepted: bool) -> HashSet<String> {
    let ids = receiver.ids(is_accepted).into_iter();
    ids.map(|id| id.replace("evt_", "resp_")).collect()
}

#[test]
fn events_of_a_killed_gateway_are_delivered_by_another() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("gateways-events");
    let lines = jet_stream(&folder);
    let settings = [&SETTINGS[..], &[HEARTBEAT, ("MILLRACE_MODEL_THREADS", "1")]].concat();
    let mut cluster = Cluster::new(program, "gateways-events-nats", &lines, &settings);
    cluster.start_engines(1);
    let [first, second] =
        ["a", "b"].map(|name| cluster.start_durable_gateway(&folder.0.join(name)));
    let receiver = Receiver::start();
    // One has ended and its delivery fails; one has ended without a webhook; one is killed in the middle.
    let ended = submit(&first, Some(&receiver), 4);
    let silent = submit(&first, None, 4);
    wait_until("an attempt", || received(&receiver, false).contains(&ended));
    wait_until("both are unread", || unread(&first).len() == 2);
    let running = submit(&first, Some(&receiver), 400);
    wait_stored(&first, "");
    drop(first); // killed
    receiver.is_open.store(true, Ordering::SeqCst);
    let delivered = HashSet::from([ended.clone(), running.clone()]);
    wait_until("the events are delivered", || {
        received(&receiver, true) == delivered
    });
    let all = HashSet::from([ended, silent, running]);
    wait_until("all ends are unread", || unread(&second) == all);
    for response in &all {
        let reply = second.get(&format!("/v1/responses/{response}"));
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }
    wait_until("nothing waits", || {
        let list = json(&second.get("/v1/webhooks/deliveries"));
        list["data"].as_array().is_some_and(Vec::is_empty)
    });
}
