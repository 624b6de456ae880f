//! Those who waited in vain, and what they are told.

use super::{Core, Rank, Refusal, State, Ticket, TicketId};
use std::time::Instant;

impl Core {
    /// Refuses a waiting ticket whose patience ended. Whether it was so.
    pub(crate) fn expire(&mut self, id: TicketId, now: Instant) -> bool {
        let Some(Ticket {
            rank,
            asking,
            state: State::Waiting { since, until, .. },
            ..
        }) = self.tickets.get(&id)
        else {
            return false;
        };
        if now < *until {
            return false;
        }
        let (rank, since, who) = (*rank, *since, asking.who);
        let refusal = if asking.deadline.is_some_and(|deadline| deadline <= now) {
            Refusal::DeadlinePassed
        } else {
            let backlog = self.wait_for(self.queue.len());
            Refusal::QueueTimeout {
                waited: now.saturating_duration_since(since),
                retry_after: self.send_away(who, backlog, now),
            }
        };
        self.refuse(rank, refusal);
        true
    }

    /// Takes a waiting ticket out of the order and tells its holder why.
    pub(crate) fn refuse(&mut self, rank: Rank, refusal: Refusal) {
        self.queue.remove(rank);
        if let Some(ticket) = self.tickets.get_mut(&rank.id) {
            let refused = State::Refused(refusal);
            if let State::Waiting { waker, .. } = std::mem::replace(&mut ticket.state, refused) {
                self.woken.extend(waker);
            }
        }
    }

    pub(crate) fn closed_refusal(&self) -> Refusal {
        Refusal::Closed {
            retry_after: self.bounds.retry_after,
        }
    }
}
