//! Admission: counts, the wait queue, measurements. No clock, no waiting.
//!
//! A ticket is in exactly one of four states, and in the map from its arrival to its holder's leave:
//!
//! ```text
//! arrive -> waiting -> running <-> parked -> (leave)
//!              |  ^       |
//!              |  +-------+  settle: the true need does not fit now
//!              +-> refused -> (told by poll, or leave)
//! ```
//!
//! Everything happens in one call under one lock: there is no moment between looking and taking.
//!
//! # Places
//!
//! `limit` places may be held at one time; pages are reserved with each. A ticket is let in with its *first* place,
//! whatever number of streams it asked for; its sequences (or texts) then claim places one by one, and it gets *further*
//! places as they are free. A sequence that ends or stands still gives its place back.
//!
//! - First places go by [`super::fair_shares`]. Further ones are given only when nobody waits for a first one, to the
//!   account and then the ticket that has the fewest, and never out of the last quarter of the places and of the pages:
//!   who comes to a server that is busy with one large request finds a place.
//! - A further place is *recalled* while anybody waits for a first one, where the sequence that has it can stand still at
//!   any time: it is given back at the engine's next step, and got again when nobody waits. So a newcomer waits for one step
//!   as long as anybody has two places.
//! - The last place of a ticket that has claims goes to its next claim, not back: what runs goes on, at least one
//!   sequence at a time, and is never passed over.
//! - A ticket without a place whose sequences all stand still is *parked*: it holds neither place nor pages.
//!   When one of them claims a place again, the ticket waits beside the newcomers, with the rank of its arrival, without a
//!   clock, and is not refused. So it comes before whoever of its account and class came after it.
//! - Who is next and does not fit (its pages are not free, or no seat is) waits aside for at most one step of
//!   ageing, while others are let in; then nobody is before it fits.
//! - A *seat* is room for a sequence that was started and has not ended, in the engine's table; a running ticket has one for
//!   each of its streams, also while it stands still. This bounds how many may stand still. An account of whose
//!   streams a quarter of the seats have no place leaves the last quarter to others.
//!
//! A running ticket whose true need turns out to be larger never waits while it holds
//! something: it gives all back and waits at its old place, so no two can wait for each other.

#[cfg(test)]
mod check;
pub(crate) mod entry_check;
pub(crate) mod grant;
pub(crate) mod rebound;
pub(crate) mod rejections;
pub(crate) mod resource_sums;
pub(crate) mod slots;

use self::resource_sums::{ResourceSums, RunningTicket};
use super::busy_rate::BusyRate;
use super::fair_shares::FairShares;
use super::limit::AdaptiveLimit;
use super::queue::{Rank, TicketId, WaitQueue};
use super::rejection::Rejection;
use super::resource_estimate::ResourceEstimate;
use super::retry_reservations::RetryReservations;
use super::{AdmissionBounds, AdmissionRequest, AdmissionSnapshot};
use std::collections::HashMap;
use std::task::Waker;
use std::time::{Duration, Instant};

pub(crate) struct Core {
    bounds: AdmissionBounds,
    limit: AdaptiveLimit,
    /// Tickets that run or stand still.
    open: usize,
    /// Their streams.
    seated: usize,
    /// What they hold.
    sums: ResourceSums,
    shares: FairShares,
    queue: WaitQueue,
    /// At most `open_max`, and as many again that were told to go and have not looked yet.
    tickets: HashMap<TicketId, TicketEntry>,
    /// Who was next lately and has waited aside for so long that nobody is let in before it.
    blocker: Option<Rank>,
    /// Those who were next lately and did not fit; scratch.
    aside: Vec<TicketId>,
    drain: BusyRate,
    prefill: BusyRate,
    /// To callers who were sent away for want of a place.
    retry_reservations: RetryReservations,
    /// Somebody was sent away for want of room, and no place became free since.
    is_rejecting: bool,
    closed: bool,
    next_id: TicketId,
    woken: Vec<Waker>,
}

#[derive(Debug)]
struct TicketEntry {
    rank: Rank,
    request: AdmissionRequest,
    /// Since when it waits aside.
    aside: Option<Instant>,
    state: TicketState,
}

