//! Fair shares of retained streams among owners.
//!
//! When there is no room for one more end, the oldest end of the owner that retains most is removed; of
//! several owners that retain equally much, the owner of the new end comes first, then the owner with the
//! larger number. So an owner that retains no more than a fair share (the bound divided by the owners that
//! retain something) loses nothing to other owners, and a single owner may use everything.

use super::Owner;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// An ended entry: time of the end, and number.
pub(super) type RetainedEnd = (Instant, u64);

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReachedLimit {
    Count,
    Bytes,
}

/// Retained ends of each owner.
#[derive(Default)]
pub(super) struct Shares {
    owners: BTreeMap<Owner, Share>, // those with an end; 0 ..= retained_max
    by_count: BTreeSet<(usize, Owner)>,
    by_bytes: BTreeSet<(usize, Owner)>,
}

#[derive(Default)]
struct Share {
    ends: BTreeSet<RetainedEnd>,
    bytes: usize,
}

impl Shares {
    /// Adds an end.
    pub(super) fn add(&mut self, owner: Owner, end: RetainedEnd, bytes: usize) {
        self.change(owner, |share| {
            share.ends.insert(end);
            share.bytes += bytes;
        });
    }

    /// Removes an end.
    pub(super) fn remove(&mut self, owner: Owner, end: RetainedEnd, bytes: usize) {
        self.change(owner, |share| {
            share.ends.remove(&end);
            share.bytes -= bytes;
        });
    }

    /// The end that makes room for one more end of `owner`, of `bytes`; `None` if the new end has to be
    /// removed.
    pub(super) fn makes_room(&self, owner: Owner, bytes: usize, room: ReachedLimit) -> Option<u64> {
        let (most, own) = match room {
            ReachedLimit::Count => (
                self.by_count.last(),
                self.of(owner).map_or(0, |s| s.ends.len()) + 1,
            ),
            ReachedLimit::Bytes => (
                self.by_bytes.last(),
                self.of(owner).map_or(0, |s| s.bytes) + bytes,
            ),
        };
        let &(most, other) = most?;
        self.oldest(if own >= most { owner } else { other })
    }

    /// The end that makes room for a stream that `owner` opens: one of the same owner, else of the owner with
    /// most bytes.
    pub(super) fn gives_way(&self, owner: Owner) -> Option<u64> {
        let most = || self.by_bytes.last().map(|&(_, other)| other);
        self.oldest(owner).or_else(|| self.oldest(most()?))
    }

    fn of(&self, owner: Owner) -> Option<&Share> {
        self.owners.get(&owner)
    }

    fn oldest(&self, owner: Owner) -> Option<u64> {
        let &(_, number) = self.of(owner)?.ends.first()?;
        Some(number)
    }

    fn change(&mut self, owner: Owner, change: impl FnOnce(&mut Share)) {
        let share = self.owners.entry(owner).or_default();
        self.by_count.remove(&(share.ends.len(), owner));
        self.by_bytes.remove(&(share.bytes, owner));
        change(share);
        if share.ends.is_empty() {
            self.owners.remove(&owner);
            return;
        }
        self.by_count.insert((share.ends.len(), owner));
        self.by_bytes.insert((share.bytes, owner));
    }
}
