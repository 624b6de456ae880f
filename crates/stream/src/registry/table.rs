//! The data behind the registry's lock. Nothing here drops a payload or runs foreign code: removed payloads are
//! returned, to be dropped after the lock is released.

use super::caller::{Caller, Owner};
use super::counts::RegistryCounts;
use super::entry::{Entry, EntryState, ListCursor, Missing, Page};
use super::gone::{Eviction, Gone};
use super::limits::RegistryLimits;
use super::share::{ReachedLimit, Shares};
use crate::StreamId;
use crate::sync::Arc;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::time::Instant;

/// All entries, open and ended. Each has a number, in order of opening, at least the number that the caller gives.
pub(super) struct Table<E> {
    limits: RegistryLimits,
    slots: BTreeMap<u64, TableEntry<E>>, // by number; 0 ..= open_max + retained_max
    names: HashMap<StreamId, EntryKey>,
    by_owner: BTreeSet<EntryKey>,
    by_end: BTreeSet<(Instant, u64)>, // the ended ones; 0 ..= retained_max
    shares: Shares,                   // of the same, by owner
    gone: Gone,
    last_number: u64,
    /// All counts but the number of gone entries, which `gone` has.
    counts: RegistryCounts,
}

/// Owner and number of an entry: decides visibility without access to the entry.
type EntryKey = (Owner, u64);

struct TableEntry<E> {
    id: StreamId,
    owner: Owner,
    opened_at: Instant,
    ended: Option<Ended>,
    payload: Arc<E>,
}

#[derive(Clone, Copy)]
struct Ended {
    at: Instant,
    bytes: usize,
}

/// Why an entry was rejected.
pub(super) enum RegisterError {
    Full,
    IdTaken,
}

impl<E> Table<E> {
    pub(super) fn new(limits: RegistryLimits) -> Self {
        Self {
            limits,
            slots: BTreeMap::new(),
            names: HashMap::new(),
            by_owner: BTreeSet::new(),
            by_end: BTreeSet::new(),
            shares: Shares::default(),
            gone: Gone::new(limits.gone_max),
            last_number: 0,
            counts: RegistryCounts::default(),
        }
    }

    pub(super) fn counts(&self) -> RegistryCounts {
        RegistryCounts {
            gone: self.gone.len(),
            ..self.counts
        }
    }

    pub(super) fn limits(&self) -> RegistryLimits {
        self.limits
    }

    /// Changes the bounds, except `gone_max`. Ended streams beyond the bounds go to `out`.
    pub(super) fn rebound(&mut self, limits: RegistryLimits, out: &mut Vec<Arc<E>>) {
        self.limits = RegistryLimits {
            gone_max: self.limits.gone_max,
            ..limits
        };
        while let Some(&(_, oldest)) = self.by_end.first() {
            let cause = if self.counts.retained > self.limits.retained_max {
                Eviction::Count
            } else if self.counts.retained_bytes > self.limits.retained_bytes_max {
                Eviction::Bytes
            } else {
                return;
            };
            out.extend(self.remove(oldest, cause));
        }
    }

    pub(super) fn open(
        &mut self,
        id: StreamId,
        owner: Owner,
        (now, at_least): (Instant, u64),
        payload: &Arc<E>,
    ) -> Result<(), RegisterError> {
        if self.names.contains_key(&id) {
            return Err(RegisterError::IdTaken);
        }
        if self.counts.open >= self.limits.open_max {
            self.counts.refused += 1;
            return Err(RegisterError::Full);
        }
        self.insert(id, owner, (now, at_least), payload);
        Ok(())
    }

    /// Adds an open entry, whatever the limits. False if an entry has the id.
    pub(super) fn restore(
        &mut self,
        id: StreamId,
        owner: Owner,
        opened: (Instant, u64),
        payload: &Arc<E>,
    ) -> bool {
        let is_new = !self.names.contains_key(&id);
        if is_new {
            self.insert(id, owner, opened, payload);
        }
        is_new
    }

    fn insert(
        &mut self,
        id: StreamId,
        owner: Owner,
        (opened_at, at_least): (Instant, u64),
        payload: &Arc<E>,
    ) {
        self.counts.open += 1;
        self.counts.registered += 1;
        // From 1 on, so that `ListCursor(0)` is the beginning.
        let number = at_least.max(self.last_number.saturating_add(1));
        self.last_number = number;
        let slot = TableEntry {
            id,
            owner,
            opened_at,
            ended: None,
            payload: Arc::clone(payload),
        };
        self.slots.insert(number, slot);
        self.names.insert(id, (owner, number));
        self.by_owner.insert((owner, number));
    }

    /// Makes an open entry an ended one. The entries that make room, or this entry if none can, go to `out`.
    /// False if the entry is not open.
    pub(super) fn end(
        &mut self,
        id: StreamId,
        at: Instant,
        bytes: usize,
        out: &mut Vec<Arc<E>>,
    ) -> bool {
        let Some(&(_, number)) = self.names.get(&id) else {
            return false;
        };
        let TableEntry { owner, ended, .. } = self.slots[&number];
        if ended.is_some() {
            return false;
        }
        if self.limits.retained_max == 0 {
            out.extend(self.remove(number, Eviction::Count));
        } else if bytes > self.limits.retained_bytes_max {
            out.extend(self.remove(number, Eviction::Bytes));
        } else {
            match self.make_room(owner, bytes, out) {
                Ok(()) => self.retain(number, Ended { at, bytes }),
                Err(cause) => out.extend(self.remove(number, cause)),
            }
        }
        true
    }

