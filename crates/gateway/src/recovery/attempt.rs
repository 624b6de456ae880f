//! Poison: requests with which the process dies again and again; and the order in which recovered streams are submitted.
//!
//! A process claims a recovered stream, with a number of tokens, before it does any work for the stream: before prompts are
//! prepared and constraints are compiled. So the next process knows which streams were in work when the process died, and
//! whether a stream has got new tokens since. A stream with new tokens is not the reason of the death, or not at this
//! place: the count begins anew.
//!
//! A stream that was in work at one death may be the reason or a neighbor. After the restart such streams run one at a
//! time, each until its first new token, so that a second death names the reason: that stream fails, and neighbors, whose
//! turn had not come or who have new tokens, continue.

use generate::request::Priority;

/// Deaths in a row after which a stream runs alone.
const DEATHS_ALONE: u32 = 1;
/// Deaths in a row after which a stream does not run again.
const DEATHS_MAX: u32 = 2;

/// The last submission of a stream, as the journal has recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastSubmission {
    /// Whether the stream was submitted in any process. The process that opened a stream records nothing before.
    pub(crate) is_submitted: bool,
    /// Whether a client had paused the stream, so that no step contained it.
    pub(crate) is_paused: bool,
    /// The last claim.
    pub(crate) claim: Option<LastClaim>,
    /// Tokens of all choices.
    pub(crate) tokens: u64,
}

/// The parts of a recorded claim that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastClaim {
    /// Number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// Tokens of all choices at the claim.
    pub(crate) tokens: u64,
}

/// How a recovered stream is submitted. The number of the attempt is one more than the deaths in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Together with other streams.
    Normal { number: u32 },
    /// While no other recovered stream is submitted.
    Alone { number: u32 },
    /// The stream ends.
    Fail,
}

impl Attempt {
    /// Number of the attempt, for the record of the claim.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Normal { number } | Self::Alone { number } => number,
            Self::Fail => DEATHS_MAX + 1,
        }
    }
}

/// The attempt of this process. `is_sealed`: the last process shut down in order.
pub(crate) fn attempt_of(last: LastSubmission, is_sealed: bool) -> Attempt {
    let deaths = consecutive_deaths(last, is_sealed);
    let number = deaths + 1;
    match deaths {
        _ if last.is_paused => Attempt::Normal { number },
        DEATHS_MAX.. => Attempt::Fail,
        DEATHS_ALONE.. => Attempt::Alone { number },
        _ => Attempt::Normal { number },
    }
}

fn consecutive_deaths(last: LastSubmission, is_sealed: bool) -> u32 {
    let (before, tokens_then) = match last.claim {
        Some(claim) => (claim.attempt.saturating_sub(1), claim.tokens),
        // The process that opened the stream makes no claim.
        None => (0, 0),
    };
    let was_in_work = last.is_submitted || last.claim.is_some();
    if last.tokens > tokens_then || !was_in_work {
        return 0;
    }
    let deaths = before.saturating_add(u32::from(!is_sealed && !last.is_paused));
    deaths.min(DEATHS_MAX)
}

/// The properties of a stream that decide when the stream is submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Whether a client waits for the stream's next token.
    pub(crate) has_reader: bool,
    pub(crate) class: Priority,
    /// Tokens to be computed before the next token: of the prompts and of the unfinished answers.
    pub(crate) tokens_to_compute: usize,
    pub(crate) attempt: Attempt,
    /// Place in the order of opening.
    pub(crate) place: usize,
}

/// Index of the next stream: those that run alone come last; then readers count, the class, and the work.
pub(crate) fn next_candidate(candidates: impl IntoIterator<Item = Candidate>) -> Option<usize> {
    let ranked = candidates.into_iter().enumerate();
    let first = ranked.min_by_key(|(_, candidate)| {
        (
            matches!(candidate.attempt, Attempt::Alone { .. }),
            !candidate.has_reader,
            candidate.class.index(),
            candidate.tokens_to_compute,
            candidate.place,
        )
    });
    first.map(|(index, _)| index)
}

#[cfg(test)]
mod order_tests {
    use super::*;

