//! Whether a new request may enter the queue, rejection of waiting tickets, and `Retry-After`.

use super::{AdmissionRequest, Core, Rank, Rejection, TicketEntry, TicketId, TicketState};
use crate::rejection::{RETRY_AFTER_MAX, RETRY_AFTER_MIN};
use crate::retry_reservations::Fingerprint;
use generate::request::Priority;
use std::time::{Duration, Instant};

/// A priority class with fewer waiting tickets than this part of `max_depth` finds capacity in a full queue: a flood
/// of one class leaves capacity for the others. So at most `max_depth * (1 + 5/16)` tickets wait.
const CLASS_SHARE: usize = 16;

impl Core {
    /// Whether a newcomer may have a ticket of this rank.
    pub(crate) fn check_entry(
        &mut self,
        rank: Rank,
        request: &AdmissionRequest,
        at_once: bool,
        now: Instant,
    ) -> Result<(), Rejection> {
        if self.closed {
            return Err(self.closed_rejection());
        }
        let expected = self.retry_reservations.redeem_reservation(request.who, now);
        let wait = if at_once {
            Some(Duration::ZERO)
        } else {
            self.wait_for(self.tickets_ahead(rank, now) + 1)
        };
        self.check_deadline(wait, request, expected, now)?;
        if self.is_open(at_once, expected) && (at_once || self.has_room(request.class, expected)) {
            return Ok(());
        }
        self.is_rejecting = true;
        // A returning caller takes one of the reserved positions.
        let full = self.bounds.queue.max_depth
            - self
                .retry_reservations
                .reserved_of(self.bounds.queue.max_depth)
                / 2;
        let backlog = self.wait_for((self.queue.len() + 1).saturating_sub(full).max(1));
        let retry_after = self.reserve_retry(request.who, backlog, now);
        Err(Rejection::QueueFull { retry_after })
    }

    /// Whether the first token can come before the request's deadline, and the permit before the queue timeout. An
    /// unmeasured rate counts as fast: no request is rejected for want of data.
    fn check_deadline(
        &mut self,
        wait: Option<Duration>,
        request: &AdmissionRequest,
        expected: bool,
        now: Instant,
    ) -> Result<(), Rejection> {
        let wait = wait.unwrap_or_default();
        let prefill = self.sums.prefill + request.need.prompt_tokens;
        let predicted =
            wait.saturating_add(self.prefill.time_for(prefill as f64).unwrap_or_default());
        if let Some(deadline) = request.deadline {
            let patience = deadline.saturating_duration_since(now);
            if predicted > patience || patience.is_zero() {
                return Err(Rejection::Unattainable {
                    predicted,
                    patience,
                    retry_after: self.retry_after_excess(predicted - patience),
                });
            }
        }
        let timeout = self.bounds.queue.timeout;
        let kept = self.retry_reservations.reserved_time(timeout);
        if wait > timeout || !expected && wait > timeout - kept {
            let backlog = wait.saturating_sub(timeout - kept / 2);
            return Err(Rejection::WaitTooLong {
                predicted,
                retry_after: self.reserve_retry(request.who, Some(backlog), now),
            });
        }
        Ok(())
    }

    /// Whether one more request may be open. A request that runs at once uses no reserved slot.
    fn is_open(&self, at_once: bool, expected: bool) -> bool {
        let open_max = self.bounds.open_max;
        let kept = if at_once || expected {
            0
        } else {
            self.retry_reservations.reserved_of(open_max)
        };
        self.open + self.queue.len() + kept < open_max
    }

    /// Whether the wait queue takes one more of this class.
    fn has_room(&self, class: Priority, expected: bool) -> bool {
        let max_depth = self.bounds.queue.max_depth;
        let kept = if expected {
            0
        } else {
            self.retry_reservations.reserved_of(max_depth)
        };
        self.queue.len() + kept < max_depth || self.queue.of_class(class) < max_depth / CLASS_SHARE
    }

    /// Time until so many slots become free.
    pub(crate) fn wait_for(&self, slots: usize) -> Option<Duration> {
        self.drain.time_for(slots as f64)
    }

    /// `Retry-After` of a rejected request: after `backlog` (`None`: nothing was measured), and after earlier
    /// reservations. Reserves a slot.
    pub(crate) fn reserve_retry(
        &mut self,
        who: Fingerprint,
        backlog: Option<Duration>,
        now: Instant,
    ) -> Duration {
        let per_second = self.drain.per_second();
        let backlog = match per_second {
            Some(_) => backlog.unwrap_or_default(),
            None => backlog.unwrap_or_default().max(self.bounds.retry_after),
        };
        self.retry_reservations
            .add_reservation(who, backlog, per_second, now)
    }

    /// `Retry-After` where `excess` of other requests' work is too much, and no slot is missing.
    fn retry_after_excess(&self, excess: Duration) -> Duration {
        let least = match self.drain.per_second() {
            Some(_) => RETRY_AFTER_MIN,
            None => self.bounds.retry_after,
        };
        excess.max(least).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }

    /// Rejects a waiting ticket after the timeout. True: the ticket was rejected.
    pub(crate) fn expire_ticket(&mut self, id: TicketId, now: Instant) -> bool {
        let Some(TicketEntry {
            rank,
            request,
            state: TicketState::Waiting { since, until, .. },
            ..
        }) = self.tickets.get(&id)
        else {
            return false;
        };
        if now < *until {
            return false;
        }
        let (rank, since, who) = (*rank, *since, request.who);
        let rejection = if request.deadline.is_some_and(|deadline| deadline <= now) {
            Rejection::DeadlinePassed
        } else {
            let backlog = self.wait_for(self.queue.len());
            Rejection::QueueTimeout {
                waited: now.saturating_duration_since(since),
                retry_after: self.reserve_retry(who, backlog, now),
            }
        };
        self.reject_ticket(rank, rejection);
        true
    }

    /// Removes a waiting ticket from the queue and stores the reason for the holder.
    pub(crate) fn reject_ticket(&mut self, rank: Rank, rejection: Rejection) {
        self.queue.remove(rank);
        if let Some(ticket) = self.tickets.get_mut(&rank.id) {
            let rejected = TicketState::Rejected(rejection);
            if let TicketState::Waiting { waker, .. } =
                std::mem::replace(&mut ticket.state, rejected)
            {
                self.woken.extend(waker);
            }
        }
    }

    pub(crate) fn closed_rejection(&self) -> Rejection {
        Rejection::Closed {
            retry_after: self.bounds.retry_after,
        }
    }
}
