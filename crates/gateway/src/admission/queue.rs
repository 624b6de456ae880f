//! The tickets that wait, in the order in which they are due.
//!
//! A ticket is ranked once, when it comes: it is due one ageing step per class below `critical` after its
//! arrival. So a class is an advantage of so many seconds, and ageing needs no clock: whoever
//! arrives more than four steps after a `background` ticket is due after it whatever its class. A rank never changes,
//! so a place is found by bisection. Which account goes first is decided when a place is given
//! ([`super::standing`]).
//!
//! Here are those who wait for their first place, and those who come back for one after they stood still.

use generate::priority::Priority;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Names a ticket inside one [`super::Admission`].
pub(crate) type TicketId = u64;

/// A place in the order: less is due sooner. Equal instants go by arrival.
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
    /// The rank of ticket `id` (ids count up) of this class and account, arriving now.
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

/// Ranks of those who wait, the one that is due first first. 40 bytes each.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    ranks: VecDeque<Rank>,
    of_class: [usize; Priority::ALL.len()],
    back: usize,
}

impl WaitQueue {
    /// How many wait for their first place.
    pub(crate) fn len(&self) -> usize {
        self.ranks.len() - self.back
    }

    /// How many wait, those who come back included.
    pub(crate) fn in_line(&self) -> usize {
        self.ranks.len()
    }

    /// Whether nobody waits at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Of those who wait for their first place, one.
    pub(crate) fn first_new(&self) -> Option<Rank> {
        self.iter().find(|rank| !rank.is_back)
    }

    /// How many of this class wait for their first place.
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
        match rank.is_back {
            true => self.back += 1,
            false => self.of_class[rank.class.index() as usize] += 1,
        }
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, rank: Rank) -> bool {
        let at = self.due_before(rank);
        let there = self.ranks.get(at) == Some(&rank);
        if there {
            self.ranks.remove(at);
            match rank.is_back {
                true => self.back -= 1,
                false => self.of_class[rank.class.index() as usize] -= 1,
            }
        }
        there
    }

    /// Everybody, in the order in which they are due.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks.iter().copied()
    }
}
