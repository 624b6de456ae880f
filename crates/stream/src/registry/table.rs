//! The data behind the registry's lock. Nothing here drops a payload or runs foreign code: removed payloads are
//! returned, to be dropped after the lock is released.

use super::share::{ReachedLimit, Shares};
use super::{Caller, Owner, RegistryCounts, RegistryLimits};
use crate::StreamId;
use crate::sync::Arc;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
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

/// A stream's entry.
#[derive(Debug)]
pub struct Entry<E> {
    /// Id of the stream.
    pub id: StreamId,
    /// Owner of the stream.
    pub owner: Owner,
    /// Position in lists: the next page after this entry.
    pub cursor: ListCursor,
    /// Time of the registration.
    pub opened_at: Instant,
    /// Open, or ended.
    pub state: EntryState,
    /// The payload of the registration.
    pub payload: Arc<E>,
}

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// The end was not reported yet.
    Open,
    /// The end was reported; retained until a limit of time, count or bytes is reached.
    Ended {
        /// Reported time of the end.
        at: Instant,
    },
}

/// A page of entries, in order of opening.
#[derive(Debug)]
pub struct Page<E> {
    /// At most [`LIST_PAGE_MAX`](super::LIST_PAGE_MAX).
    pub entries: Vec<Entry<E>>,
    /// Start of the next page, if there is one.
    pub next: Option<ListCursor>,
}

/// Position in a list: after the entry with this number. Stays valid when that entry is removed. Numbers count
/// the streams of all owners, in order of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListCursor(pub u64);

/// The entry does not exist for this caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// Never registered, or another owner's, or removed too long ago.
    Unknown,
    /// The entry was visible to the caller and was removed.
    Gone(Eviction),
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such stream",
            Self::Gone(Eviction::Expired) => "the stream ended too long ago to be read again",
            Self::Gone(Eviction::Count | Eviction::Bytes) => {
                "the stream ended and had to make room for others"
            }
            Self::Gone(Eviction::Forgotten) => "the stream was deleted",
            Self::Gone(Eviction::Dropped) => "the stream was given up before its end was recorded",
        })
    }
}

impl std::error::Error for Missing {}

/// Why an entry was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eviction {
    /// The stream ended [`retention`](super::RegistryLimits::retention) ago.
    Expired,
    /// More streams were retained than [`retained_max`](super::RegistryLimits::retained_max).
    Count,
    /// The retained streams were larger than [`retained_bytes_max`](super::RegistryLimits::retained_bytes_max).
    Bytes,
    /// Removed on request.
    Forgotten,
    /// The [`Registration`](super::Registration) was dropped without an end.
    Dropped,
}

impl Eviction {
    /// All causes, for metric labels.
    pub const ALL: [Self; 5] = [
        Self::Expired,
        Self::Count,
        Self::Bytes,
        Self::Forgotten,
        Self::Dropped,
    ];
}

/// The last removed entries: a ring buffer with an index.
pub(super) struct Gone {
    max: usize,
    index: HashMap<StreamId, Trace>, // as many as in `ring`, or fewer
    ring: VecDeque<(StreamId, u64)>, // oldest first; 0 ..= max
}

/// The trace that a removed entry leaves.
#[derive(Clone, Copy)]
pub(super) struct Trace {
    /// Number of the entry, in case the id was registered twice.
    number: u64,
    pub(super) owner: Owner,
    pub(super) cause: Eviction,
}

impl Gone {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            index: HashMap::new(),
            ring: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(super) fn get(&self, id: StreamId) -> Option<Trace> {
        self.index.get(&id).copied()
    }

    /// Remembers one more entry, and drops the oldest beyond the limit.
    pub(super) fn push(&mut self, id: StreamId, number: u64, owner: Owner, cause: Eviction) {
        if self.max == 0 {
            return;
        }
        if self.ring.len() == self.max {
            self.forget_oldest();
        }
        self.ring.push_back((id, number));
        let trace = Trace {
            number,
            owner,
            cause,
        };
        self.index.insert(id, trace);
    }

    fn forget_oldest(&mut self) {
        let Some((id, number)) = self.ring.pop_front() else {
            return;
        };
        if self.index.get(&id).is_some_and(|t| t.number == number) {
            self.index.remove(&id);
        }
    }
}
