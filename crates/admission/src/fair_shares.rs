//! The order between tenants, and the slots of each tenant.
//!
//! Among tickets that wait for a first slot, and parked tickets that request one again, the least [`QueuePriority`]
//! is next:
//!
//! 1. **Passed over for too long.** A tenant without a grant for one ageing step after the tenant's first
//!    ticket was due precedes all others; of several such tenants, the one that was due first.
//! 2. **Priority.** A ticket is due one ageing step per class below `critical` after the arrival; an earlier due
//!    time, in whole steps, goes first.
//! 3. **Share.** Then the tenant that would have the fewest slots in proportion to the weight.
//! 4. **Age.** Then the earlier due time, and of equal ones the earlier arrival.
//!
//! Tickets of one tenant are served in the order of their due times, and with a single tenant only this order counts.
//! A tenant is passed over for at most the ageing steps of the ticket's class and one more, and is then served behind
//! tenants that have waited longer, one ticket each: no tenant starves.

use super::queue::Rank;
use engine::{Account, WEIGHT_MAX};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Order among waiting tickets; less is sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePriority {
    /// 0: passed over for too long; else one more than the ageing steps until the ticket is due.
    level: u64,
    /// Slots per weight that the tenant would have.
    share: u64,
    rank: Rank,
}

/// Tenants with tickets: one entry each, so at most as many as tickets.
#[derive(Debug, Default)]
pub(crate) struct FairShares(HashMap<u64, FairShare>);

/// Slots and seats of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FairShare {
    weight: u64,
    tickets: usize,
    /// Slots held now.
    pub(crate) slots: usize,
    /// Streams of running tickets, parked ones included.
    pub(crate) seats: usize,
    /// Time of the last grant to a ticket without a slot.
    granted: Option<Instant>,
}

impl FairShares {
    /// One ticket more.
    pub(crate) fn add_ticket(&mut self, account: Account) {
        let share = self.0.entry(account.id).or_default();
        share.weight = u64::from(account.weight.clamp(1, WEIGHT_MAX));
        share.tickets += 1;
    }

    /// One ticket less.
    pub(crate) fn remove_ticket(&mut self, account: Account) {
        if let Some(share) = self.0.get_mut(&account.id) {
            share.tickets -= 1;
            if share.tickets == 0 {
                self.0.remove(&account.id);
            }
        }
    }

    /// Number of tenants with tickets.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Share of a tenant.
    pub(crate) fn share_of(&self, account: u64) -> FairShare {
        self.0.get(&account).copied().unwrap_or_default()
    }

    /// The share of a tenant with at least one ticket, to be changed.
    pub(crate) fn share_mut(&mut self, account: u64) -> &mut FairShare {
        self.0.entry(account).or_default()
    }

    /// The share of a tenant that may have no ticket, to be changed.
    pub(crate) fn known_share_mut(&mut self, account: u64) -> Option<&mut FairShare> {
        self.0.get_mut(&account)
    }

    /// Priority of a ticket behind so many tickets of the same tenant.
    pub(crate) fn queue_priority(
        &self,
        rank: Rank,
        behind: usize,
        (ageing, now): (Duration, Instant),
    ) -> QueuePriority {
        let share = self.share_of(rank.account);
        let since = share.granted.map_or(rank.due, |at| at.max(rank.due));
        let is_overdue = behind == 0 && now.saturating_duration_since(since) >= ageing;
        QueuePriority {
            level: if is_overdue {
                0
            } else {
                1 + ageing_steps(rank.due.saturating_duration_since(now), ageing)
            },
            share: if is_overdue {
                0
            } else {
                share.slots_per_weight(behind)
            },
            rank,
        }
    }
}

impl FairShare {
    /// Slots per weight, if `behind` tickets and one more had a slot.
    pub(crate) fn slots_per_weight(&self, behind: usize) -> u64 {
        (((self.slots + behind + 1) as u64) << 32) / self.weight.max(1)
    }

    /// A ticket without a slot got one.
    pub(crate) fn note_grant(&mut self, now: Instant) {
        self.granted = Some(now);
    }
}

/// Steps of ageing that begin within this time.
fn ageing_steps(time: Duration, ageing: Duration) -> u64 {
    let steps = time.as_nanos().div_ceil(ageing.as_nanos().max(1));
    u64::try_from(steps).unwrap_or(u64::MAX - 1)
}
