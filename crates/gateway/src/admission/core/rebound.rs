//! New bounds, for new and for present tickets.

use super::{AdmissionBounds, Core, TicketState};
use std::time::Instant;

impl Core {
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
