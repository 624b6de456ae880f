//! State of a recovered stream: a pure function of the records.
//!
//! Values of a recovered stream as this process takes them: metadata and terms of the description, choices with their
//! tokens, and instants from recorded wall times. Nothing comes from the settings of this process.
//!
//! Durations that pass while no process runs count: a deadline, a retention and a total timeout continue. The wall clock
//! may be set back or forward meanwhile, so no conversion may underflow.

use super::attempt::{Attempt, LastClaim, LastSubmission, attempt_of};
use crate::records::{DescriptionKind, RecordedPrompts, StreamDescription, outcome};
use crate::streams::StreamTerms;
use engine::{Token, TopLogprob};
use generate::error::ApiError;
use generate::sampling::ReportedSampling;
use generate::stream_source::StreamMeta;
use generate::submit::ResumedChoice;
use journal::{Integrity, RecoveredChoice, RecoveredStream};
use std::time::{Duration, Instant};
use stream::{End, FailCode, Owner, StreamId};
use wire::clock;

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
    let is_complete =
        |choice: &RecoveredChoice| usable_tokens(choice, logprobs, top_n) == choice.ids.len();
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
        tokens: token_count(&stream.choices),
    };
    attempt_of(last, context.is_sealed)
}

fn has_passed(description: &StreamDescription, context: RecoveryContext) -> bool {
    let deadline = description.deadline_unix_us;
    deadline.is_some_and(|deadline| deadline <= context.now_unix_us)
}

/// Metadata of a stream with this id.
pub(crate) fn stream_meta(
    description: &StreamDescription,
    id: StreamId,
    wall: WallTime,
) -> StreamMeta {
    let (params, prompts) = (&description.params, description.prompts.len());
    StreamMeta {
        id,
        response_id: description.response_id.clone(),
        created_unix_s: description.created_unix_s,
        arrived: wall.past_instant(description.opened_unix_us),
        model: description.model.clone(),
        stream_options: description.stream_options.clone(),
        prompts,
        choices: prompts * description.n,
        sampling: ReportedSampling::of(params),
        stops: params.stops.clone(),
        logprobs: params.sampling.logprobs,
        top_n: params.sampling.top_logprobs as usize,
    }
}

/// Terms of a stream. Only resumable streams are durable.
pub(crate) fn stream_terms(description: &StreamDescription) -> StreamTerms {
    StreamTerms {
        owner: Owner(description.owner),
        protocol: description.protocol,
        framing: description.framing,
        reasoning_field: description.reasoning_field,
        resumable: true,
        detachable: false,
        explicit_acks: description.explicit_acks,
        credit_window: description.credit_window,
        detached_tokens: description.detached_tokens,
    }
}

/// When the request has to be done.
pub(crate) fn deadline(description: &StreamDescription, wall: WallTime) -> Option<Instant> {
    description.deadline_unix_us.map(|at| wall.instant(at))
}

/// Tokens of all choices.
pub(crate) fn token_count(choices: &[RecoveredChoice]) -> u64 {
    choices.iter().map(|choice| choice.ids.len() as u64).sum()
}

/// Tokens of a choice that have the log-probability and the alternatives that the request wants: all of them, unless
/// the records were damaged.
fn usable_tokens(choice: &RecoveredChoice, logprobs: bool, top_n: usize) -> usize {
    let mut usable = choice.ids.len();
    if logprobs {
        usable = usable.min(choice.logprobs.len());
    }
    if let Some(alternatives) = choice.alternatives.len().checked_div(top_n) {
        let counts = choice.alternative_counts.iter();
        let complete = counts.take_while(|&&count| usize::from(count) == top_n);
        usable = usable.min(complete.count()).min(alternatives);
    }
    usable
}

/// All choices of a stream with their tokens and ends; choices without a record are empty.
pub(crate) fn resumed_choices(
    recorded: &[RecoveredChoice],
    meta: &StreamMeta,
) -> Vec<ResumedChoice> {
    let none = RecoveredChoice::default();
    let all = recorded.iter().chain(std::iter::repeat(&none));
    all.take(meta.choices)
        .map(|choice| resumed_choice(choice, meta))
        .collect()
}

fn resumed_choice(recorded: &RecoveredChoice, meta: &StreamMeta) -> ResumedChoice {
    let usable = usable_tokens(recorded, meta.logprobs, meta.top_n);
    // A log without log-probabilities has NaN.
    let logprobs = recorded.logprobs.iter().copied();
    let logprobs = logprobs.chain(std::iter::repeat(f32::NAN));
    let tokens = recorded.ids[..usable].iter().zip(logprobs);
    let alternatives = recorded.alternatives.iter().take(usable * meta.top_n);
    ResumedChoice {
        tokens: tokens.map(|(&id, logprob)| Token { id, logprob }).collect(),
        top: alternatives
            .map(|other| TopLogprob {
                id: other.id,
                logprob: other.logprob,
            })
            .collect(),
        end: recorded.end.map(|(code, _)| End::from_code(code)),
    }
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallTime {
    now: Instant,
    now_unix_us: u64,
}

impl WallTime {
    /// The two clocks show these times at one moment.
    pub(crate) fn new(now: Instant, now_unix_us: u64) -> Self {
        Self { now, now_unix_us }
    }

    /// This moment.
    pub(crate) fn now() -> Self {
        Self::new(clock::now(), clock::unix_us())
    }

    /// Wall time of this moment.
    pub(crate) fn now_unix_us(self) -> u64 {
        self.now_unix_us
    }

    /// The instant of a wall time; `now` for one that this machine's clock cannot represent.
    pub(crate) fn instant(self, unix_us: u64) -> Instant {
        let instant = match unix_us.checked_sub(self.now_unix_us) {
            Some(ahead_us) => self.now.checked_add(Duration::from_micros(ahead_us)),
            None => {
                let past_us = self.now_unix_us - unix_us;
                self.now.checked_sub(Duration::from_micros(past_us))
            }
        };
        instant.unwrap_or(self.now)
    }

    /// The instant of a moment in the past: not after `now`, whatever the wall clock did.
    pub(crate) fn past_instant(self, unix_us: u64) -> Instant {
        self.instant(unix_us).min(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_times_become_instants_without_underflow() {
        let now = wire::clock::now();
        let wall = WallTime::new(now, 5_000_000);
        let second = Duration::from_secs(1);
        assert_eq!(wall.instant(5_000_000), now);
        assert_eq!(wall.instant(6_000_000), now + second);
        assert_eq!(now - wall.instant(4_000_000), second);
        assert_eq!(wall.past_instant(6_000_000), now, "the clock was set back");
        for extreme in [0, u64::MAX] {
            let _ = wall.instant(extreme);
            assert!(wall.past_instant(extreme) <= now);
        }
        let early = WallTime::new(now, u64::MAX);
        assert!(early.instant(0) <= now);
    }
}
