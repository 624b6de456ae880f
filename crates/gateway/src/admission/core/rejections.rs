//! Rejection of waiting tickets.

use super::{Core, Rank, Rejection, TicketEntry, TicketId, TicketState};
use std::time::Instant;

impl Core {
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
