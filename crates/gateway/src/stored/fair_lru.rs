//! A bounded container of values that have owners and end at some time.
//!
//! The number of values and their bytes are bounded. Every use makes an ended value the most recently used one. A full
//! container removes the least recently used value of the owner with the most bytes; running values stay.
//!
//! Values are ordered by stamps: wall-clock time in microseconds, made unique. So values that an earlier process
//! stored are in order with those of this process.

use crate::limits::ResponseLimits;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use stream::Owner;

/// Values by id.
pub(crate) struct FairLru<V> {
    slots: HashMap<Arc<str>, Slot<V>>,
    owners: HashMap<Owner, OwnerShare>,
    /// Ids by the stamp of the insertion.
    by_age: BTreeMap<u64, Arc<str>>,
    bytes: usize,
    /// The last stamp.
    stamp: u64,
}

struct Slot<V> {
    value: V,
    owner: Owner,
    bytes: usize,
    inserted: u64,
    /// Stamp of the last use; `None` while running.
    used: Option<u64>,
}

/// Values of one owner.
#[derive(Default)]
struct OwnerShare {
    bytes: usize,
    /// Ended values by last use, the oldest first.
    ended: BTreeMap<u64, Arc<str>>,
    values: usize,
}

impl<V> Default for FairLru<V> {
    fn default() -> Self {
        Self {
            slots: HashMap::new(),
            owners: HashMap::new(),
            by_age: BTreeMap::new(),
            bytes: 0,
            stamp: 0,
        }
    }
}

impl<V: Clone> FairLru<V> {
    /// Inserts a running value. `unix_us` is the time of its creation, which may be long ago.
    pub(crate) fn insert(
        &mut self,
        id: &Arc<str>,
        (owner, value): (Owner, V),
        bytes: usize,
        unix_us: u64,
    ) {
        self.remove(id);
        let inserted = free_stamp(&self.by_age, unix_us);
        self.stamp = self.stamp.max(inserted);
        self.by_age.insert(inserted, Arc::clone(id));
        let share = self.owners.entry(owner).or_default();
        share.bytes += bytes;
        share.values += 1;
        self.bytes += bytes;
        let slot = Slot {
            value,
            owner,
            bytes,
            inserted,
            used: None,
        };
        self.slots.insert(Arc::clone(id), slot);
    }

    /// The value has ended and takes `bytes` more; counts as a use at this time.
    pub(crate) fn mark_ended(&mut self, id: &str, bytes: usize, unix_us: u64) {
        let Some((id, slot)) = self.slots.get_key_value(id) else {
            return;
        };
        let (id, owner, bytes) = (Arc::clone(id), slot.owner, slot.bytes + bytes);
        let used = self.owners.get_mut(&owner).map(|share| {
            let used = free_stamp(&share.ended, unix_us);
            share.ended.insert(used, Arc::clone(&id));
            used
        });
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.used = used;
        }
        self.stamp = self.stamp.max(used.unwrap_or(0));
        self.resize(&id, bytes);
    }

    /// Marks a value as used now.
    pub(crate) fn mark_used(&mut self, id: &str, unix_us: u64) -> Option<V> {
        let slot = self.slots.get_mut(id)?;
        if let Some(used) = &mut slot.used
            && let Some(share) = self.owners.get_mut(&slot.owner)
            && let Some(id) = share.ended.remove(used)
        {
            self.stamp = unix_us.max(self.stamp + 1);
            share.ended.insert(self.stamp, id);
            *used = self.stamp;
        }
        Some(slot.value.clone())
    }

    /// The value takes so many bytes from now on.
    pub(crate) fn resize(&mut self, id: &str, bytes: usize) {
        let Some(slot) = self.slots.get_mut(id) else {
            return;
        };
        let before = std::mem::replace(&mut slot.bytes, bytes);
        self.bytes = self.bytes - before + bytes;
        if let Some(share) = self.owners.get_mut(&slot.owner) {
            share.bytes = share.bytes - before + bytes;
        }
    }

    /// Bytes of a value.
    pub(crate) fn bytes_of(&self, id: &str) -> usize {
        self.slots.get(id).map_or(0, |slot| slot.bytes)
    }

    /// The value of this id; not a use.
    pub(crate) fn get(&self, id: &str) -> Option<&V> {
        self.slots.get(id).map(|slot| &slot.value)
    }

    /// All values, the oldest first.
    pub(crate) fn by_age(&self) -> impl Iterator<Item = &V> {
        self.by_age.values().filter_map(|id| self.get(id))
    }

    pub(crate) fn remove(&mut self, id: &str) {
        let Some(slot) = self.slots.remove(id) else {
            return;
        };
        self.bytes -= slot.bytes;
        self.by_age.remove(&slot.inserted);
        let Some(share) = self.owners.get_mut(&slot.owner) else {
            return;
        };
        share.bytes -= slot.bytes;
        share.values -= 1;
        slot.used.map(|used| share.ended.remove(&used));
        if share.values == 0 {
            self.owners.remove(&slot.owner);
        }
    }

    /// Makes room until all values are within bounds; false where that cannot be.
    pub(crate) fn evict_to_fit(&mut self, limits: &ResponseLimits) -> bool {
        while self.slots.len() > limits.stored_max || self.bytes > limits.stored_bytes {
            let with_ended = self.owners.values().filter(|share| !share.ended.is_empty());
            let most = with_ended.max_by_key(|share| share.bytes);
            let Some(oldest) = most.and_then(|share| share.ended.values().next().cloned()) else {
                return false;
            };
            self.remove(&oldest);
        }
        true
    }
}

