//! A process that is started again with its journal while nobody can say who owns its streams.
//!
//! Promise (Cluster): a process that is started again without NATS reports nothing of its replicated streams, and
//! serves new requests.

use super::gateway_killed::{jet_stream, settings, wait_stored};
use super::lost::{open, start_all, wait_for_tokens};
use super::moved::is_owned_again;
use super::nats_server;
use super::processes::Cluster;
use crate::kill::crashing::description;
use crate::support::Folder;
use testing::wait::wait_until;

#[test]
fn process_that_is_started_again_without_nats_tells_nothing_of_its_replicated_streams() {
    let Some(program) = nats_server::program() else {
        return;
    };
    let folder = Folder::new("restarted");
    let lines = jet_stream(&folder);
    let mut cluster = Cluster::new(program, "restarted-nats", &lines, &settings());
    let first = start_all(&cluster, &folder.0.join("a"), "f16");
    let second = start_all(&cluster, &folder.0.join("b"), "f16");
    let (own, taken) = (open(&first), open(&first));
    for id in [&own, &taken] {
        wait_for_tokens(&first, id, 7);
    }
    wait_stored(&first, "");
    drop(first); // killed
    wait_until("the second process has one stream", || {
        is_owned_again(&second, &taken)
    });
    cluster.nats.kill();
    let first = start_all(&cluster, &folder.0.join("a"), "f16");
    // New requests are served.
    let reply = first.post("/v1/completions", r#"{"prompt": "A", "max_tokens": 2}"#);
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    for id in [&own, &taken] {
        let described = description(&first, id);
        assert_eq!(described["state"], "queued", "{described}");
        assert_eq!(described["completion_tokens"], 0, "{described}");
    }
    cluster.nats.start();
    wait_until("the stream that nobody took goes on", || {
        // The tokens that were told, and perhaps those of the next window.
        description(&first, &own)["completion_tokens"].as_u64() >= Some(7)
    });
    wait_until("the first process passes requests for the other on", || {
        is_owned_again(&first, &taken)
    });
}
