//! The order in which free places are given to tickets.

use super::{Core, Rank, ResourceEstimate, RunningTicket, TicketEntry, TicketState};
use crate::fair_shares::QueuePriority;
use std::collections::HashMap;
use std::time::Instant;

/// This part of the slots, and of the pages, is left to requests without a slot.
const LEFT_PART: usize = 4;
/// A tenant whose streams without a slot fill this part of the seats leaves as many seats to others.
const SEATS_PART: usize = 4;

impl Core {
    /// Grants first slots in order, as many as fit; rejects tickets that have timed out. Then grants further slots on
    /// request.
    pub(crate) fn grant_slots(&mut self, now: Instant) {
        loop {
            self.grant_first_slots(now);
            // A grant may let a ticket fit that did not: the tenant has one stream less without a slot.
            if self.blocker.is_some() || !self.grant_further_slot() {
                break;
            }
        }
        self.recall_slots();
    }

    fn grant_first_slots(&mut self, now: Instant) {
        self.blocker = None;
        self.aside.clear();
        while self.sums.slots < self.limit.get() {
            let Some(rank) = self.next_ticket(now) else {
                break;
            };
            if self.expire_ticket(rank.id, now) {
                continue;
            }
            let Some(ticket) = self.tickets.get(&rank.id) else {
                return;
            };
            if self.fits_now(rank, ticket.request.need) {
                self.admit_ticket(rank, now);
                self.aside.clear();
            } else if self.waits_too_long(rank, now) {
                self.blocker = Some(rank);
                return;
            } else {
                self.aside.push(rank.id);
            }
        }
    }

    /// Whether a new ticket of this rank and estimate would be admitted now.
    pub(crate) fn is_admissible(&self, rank: Rank, need: ResourceEstimate, now: Instant) -> bool {
        let before =
            |blocker| self.queue_priority(rank, 0, now) < self.queue_priority(blocker, 0, now);
        !self.is_on_hold && self.fits_now(rank, need) && self.blocker.is_none_or(before)
    }

    /// Tickets served before this rank, if slots were granted one by one now and no ticket left.
    pub(crate) fn tickets_ahead(&self, rank: Rank, now: Instant) -> usize {
        if self.shares.len() <= 1 {
            return self.queue.due_before(rank);
        }
        let own = self.queue.iter().take_while(|&other| other < rank);
        let own = own.filter(|other| other.account == rank.account).count();
        let queue_priority = self.queue_priority(rank, own, now);
        let mut behind = HashMap::with_capacity(self.shares.len());
        let others = self.queue.iter().filter(|other| other.id != rank.id);
        let ahead = others.filter(|&other| {
            let behind: &mut usize = behind.entry(other.account).or_default();
            // A later ticket of this tenant is one position further back behind this rank.
            let passed = usize::from(other.account == rank.account && other > rank);
            let at = *behind + passed;
            *behind += 1;
            self.queue_priority(other, at, now) < queue_priority
        });
        ahead.count()
    }

    fn queue_priority(&self, rank: Rank, behind: usize, now: Instant) -> QueuePriority {
        let times = (self.bounds.queue.ageing, now);
        self.shares.queue_priority(rank, behind, times)
    }

    /// The ticket that gets the next first slot, of those that do not wait aside.
    fn next_ticket(&self, now: Instant) -> Option<Rank> {
        let waiting = self.queue.iter();
        let is_held = |rank: &Rank| self.is_on_hold && !rank.is_back;
        let mut waiting = waiting.filter(|rank| !is_held(rank) && !self.aside.contains(&rank.id));
        match self.shares.len() {
            1 => waiting.next(),
            _ => waiting.min_by_key(|&rank| self.queue_priority(rank, 0, now)),
        }
    }

    /// Whether the slot, pages and seats of a first grant are free.
    pub(crate) fn fits_now(&self, rank: Rank, need: ResourceEstimate) -> bool {
        self.sums.slots < self.limit.get()
            && self.sums.pages + need.pages <= self.bounds.pages_limit
            && (rank.is_back || self.has_seats(rank.account, need.streams))
    }

