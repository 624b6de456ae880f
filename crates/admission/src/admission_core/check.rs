//! Invariants that tests check after every step.

use super::{Core, Rank, ResourceSums, TicketEntry, TicketId, TicketState};
use crate::fair_shares::FairShare;
use std::collections::HashMap;

/// Bytes of a ticket, with the entries in the queue and in the map.
const TICKET_BYTES: usize = size_of::<(TicketId, TicketEntry)>() + size_of::<Rank>();
/// The settings document 320 bytes.
const _: () = assert!(TICKET_BYTES <= 320);

impl Core {
    pub(crate) fn check_invariants(&self) {
        let (mut sums, mut open, mut seated) = (ResourceSums::default(), 0, 0);
        let (mut waiting, mut back) = (0, 0);
        let mut accounts: HashMap<u64, (usize, usize)> = HashMap::new();
        for ticket in self.tickets.values() {
            let (need, account) = (ticket.request.need, ticket.rank.account);
            let share = accounts.entry(account).or_default();
            match &ticket.state {
                TicketState::Running(run) => {
                    open += 1;
                    seated += need.streams;
                    share.0 += run.held;
                    share.1 += need.streams;
                    back += usize::from(run.waits_for_slot());
                    let of = ResourceSums::of_ticket(need, run);
                    sums.slots += of.slots;
                    sums.pages += of.pages;
                    sums.prefill += of.prefill;
                    sums.growing += of.growing;
                    sums.untaken += of.untaken;
                    sums.recalled += of.recalled;
                    sums.recallable += of.recallable;
                    assert!(
                        run.recalled < run.held.max(1),
                        "its only place is asked for"
                    );
                    assert!(run.free <= run.held, "places that nobody has");
                }
                TicketState::Waiting { .. } => waiting += 1,
                TicketState::Rejected(_) => {}
            }
        }
        assert_eq!((open, seated), (self.open, self.seated), "running");
        assert_eq!(sums, self.sums, "sums");
        let ranks: Vec<Rank> = self.queue.iter().collect();
        assert_eq!((waiting, ranks.len()), (self.queue.len(), waiting + back));
        assert!(ranks.is_sorted(), "order");
        let is_forced = self.tickets.values().any(|ticket| ticket.is_forced);
        assert!(
            is_forced || self.sums.pages <= self.bounds.pages_limit,
            "promised"
        );
        assert_eq!(accounts.len(), self.shares.len(), "accounts");
        for (account, (slots, seats)) in accounts {
            let FairShare {
                slots: held,
                seats: seated,
                ..
            } = self.shares.share_of(account);
            assert_eq!((slots, seats), (held, seated), "of an account");
        }
        self.check_idle(&ranks);
    }

    /// No free slot fits a waiting ticket.
    fn check_idle(&self, ranks: &[Rank]) {
        if self.blocker.is_some() {
            return;
        }
        for rank in ranks {
            if self.is_on_hold && !rank.is_back {
                continue;
            }
            assert!(
                !self.fits_now(*rank, self.tickets[&rank.id].request.need),
                "idle"
            );
        }
        if self.has_spare_slot() {
            assert!(!self.tickets.values().any(|ticket| self.may_grow(ticket)));
        }
    }

    /// Tickets that have a holder.
    pub(crate) fn held_tickets(&self) -> usize {
        self.tickets.len()
    }
}