    #[test]
    fn readers_precede_classes_and_classes_precede_work() {
        let stream = |has_reader, class, tokens_to_compute, place| Candidate {
            has_reader,
            class,
            tokens_to_compute,
            attempt: Attempt::Normal { number: 1 },
            place,
        };
        let mut left = vec![
            stream(false, Priority::Normal, 10, 0),
            stream(false, Priority::Background, 1, 1),
            Candidate {
                attempt: Attempt::Alone { number: 3 },
                ..stream(true, Priority::Critical, 1, 2)
            },
            stream(false, Priority::Critical, 900, 3),
            stream(true, Priority::Background, 500, 4),
            stream(true, Priority::Normal, 700, 5),
            stream(false, Priority::Normal, 9, 6),
            stream(false, Priority::Normal, 10, 7),
        ];
        let mut order = Vec::new();
        while let Some(next) = next_candidate(left.iter().copied()) {
            order.push(left.remove(next).place);
        }
        assert_eq!(order, [5, 4, 3, 6, 0, 7, 1, 2]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_kill_the_process_run_alone_and_then_fail() {
        let normal = |number| Attempt::Normal { number };
        let alone = |number| Attempt::Alone { number };
        let never = LastSubmission {
            is_submitted: false,
            is_paused: false,
            claim: None,
            tokens: 0,
        };
        let submitted = LastSubmission {
            is_submitted: true,
            ..never
        };
        let claimed = |attempt, tokens_then, tokens| LastSubmission {
            claim: Some(LastClaim {
                attempt,
                tokens: tokens_then,
            }),
            tokens,
            ..submitted
        };
        let queued = |attempt| LastSubmission {
            claim: Some(LastClaim { attempt, tokens: 0 }),
            ..never
        };
        let paused = |last| LastSubmission {
            is_paused: true,
            ..last
        };
        let with_tokens = LastSubmission {
            tokens: 7,
            ..submitted
        };
        let rows = [
            ("queued", never, false, normal(1)),
            ("first process, no token", submitted, false, alone(2)),
            ("first process, shut down", submitted, true, normal(1)),
            ("first process, tokens", with_tokens, false, normal(1)),
            ("no new token", claimed(1, 7, 7), false, alone(2)),
            (
                "no new token, twice",
                claimed(2, 7, 7),
                false,
                Attempt::Fail,
            ),
            ("queued, in work", queued(1), false, alone(2)),
            ("queued, in work twice", queued(2), false, Attempt::Fail),
            ("queued, shut down", queued(1), true, normal(1)),
            ("far beyond", claimed(u32::MAX, 7, 7), false, Attempt::Fail),
            ("new tokens", claimed(3, 7, 8), false, normal(1)),
            ("new tokens, shut down", claimed(3, 7, 8), true, normal(1)),
            ("shut down", claimed(1, 7, 7), true, normal(1)),
            ("shut down while alone", claimed(2, 7, 7), true, alone(2)),
            ("paused", paused(claimed(2, 7, 7)), false, normal(2)),
            ("paused at once", paused(submitted), false, normal(1)),
            ("attempt 0", claimed(0, 7, 7), false, alone(2)),
        ];
        for (case, last, is_sealed, attempt) in rows {
            assert_eq!(attempt_of(last, is_sealed), attempt, "{case}");
        }
    }

    #[test]
    fn stream_that_advances_survives_any_number_of_deaths() {
        let mut claim = None;
        for tokens in 1..100 {
            let last = LastSubmission {
                is_submitted: true,
                is_paused: false,
                claim,
                tokens,
            };
            let attempt = attempt_of(last, false).number();
            assert_eq!(attempt, 1);
            claim = Some(LastClaim { attempt, tokens });
        }
    }

    #[test]
    fn stream_that_never_advances_fails_after_two_deaths() {
        let mut claim = None;
        let mut attempts = Vec::new();
        for _ in 0..2 {
            let last = LastSubmission {
                is_submitted: true,
                is_paused: false,
                claim,
                tokens: 5 * u64::from(claim.is_some()),
            };
            let attempt = attempt_of(last, false);
            attempts.push(attempt);
            claim = Some(LastClaim {
                attempt: attempt.number(),
                tokens: 5,
            });
        }
        let expected = [Attempt::Alone { number: 2 }, Attempt::Fail];
        assert_eq!(attempts, expected);
    }
}
