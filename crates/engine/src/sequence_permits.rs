//! Permits: the right of a request's sequences to run, counted by the caller.
//!
//! A request may have more sequences than the caller has permits for, and a parked sequence
//! needs none. So the engine asks for a permit for each sequence separately, at the head of a step:
//!
//! ```text
//! none --(request)--> wanted --(take)--> held
//!  ^                    |                 |
//!  +---- withdraw ------+                 |
//!  +---- give_back -----------------------+
//! ```
//!
//! - A sequence keeps a permit unless the request is paused or the sequence has been parked for credit for longer
//!   than [`PERMIT_KEPT`]. A reader that is slow for a moment therefore costs the stream nothing.
//! - Without a permit a queued request is not started, and a started sequence is parked: no rows, and the
//!   sequence's pages are taken first where pages are short. Preempted tokens are computed again, so no token
//!   is lost.
//! - The caller may recall a permit from a request with several choices; the youngest choice with one is parked.
//! - An ended sequence returns the permit, or withdraws the request for a permit, before the log ends.
//! - A thread that frees a permit wakes the engine after that, with the waker of [`SequencePermits::wake_by`]. The engine
//!   takes permits at the head of the next step, so no free permit is missed.
//!
//! All calls come from the engine thread. They may take a short lock; they never wait for a permit.

use std::task::Waker;
use std::time::Duration;

/// Time that a sequence parked for credit keeps the permit.
pub const PERMIT_KEPT: Duration = Duration::from_millis(500);

/// The permits of one request's sequences. The drop returns permits that are still held.
pub trait SequencePermits: Send {
    /// Sets the waker to call when a permit becomes free. Called once, before any other method.
    fn wake_by(&mut self, waker: Waker);

    /// Takes a permit for a sequence that requested one. Returns false if none is free.
    fn take(&mut self) -> bool;

    /// Requests a permit for one more sequence.
    fn request(&mut self);

    /// Whether a sequence should return the permit and request a new one, because another request waits for a permit.
    /// Called in each step for requests with several choices.
    fn is_recalled(&mut self) -> bool {
        false
    }

    /// Withdraws a sequence's request for a permit that was not taken yet.
    fn withdraw(&mut self);

    /// Returns a permit that was taken.
    fn give_back(&mut self);
}

/// Whether a sequence holds a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitState {
    /// Without a permit, and none requested.
    None,
    /// Waiting for a permit.
    Wanted,
    /// Holding a permit, or part of a request that needs none.
    Held,
}
