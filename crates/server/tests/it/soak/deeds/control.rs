//! Steering one's streams, and looking at what there is.

use super::answer;
use super::{Actor, Outcome, field};
use crate::soak::scene::WATCHER;
use crate::support::Rig;
use crate::support::named::{self, stream_id};
use serde_json::{Value, json};
use std::time::Duration;

/// Holds its stream up for a while.
pub(super) fn pause(actor: &mut Actor, rig: &Rig) -> Outcome {
    let question = actor.question(&json!({}));
    let (mut client, head) = match question.ask(rig) {
        Ok(open) => open,
        Err(refused) => return refused,
    };
    let path = format!("/v1/streams/{}", stream_id(&head));
    for verb in ["pause", "resume"] {
        let path = format!("{path}/{verb}");
        let reply = named::call(rig, "POST", &path, &actor.field(), &Value::Null);
        let status = reply.head.status;
        assert!(matches!(status, 200 | 404 | 409 | 410), "{}", reply.body);
        actor.rest(Duration::from_millis(2));
    }
    answer::read(question.dialect, &client.body(), question.tokens)
}

/// Wants no more of it, and reads what it is told then.
pub(super) fn cancel(actor: &mut Actor, rig: &Rig) -> Outcome {
    let question = actor.question(&json!({}));
    let (mut client, head) = match question.ask(rig) {
        Ok(open) => open,
        Err(refused) => return refused,
    };
    let path = format!("/v1/streams/{}", stream_id(&head));
    let chunks = actor.below(4);
    let mut told: Vec<_> = (0..chunks).map_while(|_| client.chunk()).collect();
    let reply = named::call(rig, "DELETE", &path, &actor.field(), &Value::Null);
    let status = reply.head.status;
    assert!(matches!(status, 202 | 404 | 410), "{}", reply.body);
    // Fewer: the last of them was the last one there is.
    if told.len() == chunks {
        told.push(client.body());
    }
    let body = told.concat();
    let story = answer::story(question.dialect, &answer::events(question.dialect, &body));
    match answer::outcome(&story, question.tokens) {
        // That is what was asked for.
        Outcome::Gone => Outcome::Done,
        outcome => outcome,
    }
}

/// Sees its streams, not others'; what happens to them, unless too many look; and a while of what happens to all, with a key that
/// may.
pub(super) fn look(actor: &mut Actor, rig: &Rig) -> Outcome {
    let listed = named::get(rig, "/v1/streams?limit=100", &actor.field());
    assert_eq!(listed.head.status, 200, "{}", listed.body);
    for stream in listed.json()["data"].as_array().expect("a page") {
        let path = format!("/v1/streams/{}", stream["id"].as_str().expect("an id"));
        let shown = named::get(rig, &path, &actor.field());
        let status = shown.head.status;
        assert!(matches!(status, 200 | 404 | 410), "{}", shown.body);
    }
    let path = "/v1/streams/feed";
    let mut own = named::send(rig, "GET", path, &actor.field(), &Value::Null);
    match own.head().status {
        200 => assert!(own.chunk().is_some_and(|first| !first.contains("metrics"))),
        status => assert_eq!(status, 503),
    }
    let mut feed = named::send(rig, "GET", path, &field(WATCHER), &Value::Null);
    assert_eq!(feed.head().status, 200);
    let chunks = actor.below(8);
    let _ = (0..chunks).map_while(|_| feed.chunk()).count();
    Outcome::Done
}
