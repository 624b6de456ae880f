//! Waiting tickets in the order of their due times.
//!
//! A ticket is ranked once, at the arrival: due one ageing step per class below `critical` later. So a class is an
//! advantage of so many seconds, and ageing needs no clock: a ticket that arrives more than four steps after a
//! `background` ticket is due after that ticket, whatever the class. A rank never changes, so a position is found by
//! bisection. The order between tenants is decided at a grant ([`super::fair_shares`]).
//!
//! The queue has tickets that wait for a first slot, and parked tickets that request a slot again.

use generate::request::Priority;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Names a ticket inside one [`super::Admission`].
pub(crate) type TicketId = u64;

/// A position in the order: less is due sooner. Equal due times go by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) due: Instant,
    pub(crate) id: TicketId,
    pub(crate) account: u64,
    class: Priority,
    /// The ticket ran before.
    pub(crate) is_back: bool,
}

impl Rank {
    /// The rank of ticket `id` (ids count up) of this class and tenant, arriving now.
    pub(crate) fn new(
        class: Priority,
        (id, account): (TicketId, u64),
        ageing: Duration,
        now: Instant,
    ) -> Self {
        Self {
            due: now + ageing * class.index(),
            id,
            account,
            class,
            is_back: false,
        }
    }
}

/// Ranks of waiting tickets by due time. 40 bytes each.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    ranks: VecDeque<Rank>,
    of_class: [usize; Priority::ALL.len()],
    back: usize,
}

impl WaitQueue {
    /// Number of tickets that wait for a first slot.
    pub(crate) fn len(&self) -> usize {
        self.ranks.len() - self.back
    }

    /// Number of waiting tickets, formerly parked ones included.
    pub(crate) fn in_line(&self) -> usize {
        self.ranks.len()
    }

    /// Whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// The first ticket that waits for a first slot.
    pub(crate) fn first_new(&self) -> Option<Rank> {
        self.iter().find(|rank| !rank.is_back)
    }

    /// Number of tickets of this class that wait for a first slot.
    pub(crate) fn of_class(&self, class: Priority) -> usize {
        self.of_class[class.index() as usize]
    }

    /// How many are due before this rank.
    pub(crate) fn due_before(&self, rank: Rank) -> usize {
        self.ranks.partition_point(|&other| other < rank)
    }

    pub(crate) fn insert(&mut self, rank: Rank) {
        let at = self.due_before(rank);
        self.ranks.insert(at, rank);
        if rank.is_back {
            self.back += 1;
        } else {
            self.of_class[rank.class.index() as usize] += 1;
        }
    }

    /// True: the rank was in the queue.
    pub(crate) fn remove(&mut self, rank: Rank) -> bool {
        let at = self.due_before(rank);
        let there = self.ranks.get(at) == Some(&rank);
        if there {
            self.ranks.remove(at);
            if rank.is_back {
                self.back -= 1;
            } else {
                self.of_class[rank.class.index() as usize] -= 1;
            }
        }
        there
    }

    /// All ranks by due time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks.iter().copied()
    }
}