    /// Whether this tenant may start so many more sequences. A single tenant may start any number.
    fn has_seats(&self, account: u64, streams: usize) -> bool {
        let (seats, share) = (self.bounds.seats, self.shares.share_of(account));
        let still = share.seats.saturating_sub(share.slots);
        let left = if still >= seats / SEATS_PART {
            seats / SEATS_PART
        } else {
            0
        };
        self.seated == 0 || self.seated + streams <= seats - left
    }

    /// Grants a slot to a ticket without one.
    fn admit_ticket(&mut self, rank: Rank, now: Instant) {
        let since = self.prompt_clock(now);
        self.queue.remove(rank);
        self.shares.share_mut(rank.account).note_grant(now);
        let Some(ticket) = self.tickets.get_mut(&rank.id) else {
            return;
        };
        ticket.aside = None;
        if !rank.is_back {
            let need = ticket.request.need;
            let run = RunningTicket::new(since, ticket.request.is_recallable);
            let running = TicketState::Running(run.clone());
            if let TicketState::Waiting { waker, .. } =
                std::mem::replace(&mut ticket.state, running)
            {
                self.woken.extend(waker);
            }
            self.add_running(rank.account, need, &run);
            return;
        }
        let waker = self.update_running(rank.id, |run| {
            (run.held, run.free) = (1, 1);
            if !run.first_token {
                run.since = since;
            }
            run.waker.clone()
        });
        self.woken.extend(waker.flatten());
    }

    /// Whether a ticket has waited aside for one ageing step. The first call begins the wait.
    fn waits_too_long(&mut self, rank: Rank, now: Instant) -> bool {
        let ageing = self.bounds.queue.ageing;
        let ticket = self.tickets.get_mut(&rank.id);
        ticket.is_some_and(|ticket| {
            let since = *ticket.aside.get_or_insert(now);
            now.saturating_duration_since(since) >= ageing
        })
    }

    /// Grants one further slot. False: no ticket requests one, or no slot is free.
    fn grant_further_slot(&mut self) -> bool {
        if self.sums.growing == 0 || !self.has_spare_slot() {
            return false;
        }
        let growing = self.tickets.values().filter(|ticket| self.may_grow(ticket));
        let least = growing.min_by_key(|ticket| {
            let TicketState::Running(run) = &ticket.state else {
                return (u64::MAX, usize::MAX, ticket.rank);
            };
            let share = self
                .shares
                .share_of(ticket.rank.account)
                .slots_per_weight(0);
            (share, run.held, ticket.rank)
        });
        let Some(id) = least.map(|ticket| ticket.rank.id) else {
            return false;
        };
        let waker = self.update_running(id, |run| {
            (run.held, run.free) = (run.held + 1, run.free + 1);
            run.waker.clone()
        });
        self.woken.extend(waker.flatten());
        true
    }

    /// Recalls further slots, one for each waiting ticket: of the tenant with the most slots, and of that tenant's
    /// ticket with the most.
    fn recall_slots(&mut self) {
        while !self.is_on_hold
            && self.sums.recalled < self.queue.in_line()
            && self.sums.recallable > 0
        {
            let most = self.tickets.values().filter_map(|ticket| {
                let TicketState::Running(run) = &ticket.state else {
                    return None;
                };
                let further = run.recallable_slots();
                let share = self
                    .shares
                    .share_of(ticket.rank.account)
                    .slots_per_weight(0);
                (further > 0).then_some((share, further, ticket.rank))
            });
            let Some((.., rank)) = most.max() else {
                return;
            };
            let waker = self.update_running(rank.id, |run| {
                run.recalled += 1;
                run.waker.clone()
            });
            self.woken.extend(waker.flatten());
        }
    }

    /// Whether a slot is free for a further grant.
    pub(crate) fn has_spare_slot(&self) -> bool {
        let limit = self.limit.get();
        self.sums.slots < limit - limit / LEFT_PART
    }

    /// Whether a running ticket requests a further slot whose pages are free.
    pub(super) fn may_grow(&self, ticket: &TicketEntry) -> bool {
        let limit = self.bounds.pages_limit;
        let pages = self.sums.pages + ticket.request.need.pages_more;
        matches!(&ticket.state, TicketState::Running(run) if run.held > 0 && run.missing_slots() > 0)
            && pages <= limit - limit / LEFT_PART
    }
}
