//! Use of places by a running ticket's sequences, and the prompt clock: the time that a prompt waits for tokens of other
//! answers.
//!
//! Between admission and the first token, an engine computes the prompt, prompts before it, and tokens of answers. Fewer
//! running streams shorten the part of the tokens only: the prompts' time would be spent in the queue instead. So the
//! clock continues while decode rows are computed, and the concurrency limit follows the time that it shows.
//!
//! Where the engine is another process, its decode rows are not known, and the clock is that of the machine.

use super::{Core, TicketId, TicketState};
use std::task::Waker;
use std::time::{Duration, Instant};

impl Core {
    /// Sets the waker for grants of slots to this ticket.
    pub(crate) fn wake_on_slot(&mut self, id: TicketId, waker: Waker) {
        self.update_running(id, |run| run.waker = Some(waker));
    }

    /// One more sequence of this ticket requests a slot.
    pub(crate) fn request_slot(&mut self, id: TicketId, now: Instant) {
        self.advance_measurements(now);
        let waits = self.update_running(id, |run| {
            let waited = run.waits_for_slot();
            run.claims += 1;
            run.waits_for_slot() && !waited
        });
        if waits == Some(true) {
            self.queue_again(id);
        }
        self.grant_slots(now);
    }

    /// A sequence takes a granted slot.
    pub(crate) fn take_slot(&mut self, id: TicketId) -> bool {
        let taken = self.update_running(id, |run| {
            let there = run.free > 0 && run.claims > 0;
            run.free -= usize::from(there);
            run.claims -= usize::from(there);
            there
        });
        taken == Some(true)
    }

    /// A sequence that has taken no slot withdraws the request. A slot granted for the request becomes free.
    pub(crate) fn cancel_slot_request(&mut self, id: TicketId, now: Instant) {
        self.advance_measurements(now);
        let saturated = self.is_saturated();
        let left = self.update_running(id, |run| {
            let waited = run.waits_for_slot();
            run.claims = run.claims.saturating_sub(1);
            let excess = run.free.saturating_sub(run.claims);
            run.free -= excess;
            run.release_slots(excess);
            (excess, waited && !run.waits_for_slot())
        });
        let Some((excess, left)) = left else {
            return;
        };
        if left && let Some(ticket) = self.tickets.get(&id) {
            self.queue.remove(ticket.rank);
        }
        self.count_freed_slots(excess, saturated);
        self.grant_slots(now);
    }

    /// Whether a running sequence of this ticket should return a slot, because a ticket without a slot waits.
    pub(crate) fn is_recalled(&mut self, id: TicketId) -> bool {
        let nobody = self.queue.is_empty();
        let recalled = self.update_running(id, |run| {
            if nobody {
                run.recalled = 0;
            }
            run.recalled > 0
        });
        recalled == Some(true)
    }

    /// A sequence returns the slot taken before. The ticket keeps the last slot if another sequence requests one,
    /// or `more` sequences are still to come.
    pub(crate) fn return_slot(&mut self, id: TicketId, more: bool, now: Instant) {
        self.advance_measurements(now);
        let saturated = self.is_saturated();
        let given = self.update_running(id, |run| {
            if run.held == run.free {
                return (0, None, false); // none was taken
            }
            let recalled = run.recalled > 0;
            if run.held == 1 && (run.missing_slots() > 0 || more) {
                run.free += 1;
                let waker = run.waker.clone().filter(|_| run.claims > 0);
                return (0, waker, false);
            }
            run.release_slots(1);
            (1, None, recalled)
        });
        let Some((freed, woken, recalled)) = given else {
            return;
        };
        self.woken.extend(woken);
        // A recalled slot is no measure of how fast slots become free.
        self.count_freed_slots(freed, saturated && !recalled);
        self.grant_slots(now);
    }

    /// Counts slots that became free; `saturated`: none was free before.
    pub(crate) fn count_freed_slots(&mut self, slots: usize, saturated: bool) {
        if slots == 0 {
            return;
        }
        self.is_rejecting = false;
        if saturated {
            self.drain.add(slots as f64);
        }
    }

    /// A parked ticket requests a slot again, and waits in the queue.
    fn queue_again(&mut self, id: TicketId) {
        let Some(ticket) = self.tickets.get_mut(&id) else {
            return;
        };
        debug_assert!(matches!(ticket.state, TicketState::Running(_)));
        // The ticket holds no pages: fewer may be reserved now than at the arrival.
        ticket.request.need = ticket.request.need.clamped_to(self.bounds.pages_limit);
        ticket.rank.is_back = true;
        self.queue.insert(ticket.rank);
    }

    /// Sets the time that the engine has spent on decode rows so far.
    pub(crate) fn set_decode_time(&mut self, decode_time: Option<Duration>) {
        self.decode_time = decode_time;
    }

    /// The prompt clock, which only differences of count. `at` matters only where the decode time is not known.
    pub(crate) fn prompt_clock(&self, at: Instant) -> Duration {
        let since_epoch = || at.saturating_duration_since(self.epoch);
        self.decode_time.unwrap_or_else(since_epoch)
    }

    /// How long the ticket that waits longest for a first token has waited. Computed once per interval.
    pub(crate) fn longest_prompt_wait(&self, now: Instant) -> Option<Duration> {
        let pending = self
            .tickets
            .values()
            .filter_map(|ticket| match &ticket.state {
                TicketState::Running(run) if run.held > 0 && !run.first_token => Some(run.since),
                _ => None,
            });
        let since = pending.min()?;
        Some(self.prompt_clock(now).saturating_sub(since))
    }
}
