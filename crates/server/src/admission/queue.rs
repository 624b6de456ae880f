//! Who waits, in order of service.
//!
//! A ticket is ranked once, when it comes: by its arrival plus one ageing step per class below
//! `critical`. So a class is an advantage of so many seconds, and ageing needs no clock: whoever
//! arrives more than four steps after a `background` ticket comes after it whatever its class, and
//! nothing starves. A rank never changes, so a place in the order is found by bisection.

use super::class::Class;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Names a ticket inside one [`super::Admission`].
pub(super) type TicketId = u64;

/// A place in the order of service: less is sooner. Equal instants go by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    due: Instant,
    pub(super) id: TicketId,
    class: Class,
}

impl Rank {
    /// The rank of ticket `id` (ids count up) of this class, arriving now.
    pub(super) fn new(class: Class, id: TicketId, ageing: Duration, now: Instant) -> Self {
        Self {
            due: now + ageing * class.index(),
            id,
            class,
        }
    }
}

/// Ranks of those who wait, the next one first. 32 bytes each.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    ranks: VecDeque<Rank>,
    of_class: [usize; Class::ALL.len()],
}

impl WaitQueue {
    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Who is next.
    pub(super) fn first(&self) -> Option<Rank> {
        self.ranks.front().copied()
    }

    /// How many of this class wait.
    pub(super) fn of_class(&self, class: Class) -> usize {
        self.of_class[class.index() as usize]
    }

    /// How many would be served before this rank.
    pub(super) fn ahead(&self, rank: Rank) -> usize {
        self.ranks.partition_point(|&other| other < rank)
    }

    pub(super) fn insert(&mut self, rank: Rank) {
        let at = self.ahead(rank);
        self.ranks.insert(at, rank);
        self.of_class[rank.class.index() as usize] += 1;
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, rank: Rank) -> bool {
        let at = self.ahead(rank);
        let there = self.ranks.get(at) == Some(&rank);
        if there {
            self.ranks.remove(at);
            self.of_class[rank.class.index() as usize] -= 1;
        }
        there
    }

    /// Everybody, in order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks.iter().copied()
    }
}
