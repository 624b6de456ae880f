//! Holdings of a running request.

use super::queue::TicketId;
use super::rejection::Rejection;
use super::resource_estimate::ResourceEstimate;
use super::ticket::Ticket;
use super::{Shared, TicketGuard};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The right to run one request, with slots and the pages reserved with the slots; released on drop.
pub struct Permit {
    guard: TicketGuard,
}

impl Permit {
    pub(super) fn new(guard: TicketGuard) -> Self {
        Self { guard }
    }

    /// Replaces the estimate by the exact one.
    ///
    /// # Errors
    /// The pages are not free: all slots and pages are released, and the ticket waits at the old position.
    pub(crate) fn try_update_estimate(self, need: ResourceEstimate) -> Result<Self, Ticket> {
        let id = self.guard.id;
        let stays = self
            .guard
            .shared
            .with_core(|core, now| core.update_estimate(id, need, now));
        match stays {
            true => Ok(self),
            false => Err(Ticket::new(self.guard)),
        }
    }

    /// Replaces the estimate by the exact one, and waits for the pages if they are not free.
    ///
    /// # Errors
    /// The ticket was rejected while waiting.
    pub async fn update_estimate(self, need: ResourceEstimate) -> Result<Self, Rejection> {
        match self.try_update_estimate(need) {
            Ok(permit) => Ok(permit),
            Err(ticket) => ticket.await,
        }
    }

    /// A reporter of this request's latency to admission.
    pub fn latency_reporter(&self) -> LatencyReporter {
        LatencyReporter {
            shared: Arc::clone(&self.guard.shared),
            id: self.guard.id,
        }
    }
}

impl Permit {
    /// Sets the waker for grants of slots.
    pub(crate) fn wake_on_slot(&self, waker: Waker) {
        let id = self.guard.id;
        self.guard
            .shared
            .with_core(|core, _| core.wake_on_slot(id, waker));
    }

    /// One more sequence requests a slot.
    pub(crate) fn request_slot(&self) {
        self.guard
            .shared
            .with_core(|core, now| core.request_slot(self.guard.id, now));
    }

    /// A sequence takes a granted slot, if there is one.
    pub(crate) fn take_slot(&self) -> bool {
        self.guard
            .shared
            .with_core(|core, _| core.take_slot(self.guard.id))
    }

    /// Whether a running sequence should return a slot.
    pub(crate) fn is_recalled(&self) -> bool {
        let id = self.guard.id;
        self.guard.shared.with_core(|core, _| core.is_recalled(id))
    }

    /// Withdraws a sequence's slot request.
    pub(crate) fn cancel_slot_request(&self) {
        let id = self.guard.id;
        self.guard
            .shared
            .with_core(|core, now| core.cancel_slot_request(id, now));
    }

    /// Returns a sequence's slot. The ticket keeps the last slot if `more` sequences are still to come.
    pub(crate) fn return_slot(&self, more: bool) {
        let id = self.guard.id;
        self.guard
            .shared
            .with_core(|core, now| core.return_slot(id, more, now));
    }
}

/// Reports the latency of a running request to admission. Holds no permit.
#[derive(Clone)]
pub struct LatencyReporter {
    shared: Arc<Shared>,
    id: TicketId,
}

impl LatencyReporter {
    /// The first token came at `at`. Only the first call counts, and none after the permit was given back.
    pub fn first_token(&self, at: Instant) {
        self.shared
            .with_core(|core, now| core.first_token(self.id, at, now));
    }

    /// Records an inter-token gap that an attached reader waited for.
    pub(crate) fn token_gap(&self, gap: Duration) {
        self.shared.with_core(|core, now| core.token_gap(gap, now));
    }
}
