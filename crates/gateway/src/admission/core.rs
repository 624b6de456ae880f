//! Admission: counts, the wait queue, measurements. No clock, no waiting.
//!
//! A ticket is in exactly one of four states, and in the map from its arrival to its holder's leave:
//!
//! ```text
//! arrive -> waiting -> running <-> standing still -> (leave)
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
//! - First places go by [`super::standing`]. Further ones are given only when nobody waits for a first one, to the
//!   account and then the ticket that has the fewest, and never out of the last quarter of the places and of the pages:
//!   who comes to a server that is busy with one large request finds a place.
//! - A further place is *recalled* while anybody waits for a first one, where the sequence that has it can stand still at
//!   any time: it is given back at the engine's next step, and got again when nobody waits. So a newcomer waits for one step
//!   as long as anybody has two places.
//! - The last place of a ticket that has claims goes to its next claim, not back: what runs goes on, at least one
//!   sequence at a time, and is never passed over.
//! - A ticket without a place whose sequences all stand still is *standing still*: it holds neither place nor pages.
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
pub(crate) mod entrance;
pub(crate) mod grant;
pub(crate) mod places;
pub(crate) mod rebound;
pub(crate) mod sums;
pub(crate) mod turned_away;

use self::sums::{Running, Sums};
use super::limit::AdaptiveLimit;
use super::promises::Promises;
use super::queue::{Rank, TicketId, WaitQueue};
use super::rate::BusyRate;
use super::refusal::Refusal;
use super::resource_estimate::ResourceEstimate;
use super::standing::FairShares;
use super::{AdmissionRequest, Bounds, Snapshot};
use std::collections::HashMap;
use std::task::Waker;
use std::time::{Duration, Instant};

pub(crate) struct Core {
    bounds: Bounds,
    limit: AdaptiveLimit,
    /// Tickets that run or stand still.
    open: usize,
    /// Their streams.
    seated: usize,
    /// What they hold.
    sums: Sums,
    shares: FairShares,
    queue: WaitQueue,
    /// At most `open_max`, and as many again that were told to go and have not looked yet.
    tickets: HashMap<TicketId, Ticket>,
    /// Who was next lately and has waited aside for so long that nobody is let in before it.
    blocker: Option<Rank>,
    /// Those who were next lately and did not fit; scratch.
    aside: Vec<TicketId>,
    drain: BusyRate,
    prefill: BusyRate,
    /// To callers who were sent away for want of a place.
    promises: Promises,
    /// Somebody was sent away for want of room, and no place became free since.
    refusing: bool,
    closed: bool,
    next_id: TicketId,
    woken: Vec<Waker>,
}

#[derive(Debug)]
struct Ticket {
    rank: Rank,
    asking: AdmissionRequest,
    /// Since when it waits aside.
    aside: Option<Instant>,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting {
        since: Instant,
        /// When its patience (queue clock or deadline) ends.
        until: Instant,
        waker: Option<Waker>,
    },
    /// Running, or standing still.
    Running(Running),
    Refused(Refusal),
}

/// What a ticket's holder learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Waiting { until: Instant },
    Running,
    Refused(Refusal),
}

impl Core {
    pub(crate) fn new(bounds: Bounds, now: Instant) -> Self {
        Self {
            limit: AdaptiveLimit::new(bounds.adaptive, now),
            bounds,
            open: 0,
            seated: 0,
            sums: Sums::default(),
            shares: FairShares::default(),
            queue: WaitQueue::default(),
            tickets: HashMap::new(),
            blocker: None,
            aside: Vec::new(),
            drain: BusyRate::new(now),
            prefill: BusyRate::new(now),
            promises: Promises::new(now),
            refusing: false,
            closed: false,
            next_id: 0,
            woken: Vec::new(),
        }
    }

    /// A ticket, running at once or waiting; or why not.
    pub(crate) fn arrive(
        &mut self,
        asking: AdmissionRequest,
        now: Instant,
    ) -> Result<TicketId, Refusal> {
        self.advance(now);
        self.grant(now);
        let (account, ageing) = (asking.account, self.bounds.queue.ageing);
        let rank = Rank::new(asking.class, (self.next_id, account.id), ageing, now);
        self.shares.open(account);
        let at_once = self.is_let_in(rank, asking.need, now);
        let entered = self.may_enter(rank, &asking, at_once, now);
        entered.inspect_err(|_| self.shares.close(account))?;
        self.next_id += 1;
        let ticket = Ticket {
            rank,
            asking,
            aside: None,
            state: self.waiting(&asking, now),
        };
        self.tickets.insert(rank.id, ticket);
        self.queue.insert(rank);
        self.grant(now);
        Ok(rank.id)
    }

