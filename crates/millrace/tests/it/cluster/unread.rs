//! Unread ends at two gateways: listed and acknowledged at one of them, also when the other is killed.

use super::gateway_killed::{HEARTBEAT, jet_stream, wait_stored};
use super::processes::{Cluster, json, wait_for_engines};
use super::{SETTINGS, metric, nats_server};
use crate::support::{Folder, Serving};
use serde_json::{Value, json};
use testing::wait::wait_until;

/// Runs a background response; returns its id.
fn submit(gateway: &Serving) -> String {
    let body = json!({
        "input": "Tell me a story.", "background": true, "max_output_tokens": 4, "ignore_eos": true, "seed": 3,
    });
    let reply = json(&gateway.post("/v1/responses", &body.to_string()));
    reply["id"].as_str().expect("an id").to_owned()
}

/// Ids of the responses with an unread end, and of their streams.
fn unread(gateway: &Serving) -> Vec<(String, String)> {
    let page = json(&gateway.get("/v1/streams?unread=true"));
    let streams = page["data"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("an id").to_owned();
    let ids = |stream: &Value| (text(&stream["response_id"]), text(&stream["id"]));
    streams.map(ids).collect()
}

fn wait_unread(gateway: &Serving, expected: &[&String]) {
    wait_until("the unread ends", || {
        let unread = unread(gateway);
        let responses = unread.iter().map(|(response, _)| response);
        responses.eq(expected.iter().copied())
    });
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
fn unread_ends_are_listed_and_acknowledged_at_each_gateway_and_taken_over() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("gateways-unread");
    let lines = jet_stream(&folder);
    let retention = ("MILLRACE_STREAMS_RETENTION_S", "600");
    let settings = [&SETTINGS[..], &[HEARTBEAT, retention]].concat();
    let mut cluster = Cluster::new(program, "gateways-unread-nats", &lines, &settings);
    cluster.start_engines(1);
    let [here, there] = start_gateways(&cluster, &folder);
    let first = submit(&there);
    wait_unread(&here, &[&first]);
    let second = submit(&there);
    wait_unread(&here, &[&first, &second]);
    let stream = unread(&here)[0].1.clone();
    let path = format!("/v1/streams/{stream}/ack");
    let acknowledged = json(&here.post(&path, r#"{"end": true}"#));
    assert_eq!(acknowledged["id"], stream.as_str(), "{acknowledged}");
    for gateway in [&here, &there] {
        wait_unread(gateway, &[&second]);
    }
    wait_stored(&there, "");
    drop(there); // killed
    wait_until("both are taken over", || {
        metric(&here, "millrace_streams_claimed_total") >= 2.0
    });
    wait_unread(&here, &[&second]);
}
