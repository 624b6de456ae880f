//! Who is let in: counts, the wait queue, what was measured. No clock, no waiting.
//!
//! A ticket is in exactly one of three states, and in the map from its arrival to its holder's leave:
//!
//! ```text
//! arrive -> waiting -> running -> (leave)
//!              |  ^       |
//!              |  +-------+  settle: the true need does not fit now
//!              +-> refused -> (told by poll, or leave)
//! ```
//!
//! Everything happens in one call under one lock: there is no moment between looking and taking. Who is
//! first in the order waits for what it needs and nobody overtakes it, so a large request does
//! not starve. A running ticket whose true need turns out to be larger never waits while it holds
//! something: it gives all back and waits at its old place, so no two can wait for each other.
//! Nobody who was given a place in the queue loses it to somebody else.

#[cfg(test)]
mod check;
mod entrance;
mod rebound;
mod turned_away;

use super::class::Class;
use super::limit::AdaptiveLimit;
use super::need::Need;
use super::promises::Promises;
use super::queue::{Rank, TicketId, WaitQueue};
use super::rate::BusyRate;
use super::refusal::Refusal;
use super::{Asking, Bounds, Snapshot};
use std::collections::HashMap;
use std::task::Waker;
use std::time::{Duration, Instant};

pub(super) struct Core {
    bounds: Bounds,
    limit: AdaptiveLimit,
    /// Tickets that run.
    open: usize,
    /// Their streams.
    running: usize,
    pages_reserved: usize,
    /// Prompt tokens of running tickets that have no first token yet.
    prefill_pending: usize,
    queue: WaitQueue,
    /// At most `open_max`, and as many again that were told to go and have not looked yet.
    tickets: HashMap<TicketId, Ticket>,
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
    asking: Asking,
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
    Running {
        since: Instant,
        first_token: bool,
    },
    Refused(Refusal),
}

/// What a ticket's holder learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Waiting { until: Instant },
    Running,
    Refused(Refusal),
}

impl Core {
    pub(super) fn new(bounds: Bounds, now: Instant) -> Self {
        Self {
            limit: AdaptiveLimit::new(bounds.adaptive, now),
            bounds,
            open: 0,
            running: 0,
            pages_reserved: 0,
            prefill_pending: 0,
            queue: WaitQueue::default(),
            tickets: HashMap::new(),
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
    pub(super) fn arrive(&mut self, asking: Asking, now: Instant) -> Result<TicketId, Refusal> {
        self.advance(now);
        self.grant(now);
        let rank = Rank::new(asking.class, self.next_id, self.bounds.queue.ageing, now);
        let at_once = self.queue.ahead(rank) == 0 && self.fits(asking.need);
        self.may_enter(rank, &asking, at_once, now)?;
        self.next_id += 1;
        let state = self.waiting(&asking, now);
        let ticket = Ticket {
            rank,
            asking,
            state,
        };
        self.tickets.insert(rank.id, ticket);
        self.queue.insert(rank);
        self.grant(now);
        Ok(rank.id)
    }

    /// How a ticket stands. One that is still waiting is woken when that changes; one that was
    /// refused is forgotten.
    pub(super) fn poll(&mut self, id: TicketId, waker: &Waker, now: Instant) -> Standing {
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
            Some(State::Running { .. }) => Standing::Running,
            Some(State::Refused(refusal)) => Standing::Refused(*refusal),
            None => Standing::Refused(self.closed_refusal()),
        };
        if matches!(standing, Standing::Refused(_)) {
            self.tickets.remove(&id);
        }
        standing
    }

    /// 1 = the next one; `None`: it does not wait.
    pub(super) fn position(&self, id: TicketId) -> Option<usize> {
        let ticket = self.tickets.get(&id)?;
        matches!(ticket.state, State::Waiting { .. }).then(|| self.queue.ahead(ticket.rank) + 1)
    }

    /// The holder is gone: whatever the ticket stands for is given back.
    pub(super) fn leave(&mut self, id: TicketId, now: Instant) {
        self.advance(now);
        let saturated = self.is_saturated();
        let Some(ticket) = self.tickets.remove(&id) else {
            return;
        };
        match ticket.state {
            State::Waiting { .. } => {
                self.queue.remove(ticket.rank);
            }
            State::Running { first_token, .. } => {
                self.give_back(ticket.asking.need, first_token);
                self.refusing = false;
                if saturated {
                    self.drain.add(1.0);
                }
            }
            State::Refused(_) => {}
        }
        self.grant(now);
    }

    /// A running ticket's need is known exactly now. True: it goes on running. False: that much is
    /// not there; it waits again, at its old place in the order.
    pub(super) fn settle(&mut self, id: TicketId, need: Need, now: Instant) -> bool {
        self.advance(now);
        let (reserved, pages_limit) = (self.pages_reserved, self.bounds.pages_limit);
        let Some(ticket) = self.tickets.get_mut(&id) else {
            return false;
        };
        let State::Running { first_token, .. } = ticket.state else {
            return false;
        };
        let old = std::mem::replace(&mut ticket.asking.need, need);
        let asking = ticket.asking;
        let stays = need.pages <= old.pages || reserved - old.pages + need.pages <= pages_limit;
        self.give_back(old, first_token);
        if stays {
            self.take(need, first_token);
        } else {
            let state = self.waiting(&asking, now);
            if let Some(ticket) = self.tickets.get_mut(&id) {
                ticket.state = state;
                self.queue.insert(ticket.rank);
            }
        }
        self.grant(now);
        stays
    }

    /// A running ticket's first token came at `at`.
    pub(super) fn first_token(&mut self, id: TicketId, at: Instant, now: Instant) {
        self.advance(now);
        let Some(ticket) = self.tickets.get_mut(&id) else {
            return;
        };
        if let State::Running { since, first_token } = &mut ticket.state
            && !*first_token
        {
            *first_token = true;
            let tokens = ticket.asking.need.prompt_tokens;
            self.limit.ttft(at.saturating_duration_since(*since), now);
            self.prefill_pending -= tokens;
            self.prefill.add(tokens as f64);
        }
        self.grant(now);
    }

    /// A reader that was there waited so long for its next token.
    pub(super) fn token_gap(&mut self, gap: Duration, now: Instant) {
        self.advance(now);
        self.limit.itl(gap, now);
        self.grant(now);
    }

    /// Nobody is let in any more; who waits is told.
    pub(super) fn close(&mut self, now: Instant) {
        self.advance(now);
        self.closed = true;
        let refusal = self.closed_refusal();
        while let Some(rank) = self.queue.first() {
            self.refuse(rank, refusal);
        }
    }

    /// Those to be woken once the lock is released.
    pub(super) fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
    }

