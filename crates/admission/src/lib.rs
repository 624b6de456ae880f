//! Admission: which request runs, which waits, which is rejected.
//!
//! A request is admitted before the prompt is tokenized, by an estimate of slots, pages and prefill tokens. The
//! request runs at once, or waits in a bounded queue with a visible position, or is rejected with a `Retry-After`. A
//! running request holds a [`Permit`]: a slot and a number of pages, and the right to request more slots for further
//! choices; dropping the permit releases everything. A parked sequence returns the slot and requests a slot again to
//! continue (see `admission_core`).
//!
//! ```text
//! settings           the operator's settings            limit               the concurrency limit
//! resource_estimate  slots, pages and prefill tokens    recent_samples      recent latencies and rates
//! queue              tickets by due time                retry_reservations  callers with a `Retry-After`
//! fair_shares        the order between tenants          rejection           why a request gets no permit
//! permit             tickets and permits                task_slots          slots of tasks
//! admission_core     all of the above under one lock, without a clock, without waiting
//! ```
//!
//! The lock is held for a few lookups, never while a thread waits, computes or wakes another. Slots are granted to
//! tickets, not to the first task that is awake: a grant happens under the lock and then wakes the ticket's holder
//! only. If the holder is dropped before taking the slot, the drop releases the slot and grants the slot to the
//! next ticket.
//!
//! Time is tokio's.

mod admission_core;
mod fair_shares;
mod limit;
mod permit;
mod queue;
mod recent_samples;
mod rejection;
mod resource_estimate;
mod retry_reservations;
mod settings;
mod task_slots;
#[cfg(test)]
mod tests;

pub use generate::request::Priority;
pub use permit::{LatencyReporter, Permit, QueuePosition, Ticket};
pub use rejection::Rejection;
pub use resource_estimate::{
    BYTES_PER_TOKEN, RequestedChoices, ResourceEstimate, ResourceEstimator,
};
pub use retry_reservations::Fingerprint;
pub use settings::{AdaptiveLimits, QueueLimits, Reservation};
pub use task_slots::{NotifyWaker, TaskSlots};

use admission_core::Core;
use engine::{Account, Handle, Stats};
use rejection::{RETRY_AFTER_MAX, RETRY_AFTER_MIN};
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
    /// Sequences that may be started and not ended, parked ones included.
    pub seats: usize,
    /// Pages that may be promised.
    pub pages_limit: usize,
    /// `Retry-After` as long as nothing was measured.
    pub retry_after: Duration,
}

/// The request of a permit.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest {
    /// The request's priority.
    pub class: Priority,
    /// Tenant whose share the slots belong to.
    pub account: Account,
    /// Slots, pages and prefill tokens that the request needs.
    pub need: ResourceEstimate,
    /// Whether the sequences in the slots can be parked at any time.
    pub is_recallable: bool,
    /// When the caller's patience ends.
    pub deadline: Option<Instant>,
    /// Fingerprint of the caller, to recognize a retry.
    pub who: Fingerprint,
}

/// Admission in numbers, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdmissionSnapshot {
    /// Running requests, parked ones included.
    pub(crate) open: usize,
    /// Slots held: one per running choice.
    pub running: usize,
    /// Slots that may be held now.
    pub limit: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// KV pages reserved by admitted requests.
    pub pages_reserved: usize,
    /// KV pages that may be reserved.
    pub pages_limit: usize,
    /// Prompt tokens of admitted requests without a first token.
    pub prefill_pending: usize,
    /// Slots that became free per second without a free slot.
    pub(crate) drain_per_second: Option<f64>,
    /// Prompt tokens computed per second of having some to compute.
    pub(crate) prefill_per_second: Option<f64>,
}

/// Admission to one model's slots.
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
}

impl Admission {
    /// Admission without any ticket, to an engine that tells nothing of its steps.
    pub fn new(bounds: AdmissionBounds) -> Self {
        Self::with_stats(bounds, None)
    }

