//! Waiting for a permit.

use super::core::Standing;
use super::permit::Permit;
use super::queue::TicketId;
use super::refusal::Refusal;
use super::{Seat, Shared};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Sleep, sleep_until};

/// A place in the order, and the future of the permit. Dropping it leaves the queue at once.
pub struct Ticket {
    /// `None` once it became a permit or a refusal.
    seat: Option<Seat>,
    /// Made when it first has to wait.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Ticket {
    pub(super) fn new(seat: Seat) -> Self {
        Self {
            seat: Some(seat),
            timer: None,
        }
    }

    /// Where it waits; `None`: it need not.
    pub(crate) fn place(&self) -> Option<Place> {
        let seat = self.seat.as_ref()?;
        let place = Place {
            shared: Arc::clone(&seat.shared),
            id: seat.id,
        };
        place.position().map(|_| place)
    }

    /// The permit, or why there will be none. Not to be called again after it was ready.
    pub(crate) fn poll_admitted(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Refusal>> {
        loop {
            let Some(seat) = &self.seat else {
                return Poll::Pending;
            };
            let standing = seat
                .shared
                .with(|core, now| core.poll(seat.id, cx.waker(), now));
            let until = match standing {
                Standing::Waiting { until } => until,
                Standing::Running => {
                    return self
                        .seat
                        .take()
                        .map_or(Poll::Pending, |seat| Poll::Ready(Ok(Permit::new(seat))));
                }
                Standing::Refused(refusal) => {
                    tracing::debug!(reason = refusal.reason(), "rejected after waiting");
                    self.seat = None;
                    return Poll::Ready(Err(refusal));
                }
            };
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(sleep_until(until.into())));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // It fired: the core says so now. (A timer may be early by less than its tick.)
            self.timer = None;
        }
    }
}

/// A ticket's place in the order, seen from elsewhere: it does not keep the ticket.
#[derive(Clone)]
pub struct Place {
    shared: Arc<Shared>,
    id: TicketId,
}

impl Place {
    /// 1 = the next to be let in; `None`: no longer waiting.
    pub fn position(&self) -> Option<usize> {
        self.shared.with(|core, now| core.position(self.id, now))
    }
}

impl Future for Ticket {
    type Output = Result<Permit, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_admitted(cx)
    }
}
