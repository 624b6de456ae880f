//! Saying what one has, where nothing else counts.

use super::answer;
use super::{Actor, Outcome};
use crate::soak::scene::WINDOW;
use crate::support::Rig;
use crate::support::named::{self, stream_id};
use serde_json::json;
use std::time::Duration;

pub(super) fn one_by_one(actor: &mut Actor, rig: &Rig) -> Outcome {
    after(actor, rig, 1)
}

pub(super) fn in_batches(actor: &mut Actor, rig: &Rig) -> Outcome {
    let step = 2 + actor.below(WINDOW - 1);
    after(actor, rig, step)
}

/// Acknowledges whenever it has so many more tokens; sometimes only after a while.
fn after(actor: &mut Actor, rig: &Rig, step: usize) -> Outcome {
    let mut question = actor.question(&json!({}));
    question.fields += "x-stream-acks: explicit\r\n";
    let (mut client, head) = match question.ask(rig) {
        Ok(open) => open,
        Err(refused) => return refused,
    };
    let path = format!("/v1/streams/{}/ack", stream_id(&head));
    let (mut body, mut has, mut acknowledged) = (String::new(), 0, 0);
    while let Some(chunk) = client.chunk() {
        has += answer::text(&answer::events(question.dialect, &chunk)).len();
        body += &chunk;
        assert!(has <= acknowledged + WINDOW, "no more than its credit");
        if has < acknowledged + step {
            continue;
        }
        if actor.below(8) == 0 {
            actor.rest(Duration::from_millis(4));
        }
        let told = named::call(rig, "POST", &path, &actor.field(), &json!({"index": has}));
        let status = told.head.status;
        assert!(matches!(status, 200 | 404 | 410), "{}", told.body);
        acknowledged = has;
    }
    answer::read(question.dialect, &body, question.tokens)
}
