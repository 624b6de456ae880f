//! Holdings of running tickets, one and all together.

use super::{Core, TicketId, TicketState};
use crate::resource_estimate::ResourceEstimate;
use std::task::Waker;
use std::time::Duration;

/// An admitted ticket.
#[derive(Clone, Debug)]
pub(crate) struct RunningTicket {
    /// Time of the first slot on the prompt clock; while the first token is missing, of the last grant to the ticket
    /// without a slot.
    pub(crate) since: Duration,
    pub(crate) first_token: bool,
    /// Slots held; 0: parked.
    pub(crate) held: usize,
    /// Granted slots that no sequence has taken yet.
    pub(crate) free: usize,
    /// Sequences with a pending slot request.
    pub(crate) claims: usize,
    /// Slots to return; fewer than `held`.
    pub(crate) recalled: usize,
    /// Whether the sequences can be parked at any time.
    pub(crate) is_recallable: bool,
    /// Woken by a grant.
    pub(crate) waker: Option<Waker>,
}

impl RunningTicket {
    /// A ticket admitted at this time of the prompt clock.
    pub(crate) fn new(since: Duration, is_recallable: bool) -> Self {
        Self {
            since,
            first_token: false,
            held: 1,
            free: 1,
            claims: 0,
            recalled: 0,
            is_recallable,
            waker: None,
        }
    }

    /// Slots that are requested and not granted.
    pub(crate) fn missing_slots(&self) -> usize {
        self.claims.saturating_sub(self.free)
    }

    /// Slots beyond the first that can be recalled.
    pub(crate) fn recallable_slots(&self) -> usize {
        let further = self.held.saturating_sub(1 + self.recalled);
        if self.is_recallable { further } else { 0 }
    }

    /// Releases so many slots.
    pub(crate) fn release_slots(&mut self, slots: usize) {
        self.held -= slots;
        let recalled = self.recalled.saturating_sub(slots);
        self.recalled = recalled.min(self.held.saturating_sub(1));
    }

    /// Whether the ticket waits in the queue for a slot again.
    pub(crate) fn waits_for_slot(&self) -> bool {
        self.held == 0 && self.claims > 0
    }
}

/// Over all running tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceSums {
    pub(crate) slots: usize,
    pub(crate) pages: usize,
    /// Prompt tokens of tickets with a slot and without a first token.
    pub(crate) prefill: usize,
    /// Slots requested beyond those that tickets have.
    pub(crate) growing: usize,
    /// Slots of tickets without a first token that no sequence has taken: the engine does not know of them.
    pub(crate) untaken: usize,
    /// Slots that are recalled, and slots that could be.
    pub(crate) recalled: usize,
    pub(crate) recallable: usize,
}

impl ResourceSums {
    /// The sums of one ticket.
    pub(crate) fn of_ticket(need: ResourceEstimate, run: &RunningTicket) -> Self {
        let pending = run.held > 0 && !run.first_token;
        Self {
            slots: run.held,
            pages: need.pages_for(run.held),
            prefill: if pending { need.prompt_tokens } else { 0 },
            growing: if run.held > 0 { run.missing_slots() } else { 0 },
            untaken: if run.first_token { 0 } else { run.free },
            recalled: run.recalled,
            recallable: run.recallable_slots(),
        }
    }

    fn add(&mut self, other: Self) {
        self.slots += other.slots;
        self.pages += other.pages;
        self.prefill += other.prefill;
        self.growing += other.growing;
        self.untaken += other.untaken;
        self.recalled += other.recalled;
        self.recallable += other.recallable;
    }

    fn subtract(&mut self, other: Self) {
        self.slots -= other.slots;
        self.pages -= other.pages;
        self.prefill -= other.prefill;
        self.growing -= other.growing;
        self.untaken -= other.untaken;
        self.recalled -= other.recalled;
        self.recallable -= other.recallable;
    }
}

impl Core {
    /// Changes a running ticket, and the sums with it.
    pub(crate) fn update_running<T>(
        &mut self,
        id: TicketId,
        act: impl FnOnce(&mut RunningTicket) -> T,
    ) -> Option<T> {
        let ticket = self.tickets.get_mut(&id)?;
        let TicketState::Running(run) = &mut ticket.state else {
            return None;
        };
        let need = ticket.request.need;
        let share = self.shares.share_mut(ticket.rank.account);
        self.sums.subtract(ResourceSums::of_ticket(need, run));
        share.slots -= run.held;
        let done = act(run);
        share.slots += run.held;
        self.sums.add(ResourceSums::of_ticket(need, run));
        Some(done)
    }

    /// Adds a running ticket of this tenant and estimate to the sums.
    pub(crate) fn add_running(
        &mut self,
        account: u64,
        need: ResourceEstimate,
        run: &RunningTicket,
    ) {
        self.open += 1;
        self.seated += need.streams;
        self.sums.add(ResourceSums::of_ticket(need, run));
        let share = self.shares.share_mut(account);
        share.slots += run.held;
        share.seats += need.streams;
    }

    /// Removes a running request from the sums.
    pub(crate) fn remove_running(
        &mut self,
        account: u64,
        need: ResourceEstimate,
        run: &RunningTicket,
    ) {
        self.open -= 1;
        self.seated -= need.streams;
        self.sums.subtract(ResourceSums::of_ticket(need, run));
        // The share is gone with the tenant's last ticket.
        if let Some(share) = self.shares.known_share_mut(account) {
            share.slots -= run.held;
            share.seats -= need.streams;
        }
    }
}
