//! Streams that move to another gateway while the first one lives: it shuts down, or was only cut off.

use super::gateway_killed::{jet_stream, settings, wait_stored};
use super::nats_server;
use super::processes::{Cluster, address, json};
use crate::kill::SETTINGS;
use crate::kill::crashing::{Client, Crashing};
use crate::kill::event_reader::read_events;
use crate::support::{Folder, Serving};
use serde_json::json;
use std::time::Duration;
use testing::wait::wait_until;

/// Tokens of a stream: many more than have been read when the gateway is disturbed.
const TOKENS: u32 = 600;
/// Events after which the gateway is disturbed.
pub(super) const EVENTS: usize = 20;

/// Two gateways with one engine.
pub(super) struct Pair {
    pub(super) cluster: Cluster,
    pub(super) gateways: [Serving; 2],
    folder: Folder,
}

pub(super) fn start(name: &str) -> Option<Pair> {
    let program = nats_server::program()?;
    let folder = Folder::new(name);
    let lines = jet_stream(&folder);
    let mut cluster = Cluster::new(program, &format!("{name}-nats"), &lines, &settings());
    cluster.start_engines(1);
    let gateways = ["a", "b"].map(|name| cluster.start_durable_gateway(&folder.0.join(name)));
    Some(Pair {
        cluster,
        gateways,
        folder,
    })
}

pub(super) fn open(gateway: &Serving) -> String {
    let head = "POST /v1/chat/completions HTTP/1.1\r\nx-stream-resumable: 1";
    let body = json!({
        "messages": [{"role": "user", "content": "Tell me a long story."}], "stream": true, "seed": 11,
        "max_tokens": TOKENS, "ignore_eos": true, "temperature": 1.0,
    });
    let silence = Duration::from_millis(1);
    let reading = read_events(&address(gateway), head, &body.to_string(), silence);
    reading.unwrap().header("x-stream-id").expect("an id")
}

/// What a client receives of one process that is not disturbed.
pub(super) fn undisturbed(name: &str) -> Client {
    let single = Crashing::start(name, &SETTINGS);
    let mut whole = Client::new("whole", &open(single.serving()), "openai.chat");
    whole.read_to_end(&single.address());
    whole
}

pub(super) fn assert_equal(client: Client, whole: Client) {
    let received = client.transcript.without_cached();
    assert_eq!(received, whole.transcript.without_cached());
}

pub(super) fn is_owned_again(gateway: &Serving, id: &str) -> bool {
    let reply = gateway.get(&format!("/v1/streams/{id}"));
    reply.starts_with("HTTP/1.1 200") && json(&reply)["generation"] == 2
}

/// Promise (Cluster): a gateway that shuts down hands its resumable streams over at once; their responses break off
/// without an end, and continue at another gateway.
#[test]
fn gateway_that_shuts_down_hands_its_streams_over() {
    let Some(pair) = start("moved-leaving") else {
        return;
    };
    let whole = undisturbed("moved-leaving-single");
    let [first, second] = pair.gateways;
    let id = open(&first);
    let mut client = Client::new("moved", &id, "openai.chat");
    let mut is_stopped = false;
    client.read_until(&address(&first), EVENTS, &mut || {
        if !std::mem::replace(&mut is_stopped, true) {
            first.signal("TERM");
        }
    });
    assert!(
        !client.is_over,
        "the response has broken off without an end"
    );
    // The other gateway may claim at once.
    assert!(is_owned_again(&second, &id));
    client.read_to_end(&address(&second));
    assert_equal(client, whole);
    assert!(first.left().success());
    drop(pair.cluster);
}

/// Promise (Cluster): a gateway that was stopped reports no end of a stream that it has lost, and passes requests on.
#[test]
fn gateway_that_was_cut_off_tells_no_end_of_a_stream_that_it_lost() {
    let Some(pair) = start("moved-fenced") else {
        return;
    };
    let whole = undisturbed("moved-fenced-single");
    let [first, second] = pair.gateways;
    let id = open(&first);
    let mut client = Client::new("deposed", &id, "openai.chat");
    let mut is_stopped = false;
    client.read_until(&address(&first), EVENTS, &mut || {
        if !std::mem::replace(&mut is_stopped, true) {
            first.signal("STOP");
            wait_until("the second gateway has the stream", || {
                is_owned_again(&second, &id)
            });
            first.signal("CONT");
        }
    });
    assert!(!client.is_over, "no end is told");
    client.read_to_end(&address(&second));
    assert_equal(client, whole);
    wait_until("the first gateway passes requests on", || {
        is_owned_again(&first, &id)
    });
    drop(pair.cluster);
}

/// Promise (Cluster): streams continue while NATS is killed and loses its store; their records are there again
/// afterwards, and suffice.
#[test]
fn streams_outlive_nats_and_its_store() {
    let Some(mut pair) = start("moved-wiped") else {
        return;
    };
    let whole = undisturbed("moved-wiped-single");
    let [first, second] = pair.gateways;
    let id = open(&first);
    let mut client = Client::new("wiped", &id, "openai.chat");
    let (store, mut is_wiped) = (pair.folder.0.join("nats"), false);
    client.read_until(&address(&first), EVENTS, &mut || {
        if !std::mem::replace(&mut is_wiped, true) {
            pair.cluster.nats.kill();
            std::fs::remove_dir_all(&store).unwrap();
            pair.cluster.nats.start();
        }
    });
    assert!(client.is_over, "the connection was not broken");
    let received = client.transcript.clone().without_cached();
    assert_equal(client, whole);
    // The records are there again, from memory: the other gateway continues from them.
    wait_until("the stream is replicated", || {
        json(&first.get(&format!("/v1/streams/{id}")))["replicated"] == true
    });
    wait_stored(&first, "");
    drop(first); // killed
    wait_until("the second gateway has the stream", || {
        is_owned_again(&second, &id)
    });
    let mut again = Client::new("again", &id, "openai.chat");
    again.read_to_end(&address(&second));
    assert_eq!(again.transcript.without_cached(), received);
}
