//! Places: the right of a request's sequences to be computed, counted by the caller.
//!
//! A request may have more sequences than the caller has places for, and a sequence that stands still
//! needs none. So the engine asks, at the head of a step, for each sequence by itself:
//!
//! ```text
//! none --(want)--> wanted --(take)--> held
//!  ^                 |                 |
//!  +--- want_not ----+                 |
//!  +--- give_back ---------------------+
//! ```
//!
//! - A sequence *may run* unless its request is paused or it has been parked for credit for longer than
//!   [`PERMIT_KEPT`]. A reader that is slow for a moment therefore costs its stream nothing.
//! - Without a place a queued request is not started, and a started sequence is parked: it has no rows, and its
//!   pages are taken first where pages are short. Nothing is lost; what was taken is computed again.
//! - Of a request with several choices the caller may ask for a place back; the youngest choice that has one is parked.
//! - An ended sequence gives its place back, or wants none any more, before its log says that it has ended.
//! - Whoever gives a place wakes the engine after that, with the waker of [`SequencePermits::wake_by`]. The engine takes
//!   at the head of the step that follows, so a place given between two looks is seen by the second.
//!
//! All calls come from the engine's thread. They may take a short lock; they never wait for a place.

use std::task::Waker;
use std::time::Duration;

/// How long a sequence that is parked for credit keeps its place.
pub const PERMIT_KEPT: Duration = Duration::from_millis(500);

/// The places of one request. Dropping it gives back what is left.
pub trait SequencePermits: Send {
    /// Whom to wake when a place was given. Called once, before anything else.
    fn wake_by(&mut self, waker: Waker);

    /// A sequence that wants a place takes one that is there. False: there is none now.
    fn take(&mut self) -> bool;

    /// One more sequence wants a place.
    fn request(&mut self);

    /// Whether a sequence that has a place should give it back and ask again: somebody who has none waits. Asked at each
    /// step, of requests with several choices.
    fn is_recalled(&mut self) -> bool {
        false
    }

    /// One sequence less wants a place that it has not taken.
    fn withdraw(&mut self);

    /// A place that was taken is free again.
    fn give_back(&mut self);
}

/// How a sequence stands to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitState {
    /// No place, and none wanted.
    None,
    /// Waiting for a place.
    Wanted,
    /// Holding a place, or of a request that needs none.
    Held,
}
