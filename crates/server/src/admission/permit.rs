//! What a running request holds.

use super::Seat;
use super::need::Need;
use super::refusal::Refusal;
use super::ticket::Ticket;
use std::time::{Duration, Instant};

/// The right to have one request run, and the pages reserved for it; given back by its drop.
pub(crate) struct Permit {
    seat: Seat,
}

impl Permit {
    pub(super) fn new(seat: Seat) -> Self {
        Self { seat }
    }

    /// Corrects the estimate it was given for.
    ///
    /// # Errors
    /// So much is not free: everything was given back, and the ticket waits at the old place.
    pub(crate) fn settle(self, need: Need) -> Result<Self, Ticket> {
        let id = self.seat.id;
        let stays = self
            .seat
            .shared
            .with(|core, now| core.settle(id, need, now));
        match stays {
            true => Ok(self),
            false => Err(Ticket::new(self.seat)),
        }
    }

    /// The same, waiting where it must.
    ///
    /// # Errors
    /// There will be no permit after all.
    pub(crate) async fn settled(self, need: Need) -> Result<Self, Refusal> {
        match self.settle(need) {
            Ok(permit) => Ok(permit),
            Err(ticket) => ticket.await,
        }
    }

    /// The first token came at `at`. Only the first call counts.
    pub(crate) fn first_token(&self, at: Instant) {
        let id = self.seat.id;
        self.seat
            .shared
            .with(|core, now| core.first_token(id, at, now));
    }

    /// Its reader, which was there, waited so long for a token.
    pub(crate) fn token_gap(&self, gap: Duration) {
        self.seat.shared.with(|core, now| core.token_gap(gap, now));
    }
}