    /// Admission without any ticket, to this engine.
    pub fn to_engine(engine: &Handle, bounds: AdmissionBounds) -> Self {
        let stats = (!engine.is_remote()).then(|| engine.shared_stats());
        Self::with_stats(bounds, stats)
    }

    fn with_stats(bounds: AdmissionBounds, stats: Option<Arc<Stats>>) -> Self {
        Self {
            shared: Arc::new(Shared {
                core: Mutex::new(Core::new(bounds, tokio_now())),
                stats,
            }),
        }
    }

    /// A ticket: a future of the permit.
    ///
    /// # Errors
    /// The request is certain to get no permit.
    pub fn request_permit(&self, request: AdmissionRequest) -> Result<Ticket, Rejection> {
        let asked = self
            .shared
            .with_core(|core, now| core.add_ticket(request, now));
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

    /// A permit for a stream that ran in an earlier process, beyond all limits.
    pub fn readmit(&self, request: AdmissionRequest) -> Permit {
        let id = self
            .shared
            .with_core(|core, now| core.readmit_ticket(request, now));
        Permit::new(TicketGuard {
            shared: Arc::clone(&self.shared),
            id,
        })
    }

    /// A ticket for a stream that waited in an earlier process since `arrived`, in a queue of any length.
    pub fn requeue(&self, request: AdmissionRequest, arrived: Instant) -> Ticket {
        let id = self
            .shared
            .with_core(|core, now| core.requeue_ticket(request, arrived, now));
        Ticket::new(TicketGuard {
            shared: Arc::clone(&self.shared),
            id,
        })
    }

    /// Begins or ends the hold: no new request is admitted while on hold.
    pub fn set_hold(&self, is_on_hold: bool) {
        self.shared
            .with_core(|core, now| core.set_hold(is_on_hold, now));
    }

    /// Replaces the bounds. Running and waiting tickets stay.
    pub fn set_bounds(&self, bounds: AdmissionBounds) {
        self.shared
            .with_core(|core, now| core.set_bounds(bounds, now));
    }

    /// Admits no further request and rejects all waiting tickets. Permits stay valid.
    pub fn close(&self) {
        self.shared.with_core(Core::close);
    }

    /// Whether no ticket runs or waits.
    pub fn is_empty(&self) -> bool {
        self.shared.with_core(|core, _| core.is_empty())
    }

    /// Time until the next slot becomes free, if measured recently.
    pub fn next_slot(&self) -> Option<Duration> {
        let per_second = self.snapshot().drain_per_second?;
        let wait = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(RETRY_AFTER_MAX);
        Some(wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX))
    }

    /// Numbers for metrics.
    pub fn snapshot(&self) -> AdmissionSnapshot {
        self.shared.with_core(|core, _| core.snapshot())
    }
}

/// State shared by tickets, permits and handles.
struct Shared {
    core: Mutex<Core>,
    /// Of an engine in this process.
    stats: Option<Arc<Stats>>,
}

impl Shared {
    /// Runs `act` under the lock, and wakes tasks afterwards.
    fn with_core<T>(&self, act: impl FnOnce(&mut Core, Instant) -> T) -> T {
        let now = tokio_now();
        let decode_ns = self.stats.as_ref().map(|stats| stats.decode_ns_total());
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        core.set_decode_time(decode_ns.map(Duration::from_nanos));
        let done = act(&mut core, now);
        let woken = core.take_woken();
        drop(core);
        woken.into_iter().for_each(std::task::Waker::wake);
        done
    }
}

/// Guard of a ticket's entry in the core, waiting or running; the drop removes the entry.
struct TicketGuard {
    shared: Arc<Shared>,
    id: queue::TicketId,
}

impl Drop for TicketGuard {
    fn drop(&mut self) {
        self.shared
            .with_core(|core, now| core.remove_ticket(self.id, now));
    }
}

/// Tokio's clock, which the timers of tickets use.
fn tokio_now() -> Instant {
    tokio::time::Instant::now().into_std()
}