#[derive(Debug)]
enum TicketState {
    Waiting {
        since: Instant,
        /// When its patience (queue clock or deadline) ends.
        until: Instant,
        waker: Option<Waker>,
    },
    /// Running, or parked.
    Running(RunningTicket),
    Rejected(Rejection),
}

/// What a ticket's holder learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketStatus {
    Waiting { until: Instant },
    Running,
    Rejected(Rejection),
}

impl Core {
    pub(crate) fn new(bounds: AdmissionBounds, now: Instant) -> Self {
        Self {
            limit: AdaptiveLimit::new(bounds.adaptive, now),
            bounds,
            open: 0,
            seated: 0,
            sums: ResourceSums::default(),
            shares: FairShares::default(),
            queue: WaitQueue::default(),
            tickets: HashMap::new(),
            blocker: None,
            aside: Vec::new(),
            drain: BusyRate::new(now),
            prefill: BusyRate::new(now),
            retry_reservations: RetryReservations::new(now),
            is_rejecting: false,
            closed: false,
            next_id: 0,
            woken: Vec::new(),
        }
    }

    /// A ticket, running at once or waiting; or why not.
    pub(crate) fn arrive(
        &mut self,
        request: AdmissionRequest,
        now: Instant,
    ) -> Result<TicketId, Rejection> {
        self.advance(now);
        self.grant(now);
        let (account, ageing) = (request.account, self.bounds.queue.ageing);
        let rank = Rank::new(request.class, (self.next_id, account.id), ageing, now);
        self.shares.open(account);
        let at_once = self.is_let_in(rank, request.need, now);
        let entered = self.may_enter(rank, &request, at_once, now);
        entered.inspect_err(|_| self.shares.close(account))?;
        self.next_id += 1;
        let ticket = TicketEntry {
            rank,
            request,
            aside: None,
            state: self.waiting(&request, now),
        };
        self.tickets.insert(rank.id, ticket);
        self.queue.insert(rank);
        self.grant(now);
        Ok(rank.id)
    }

    /// How a ticket stands. One that is still waiting is woken when that changes; one that was
    /// refused is forgotten.
    pub(crate) fn poll(&mut self, id: TicketId, waker: &Waker, now: Instant) -> TicketStatus {
        self.advance(now);
        self.expire(id, now);
        self.grant(now);
        let status = match self.tickets.get_mut(&id).map(|ticket| &mut ticket.state) {
            Some(TicketState::Waiting {
                waker: old, until, ..
            }) => {
                if !old.as_ref().is_some_and(|old| old.will_wake(waker)) {
                    *old = Some(waker.clone());
                }
                TicketStatus::Waiting { until: *until }
            }
            Some(TicketState::Running(_)) => TicketStatus::Running,
            Some(TicketState::Rejected(rejection)) => TicketStatus::Rejected(*rejection),
            None => TicketStatus::Rejected(self.closed_rejection()),
        };
        if matches!(status, TicketStatus::Rejected(_)) {
            self.forget(id);
        }
        status
    }

    /// 1 = the next one, as things stand; `None`: it does not wait for its first place.
    pub(crate) fn position(&self, id: TicketId, now: Instant) -> Option<usize> {
        let ticket = self.tickets.get(&id)?;
        matches!(ticket.state, TicketState::Waiting { .. })
            .then(|| self.ahead(ticket.rank, now) + 1)
    }

    /// The holder is gone: whatever the ticket stands for is given back.
    pub(crate) fn leave(&mut self, id: TicketId, now: Instant) {
        self.advance(now);
        let saturated = self.is_saturated();
        let Some(ticket) = self.forget(id) else {
            return;
        };
        match ticket.state {
            TicketState::Waiting { .. } => {
                self.queue.remove(ticket.rank);
            }
            TicketState::Running(run) => {
                if run.waits() {
                    self.queue.remove(ticket.rank);
                }
                self.put_out(ticket.rank.account, ticket.request.need, &run);
                self.freed(run.held, saturated);
            }
            TicketState::Rejected(_) => {}
        }
        self.grant(now);
    }

