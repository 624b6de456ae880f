//! Waiting for a permit.

use super::core::TicketStatus;
use super::permit::Permit;
use super::queue::TicketId;
use super::rejection::Rejection;
use super::{Shared, TicketGuard};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep_until};

/// A queue entry, and the future of its permit. Dropping the ticket leaves the queue at once.
pub struct Ticket {
    /// `None` after the permit or the rejection was returned.
    guard: Option<TicketGuard>,
    /// Created by the first wait.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Ticket {
    pub(super) fn new(guard: TicketGuard) -> Self {
        Self {
            guard: Some(guard),
            timer: None,
        }
    }

    /// Queue position; `None`: the ticket does not wait.
    pub(crate) fn queue_position(&self) -> Option<QueuePosition> {
        let guard = self.guard.as_ref()?;
        let place = QueuePosition {
            shared: Arc::clone(&guard.shared),
            id: guard.id,
        };
        place.position().map(|_| place)
    }

    /// The permit or the rejection. Must not be polled again after `Ready`.
    pub(crate) fn poll_admitted(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Permit, Rejection>> {
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
