//! The state that the choices of a request share while the engine has it.

use crate::fair_share::FairShareKey;
use crate::{Account, Clocks, Phase, Policy, Progress, RequestId, SamplingParams, SequencePermits};
use std::sync::Arc;
use std::time::Instant;

/// The state that the choices of a request share.
pub(crate) struct RequestState {
    pub(crate) id: RequestId,
    /// Index in the table of requests.
    pub(crate) slot: usize,
    pub(crate) sampling: SamplingParams,
    pub(crate) eos: Arc<[u32]>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) credit_window: u64,
    pub(crate) progress: Arc<Progress>,
    /// Caller's objects, dropped with the request.
    pub(crate) permits: Option<Box<dyn SequencePermits>>,
    pub(crate) held: Option<Box<dyn Send>>,
    pub(crate) prompt_tokens: usize,
    /// Choices that have not ended.
    pub(crate) open_choices: usize,
    pub(crate) has_token: bool,
    /// Upper bound of prompt and generated tokens, summed over choices.
    pub(crate) tokens_max: usize,
    pub(crate) account: Account,
    pub(crate) clocks: Clocks,
    pub(crate) policy: Policy,
    /// Arrival time given by the caller.
    pub(crate) since: Option<Instant>,
    /// Fair-share counter that pays; the index is set when the request leaves the inbox.
    pub(crate) fair_share: FairShareKey,
    /// Arrival time.
    pub(crate) arrived_ns: u64,
    /// Start of the clock that runs before the first token: the arrival, then the start of the prefill;
    /// moved forward by the time that the request was paused.
    pub(crate) clock_start_ns: u64,
    /// Whether an update waits for tokens in flight.
    pub(crate) update_waits: bool,
    pub(crate) paused: bool,
    pub(crate) paused_ns: u64,
    /// State last reported to the observer.
    pub(crate) observed: ObservedState,
}

/// Request states that an observer distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObservedState {
    Running,
    /// Out of credit; `slow`: the slow-consumer threshold has passed.
    Credit {
        slow: bool,
    },
    Detached,
    Paused,
    Preempted,
    NoPermit,
}

impl RequestState {
    /// Drops the caller's objects. A panic in their drop does not reach the engine.
    pub(crate) fn drop_guards(&mut self) {
        let guards = std::panic::AssertUnwindSafe((self.permits.take(), self.held.take()));
        let _ = std::panic::catch_unwind(move || drop(guards));
    }

    /// Records the first token. Called before the token is appended, so that a reader of the token also reads
    /// the time of the token.
    pub(crate) fn note_token(&mut self, now_ns: u64) {
        if !self.has_token {
            self.has_token = true;
            self.progress.set_first_token(now_ns);
            self.progress.set_phase(Phase::Running);
        }
    }

    /// Stops or restarts the clocks that exclude paused time. Returns whether the state changed.
    pub(crate) fn set_paused(&mut self, paused: bool, now_ns: u64) -> bool {
        let changed = self.paused != paused;
        if changed && paused {
            self.paused_ns = now_ns;
        } else if changed {
            self.clock_start_ns += now_ns.saturating_sub(self.paused_ns);
        }
        self.paused = paused;
        changed
    }
}
