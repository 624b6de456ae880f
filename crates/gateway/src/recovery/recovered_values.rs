//! Values of a recovered stream as this process takes them: metadata and terms of the description, choices with their
//! tokens, and instants from recorded wall times. Nothing comes from the settings of this process.
//!
//! Durations that pass while no process runs count: a deadline, a retention and a total timeout continue. The wall clock
//! may be set back or forward meanwhile, so no conversion may underflow.

use crate::records::{StreamDescription, end_from_code};
use crate::streams::StreamTerms;
use engine::{Token, TopLogprob};
use generate::sampling::ReportedSampling;
use generate::stream_source::StreamMeta;
use generate::submit::ResumedChoice;
use journal::RecoveredChoice;
use std::time::{Duration, Instant};
use stream::{Owner, StreamId};
use wire::clock;

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
pub(crate) fn usable_tokens(choice: &RecoveredChoice, logprobs: bool, top_n: usize) -> usize {
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
        end: recorded.end.map(|(code, _)| end_from_code(code)),
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