    /// Removes expired entries at `now`, the oldest end first, at most `max`.
    pub(super) fn expire(&mut self, now: Instant, max: usize, out: &mut Vec<Arc<E>>) {
        while out.len() < max
            && let Some(&(at, number)) = self.by_end.first()
            && let Some(kept) = now.checked_duration_since(at) // `now` may be older than the end
            && kept >= self.limits.retention
        {
            out.extend(self.remove(number, Eviction::Expired));
        }
    }

    pub(super) fn take_out(&mut self, id: StreamId, cause: Eviction) -> Option<Arc<E>> {
        let &(_, number) = self.names.get(&id)?;
        self.remove(number, cause)
    }

    /// Same work and same answer for an unknown id and another owner's id: both maps are searched before the
    /// owner is compared.
    pub(super) fn find(&self, id: StreamId, caller: Caller) -> Result<Entry<E>, Missing> {
        match (self.names.get(&id), self.gone.get(id)) {
            (Some((owner, number)), _) if caller.may_see(*owner) => {
                Ok(self.slots[number].entry(*number))
            }
            (None, Some(trace)) if caller.may_see(trace.owner) => Err(Missing::Gone(trace.cause)),
            _ => Err(Missing::Unknown),
        }
    }

    /// The entries after `after` that `caller` may see, at most `limit`.
    pub(super) fn page(&self, caller: Caller, after: ListCursor, limit: usize) -> Page<E> {
        let from = Bound::Excluded(after.0);
        match caller {
            Caller::Admin => self.page_of(limit, self.slots.range((from, Bound::Unbounded))),
            Caller::Owner(owner) => {
                let range = (
                    Bound::Excluded((owner, after.0)),
                    Bound::Included((owner, u64::MAX)),
                );
                let own = self.by_owner.range(range);
                self.page_of(limit, own.map(|(_, number)| (number, &self.slots[number])))
            }
        }
    }

    fn page_of<'a>(
        &self,
        limit: usize,
        mut found: impl Iterator<Item = (&'a u64, &'a TableEntry<E>)>,
    ) -> Page<E>
    where
        E: 'a,
    {
        let mut last = None;
        let entries = found
            .by_ref()
            .take(limit)
            .inspect(|(number, _)| last = Some(ListCursor(**number)))
            .map(|(number, slot)| slot.entry(*number))
            .collect();
        let next = found.next().and(last);
        Page { entries, next }
    }

    /// Removes an ended entry for a stream that `owner` opens.
    pub(super) fn give_way(&mut self, owner: Owner) -> Option<Arc<E>> {
        let number = self.shares.gives_way(owner)?;
        self.remove(number, Eviction::Bytes)
    }

    /// Removes ends until one more of `owner`, of `bytes`, fits. The caller knows that the end would fit alone.
    ///
    /// # Errors
    /// The new end would displace owners within their share: the new end has to be removed, for this cause.
    fn make_room(
        &mut self,
        owner: Owner,
        bytes: usize,
        out: &mut Vec<Arc<E>>,
    ) -> Result<(), Eviction> {
        loop {
            let (room, cause) = if self.counts.retained >= self.limits.retained_max {
                (ReachedLimit::Count, Eviction::Count)
            } else if self.counts.retained_bytes > self.limits.retained_bytes_max - bytes {
                (ReachedLimit::Bytes, Eviction::Bytes)
            } else {
                return Ok(());
            };
            let number = self.shares.makes_room(owner, bytes, room).ok_or(cause)?;
            out.extend(self.remove(number, cause));
        }
    }

    fn retain(&mut self, number: u64, ended: Ended) {
        let Some(slot) = self.slots.get_mut(&number) else {
            return;
        };
        slot.ended = Some(ended);
        let end = (ended.at, number);
        self.shares.add(slot.owner, end, ended.bytes);
        self.by_end.insert((ended.at, number));
        self.counts.open -= 1;
        self.counts.retained += 1;
        self.counts.retained_bytes += ended.bytes;
    }

    /// The only way to remove an entry.
    fn remove(&mut self, number: u64, cause: Eviction) -> Option<Arc<E>> {
        let slot = self.slots.remove(&number)?;
        self.names.remove(&slot.id);
        self.by_owner.remove(&(slot.owner, number));
        match slot.ended {
            None => self.counts.open -= 1,
            Some(Ended { at, bytes }) => {
                self.by_end.remove(&(at, number));
                self.shares.remove(slot.owner, (at, number), bytes);
                self.counts.retained -= 1;
                self.counts.retained_bytes -= bytes;
            }
        }
        self.counts.evicted.add(cause);
        self.gone.push(slot.id, number, slot.owner, cause);
        Some(slot.payload)
    }
}

impl<E> TableEntry<E> {
    fn entry(&self, number: u64) -> Entry<E> {
        Entry {
            id: self.id,
            owner: self.owner,
            cursor: ListCursor(number),
            opened_at: self.opened_at,
            state: match self.ended {
                None => EntryState::Open,
                Some(Ended { at, .. }) => EntryState::Ended { at },
            },
            payload: Arc::clone(&self.payload),
        }
    }
}
