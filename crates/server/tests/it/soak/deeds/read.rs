//! Asking, and reading or not.

use super::answer;
use super::question::Question;
use super::{Actor, Outcome};
use crate::support::Rig;
use crate::support::client::Client;
use serde_json::{Value, json};
use std::time::Duration;

/// Of a stream that is read as fast as it comes.
pub(super) fn read(actor: &mut Actor, rig: &Rig) -> Outcome {
    let question = actor.question(&json!({}));
    match question.ask(rig) {
        Ok((mut client, _)) => answer::read(question.dialect, &client.body(), question.tokens),
        Err(refused) => refused,
    }
}

pub(super) fn whole(actor: &mut Actor, rig: &Rig) -> Outcome {
    let question = actor.question(&json!({"stream": false}));
    let reply = question.whole(rig);
    if let Some(refused) = Outcome::of_status(reply.head.status) {
        assert_ne!(refused, Outcome::Gone, "{}", reply.body);
        return refused;
    }
    let items = (question.dialect.whole)(reply.head.status, &reply.json());
    let items = items.unwrap_or_else(|why| panic!("{why}: {}", reply.body));
    let story = answer::checked(question.dialect, &items);
    assert_eq!(story.error, None, "{}", reply.body);
    answer::outcome(&story, question.tokens)
}

/// Goes away in the middle.
pub(super) fn leave(actor: &mut Actor, rig: &Rig) -> Outcome {
    let question = actor.question(&json!({}));
    let (mut client, _) = match question.ask(rig) {
        Ok(open) => open,
        Err(refused) => return refused,
    };
    let chunks = actor.below(6);
    let _ = (0..chunks).map_while(|_| client.chunk()).count();
    Outcome::Done
}

/// Goes away before it was told anything, or before it said all.
pub(super) fn vanish(actor: &mut Actor, rig: &Rig) -> Outcome {
    let stream = actor.below(2) == 0;
    let bytes = actor.question(&json!({"stream": stream})).bytes();
    let part = match actor.below(2) {
        0 => bytes.len(),
        _ => actor.below(bytes.len()),
    };
    Client::connect(rig.addr).send(&bytes[..part]);
    Outcome::Done
}

/// Does not read for a while, again and again.
pub(super) fn stall(actor: &mut Actor, rig: &Rig) -> Outcome {
    let question = actor.question(&json!({}));
    let mut client = Client::narrow(rig.addr, 2048);
    client.send(&question.bytes());
    let (mut client, _) = match question.open(client) {
        Ok(open) => open,
        Err(refused) => return refused,
    };
    let mut body = String::new();
    while let Some(chunk) = client.chunk() {
        body += &chunk;
        if actor.below(8) == 0 {
            actor.rest(Duration::from_millis(10));
        }
    }
    answer::read(question.dialect, &body, question.tokens)
}

/// Has little time: it gets its answer, or is told that it cannot have it, at once or on the way.
pub(super) fn hurry(actor: &mut Actor, rig: &Rig) -> Outcome {
    let mut question = actor.question(&json!({}));
    question.fields += &format!("request-timeout-ms: {}\r\n", 1 + actor.below(30));
    match question.ask(rig) {
        Ok((mut client, _)) => {
            let events = answer::events(question.dialect, &client.body());
            answer::story(question.dialect, &events);
            Outcome::Done
        }
        Err(Outcome::NoRoom) => Outcome::Done,
        Err(refused) => refused,
    }
}

pub(super) fn err(actor: &mut Actor, rig: &Rig) -> Outcome {
    let question: Question = actor.question(&json!({"temperature": "warm"}));
    let reply = question.whole(rig);
    let said: Value = reply.json();
    match reply.head.status {
        429 => return Outcome::OverLimit,
        status => assert_eq!(status, 400, "{said}"),
    }
    assert!(said.to_string().contains("temperature"), "{said}");
    Outcome::Done
}
