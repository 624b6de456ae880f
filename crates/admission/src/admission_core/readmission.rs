//! Streams of an earlier process, which had admitted or queued them, and the hold of new tickets until those streams are
//! back.
//!
//! While admission is on hold, no ticket gets a first slot, except a parked ticket that ran before. Held tickets wait in
//! the queue with the usual timeout. A stream that ran is admitted again beyond all limits, because its client was
//! promised an answer; its slots and pages are counted, so that new tickets wait until the sums are below the limits.

use super::{
    AdmissionBounds, AdmissionRequest, Core, Rank, RunningTicket, TicketEntry, TicketId,
    TicketState,
};
use std::time::Instant;

impl Core {
    /// Begins or ends the hold of first slots.
    pub(crate) fn set_hold(&mut self, is_on_hold: bool, now: Instant) {
        self.advance_measurements(now);
        self.is_on_hold = is_on_hold;
        self.grant_slots(now);
    }

    /// A running ticket for a stream that ran in an earlier process. The time to the first token is not measured: the
    /// answered tokens are computed again first.
    pub(crate) fn readmit_ticket(&mut self, request: AdmissionRequest, now: Instant) -> TicketId {
        let mut run = RunningTicket::new(self.prompt_clock(now), request.is_recallable);
        run.first_token = true;
        let id = self.add_entry(request, TicketState::Running(run.clone()), now, now);
        if let Some(ticket) = self.tickets.get_mut(&id) {
            ticket.is_forced = true;
        }
        self.add_running(request.account.id, request.need, &run);
        id
    }

    /// A waiting ticket for a stream that waited in an earlier process since `arrived`, in a queue of any length.
    pub(crate) fn requeue_ticket(
        &mut self,
        request: AdmissionRequest,
        arrived: Instant,
        now: Instant,
    ) -> TicketId {
        let state = self.waiting_state(&request, now);
        let id = self.add_entry(request, state, arrived, now);
        if let Some(ticket) = self.tickets.get(&id) {
            self.queue.insert(ticket.rank);
        }
        self.grant_slots(now);
        id
    }

    fn add_entry(
        &mut self,
        request: AdmissionRequest,
        state: TicketState,
        arrived: Instant,
        now: Instant,
    ) -> TicketId {
        self.advance_measurements(now);
        let (account, ageing) = (request.account, self.bounds.queue.ageing);
        let id = self.next_id;
        self.next_id += 1;
        self.shares.add_ticket(account);
        let ticket = TicketEntry {
            rank: Rank::new(request.class, (id, account.id), ageing, arrived),
            request,
            aside: None,
            is_forced: false,
            state,
        };
        self.tickets.insert(id, ticket);
        id
    }

    /// Larger bounds admit waiting tickets. Smaller bounds end no ticket: no further ticket is admitted until enough
    /// have left. Waiting tickets keep their timeout.
    pub(crate) fn set_bounds(&mut self, bounds: AdmissionBounds, now: Instant) {
        self.advance_measurements(now);
        self.bounds = bounds;
        self.limit.set_settings(bounds.adaptive, now);
        // An estimate clamped to the old limit is clamped to this one, or the ticket would wait forever.
        for ticket in self.tickets.values_mut() {
            let holds = matches!(&ticket.state, TicketState::Running(run) if run.held > 0);
            if !holds {
                ticket.request.need = ticket.request.need.clamped_to(bounds.pages_limit);
            }
        }
        self.grant_slots(now);
    }
}
