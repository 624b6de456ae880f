//! Coming back to a stream, and reading it beside somebody else.

use super::answer::{self, last_place};
use super::question::Question;
use super::{Actor, Outcome, field};
use crate::support::Rig;
use crate::support::client::Reply;
use crate::support::dialects::{DIALECTS, Dialect};
use crate::support::framing::Event;
use crate::support::named::{self, stream_id};
use serde_json::{Value, json};
use std::time::Duration;

/// A stream whose client went away, with what it got.
struct Cut {
    question: Question,
    path: String,
    got: Vec<Event>,
}

/// Opens one and loses it after some chunks.
fn cut(actor: &mut Actor, rig: &Rig) -> Result<Cut, Outcome> {
    let mut question = actor.question(&json!({}));
    question.fields += named::RESUMABLE;
    let (mut client, head) = question.ask(rig)?;
    let chunks = actor.below(8);
    let body: String = (0..chunks).map_while(|_| client.chunk()).collect();
    drop(client);
    let path = format!("/v1/streams/{}", stream_id(&head));
    // To somebody else it is nothing.
    let stranger = named::get(rig, &path, &field(actor.keys[1]));
    assert_eq!(stranger.head.status, 404, "{}", stranger.body);
    actor.rest(Duration::from_millis(2));
    Ok(Cut {
        got: answer::events(question.dialect, &body),
        question,
        path,
    })
}

/// What is told in this dialect after what it got.
fn rest(actor: &Actor, rig: &Rig, cut: &Cut, dialect: &Dialect) -> Reply {
    let place = last_place(&cut.got).map(|id| format!("last-event-id: {id}\r\n"));
    let path = format!("{}/events?dialect={}", cut.path, dialect.name);
    named::get(rig, &path, &(actor.field() + &place.unwrap_or_default()))
}

/// Ends it for good: cancelled if it runs, forgotten if it ended.
fn delete(actor: &Actor, rig: &Rig, path: &str) {
    let deleted = named::call(rig, "DELETE", path, &actor.field(), &Value::Null);
    let status = deleted.head.status;
    assert!(matches!(status, 202 | 404 | 410), "{}", deleted.body);
}

/// Loses its connection and goes on where it was; then forgets the stream.
pub(super) fn in_its_dialect(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut cut = match cut(actor, rig) {
        Ok(cut) => cut,
        Err(refused) => return refused,
    };
    let dialect = cut.question.dialect;
    let reply = rest(actor, rig, &cut, dialect);
    let outcome = match reply.head.status {
        200 | 204 => {
            cut.got.extend(answer::events(dialect, &reply.body));
            answer::outcome(&answer::story(dialect, &cut.got), cut.question.tokens)
        }
        status => late(status, &reply),
    };
    delete(actor, rig, &cut.path);
    outcome
}

/// The same, and goes on in another format.
pub(super) fn in_another(actor: &mut Actor, rig: &Rig) -> Outcome {
    let cut = match cut(actor, rig) {
        Ok(cut) => cut,
        Err(refused) => return refused,
    };
    let own = cut.question.dialect;
    let at = DIALECTS.iter().position(|dialect| dialect.name == own.name);
    let next = at.unwrap_or(0) + 1 + actor.below(DIALECTS.len() - 1);
    let other = &DIALECTS[next % DIALECTS.len()];
    let reply = rest(actor, rig, &cut, other);
    let outcome = match reply.head.status {
        200 | 204 => {
            let rest = answer::events(other, &reply.body);
            let text = answer::text(&cut.got) + &answer::text(&rest);
            let bad = answer::bad_ending(&cut.got).or_else(|| answer::bad_ending(&rest));
            bad.unwrap_or_else(|| {
                let (own, got) = (own.name, &cut.got);
                let tokens = cut.question.tokens;
                assert_eq!(
                    text.len(),
                    tokens,
                    "{own}, {}: {got:?} {rest:?}",
                    other.name
                );
                Outcome::Done
            })
        }
        status => late(status, &reply),
    };
    delete(actor, rig, &cut.path);
    outcome
}

/// It is gone, or was refused before it began.
fn late(status: u16, reply: &Reply) -> Outcome {
    let late = Outcome::of_status(status);
    late.unwrap_or_else(|| panic!("{:?} {}", reply.head, reply.body))
}

/// Its own client and another, who reads it in any dialect: both are told the same.
pub(super) fn two_readers(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut question = actor.question(&json!({}));
    question.fields += named::RESUMABLE;
    let (mut client, head) = match question.ask(rig) {
        Ok(open) => open,
        Err(refused) => return refused,
    };
    let path = format!("/v1/streams/{}", stream_id(&head));
    let other = actor.dialect();
    let events = format!("{path}/events?dialect={}", other.name);
    let mut second = named::send(rig, "GET", &events, &actor.field(), &Value::Null);
    let own = answer::events(question.dialect, &client.body());
    let own = answer::story(question.dialect, &own);
    let head = second.head();
    let body = second.rest(&head);
    let told = match head.status {
        200 => answer::story(other, &answer::events(other, &body)),
        status => {
            let late = Outcome::of_status(status);
            return late.unwrap_or_else(|| panic!("{head:?} {body}"));
        }
    };
    assert_eq!(told.texts, own.texts);
    assert!(told.has_tokens_of(&own), "{told:?} and {own:?}");
    delete(actor, rig, &path);
    let outcome = answer::outcome(&own, question.tokens);
    assert_ne!(outcome, Outcome::Gone, "its client was there: {own:?}");
    outcome
}

/// A response that is made in the background and kept: read from some event on, shown, deleted.
pub(super) fn kept(actor: &mut Actor, rig: &Rig) -> Outcome {
    let dialect = DIALECTS.iter().find(|it| it.name == "openai.responses");
    let dialect = dialect.expect("it is there");
    let over = json!({"stream": false, "store": true, "background": true});
    let question = actor.question_in(dialect, &over);
    let reply = question.whole(rig);
    if let Some(refused) = Outcome::of_status(reply.head.status) {
        return refused;
    }
    assert_eq!(reply.head.status, 200, "{}", reply.body);
    let id = reply.json()["id"].as_str().expect("an id").to_owned();
    let path = format!("{}/{id}", dialect.path);
    let told = named::get(rig, &format!("{path}?stream=true"), &actor.field());
    let outcome = match told.head.status {
        200 => {
            let events = answer::events(dialect, &told.body);
            answer::outcome(&answer::story(dialect, &events), question.tokens)
        }
        status => late(status, &told),
    };
    let shown = named::get(rig, &path, &actor.field());
    let deleted = named::call(rig, "DELETE", &path, &actor.field(), &Value::Null);
    assert_eq!(
        (shown.head.status, deleted.head.status),
        (200, 200),
        "{}",
        shown.body
    );
    outcome
}
