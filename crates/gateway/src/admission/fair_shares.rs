//! The order between accounts, and the places each of them has.
//!
//! Among those who wait for their first place, and those who come back for one, the least [`QueuePriority`] is next:
//!
//! 1. **Passed over for too long.** An account that was given nothing for one step of ageing after its first
//!    ticket was due goes before all others; of several such accounts the one that was due first.
//! 2. **Class.** A ticket is due one step of ageing per class below `critical` after it came; what is due sooner,
//!    in whole steps, goes first.
//! 3. **Share.** The account goes first that would then have the fewest places for its weight.
//! 4. **Age.** What is due sooner; of equals, who came first.
//!
//! Tickets of one account are so always served in the order in which they are due, and with one account nothing but
//! that order counts. An account is passed over for at most its class's steps of ageing and one more, and is then
//! served behind accounts that have waited longer, one ticket each: nobody is passed over for ever.

use super::queue::Rank;
use engine::{Account, WEIGHT_MAX};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Among those who wait; less is sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePriority {
    /// 0: passed over for too long; else one more than the steps of ageing until it is due.
    level: u64,
    /// Places per weight that its account would have.
    share: u64,
    rank: Rank,
}

/// The accounts that have tickets: one entry each, so no more than there are tickets.
#[derive(Debug, Default)]
pub(crate) struct FairShares(HashMap<u64, FairShare>);

/// What one account has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FairShare {
    weight: u64,
    tickets: usize,
    /// Places held now.
    pub(crate) slots: usize,
    /// Streams of its running tickets, those that stand still included.
    pub(crate) seats: usize,
    /// When one of its tickets was last given its first place, or one again.
    granted: Option<Instant>,
}

impl FairShares {
    /// One ticket more.
    pub(crate) fn open(&mut self, account: Account) {
        let share = self.0.entry(account.id).or_default();
        share.weight = u64::from(account.weight.clamp(1, WEIGHT_MAX));
        share.tickets += 1;
    }

    /// One ticket less.
    pub(crate) fn close(&mut self, account: Account) {
        if let Some(share) = self.0.get_mut(&account.id) {
            share.tickets -= 1;
            if share.tickets == 0 {
                self.0.remove(&account.id);
            }
        }
    }

    /// Accounts that have tickets.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// What this account has.
    pub(crate) fn of(&self, account: u64) -> FairShare {
        self.0.get(&account).copied().unwrap_or_default()
    }

    /// To note what this account gets and gives back; there is one ticket of it at least.
    pub(crate) fn of_mut(&mut self, account: u64) -> &mut FairShare {
        self.0.entry(account).or_default()
    }

    /// The same, where it is not known whether there is one.
    pub(crate) fn known_mut(&mut self, account: u64) -> Option<&mut FairShare> {
        self.0.get_mut(&account)
    }

    /// How a ticket stands that waits behind so many of its account.
    pub(crate) fn queue_priority(
        &self,
        rank: Rank,
        behind: usize,
        (ageing, now): (Duration, Instant),
    ) -> QueuePriority {
        let share = self.of(rank.account);
        let since = share.granted.map_or(rank.due, |at| at.max(rank.due));
        let is_overdue = behind == 0 && now.saturating_duration_since(since) >= ageing;
        QueuePriority {
            level: match is_overdue {
                true => 0,
                false => 1 + steps(rank.due.saturating_duration_since(now), ageing),
            },
            share: match is_overdue {
                true => 0,
                false => share.measure(behind),
            },
            rank,
        }
    }
}

impl FairShare {
    /// Places per weight, if so many of its tickets and then one more had one.
    pub(crate) fn measure(&self, behind: usize) -> u64 {
        (((self.slots + behind + 1) as u64) << 32) / self.weight.max(1)
    }

    /// A ticket of it was given its first place, or one again.
    pub(crate) fn granted(&mut self, now: Instant) {
        self.granted = Some(now);
    }
}

/// Steps of ageing that begin within this time.
fn steps(time: Duration, ageing: Duration) -> u64 {
    let steps = time.as_nanos().div_ceil(ageing.as_nanos().max(1));
    u64::try_from(steps).unwrap_or(u64::MAX - 1)
}
