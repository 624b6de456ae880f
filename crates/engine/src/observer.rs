//! Who is told what happens to requests, on the engine's thread.

use crate::RequestId;
use std::fmt;
use std::time::Instant;
use stream::End;

/// Is told of transitions and steps. Called on the engine's thread between two steps' work: it
/// must be quick and must not wait. One that panics is dropped, and counted
/// ([`crate::Stats::observer_panics`]).
pub trait Observer: Send {
    /// Something happened to a request. Once per transition, never per token, in the order of
    /// [`Transition`].
    fn transition(&mut self, request: RequestId, what: Transition, at: Instant);

    /// A step in which the model ran is over.
    fn step(&mut self, facts: &StepFacts);
}

/// Is told of one request's transitions, on the same terms as an [`Observer`] is told of everybody's.
/// It goes with the request (see [`crate::Progress::followed`]), so nobody has to look up whose they
/// are. One that panics is counted likewise.
pub trait Follower: Send + Sync + fmt::Debug {
    /// Something happened to the request.
    fn transition(&self, what: Transition, at: Instant);
}

/// What happens to a request, all its choices together.
///
/// The order: `Queued` first, `Ended` last, both once; `Started` once before `FirstToken`, which
/// comes at most once. Between `Queued` and `Ended` a request goes on or stands still. It stands
/// still from a `Backpressure`, `Parked` or `Preempted` to the next `Resumed`; one reason may
/// follow another without a `Resumed` in between. `SlowConsumer` comes after a `Backpressure`, at
/// most once for each. A request may end while it stands still. While queued it can only be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// It was taken from the inbox.
    Queued,
    /// It got a place; its prompt is being computed.
    Started,
    /// Its first token can be read.
    FirstToken,
    /// Its reader's credit is used up: it is parked. Said again only after a `Resumed`, which is
    /// said when a quarter of the window is free again; a reader that takes a token at a time is
    /// one backpressure, not many.
    Backpressure,
    /// It has been parked for credit longer than [`crate::EngineConfig::slow_consumer`].
    SlowConsumer,
    /// It is parked for another reason.
    Parked {
        /// The reason.
        reason: ParkReason,
    },
    /// It goes on.
    Resumed,
    /// Its pages were taken because they were short; it waits for new ones.
    Preempted,
    /// The last of its choices has ended, this way.
    Ended(End),
}

/// Why a request is parked, beside want of credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParkReason {
    /// [`crate::Handle::pause`].
    Paused,
    /// The places of the request were given up while the sequence stood still, and others have them now ([`crate::SequencePermits`]).
    NoPermit,
    /// The reader clock fired and its policy is [`crate::Policy::Detach`].
    Detached,
}

/// A step in which the model ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFacts {
    /// Rows of prompts, or of tokens lost to a preemption.
    pub rows_prefill: usize,
    /// Rows of sequences that generate, guesses left out.
    pub rows_decode: usize,
    /// Rows of guesses at what comes next.
    pub rows_draft: usize,
    /// Sequences that had rows.
    pub batch: usize,
    /// Tokens appended to logs.
    pub tokens: usize,
    /// From this step's head to the next one's, nanoseconds.
    pub duration_ns: u64,
}
