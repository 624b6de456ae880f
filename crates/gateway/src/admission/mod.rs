//! The right to have a request open: who gets it, who waits for it, who is sent away.
//!
//! A request asks before it is tokenised, with an estimate of what it needs. It is let in at once, or
//! waits in a bounded queue with a position that it can see, or is refused with the time after
//! which it should come back. What it holds then is a [`Permit`]: a place and a number of pages, and the right to ask for
//! more places as its answers need them; its drop gives all back, whatever happened. What stands still gives its place
//! back while it does, and asks for one again ([`core`] says how).
//!
//! ```text
//! settings  what the operator chose           limit  how many streams may run
//! class     how urgent                        recent latencies measured lately
//! resource_estimate  slots, pages and prefill of a request    rate   how fast places become free, prompts are computed
//! queue     who waits, by when it is due      promises  who was told to come back, and when
//! standing  who goes first                    task_places  places of tasks
//! core      all of it under one lock, no clock, no waiting
//! ```
//!
//! The lock is held for a few lookups, never while anybody waits, computes or wakes. Places go to tickets,
//! not to whoever is awake first: a ticket is granted under the lock and then only its own holder is
//! woken. A holder that is gone by then gives the place back in its drop, which grants the next.

pub(crate) mod busy_rate;
pub(crate) mod core;
pub(crate) mod decay;
pub(crate) mod fair_shares;
pub(crate) mod limit;
pub(crate) mod permit;
pub(crate) mod queue;
pub(crate) mod recent_samples;
pub(crate) mod rejection;
pub(crate) mod resource_estimate;
pub(crate) mod retry_reservations;
pub(crate) mod settings;
pub(crate) mod task_slots;
#[cfg(test)]
mod tests;
pub(crate) mod ticket;

pub use generate::priority::Priority;
pub(crate) use permit::LatencyReporter;
pub use permit::Permit;
pub(crate) use rejection::Rejection;
pub use resource_estimate::RequestedChoices;
pub use resource_estimate::ResourceEstimate;
pub(crate) use resource_estimate::ResourceEstimator;
pub(crate) use retry_reservations::Fingerprint;
pub use settings::{AdaptiveLimits, QueueLimits, Reservation};
pub use task_slots::TaskSlots;
pub use ticket::QueuePosition;
pub(crate) use ticket::Ticket;

use self::core::Core;
use self::rejection::{RETRY_AFTER_MAX, RETRY_AFTER_MIN};
use engine::Account;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Everything that bounds admission.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionBounds {
    /// Bounds of the concurrency limit.
    pub adaptive: AdaptiveLimits,
    /// Bounds of the queue.
    pub queue: QueueLimits,
    /// Requests that run or wait.
    pub open_max: usize,
    /// Sequences that may be started and not ended, those that stand still included.
    pub seats: usize,
    /// Pages that may be promised.
    pub pages_limit: usize,
    /// What a caller is told to wait as long as nothing was measured.
    pub retry_after: Duration,
}

/// What a request says when it asks to be let in.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest {
    /// The request's priority.
    pub class: Priority,
    /// Whose share of the places it uses.
    pub account: Account,
    /// Slots, pages and prefill tokens that the request needs.
    pub need: ResourceEstimate,
    /// Whether the sequences that it gets places for can stand still at any time.
    pub is_recallable: bool,
    /// When the caller's patience ends.
    pub deadline: Option<Instant>,
    /// By what the caller is known who comes back when told.
    pub who: Fingerprint,
}

/// How things stand, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdmissionSnapshot {
    /// Requests that run or stand still.
    pub(crate) open: usize,
    /// Places held: one per answer that runs.
    pub running: usize,
    /// Slots that may be held now.
    pub limit: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// KV pages reserved by admitted requests.
    pub pages_reserved: usize,
    /// KV pages that may be reserved.
    pub pages_limit: usize,
    /// Prompt tokens let in that have no first token yet.
    pub prefill_pending: usize,
    /// Places that became free per second of having none to give.
    pub(crate) drain_per_second: Option<f64>,
    /// Prompt tokens computed per second of having some to compute.
    pub(crate) prefill_per_second: Option<f64>,
}

/// The door.
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
}

impl Admission {
    /// An open door.
    pub fn new(bounds: AdmissionBounds) -> Self {
        Self {
            shared: Arc::new(Shared {
                core: Mutex::new(Core::new(bounds, now())),
            }),
        }
    }

    /// A ticket: a future of the permit.
    ///
    /// # Errors
    /// It is certain now that there will be no permit.
    pub fn ask(&self, request: AdmissionRequest) -> Result<Ticket, Rejection> {
        let asked = self.shared.with(|core, now| core.arrive(request, now));
        match asked {
            Ok(id) => Ok(Ticket::new(TicketGuard {
                shared: Arc::clone(&self.shared),
                id,
            })),
            Err(rejection) => {
                tracing::debug!(reason = rejection.reason(), "rejected");
                Err(rejection)
            }
        }
    }

    /// Other bounds. Nobody who is in or waits is sent away for it.
    pub(crate) fn rebound(&self, bounds: AdmissionBounds) {
        self.shared.with(|core, now| core.rebound(bounds, now));
    }

    /// Lets nobody in any more and tells all who wait. Permits that are out stay good.
    pub(crate) fn close(&self) {
        self.shared.with(Core::close);
    }

    /// Whether nobody runs and nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.with(|core, _| core.is_empty())
    }

    /// When the next place becomes free, where that was measured lately.
    pub(crate) fn next_slot(&self) -> Option<Duration> {
        let per_second = self.snapshot().drain_per_second?;
        let wait = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(RETRY_AFTER_MAX);
        Some(wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX))
    }

    /// How things stand.
    pub fn snapshot(&self) -> AdmissionSnapshot {
        self.shared.with(|core, _| core.snapshot())
    }
}

/// What tickets, permits and handles share.
struct Shared {
    core: Mutex<Core>,
}

impl Shared {
    /// Does something under the lock; wakes afterwards whom it concerns.
    fn with<T>(&self, act: impl FnOnce(&mut Core, Instant) -> T) -> T {
        let now = now();
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut core, now);
        let woken = core.take_woken();
        drop(core);
        woken.into_iter().for_each(std::task::Waker::wake);
        done
    }
}

/// A ticket's place in the core, waiting or running; its drop leaves.
struct TicketGuard {
    shared: Arc<Shared>,
    id: queue::TicketId,
}

impl Drop for TicketGuard {
    fn drop(&mut self) {
        self.shared.with(|core, now| core.leave(self.id, now));
    }
}

/// The io driver's clock, as its timers have it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