    /// Whether nobody has a ticket.
    pub(super) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            open: self.open,
            running: self.running,
            limit: self.limit.get(),
            waiting: self.queue.len(),
            pages_reserved: self.pages_reserved,
            pages_limit: self.bounds.pages_limit,
            prefill_pending: self.prefill_pending,
            drain_per_second: self.drain.per_second(),
            prefill_per_second: self.prefill.per_second(),
        }
    }

    /// Counts the time since the last call, in the state it was spent in.
    fn advance(&mut self, now: Instant) {
        let saturated = self.is_saturated();
        self.drain.advance(saturated, now);
        self.prefill.advance(self.prefill_pending > 0, now);
        self.promises.advance(now);
        let oldest = (now >= self.limit.due()).then(|| self.oldest_pending());
        self.limit.advance(self.running, oldest.flatten(), now);
    }

    fn is_saturated(&self) -> bool {
        self.refusing || !self.queue.is_empty() || self.running >= self.limit.get()
    }

    /// Since when the one waits who has waited longest for a first token. Looked for once per interval.
    fn oldest_pending(&self) -> Option<Instant> {
        let pending = self
            .tickets
            .values()
            .filter_map(|ticket| match ticket.state {
                State::Running {
                    since,
                    first_token: false,
                } => Some(since),
                _ => None,
            });
        pending.min()
    }

    /// More answers than the limit has room for at all run when nobody else does.
    fn fits(&self, need: Need) -> bool {
        let streams = self.running == 0 || self.running + need.streams <= self.limit.get();
        streams && self.pages_reserved + need.pages <= self.bounds.pages_limit
    }

    fn take(&mut self, need: Need, first_token: bool) {
        self.open += 1;
        self.running += need.streams;
        self.pages_reserved += need.pages;
        if !first_token {
            self.prefill_pending += need.prompt_tokens;
        }
    }

    fn give_back(&mut self, need: Need, first_token: bool) {
        self.open -= 1;
        self.running -= need.streams;
        self.pages_reserved -= need.pages;
        if !first_token {
            self.prefill_pending -= need.prompt_tokens;
        }
    }

    fn waiting(&self, asking: &Asking, now: Instant) -> State {
        let clock = now + self.bounds.queue.timeout;
        State::Waiting {
            since: now,
            until: asking
                .deadline
                .map_or(clock, |deadline| deadline.min(clock)),
            waker: None,
        }
    }

    /// Lets in from the front as many as fit; whoever's patience ended is told so instead.
    fn grant(&mut self, now: Instant) {
        while let Some(rank) = self.queue.first() {
            if self.expire(rank.id, now) {
                continue;
            }
            let need = self.tickets.get(&rank.id).map(|ticket| ticket.asking.need);
            let Some(need) = need.filter(|&need| self.fits(need)) else {
                return;
            };
            let Some(ticket) = self.tickets.get_mut(&rank.id) else {
                return;
            };
            let running = State::Running {
                since: now,
                first_token: false,
            };
            if let State::Waiting { waker, .. } = std::mem::replace(&mut ticket.state, running) {
                self.woken.extend(waker);
            }
            self.queue.remove(rank);
            self.take(need, false);
        }
    }
}
