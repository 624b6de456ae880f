//! Times of events that happen after the forward pass.
//!
//! The clock is read once per step, at the head. A token or an end after the forward pass is recorded with that
//! time at once, so that a reader of the token finds a time, and again at the next step's head, which follows
//! directly and has the more exact time.

use super::notifier::Notifier;
use crate::request_state::RequestState;
use crate::step_time::StepClock;
use crate::{Progress, RequestId, Stats, Transition};
use std::sync::Arc;
use stream::End;

/// Events whose time is recorded again at the next step's head.
pub(super) struct Timestamps {
    provisional: Vec<ProvisionalTime>,
    /// One for each token of the last step that was not the first token of a choice.
    token_gaps: Vec<TokenGap>,
    /// Whether the plan of the current step is made: from then on times are provisional.
    is_planned: bool,
}

/// The end of a wait for a token.
struct TokenGap {
    /// Start of the wait; `u64::MAX` for a token of the same step as the preceding token.
    since_ns: u64,
    progress: Arc<Progress>,
}

enum ProvisionalTime {
    FirstToken {
        id: RequestId,
        progress: Arc<Progress>,
        arrived_ns: u64,
    },
    Ended {
        id: RequestId,
        progress: Arc<Progress>,
        /// `None`: the observer was notified already.
        end: Option<End>,
    },
}

impl Timestamps {
    pub(super) fn new(requests_max: usize, tokens_max: usize) -> Self {
        Self {
            provisional: Vec::with_capacity(2 * requests_max),
            token_gaps: Vec::with_capacity(tokens_max),
            is_planned: false,
        }
    }

    /// The step's plan is made.
    pub(super) fn set_planned(&mut self) {
        self.is_planned = true;
    }

    /// Records a request's first token.
    pub(super) fn add_first_token(&mut self, request: &RequestState) {
        self.provisional.push(ProvisionalTime::FirstToken {
            id: request.id,
            progress: Arc::clone(&request.progress),
            arrived_ns: request.arrived_ns,
        });
    }

    /// Records a later token. `since_ns` is the start of the wait for the token; `None`: the token is from
    /// the same step as the preceding token.
    pub(super) fn add_token(&mut self, request: &RequestState, since_ns: Option<u64>) {
        self.token_gaps.push(TokenGap {
            since_ns: since_ns.unwrap_or(u64::MAX),
            progress: Arc::clone(&request.progress),
        });
    }

    /// Records a request's end. Returns whether the time is final, so that the observer is notified now.
    pub(super) fn add_end(&mut self, request: &RequestState, end: End) -> bool {
        self.provisional.push(ProvisionalTime::Ended {
            id: request.id,
            progress: Arc::clone(&request.progress),
            end: self.is_planned.then_some(end),
        });
        !self.is_planned
    }

    /// Records the last step's events with the time of this step's head, and notifies observers.
    pub(super) fn finalize(&mut self, clock: StepClock, stats: &Stats, notifier: &mut Notifier) {
        self.is_planned = false;
        for time in self.provisional.drain(..) {
            match time {
                ProvisionalTime::FirstToken {
                    id,
                    progress,
                    arrived_ns,
                } => {
                    progress.set_first_token(clock.now_ns());
                    stats.first_token.record(clock.elapsed_ns(arrived_ns));
                    notifier.notify(stats, clock, id, &progress, Transition::FirstToken);
                }
                ProvisionalTime::Ended { id, progress, end } => {
                    progress.set_ended(clock.now_ns());
                    if let Some(end) = end {
                        notifier.notify(stats, clock, id, &progress, Transition::Ended(end));
                    }
                }
            }
        }
        for gap in self.token_gaps.drain(..) {
            let waited = clock.elapsed_ns(gap.since_ns);
            stats.inter_token.record(waited);
            gap.progress.add_gap(waited, clock.now_ns());
        }
    }
}
