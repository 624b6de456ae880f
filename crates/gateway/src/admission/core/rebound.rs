//! Other bounds for those who come, and for those who are there already.

use super::{AdmissionBounds, Core, TicketState};
use std::time::Instant;

impl Core {
    /// Bounds that grew let in who waits. Those that shrank send nobody away: until enough have left,
    /// nobody else comes in. Who waits keeps the patience it came with.
    pub(crate) fn rebound(&mut self, bounds: AdmissionBounds, now: Instant) {
        self.advance(now);
        self.bounds = bounds;
        self.limit.retune(bounds.adaptive, now);
        // What was cut to fit below the old limit must fit below this one, or it would wait for ever.
        for ticket in self.tickets.values_mut() {
            let holds = matches!(&ticket.state, TicketState::Running(run) if run.held > 0);
            if !holds {
                ticket.request.need = ticket.request.need.within(bounds.pages_limit);
            }
        }
        self.grant(now);
    }
}