/// The first stamp from `unix_us` on that no entry has.
fn free_stamp(entries: &BTreeMap<u64, Arc<str>>, unix_us: u64) -> u64 {
    let mut stamp = unix_us;
    for (taken, _) in entries.range(unix_us..) {
        if *taken != stamp {
            break;
        }
        stamp += 1;
    }
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: ResponseLimits = ResponseLimits {
        stored_max: 6,
        stored_bytes: 9000,
    };

    impl<V> FairLru<V> {
        /// Whether all sums are right.
        fn check_sums(&self) {
            let sum: usize = self.slots.values().map(|slot| slot.bytes).sum();
            let shares: usize = self.owners.values().map(|share| share.bytes).sum();
            let values: usize = self.owners.values().map(|share| share.values).sum();
            let ended: usize = self.owners.values().map(|share| share.ended.len()).sum();
            let used = self.slots.values().filter(|slot| slot.used.is_some());
            assert_eq!((sum, shares), (self.bytes, self.bytes));
            assert_eq!((values, ended), (self.slots.len(), used.count()));
            assert_eq!(self.by_age.len(), self.slots.len());
        }
    }

    proptest! {
        #[test]
        fn stored_sums_are_exact_and_bounds_hold(
            steps in prop::collection::vec((0u8..6, 0u64..3, 0usize..2000, 0u64..40), 1..60),
        ) {
            let mut kept: FairLru<()> = FairLru::default();
            let (mut running, mut ended) = (Vec::new(), Vec::new());
            for (number, (step, owner, bytes, time)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        let id: Arc<str> = number.to_string().into();
                        kept.insert(&id, (Owner(owner), ()), bytes, time);
                        if kept.evict_to_fit(&LIMITS) {
                            running.push(id);
                        } else {
                            kept.remove(&id);
                            let all_run = kept.slots.values().all(|slot| slot.used.is_none());
                            prop_assert!(all_run, "an ended value could make room");
                        }
                    }
                    2 => if let Some(id) = running.pop() {
                        kept.mark_ended(&id, bytes, time);
                        kept.evict_to_fit(&LIMITS);
                        ended.push(id);
                    },
                    3 => if let Some(id) = ended.first() {
                        kept.mark_used(id, time);
                    },
                    4 => if let Some(id) = ended.last() {
                        kept.resize(id, bytes);
                        kept.evict_to_fit(&LIMITS);
                    },
                    _ => if let Some(id) = ended.pop() {
                        kept.remove(&id);
                    },
                }
                kept.check_sums();
                let over = kept.slots.len() > LIMITS.stored_max || kept.bytes > LIMITS.stored_bytes;
                let evictable = kept.slots.values().any(|slot| slot.used.is_some());
                prop_assert!(!over || !evictable, "evictable values are within bounds");
            }
        }
    }

    #[test]
    fn values_are_ordered_by_the_time_of_insertion_and_evicted_by_the_time_of_use() {
        let mut kept: FairLru<&str> = FairLru::default();
        for (name, inserted, ended) in [("c", 30, 90), ("a", 10, 80), ("b", 10, 100)] {
            let id: Arc<str> = name.into();
            kept.insert(&id, (Owner(1), name), 1, inserted);
            kept.mark_ended(&id, 1, ended);
        }
        assert_eq!(kept.by_age().copied().collect::<String>(), "abc");
        // The clock was set back since: the use is the last one nevertheless.
        kept.mark_used("a", 5);
        let limits = |stored_max| ResponseLimits {
            stored_max,
            ..LIMITS
        };
        kept.evict_to_fit(&limits(2));
        assert_eq!(kept.by_age().copied().collect::<String>(), "ab");
        kept.evict_to_fit(&limits(1));
        assert_eq!(kept.by_age().copied().collect::<String>(), "a");
    }
}
