//! Streams with reasoning and calls, cut at every byte and read again: together the parts are the whole.

use super::dialects::{DIALECTS, Dialect};
use super::story::Story;
use super::transcripts::{SCRIPT, hermes};
use crate::support::Rig;
use crate::support::framing::Event;
use crate::support::named::{get, kept, send, stream_id};
use crate::support::wait_until;
use serde_json::json;

/// What is told after this place; nothing where everything was.
fn after(rig: &Rig, id: &str, dialect: &Dialect, place: Option<&str>) -> String {
    let path = format!("/v1/streams/{id}/events?dialect={}", dialect.name);
    let fields = place.map(|place| format!("last-event-id: {place}\r\n"));
    let reply = get(rig, &path, &fields.unwrap_or_default());
    match reply.head.status {
        204 => String::new(),
        200 => reply.body,
        status => panic!("{status} after {place:?}: {}", reply.body),
    }
}

fn last_place(events: &[Event]) -> Option<&str> {
    events.iter().rev().find_map(|event| match event {
        Event::Data { id, .. } => id.as_deref(),
        Event::Comment => None,
    })
}

/// Cuts this body at every byte, and reads the rest of the stream in the same dialect.
fn cut_everywhere(rig: &Rig, id: &str, dialect: &Dialect, body: &str) -> Story {
    let whole = (dialect.events)(body).expect("whole events");
    let told = (dialect.story)(&whole);
    let mut seen = None;
    for cut in (0..=body.len()).filter(|&cut| body.is_char_boundary(cut)) {
        let got = dialect.before_the_cut(&body[..cut]);
        if seen.replace(got.len()) == Some(got.len()) {
            continue;
        }
        let rest = after(rig, id, dialect, last_place(&got));
        let rest = (dialect.events)(&rest).expect("whole events");
        let both: Vec<Event> = got.into_iter().chain(rest).collect();
        let again = (dialect.story)(&both);
        assert_eq!(again, told, "{}: cut at {cut} of {body}", dialect.name);
    }
    told
}

/// Reads a stream of this script as it comes (a token per frame, or nearly), and once it is over
/// (merged), and cuts both.
fn check(rig: &Rig, dialect: &Dialect, script: &str) -> Story {
    let body = dialect.body(script, &json!({"stream": true}));
    let reply = send(
        rig,
        "POST",
        dialect.path,
        "x-stream-resumable: 1\r\n",
        &body,
    )
    .reply();
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    let id = stream_id(&reply.head);
    wait_until("it ends", || {
        get(rig, &format!("/v1/streams/{id}"), "").json()["state"] == "ended"
    });
    let live = cut_everywhere(rig, &id, dialect, &reply.body);
    let merged = after(rig, &id, dialect, None);
    assert_eq!(
        cut_everywhere(rig, &id, dialect, &merged),
        live,
        "{}",
        dialect.name
    );
    live
}

#[test]
fn stream_cut_at_any_byte_has_the_same_answer() {
    let rig = Rig::echoing(hermes(), kept());
    let broken =
        "<think>a</think>b<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": }</tool_call>c";
    for dialect in &DIALECTS {
        let story = check(&rig, dialect, SCRIPT);
        assert_eq!(story.calls.len(), 2, "{}", dialect.name);
        check(&rig, dialect, broken);
        check(&rig, dialect, "plain <tool_c");
    }
}
