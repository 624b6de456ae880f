//! State of a recovered stream: a pure function of the records.

use super::attempt::{Attempt, LastClaim, LastSubmission, attempt_of};
use super::recovered_values;
use crate::records::{DescriptionKind, RecordedPrompts, StreamDescription, outcome};
use generate::error::ApiError;
use journal::{Integrity, RecoveredChoice, RecoveredStream};
use std::time::Duration;
use stream::{End, FailCode};

/// State of a recovered stream.
#[derive(Clone, Debug)]
pub(crate) enum RecoveredState {
    /// The retention is over.
    Expired,
    /// Readers get the error.
    Rejected(ApiError),
    /// The tokens are readable; choices without a recorded end get this one.
    Ended(End),
    /// The stream waited for a permit, and waits again.
    Queued(Attempt),
    /// The stream was running, and is computed on.
    Running(Attempt),
}

impl RecoveredState {
    /// The state of a stream that cannot continue.
    pub(crate) fn without_continuation(self) -> Self {
        match self {
            Self::Running(_) => Self::Ended(End::Lost),
            Self::Queued(_) => Self::Rejected(lost_error()),
            state => state,
        }
    }
}

/// Facts that decide beside the records of one stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoveryContext {
    /// Whether the last process shut down in order.
    pub(crate) is_sealed: bool,
    pub(crate) now_unix_us: u64,
    pub(crate) retention: Duration,
}

/// State of a stream with this description, in which the prepared prompts are set.
pub(crate) fn state_of(
    stream: &RecoveredStream,
    description: &StreamDescription,
    context: RecoveryContext,
) -> RecoveredState {
    match description.kind {
        DescriptionKind::StoredBlob
        | DescriptionKind::WebhookDelivery
        | DescriptionKind::Retired
        | DescriptionKind::WorkflowRun => {
            return RecoveredState::Rejected(lost_error());
        }
        DescriptionKind::Generation => {}
    }
    if let Some(error) = stream.outcome.as_deref().and_then(outcome::decode) {
        return RecoveredState::Rejected(error);
    }
    let choices = description.n * description.prompts.len();
    let ends = stream.choices.iter().filter(|choice| choice.end.is_some());
    let has_ended = ends.count() == choices;
    let is_expired = |at| at + context.retention.as_micros() <= u128::from(context.now_unix_us);
    // An answer to be stored is read from the tokens once more.
    let is_stored = description.stored.is_some();
    if has_ended && !is_stored && is_expired(u128::from(ended_unix_us(stream))) {
        return RecoveredState::Expired;
    }
    let is_prepared = matches!(description.prompts, RecordedPrompts::Prepared(_));
    if let Some(end) = lost_end(stream, description, has_ended) {
        return if is_prepared {
            RecoveredState::Ended(end)
        } else {
            // Without the prompts nothing was generated, or the tokens cannot be read.
            RecoveredState::Rejected(lost_error())
        };
    }
    if has_ended {
        return RecoveredState::Ended(End::Lost);
    }
    match (is_prepared, attempt(stream, is_prepared, context)) {
        (false, Attempt::Fail) => RecoveredState::Rejected(crashed_error()),
        (false, attempt) => RecoveredState::Queued(attempt),
        _ if has_passed(description, context) => RecoveredState::Ended(End::Deadline),
        (true, Attempt::Fail) => RecoveredState::Ended(End::Failed(FailCode::CrashedEngines)),
        (true, attempt) => RecoveredState::Running(attempt),
    }
}

/// Wall time of the last end.
pub(crate) fn ended_unix_us(stream: &RecoveredStream) -> u64 {
    let ends = stream.choices.iter().filter_map(|choice| choice.end);
    ends.map(|(_, at_unix_us)| at_unix_us).max().unwrap_or(0)
}

/// The error of a stream that cannot be read after a restart.
pub(crate) fn lost_error() -> ApiError {
    ApiError::ours(
        "stream_lost",
        "the stream was lost when the server was restarted",
    )
}

/// The error of a stream in whose preparation the process died again and again.
fn crashed_error() -> ApiError {
    ApiError::ours(
        "crashed_engines",
        "the server ended each time it prepared this request, which is not tried again",
    )
}

/// `Lost` for a stream that must not be continued.
fn lost_end(
    stream: &RecoveredStream,
    description: &StreamDescription,
    has_ended: bool,
) -> Option<End> {
    let choices = description.n * description.prompts.len();
    let sampling = &description.params.sampling;
    let (logprobs, top_n) = (sampling.logprobs, sampling.top_logprobs as usize);
    let is_complete = |choice: &RecoveredChoice| {
        recovered_values::usable_tokens(choice, logprobs, top_n) == choice.ids.len()
    };
    let is_prepared = matches!(description.prompts, RecordedPrompts::Prepared(_));
    let has_tokens = stream.choices.iter().any(|choice| !choice.ids.is_empty());
    let contradicts = stream.choices.len() > choices
        || !stream.choices.iter().all(is_complete)
        || (has_tokens && !is_prepared);
    let is_lost = match stream.integrity {
        Integrity::Intact => contradicts,
        Integrity::TailInDoubt => contradicts || !has_ended,
        Integrity::Lost(_) => true,
    };
    is_lost.then_some(End::Lost)
}

fn attempt(stream: &RecoveredStream, is_prepared: bool, context: RecoveryContext) -> Attempt {
    let last = LastSubmission {
        is_submitted: is_prepared,
        is_paused: stream.is_paused,
        claim: stream.claim.map(|claim| LastClaim {
            attempt: claim.attempt,
            tokens: claim.tokens,
        }),
        tokens: recovered_values::token_count(&stream.choices),
    };
    attempt_of(last, context.is_sealed)
}

fn has_passed(description: &StreamDescription, context: RecoveryContext) -> bool {
    let deadline = description.deadline_unix_us;
    deadline.is_some_and(|deadline| deadline <= context.now_unix_us)
}
