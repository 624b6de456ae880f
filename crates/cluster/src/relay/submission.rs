//! A request on its way to an engine, in parts.

use super::SubmitOutcome;
use crate::messages::{Run, RunReply};
use crate::nats::{SubjectKind, UnreadableMessages};
use async_nats::{Client, Request};
use std::time::Duration;

/// Time for the answer to one part of a request: the engine reads a long record and compiles constraints.
const SUBMIT_WAIT: Duration = Duration::from_secs(10);

/// Sends the parts of a request one after the other. The answer to the last one counts.
pub(super) async fn submit(
    client: &Client,
    subject: &str,
    run: &Run,
    unreadable: &UnreadableMessages,
) -> SubmitOutcome {
    let Ok(parts) = run.encode_parts() else {
        return SubmitOutcome::TooLong;
    };
    let mut last = SubmitOutcome::Unanswered;
    for part in parts {
        let request = Request::new().payload(part.into());
        let request = request.timeout(Some(SUBMIT_WAIT));
        let answer = client.send_request(subject.to_owned(), request).await;
        let reply = answer.ok().map(|answer| RunReply::decode(&answer.payload));
        last = match reply {
            Some(Ok(RunReply::Received)) => SubmitOutcome::Unanswered,
            Some(Ok(reply)) => return SubmitOutcome::Answered(reply),
            Some(Err(why)) => {
                unreadable.note(SubjectKind::Answer, why);
                return SubmitOutcome::Unanswered;
            }
            None => return SubmitOutcome::Unanswered,
        };
    }
    last
}
