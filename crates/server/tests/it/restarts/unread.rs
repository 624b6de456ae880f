//! Unread ends after a restart: none is lost, and none that was read or acknowledged comes again.

use super::copies::Journaled;
use crate::support::named::{call, fake, get, kept, stream_id};
use crate::support::wait_until;
use serde_json::{Value, json};

/// A description as an earlier version has recorded it.
const RETIRED: &[u8] = concat!(
    r#"{"kind":"mailbox_event","version":1,"stream":"01010101010101010101010101010101","#,
    r#""owner":0,"event":"job.completed","object_id":"j","body":"{}","created_unix_us":5}"#
)
.as_bytes();

/// Runs a job to its end; returns the id of its stream.
fn run_job(journaled: &Journaled) -> String {
    let body = json!({"prompt": "hi", "max_tokens": 4, "seed": 3});
    let id = stream_id(&call(&journaled.rig, "POST", "/v1/jobs", "", &body).head);
    wait_until("the end", || unread(journaled).contains(&id));
    id
}

fn unread(journaled: &Journaled) -> Vec<String> {
    let page = get(&journaled.rig, "/v1/streams?unread=true", "").json();
    let streams = page["data"].as_array().expect("a list").iter();
    let id = |stream: &Value| stream["id"].as_str().expect("an id").to_owned();
    streams.map(id).collect()
}

/// Whether something is noted of the end of a stream.
fn is_noted(journaled: &Journaled, id: &str) -> bool {
    let streams = journaled.read().streams;
    let mut found = streams.iter();
    found.any(|stream| format!("{:032x}", stream.id) == id && stream.outcome.is_some())
}

#[test]
fn read_and_acknowledged_ends_stay_so_after_a_restart() {
    let original = Journaled::gated("unread", fake(), kept());
    original.rig.gate.open();
    let [first, read, acknowledged, last] = [(); 4].map(|()| run_job(&original));
    get(&original.rig, &format!("/v1/streams/{read}/events"), "");
    wait_until("the reading is noted", || is_noted(&original, &read));
    let path = format!("/v1/streams/{acknowledged}/ack");
    let reply = call(&original.rig, "POST", &path, "", &json!({"end": true}));
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    // The acknowledgement is in the journal before its response.
    let copied = original.copy();
    assert_eq!(unread(&original), [first.clone(), last.clone()]);
    let restarted = copied.start(fake(), kept());
    let expected = [first, last];
    wait_until("the unread ends", || unread(&restarted) == expected);
    let page = |journaled: &Journaled| {
        let page = get(&journaled.rig, "/v1/streams?unread=true&limit=1", "").json();
        (page["next"].clone(), page["data"][0]["id"].clone())
    };
    assert_eq!(page(&restarted), page(&original), "the cursor stays valid");
    let path = format!("/v1/streams/{}/ack", expected[0]);
    call(&restarted.rig, "POST", &path, "", &json!({"end": true}));
    let again = restarted.copy().start(fake(), kept());
    wait_until("the last one", || unread(&again) == expected[1..]);
}

/// Promise (Streams): a journal with records of a retired kind is read, and these are removed.
#[test]
fn records_of_a_retired_kind_are_removed() {
    let original = Journaled::gated("retired", fake(), kept());
    original.rig.gate.open();
    let id = run_job(&original);
    let restarted = original
        .copy()
        .open_stream(9, RETIRED)
        .start(fake(), kept());
    wait_until("the stream", || unread(&restarted) == [id.clone()]);
    wait_until("the record is removed", || {
        let streams = restarted.read().streams;
        streams.len() == 1 && format!("{:032x}", streams[0].id) == id
    });
    let metrics = get(&restarted.rig, "/metrics", "").body;
    let unreadable = r#"millrace_recovery_streams{outcome="unreadable"} 0"#;
    assert!(metrics.contains(unreadable), "{metrics}");
}
