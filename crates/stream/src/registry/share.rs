//! What each owner has kept, so that one does not push out another.
//!
//! When there is no room for one more end, the owner that keeps most makes it, with its oldest end; of
//! several that keep as much, the one whose stream it is, then the one with the greater number. So an owner
//! that keeps no more than its share (the bound over the owners that keep something) loses nothing to
//! others, and one that is alone may use all there is.

use super::caller::Owner;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// An ended entry: when it ended, and its number.
pub(super) type End = (Instant, u64);

/// The room that is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Count,
    Bytes,
}

/// What each owner has kept.
#[derive(Default)]
pub(super) struct Shares {
    owners: BTreeMap<Owner, Share>, // those with an end; 0 ..= retained_max
    by_count: BTreeSet<(usize, Owner)>,
    by_bytes: BTreeSet<(usize, Owner)>,
}

#[derive(Default)]
struct Share {
    ends: BTreeSet<End>,
    bytes: usize,
}

impl Shares {
    /// One more end.
    pub(super) fn add(&mut self, owner: Owner, end: End, bytes: usize) {
        self.change(owner, |share| {
            share.ends.insert(end);
            share.bytes += bytes;
        });
    }

    /// One end less.
    pub(super) fn remove(&mut self, owner: Owner, end: End, bytes: usize) {
        self.change(owner, |share| {
            share.ends.remove(&end);
            share.bytes -= bytes;
        });
    }

    /// Who makes room for one more end of `owner`, of `bytes`; `None`: that one itself has to go.
    pub(super) fn makes_room(&self, owner: Owner, bytes: usize, room: Room) -> Option<u64> {
        let (most, own) = match room {
            Room::Count => (
                self.by_count.last(),
                self.of(owner).map_or(0, |s| s.ends.len()) + 1,
            ),
            Room::Bytes => (
                self.by_bytes.last(),
                self.of(owner).map_or(0, |s| s.bytes) + bytes,
            ),
        };
        let &(most, other) = most?;
        self.oldest(if own >= most { owner } else { other })
    }

    /// Who makes room for a stream that `owner` opens: an end of its own, else of the owner with most
    /// bytes.
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
