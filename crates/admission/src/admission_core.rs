//! Admission: counts, the wait queue, measurements. No clock, no waiting.
//!
//! A ticket is in exactly one of four states, and in the map from the arrival until the holder drops the ticket or the
//! permit:
//!
//! ```text
//! arrive -> waiting -> running <-> parked -> (leave)
//!              |  ^       |
//!              |  +-------+  settle: the exact estimate does not fit now
//!              +-> rejected -> (returned by poll, or leave)
//! ```
//!
//! Each operation is one call under one lock: no other call comes between a check and the effect.
//!
//! # Slots
//!
//! At most `limit` slots are held at one time; pages are reserved with each slot. A ticket is admitted with its
//! *first* slot, whatever number of streams the request has; the ticket's sequences (or texts) then request slots one
//! by one, and the ticket gets *further* slots as slots are free. A sequence that ends or is parked returns the slot.
//!
//! - First slots go in the order of [`super::fair_shares`]. Further slots are granted only when no ticket waits for a
//!   first slot, to the tenant and then the ticket with the fewest slots, and never out of the last quarter of the
//!   slots and of the pages: a new request on a server that is busy with one large request finds a slot.
//! - A further slot is *recalled* while a ticket waits for a first slot, if the sequence in the slot can be parked at
//!   any time: the slot is returned at the engine's next step, and granted again when the queue is empty. So a new
//!   request waits for one step as long as another ticket has two slots.
//! - The last slot of a ticket with slot requests goes to the next of these requests and is not returned: a running
//!   ticket continues with at least one sequence, and is never passed over.
//! - A ticket without a slot, with all sequences parked, is *parked*: the ticket holds neither slot nor pages.
//!   When one of the sequences requests a slot again, the ticket waits beside new tickets, with the rank of the first
//!   arrival, without a timeout, and is not rejected. So the ticket precedes later tickets of the same tenant and
//!   priority.
//! - The next ticket in order, if pages or seats are short, waits aside for at most one ageing step while others are
//!   admitted; then no other ticket is admitted before.
//! - A *seat* is an entry of the engine's table for a sequence that was started and has not ended; a running ticket
//!   has a seat for each stream of the request, also while parked. Seats bound the number of parked sequences. A
//!   tenant whose streams without a slot fill a quarter of the seats leaves the last quarter to other tenants.
//!
//! A running ticket whose exact estimate is larger than the first one never waits while holding slots: the ticket
//! returns all slots and pages and waits at the old position, so that no two tickets wait for each other.

use super::admission_core::resource_sums::{ResourceSums, RunningTicket};
use super::fair_shares::FairShares;
use super::limit::AdaptiveLimit;
use super::queue::{Rank, TicketId, WaitQueue};
use super::recent_samples::BusyRate;
use super::rejection::Rejection;
use super::resource_estimate::ResourceEstimate;
use super::retry_reservations::RetryReservations;
use super::{AdmissionBounds, AdmissionRequest, AdmissionSnapshot};
use std::collections::HashMap;
use std::task::Waker;
use std::time::{Duration, Instant};

#[cfg(test)]
mod check;
pub(crate) mod entry_check;
pub(crate) mod grant;
pub(crate) mod readmission;
pub(crate) mod resource_sums;
pub(crate) mod slots;

pub(crate) struct Core {
    bounds: AdmissionBounds,
    limit: AdaptiveLimit,
    /// Running tickets, parked ones included.
    open: usize,
    /// Their streams.
    seated: usize,
    /// Slots, pages and prefill tokens of running tickets.
    sums: ResourceSums,
    shares: FairShares,
    queue: WaitQueue,
    /// At most `open_max`, and as many rejected tickets that were not polled since.
    tickets: HashMap<TicketId, TicketEntry>,
    /// The ticket that has waited aside for one ageing step: no ticket is admitted before the blocker.
    blocker: Option<Rank>,
    /// Tickets that were next and did not fit; scratch.
    aside: Vec<TicketId>,
    drain: BusyRate,
    prefill: BusyRate,
    /// Time that the engine has spent on decode rows so far. `None`: the engine is another process.
    decode_time: Option<Duration>,
    /// Start of the prompt clock where the decode time is not known.
    epoch: Instant,
    /// Slots reserved for callers that were rejected with `Retry-After`.
    retry_reservations: RetryReservations,
    /// A request was rejected for want of capacity, and no slot became free since.
    is_rejecting: bool,
    /// No ticket gets a first slot, until the streams of the last process are back.
    is_on_hold: bool,
    closed: bool,
    next_id: TicketId,
    woken: Vec<Waker>,
}