    /// How a ticket stands. One that is still waiting is woken when that changes; one that was
    /// refused is forgotten.
    pub(crate) fn poll(&mut self, id: TicketId, waker: &Waker, now: Instant) -> Standing {
        self.advance(now);
        self.expire(id, now);
        self.grant(now);
        let standing = match self.tickets.get_mut(&id).map(|ticket| &mut ticket.state) {
            Some(State::Waiting {
                waker: old, until, ..
            }) => {
                if !old.as_ref().is_some_and(|old| old.will_wake(waker)) {
                    *old = Some(waker.clone());
                }
                Standing::Waiting { until: *until }
            }
            Some(State::Running(_)) => Standing::Running,
            Some(State::Refused(refusal)) => Standing::Refused(*refusal),
            None => Standing::Refused(self.closed_refusal()),
        };
        if matches!(standing, Standing::Refused(_)) {
            self.forget(id);
        }
        standing
    }

    /// 1 = the next one, as things stand; `None`: it does not wait for its first place.
    pub(crate) fn position(&self, id: TicketId, now: Instant) -> Option<usize> {
        let ticket = self.tickets.get(&id)?;
        matches!(ticket.state, State::Waiting { .. }).then(|| self.ahead(ticket.rank, now) + 1)
    }

    /// The holder is gone: whatever the ticket stands for is given back.
    pub(crate) fn leave(&mut self, id: TicketId, now: Instant) {
        self.advance(now);
        let saturated = self.is_saturated();
        let Some(ticket) = self.forget(id) else {
            return;
        };
        match ticket.state {
            State::Waiting { .. } => {
                self.queue.remove(ticket.rank);
            }
            State::Running(run) => {
                if run.waits() {
                    self.queue.remove(ticket.rank);
                }
                self.put_out(ticket.rank.account, ticket.asking.need, &run);
                self.freed(run.held, saturated);
            }
            State::Refused(_) => {}
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
        let State::Running(run) = &ticket.state else {
            return false;
        };
        let (run, rank) = (run.clone(), ticket.rank);
        let old = std::mem::replace(&mut ticket.asking.need, need);
        let asking = ticket.asking;
        let (held, wanted) = (old.pages_for(run.held), need.pages_for(run.held));
        let stays = wanted <= held || self.sums.pages - held + wanted <= pages_limit;
        self.put_out(rank.account, old, &run);
        if stays {
            self.put_in(rank.account, need, &run);
        } else {
            let state = self.waiting(&asking, now);
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
            self.prefill.add(ticket.asking.need.prompt_tokens as f64);
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
        let refusal = self.closed_refusal();
        while let Some(rank) = self.queue.first_new() {
            self.refuse(rank, refusal);
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

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            open: self.open,
            running: self.sums.places,
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
        self.promises.advance(now);
        let oldest = (now >= self.limit.due()).then(|| self.oldest_pending());
        // Places that are kept free count as used where somebody claims them, or the limit would not grow.
        let claimed = self.sums.places + self.sums.growing;
        let used = claimed.min(self.limit.get()).max(self.sums.places);
        self.limit.advance(used, oldest.flatten(), now);
    }

    fn is_saturated(&self) -> bool {
        self.refusing || !self.queue.is_empty() || self.sums.places >= self.limit.get()
    }

    /// Since when the one waits who has waited longest for a first token. Looked for once per interval.
    fn oldest_pending(&self) -> Option<Instant> {
        let pending = self
            .tickets
            .values()
            .filter_map(|ticket| match &ticket.state {
                State::Running(run) if run.held > 0 && !run.first_token => Some(run.since),
                _ => None,
            });
        pending.min()
    }

    fn forget(&mut self, id: TicketId) -> Option<Ticket> {
        let ticket = self.tickets.remove(&id)?;
        self.shares.close(ticket.asking.account);
        Some(ticket)
    }

    fn waiting(&self, asking: &AdmissionRequest, now: Instant) -> State {
        let clock = now + self.bounds.queue.timeout;
        State::Waiting {
            since: now,
            until: asking
                .deadline
                .map_or(clock, |deadline| deadline.min(clock)),
            waker: None,
        }
    }
}