    /// A running ticket's need is known exactly now. True: it goes on running. False: that much is
    /// not there; it waits again, at its old place in the order.
    pub(crate) fn settle(&mut self, id: TicketId, need: ResourceEstimate, now: Instant) -> bool {
        self.advance(now);
        let pages_limit = self.bounds.pages_limit;
        let Some(ticket) = self.tickets.get_mut(&id) else {
            return false;
        };
        let TicketState::Running(run) = &ticket.state else {
            return false;
        };
        let (run, rank) = (run.clone(), ticket.rank);
        let old = std::mem::replace(&mut ticket.request.need, need);
        let request = ticket.request;
        let (held, wanted) = (old.pages_for(run.held), need.pages_for(run.held));
        let stays = wanted <= held || self.sums.pages - held + wanted <= pages_limit;
        self.put_out(rank.account, old, &run);
        if stays {
            self.put_in(rank.account, need, &run);
        } else {
            let state = self.waiting(&request, now);
            if let Some(ticket) = self.tickets.get_mut(&id) {
                ticket.state = state;
                ticket.rank.is_back = false;
                self.queue.insert(ticket.rank);
            }
        }
        self.grant(now);
        stays
    }

    /// A running ticket's first token came at `at`.
    pub(crate) fn first_token(&mut self, id: TicketId, at: Instant, now: Instant) {
        self.advance(now);
        let since = self.alter(id, |run| {
            let first = !std::mem::replace(&mut run.first_token, true);
            first.then_some(run.since)
        });
        if let Some(since) = since.flatten()
            && let Some(ticket) = self.tickets.get(&id)
        {
            self.limit.ttft(at.saturating_duration_since(since), now);
            self.prefill.add(ticket.request.need.prompt_tokens as f64);
        }
        self.grant(now);
    }

    /// A reader that was there waited so long for its next token.
    pub(crate) fn token_gap(&mut self, gap: Duration, now: Instant) {
        self.advance(now);
        self.limit.itl(gap, now);
        self.grant(now);
    }

    /// Closes admission: tickets that wait are refused, tickets that stand still may go on.
    pub(crate) fn close(&mut self, now: Instant) {
        self.advance(now);
        self.closed = true;
        let rejection = self.closed_rejection();
        while let Some(rank) = self.queue.first_new() {
            self.reject(rank, rejection);
        }
        self.grant(now);
    }

    /// Those to be woken once the lock is released.
    pub(crate) fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
    }

    /// Whether nobody has a ticket.
    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub(crate) fn snapshot(&self) -> AdmissionSnapshot {
        AdmissionSnapshot {
            open: self.open,
            running: self.sums.slots,
            limit: self.limit.get(),
            waiting: self.queue.len(),
            pages_reserved: self.sums.pages,
            pages_limit: self.bounds.pages_limit,
            prefill_pending: self.sums.prefill,
            drain_per_second: self.drain.per_second(),
            prefill_per_second: self.prefill.per_second(),
        }
    }

    /// Counts the time since the last call, in the state it was spent in.
    fn advance(&mut self, now: Instant) {
        let saturated = self.is_saturated();
        self.drain.advance(saturated, now);
        self.prefill.advance(self.sums.prefill > 0, now);
        self.retry_reservations.advance(now);
        let oldest = (now >= self.limit.due()).then(|| self.oldest_pending());
        // Places that are kept free count as used where somebody claims them, or the limit would not grow.
        let claimed = self.sums.slots + self.sums.growing;
        let used = claimed.min(self.limit.get()).max(self.sums.slots);
        self.limit.advance(used, oldest.flatten(), now);
    }

    fn is_saturated(&self) -> bool {
        self.is_rejecting || !self.queue.is_empty() || self.sums.slots >= self.limit.get()
    }

    /// Since when the one waits who has waited longest for a first token. Looked for once per interval.
    fn oldest_pending(&self) -> Option<Instant> {
        let pending = self
            .tickets
            .values()
            .filter_map(|ticket| match &ticket.state {
                TicketState::Running(run) if run.held > 0 && !run.first_token => Some(run.since),
                _ => None,
            });
        pending.min()
    }

    fn forget(&mut self, id: TicketId) -> Option<TicketEntry> {
        let ticket = self.tickets.remove(&id)?;
        self.shares.close(ticket.request.account);
        Some(ticket)
    }

    fn waiting(&self, request: &AdmissionRequest, now: Instant) -> TicketState {
        let clock = now + self.bounds.queue.timeout;
        TicketState::Waiting {
            since: now,
            until: request
                .deadline
                .map_or(clock, |deadline| deadline.min(clock)),
            waker: None,
        }
    }
}
