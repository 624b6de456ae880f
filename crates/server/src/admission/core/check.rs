//! What every test asks after every step.

use super::{Core, Rank, State, Ticket, TicketId};

/// Of one ticket, its place in the order and in the map included.
const TICKET_BYTES: usize = size_of::<(TicketId, Ticket)>() + size_of::<Rank>();
// What the settings say of it.
const _: () = assert!(TICKET_BYTES <= 256);

impl Core {
    pub(in crate::admission) fn check(&self) {
        let (mut sums, mut open) = ((0, 0, 0, 0), 0);
        for ticket in self.tickets.values() {
            match ticket.state {
                State::Running { first_token, .. } => {
                    open += 1;
                    sums.0 += ticket.asking.need.streams;
                    sums.1 += ticket.asking.need.pages;
                    sums.2 += usize::from(!first_token) * ticket.asking.need.prompt_tokens;
                }
                State::Waiting { .. } => sums.3 += 1,
                State::Refused(_) => {}
            }
        }
        assert_eq!((open, sums.0), (self.open, self.running), "running");
        assert_eq!(sums.1, self.pages_reserved, "pages");
        assert_eq!(sums.2, self.prefill_pending, "prefill");
        assert_eq!(sums.3, self.queue.len(), "waiting");
        assert!(self.pages_reserved <= self.bounds.pages_limit, "promised");
        let ranks: Vec<Rank> = self.queue.iter().collect();
        assert!(ranks.is_sorted(), "order");
        if let Some(first) = ranks.first() {
            assert!(!self.fits(self.tickets[&first.id].asking.need), "idle");
        }
    }

    /// Tickets that anybody holds.
    pub(in crate::admission) fn held(&self) -> usize {
        self.tickets.len()
    }
}