#[derive(Debug)]
struct TicketEntry {
    rank: Rank,
    request: AdmissionRequest,
    /// Since when the ticket waits aside.
    aside: Option<Instant>,
    /// Admitted beyond the limits.
    is_forced: bool,
    state: TicketState,
}

#[derive(Debug)]
enum TicketState {
    Waiting {
        since: Instant,
        /// When the queue timeout or the request's deadline passes.
        until: Instant,
        waker: Option<Waker>,
    },
    /// Running, or parked.
    Running(RunningTicket),
    Rejected(Rejection),
}

/// State of a ticket, as reported to the ticket's holder.
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
            decode_time: None,
            epoch: now,
            retry_reservations: RetryReservations::new(now),
            is_rejecting: false,
            is_on_hold: false,
            closed: false,
            next_id: 0,
            woken: Vec::new(),
        }
    }

    /// A ticket, running at once or waiting; or why not.
    pub(crate) fn add_ticket(
        &mut self,
        request: AdmissionRequest,
        now: Instant,
    ) -> Result<TicketId, Rejection> {
        self.advance_measurements(now);
        self.grant_slots(now);
        let (account, ageing) = (request.account, self.bounds.queue.ageing);
        let rank = Rank::new(request.class, (self.next_id, account.id), ageing, now);
        self.shares.add_ticket(account);
        let at_once = self.is_admissible(rank, request.need, now);
        let entered = self.check_entry(rank, &request, at_once, now);
        entered.inspect_err(|_| self.shares.remove_ticket(account))?;
        self.next_id += 1;
        let ticket = TicketEntry {
            rank,
            request,
            aside: None,
            is_forced: false,
            state: self.waiting_state(&request, now),
        };
        self.tickets.insert(rank.id, ticket);
        self.queue.insert(rank);
        self.grant_slots(now);
        Ok(rank.id)
    }

    /// State of a ticket. A waiting ticket is woken by the next change; a rejected ticket is removed.
    pub(crate) fn poll_ticket(
        &mut self,
        id: TicketId,
        waker: &Waker,
        now: Instant,
    ) -> TicketStatus {
        self.advance_measurements(now);
        self.expire_ticket(id, now);
        self.grant_slots(now);
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
            self.remove_entry(id);
        }
        status
    }

    /// Queue position of a ticket, from 1; `None`: the ticket does not wait for a first slot.
    pub(crate) fn queue_position(&self, id: TicketId, now: Instant) -> Option<usize> {
        let ticket = self.tickets.get(&id)?;
        matches!(ticket.state, TicketState::Waiting { .. })
            .then(|| self.tickets_ahead(ticket.rank, now) + 1)
    }

    /// The holder dropped the ticket or permit: releases everything.
    pub(crate) fn remove_ticket(&mut self, id: TicketId, now: Instant) {
        self.advance_measurements(now);
        let saturated = self.is_saturated();
        let Some(ticket) = self.remove_entry(id) else {
            return;
        };
        match ticket.state {
            TicketState::Waiting { .. } => {
                self.queue.remove(ticket.rank);
            }
            TicketState::Running(run) => {
                if run.waits_for_slot() {
                    self.queue.remove(ticket.rank);
                }
                self.remove_running(ticket.rank.account, ticket.request.need, &run);
                self.count_freed_slots(run.held, saturated);
            }
            TicketState::Rejected(_) => {}
        }
        self.grant_slots(now);
    }

    /// Replaces the estimate of a running ticket by the exact one. True: the ticket continues. False: the pages are
    /// not free, and the ticket waits again at the old position.
    pub(crate) fn update_estimate(
        &mut self,
        id: TicketId,
        need: ResourceEstimate,
        now: Instant,
    ) -> bool {
        self.advance_measurements(now);
        let pages_limit = self.bounds.pages_limit;
        let Some(ticket) = self.tickets.get_mut(&id) else {
            return false;
        };
        let TicketState::Running(run) = &ticket.state else {
            return false;
        };
        let (run, rank, is_forced) = (run.clone(), ticket.rank, ticket.is_forced);
        let old = std::mem::replace(&mut ticket.request.need, need);
        let request = ticket.request;
        let (held, wanted) = (old.pages_for(run.held), need.pages_for(run.held));
        let stays = is_forced || wanted <= held || self.sums.pages - held + wanted <= pages_limit;
        self.remove_running(rank.account, old, &run);
        if stays {
            self.add_running(rank.account, need, &run);
        } else {
            let state = self.waiting_state(&request, now);
            if let Some(ticket) = self.tickets.get_mut(&id) {
                ticket.state = state;
                ticket.rank.is_back = false;
                self.queue.insert(ticket.rank);
            }
        }
        self.grant_slots(now);
        stays
    }

    /// A running ticket's first token came at `at`.
    pub(crate) fn first_token(&mut self, id: TicketId, at: Instant, now: Instant) {
        self.advance_measurements(now);
        let since = self.update_running(id, |run| {
            let first = !std::mem::replace(&mut run.first_token, true);
            first.then_some(run.since)
        });
        if let Some(since) = since.flatten()
            && let Some(ticket) = self.tickets.get(&id)
        {
            let waited = self.prompt_clock(at).saturating_sub(since);
            self.limit.record_prompt_wait(waited, now);
            self.prefill.add(ticket.request.need.prompt_tokens as f64);
        }
        self.grant_slots(now);
    }

    /// An attached reader waited this long for the next token.
    pub(crate) fn token_gap(&mut self, gap: Duration, now: Instant) {
        self.advance_measurements(now);
        self.limit.record_itl(gap, now);
        self.grant_slots(now);
    }

    /// Closes admission: waiting tickets are rejected, parked tickets may continue.
    pub(crate) fn close(&mut self, now: Instant) {
        self.advance_measurements(now);
        self.closed = true;
        let rejection = self.closed_rejection();
        while let Some(rank) = self.queue.first_new() {
            self.reject_ticket(rank, rejection);
        }
        self.grant_slots(now);
    }

    /// Wakers to be woken after the lock is released.
    pub(crate) fn take_woken(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.woken)
    }

    /// Whether there is no ticket.
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

    /// Adds the time since the last call to the measurements, in the state before this call.
    fn advance_measurements(&mut self, now: Instant) {
        let saturated = self.is_saturated();
        self.drain.advance(saturated, now);
        self.prefill.advance(self.sums.prefill > 0, now);
        self.retry_reservations.advance_to(now);
        let longest = (now >= self.limit.interval_end()).then(|| self.longest_prompt_wait(now));
        // Slots that are kept free count as used where a sequence requests one, or the limit would not grow. A slot that
        // the engine does not know of is no work: latencies say nothing of what happens when it becomes some.
        let taken = self.sums.slots - self.sums.untaken;
        let used = (taken + self.sums.growing).min(self.limit.get()).max(taken);
        self.limit.advance_intervals(used, longest.flatten(), now);
    }

    fn is_saturated(&self) -> bool {
        self.is_rejecting || !self.queue.is_empty() || self.sums.slots >= self.limit.get()
    }

    fn remove_entry(&mut self, id: TicketId) -> Option<TicketEntry> {
        let ticket = self.tickets.remove(&id)?;
        self.shares.remove_ticket(ticket.request.account);
        Some(ticket)
    }

    fn waiting_state(&self, request: &AdmissionRequest, now: Instant) -> TicketState {
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
