//! Who goes before whom.

use super::Scheduler;
use crate::accounts::Share;
use crate::age::Age;
use crate::sequence::{Sequence, State};

/// A claim on a place or on rows; the least goes first.
///
/// A claim rises one class for each `ageing` in which its account was given nothing in that class
/// ([`Standing::rank`]). It is the account that ages, not the request: else the many requests of
/// one account, which wait long, would all rise above the few of another, and shares would be
/// lost just when they matter. So an account that wants something in class `c` (critical = 0) is
/// served at the latest when `c + 1` times `ageing` are over and those who wait longer are served.
/// Within an account and class requests go in order of arrival, and sequences take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    /// 0 = waits too long; else the class it counts as, plus 1.
    pub(super) rank: u8,
    /// Who has risen goes before who was always there.
    native: bool,
    /// Who was started goes before who was not.
    new: bool,
    /// Among the risen: since when; among natives who are new: the account's counter.
    measure: u64,
    /// The older first.
    pub(super) age: Age,
}

impl Standing {
    /// Puts a claim behind what its account is given before.
    pub(super) fn put_off(&mut self, by: u64) {
        if self.native {
            self.measure = self.measure.saturating_add(by);
        }
    }

    /// The same for claims that differ in age only.
    pub(super) fn but_for_age(self) -> Self {
        Self {
            age: Age(0, 0),
            ..self
        }
    }
}

/// Whose claim, for what.
pub(super) struct Claim {
    pub(super) share: Share,
    /// Since when it is given nothing.
    pub(super) since_ns: u64,
    pub(super) new: bool,
    /// Whether it is for a place, not for rows.
    pub(super) place: bool,
    pub(super) age: Age,
}

impl Scheduler {
    pub(super) fn standing(&self, claim: &Claim) -> Standing {
        let waited = self.now_ns.saturating_sub(claim.since_ns);
        let own = claim.share.class as u64 + 1;
        let rank = own.saturating_sub(waited / self.ageing_ns);
        let native = rank == own;
        let measure = match (native, claim.new) {
            (false, _) => claim.since_ns,
            (true, true) if claim.place => self.accounts.counter_owing(claim.share),
            (true, true) => self.accounts.counter(claim.share),
            (true, false) => 0,
        };
        Standing {
            rank: rank as u8,
            native,
            new: claim.new,
            measure,
            age: claim.age,
        }
    }

    /// A sequence's claim on rows. One that is parked claims nothing, so it does not age.
    pub(super) fn row_claim(&self, sequence: &Sequence) -> Standing {
        let share = self.share(sequence.slot);
        let since_ns = match sequence.state {
            State::Parked => self.now_ns,
            _ => sequence.waits_ns.max(self.accounts.rows_ns(share)),
        };
        self.standing(&Claim {
            share,
            since_ns,
            new: true,
            place: false,
            age: sequence.age,
        })
    }

    /// The order in which pages are taken away, the last first: the least urgent, of these the
    /// youngest.
    pub(super) fn page_claim(&self, sequence: &Sequence) -> (u8, Age) {
        (self.row_claim(sequence).rank, sequence.age)
    }

    pub(super) fn share(&self, slot: usize) -> Share {
        let common = self.requests[slot].as_ref();
        common.expect("an open choice has a request").share
    }
}
