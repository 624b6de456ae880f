//! Gateways that end while engines compute their streams: the next owner resumes them from the records.
//!
//! Promise (Cluster): a gateway that continues a stream, after its own restart or for one that died or shut down,
//! resumes it from the record, with the bytes of an undisturbed process.
//! Also held by `cluster/src/relay/simulation/mod.rs :: readers_get_the_tokens_of_one_engine_while_gateways_die_too`,
//! `cluster/src/relay/simulation/mod.rs :: streams_are_resumed_once_where_only_gateways_die`.

use super::conversation::SETTINGS;
use super::gateway_killed::{jet_stream, wait_stored};
use super::processes::{Cluster, address, json, wait_for_engines};
use super::{metric, nats_server};
use crate::kill::crashing::{Client, description};
use crate::kill::event_reader::read_watched;
use crate::kill::transcript::Transcript;
use crate::support::{Folder, Serving};
use std::process::Stdio;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use testing::wait::{PATIENCE, wait_until};

const BODY: &str =
    r#"{"prompt": "A", "max_tokens": 40, "n": 2, "seed": 5, "ignore_eos": true, "stream": true}"#;
/// Tokens after which the stream is parked, until they are acknowledged.
const WINDOW: u64 = 7;

/// Opens a stream with a client that never acknowledges a token. Returns the id of the stream.
fn open(gateway: &Serving) -> (String, JoinHandle<()>) {
    let address = address(gateway);
    let (found, ids) = sync_channel(1);
    let reader = std::thread::spawn(move || {
        let fields = "x-stream-resumable: 1\r\nx-stream-acks: explicit";
        let head = format!("POST /v1/completions HTTP/1.1\r\n{fields}");
        let mut watch = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
            if let Some((_, rest)) = text.split_once("x-stream-id: ") {
                let id = rest.chars().take_while(|c| !c.is_whitespace());
                let _ = found.try_send(id.collect());
            }
            true
        };
        // To the end of the stream, or of the gateway.
        let _ = read_watched(&address, &head, BODY, PATIENCE, &mut watch);
    });
    (ids.recv_timeout(PATIENCE).expect("a stream"), reader)
}

/// Whether each choice has ended, or has as many tokens as it may have without an acknowledgement.
fn is_at_rest(gateway: &Serving, stream: &str) -> bool {
    let described = description(gateway, stream);
    let choices = described["choices"].as_array().cloned().unwrap_or_default();
    let rests = |choice: &serde_json::Value| {
        choice["end"].is_string() || choice["unaccepted"].as_u64().is_some_and(|n| n >= WINDOW)
    };
    choices.len() == 2 && choices.iter().all(rests)
}

/// Acknowledges tokens until the stream has ended.
fn finish(gateway: &Serving, stream: &str) -> Transcript {
    wait_until("the stream ends", || {
        if is_at_rest(gateway, stream) {
            for choice in description(gateway, stream)["choices"].as_array().unwrap() {
                let body =
                    serde_json::json!({"index": choice["tokens"], "choice": choice["index"]});
                let path = format!("/v1/streams/{stream}/ack");
                gateway.post(&path, &body.to_string());
            }
        }
        description(gateway, stream)["state"] == "ended"
    });
    let mut client = Client::new("resumed", stream, "openai.completions");
    client.read_to_end(&address(gateway));
    client.transcript
}

#[test]
fn gateway_that_is_started_again_resumes_its_stream_from_the_journal() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("cluster-resumed");
    let journal: &str = folder.0.join("journal").display().to_string().leak();
    let mine = [("MILLRACE_JOURNAL_DIRECTORY", journal)];
    let settings = [&SETTINGS[..], &mine].concat();
    let mut cluster = Cluster::new(program, "cluster-resumed", "", &settings);
    cluster.start_engines(2);
    let gateway = cluster.start_gateway();
    wait_for_engines(&gateway, 2);
    let (stream, reader) = open(&gateway);
    wait_until("the stream is parked", || is_at_rest(&gateway, &stream));
    drop(gateway); // the drop kills and waits
    reader.join().unwrap();
    let gateway = cluster.start_gateway();
    let received = finish(&gateway, &stream);
    assert_eq!(received.without_cached(), undisturbed().without_cached());
    // One request for each choice.
    assert_eq!(metric(&gateway, "millrace_relay_attempts_total"), 2.0);
    let report = json(&gateway.get("/v1/cluster"));
    assert_eq!(report["nats"]["denied"], serde_json::json!([]), "{report}");
}

/// What the clients of one undisturbed process receive.
fn undisturbed() -> Transcript {
    let args = ["serve", "--bind", "127.0.0.1:0"];
    let server = Serving::start_with(&args, &SETTINGS, Stdio::inherit());
    let (stream, reader) = open(&server);
    let transcript = finish(&server, &stream);
    reader.join().unwrap();
    transcript
}

/// Another gateway resumes the stream of a gateway that ends so, with the bytes of an undisturbed process.
fn check_takeover(name: &str, end: fn(Serving)) {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new(name);
    let lines = jet_stream(&folder);
    let mut cluster = Cluster::new(program, &format!("{name}-nats"), &lines, &SETTINGS);
    cluster.start_engines(2);
    let [first, second] =
        ["a", "b"].map(|name| cluster.start_durable_gateway(&folder.0.join(name)));
    wait_for_engines(&first, 2);
    wait_for_engines(&second, 2);
    let (stream, reader) = open(&first);
    wait_until("the stream is parked", || is_at_rest(&first, &stream));
    wait_stored(&first, "");
    end(first);
    reader.join().unwrap();
    let received = finish(&second, &stream);
    assert_eq!(received.without_cached(), undisturbed().without_cached());
    assert_eq!(metric(&second, "millrace_relay_attempts_total"), 2.0);
}

#[test]
fn another_gateway_resumes_the_stream_of_a_killed_one() {
    check_takeover("resumed-killed", drop);
}

#[test]
fn another_gateway_resumes_the_stream_of_one_that_shuts_down() {
    check_takeover("resumed-leaving", |gateway| {
        assert!(gateway.terminate().success());
    });
}
