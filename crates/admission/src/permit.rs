//! Holdings of a waiting and of a running request.

use super::admission_core::TicketStatus;
use super::queue::TicketId;
use super::rejection::Rejection;
use super::resource_estimate::ResourceEstimate;
use super::{Shared, TicketGuard};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep_until};

/// The right to run one request, with slots and the pages reserved with the slots; released on drop.
pub struct Permit {
    guard: TicketGuard,
}

impl Permit {
    pub(crate) fn new(guard: TicketGuard) -> Self {
        Self { guard }
    }

    /// Replaces the estimate by the exact one.
    ///
    /// # Errors
    /// The pages are not free: all slots and pages are released, and the ticket waits at the old position.
    pub fn try_update_estimate(self, need: ResourceEstimate) -> Result<Self, Ticket> {
        let id = self.guard.id;
        let stays = self
            .guard
            .shared
            .with_core(|core, now| core.update_estimate(id, need, now));
        if stays {
            Ok(self)
        } else {
            Err(Ticket::new(self.guard))
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

    /// Sets the waker for grants of slots.
    pub fn wake_on_slot(&self, waker: Waker) {
        let id = self.guard.id;
        self.guard
            .shared
            .with_core(|core, _| core.wake_on_slot(id, waker));
    }

    /// One more sequence requests a slot.
    pub fn request_slot(&self) {
        self.guard
            .shared
            .with_core(|core, now| core.request_slot(self.guard.id, now));
    }

    /// A sequence takes a granted slot, if there is one.
    pub fn take_slot(&self) -> bool {
        self.guard
            .shared
            .with_core(|core, _| core.take_slot(self.guard.id))
    }

    /// Whether a running sequence should return a slot.
    pub fn is_recalled(&self) -> bool {
        let id = self.guard.id;
        self.guard.shared.with_core(|core, _| core.is_recalled(id))
    }

    /// Withdraws a sequence's slot request.
    pub fn cancel_slot_request(&self) {
        let id = self.guard.id;
        self.guard
            .shared
            .with_core(|core, now| core.cancel_slot_request(id, now));
    }

    /// Returns a sequence's slot. The ticket keeps the last slot if `more` sequences are still to come.
    pub fn return_slot(&self, more: bool) {
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
    pub fn token_gap(&self, gap: Duration) {
        self.shared.with_core(|core, now| core.token_gap(gap, now));
    }
}

/// A queue entry, and the future of its permit. Dropping the ticket leaves the queue at once.
pub struct Ticket {
    /// `None` after the permit or the rejection was returned.
    guard: Option<TicketGuard>,
    /// Created by the first wait.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Ticket {
    pub(crate) fn new(guard: TicketGuard) -> Self {
        Self {
            guard: Some(guard),
            timer: None,
        }
    }

    /// Queue position; `None`: the ticket does not wait.
    pub fn queue_position(&self) -> Option<QueuePosition> {
        let guard = self.guard.as_ref()?;
        let place = QueuePosition {
            shared: Arc::clone(&guard.shared),
            id: guard.id,
        };
        place.position().map(|_| place)
    }

    /// The permit or the rejection. Must not be polled again after `Ready`.
    pub fn poll_admitted(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Rejection>> {
        loop {
            let Some(guard) = &self.guard else {
                return Poll::Pending;
            };
            let status = guard
                .shared
                .with_core(|core, now| core.poll_ticket(guard.id, cx.waker(), now));
            let until = match status {
                TicketStatus::Waiting { until } => until,
                TicketStatus::Running => {
                    return self
                        .guard
                        .take()
                        .map_or(Poll::Pending, |guard| Poll::Ready(Ok(Permit::new(guard))));
                }
                TicketStatus::Rejected(rejection) => {
                    tracing::debug!(reason = rejection.reason(), "rejected after waiting");
                    self.guard = None;
                    return Poll::Ready(Err(rejection));
                }
            };
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(sleep_until(until.into())));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // The timer fired: poll the core again. (A timer may be early by less than one timer tick.)
            self.timer = None;
        }
    }
}

/// Reads a ticket's queue position. Does not keep the ticket.
#[derive(Clone)]
pub struct QueuePosition {
    shared: Arc<Shared>,
    id: TicketId,
}

impl QueuePosition {
    /// Position from 1; `None`: no longer waiting.
    pub fn position(&self) -> Option<usize> {
        self.shared
            .with_core(|core, now| core.queue_position(self.id, now))
    }

    /// Time after which the ticket is predicted to get its slot; `None`: no longer waiting, or nothing was measured.
    pub fn predicted_wait(&self) -> Option<Duration> {
        self.shared.with_core(|core, now| {
            let position = core.queue_position(self.id, now)?;
            core.wait_for(position)
        })
    }
}

impl Future for Ticket {
    type Output = Result<Permit, Rejection>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_admitted(cx)
    }
}
