//! Jobs, which run alone and are looked at later.

use super::answer;
use super::question::Question;
use super::{Actor, Outcome};
use crate::support::Rig;
use crate::support::client::Reply;
use crate::support::dialects::JOBS;
use crate::support::named;
use serde_json::Value;

/// Starts one: what was told of it.
fn start(rig: &Rig, question: &Question) -> Result<Value, Outcome> {
    let reply = named::call(rig, "POST", "/v1/jobs", &question.fields, &question.body);
    match (reply.head.status, Outcome::of_status(reply.head.status)) {
        (202, _) => Ok(reply.json()),
        (_, Some(refused)) => Err(refused),
        _ => panic!("{:?} {}", reply.head, reply.body),
    }
}

fn watched(actor: &Actor, rig: &Rig, job: &Value) -> Reply {
    let path = job["sse_url"].as_str().expect("where it can be watched");
    named::get(rig, path, &actor.field())
}

pub(super) fn watch(actor: &mut Actor, rig: &Rig) -> Outcome {
    let question = actor.job();
    let job = match start(rig, &question) {
        Ok(job) => job,
        Err(refused) => return refused,
    };
    let reply = watched(actor, rig, &job);
    match (reply.head.status, Outcome::of_status(reply.head.status)) {
        (200, _) => {
            let story = answer::story(JOBS, &answer::events(JOBS, &reply.body));
            answer::outcome(&story, question.tokens)
        }
        (_, Some(late)) => late,
        _ => panic!("{:?} {}", reply.head, reply.body),
    }
}

pub(super) fn cancel(actor: &mut Actor, rig: &Rig) -> Outcome {
    let question = actor.job();
    let job = match start(rig, &question) {
        Ok(job) => job,
        Err(refused) => return refused,
    };
    let path = format!("/v1/jobs/{}/cancel", job["job_id"].as_str().expect("an id"));
    let told = named::call(rig, "POST", &path, &actor.field(), &Value::Null);
    let status = told.head.status;
    assert!(matches!(status, 202 | 404 | 410), "{}", told.body);
    let reply = watched(actor, rig, &job);
    match (reply.head.status, Outcome::of_status(reply.head.status)) {
        (200, _) => {
            answer::story(JOBS, &answer::events(JOBS, &reply.body));
        }
        // It had not begun.
        (499, _) => {}
        (_, Some(late)) => return late,
        _ => panic!("{:?} {}", reply.head, reply.body),
    }
    Outcome::Done
}
