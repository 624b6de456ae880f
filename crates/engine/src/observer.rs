//! Observers of requests and steps, called on the engine thread.

use crate::RequestId;
use std::fmt;
use std::time::Instant;
use stream::End;

/// Receives transitions and steps of all requests. Called on the engine thread between two steps' work: must be quick and
/// must not wait. An observer that panics is dropped and counted ([`crate::Stats::observer_panics`]).
pub trait Observer: Send {
    /// Reports a transition of a request. Called once per transition, never per token, in the order of
    /// [`Transition`].
    fn transition(&mut self, request: RequestId, what: Transition, at: Instant);

    /// Reports a step in which the model ran.
    fn step(&mut self, facts: &StepFacts);
}

/// Receives the transitions of one request, under the rules of [`Observer`].
/// A follower is part of the request (see [`crate::Progress::followed`]), so transitions need no lookup. One that panics is
/// counted like an observer, but not dropped.
pub trait Follower: Send + Sync + fmt::Debug {
    /// Reports a transition of the request.
    fn transition(&self, what: Transition, at: Instant);
}

/// A transition of a request, all choices together.
///
/// The order: `Queued` first, `Ended` last, both once; `Started` once before `FirstToken`, which
/// comes at most once. Between `Queued` and `Ended` a request runs or is stopped. A request is stopped
/// from a `Backpressure`, `Parked` or `Preempted` to the next `Resumed`; one reason may
/// follow another without a `Resumed` in between. `SlowConsumer` comes after a `Backpressure`, at
/// most once for each. A stopped request may end. A queued request can only be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// Taken from the inbox.
    Queued,
    /// Started: the prompt is being computed.
    Started,
    /// The first token can be read.
    FirstToken,
    /// Parked, because the readers' credit is used up. Repeated only after a `Resumed`, which comes
    /// when a quarter of the window is free again; a reader that takes one token at a time causes
    /// one `Backpressure`, not many.
    Backpressure,
    /// Parked for credit longer than [`crate::EngineConfig::slow_consumer`].
    SlowConsumer,
    /// Parked for another reason.
    Parked {
        /// The reason.
        reason: ParkReason,
    },
    /// Running or queued again.
    Resumed,
    /// Preempted: the pages were given to another request.
    Preempted,
    /// Runs on another engine than before; only requests of a remote handle. Changes nothing else.
    Moved,
    /// The last choice has ended, with this end.
    Ended(End),
}

/// Reason why a request is parked, beside want of credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParkReason {
    /// [`crate::Handle::pause`].
    Paused,
    /// The permits were returned while the sequences were parked, and other requests hold them now
    /// ([`crate::SequencePermits`]).
    NoPermit,
    /// The reader clock ran out under [`crate::Policy::Detach`].
    Detached,
}

/// Measurements of a step in which the model ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFacts {
    /// Rows of prompts, or of tokens lost to a preemption.
    pub rows_prefill: usize,
    /// Rows of decoding sequences, draft tokens left out.
    pub rows_decode: usize,
    /// Rows of draft tokens.
    pub rows_draft: usize,
    /// Sequences with rows.
    pub batch: usize,
    /// Tokens appended to logs.
    pub tokens: usize,
    /// Time from this step's head to the next one's, nanoseconds.
    pub duration_ns: u64,
}
