//! Streams by id: owner, state, retention.
//!
//! # States
//!
//! An entry is *open* from the registration until the stream's end is reported, then *ended* and retained until
//! a limit of time, count or bytes is reached (the oldest end of the owner that retains most goes first, so
//! other owners keep their shares), then *gone*: id and owner of the last
//! [`gone_max`](RegistryLimits::gone_max) entries are remembered, so that a request for one gets a distinct
//! answer. An entry can also be removed at once, from either state, on request or by the drop of the
//! [`Registration`].
//!
//! # Reporting the end
//!
//! The owner of the generation calls [`Registration::ended`] (or [`Registry::ended`], by id), with the time and
//! with the bytes of the payload from then on (for logs [`Tap::bytes`]). The registry does not poll payloads:
//! polling would be repeated work, and a time found by polling is late. A caller that prefers to poll can page
//! through [`Registry::list`] as [`Caller::Admin`] and look at the payloads of open entries.
//!
//! # Lock
//!
//! One mutex guards everything. The mutex is not on the token path: a stream takes the lock a few times in
//! all, for a few look-ups (for a page of a list, or [`SWEEP_BATCH`] entries of a sweep, at the longest).
//! While the lock is held no payload is dropped and no foreign code runs, so the drop of a payload may use the
//! registry.
//!
//! [`Tap::bytes`]: crate::Tap::bytes

mod share;
mod table;

pub use table::{Entry, EntryState, Eviction, ListCursor, Missing, Page};

use crate::StreamId;
use crate::sync::{Arc, Mutex};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use table::{RegisterError, Table};

/// Most entries of a list page.
pub const LIST_PAGE_MAX: usize = 100;

/// Entries removed per lock acquisition of a sweep, so that other threads get the lock in between.
pub const SWEEP_BATCH: usize = 64;

/// Streams by name. Cloning gives another handle to the same registry.
///
/// ```
/// use std::time::{Duration, Instant};
/// use stream::{Caller, Eviction, Missing, Owner, Registry, RegistryLimits, StreamId};
///
/// let registry = Registry::new(RegistryLimits {
///     open_max: 50,
///     retained_max: 200,
///     retained_bytes_max: 64 << 20,
///     retention: Duration::from_secs(300),
///     gone_max: 1000,
/// });
/// # #[allow(clippy::disallowed_methods)]
/// let now = Instant::now();
/// let (id, mine) = (StreamId::from_random([7; 16]), Owner(1));
/// let registration = registry.register(id, mine, now, "logs, and how to fold them")?;
///
/// assert!(registry.lookup(id, Caller::Owner(mine)).is_ok());
/// let other = Caller::Owner(Owner(2));
/// assert_eq!(registry.lookup(id, other), Err(Missing::Unknown));
///
/// registration.ended(now, 4096);
/// registry.sweep(now + Duration::from_secs(300));
/// let gone = Missing::Gone(Eviction::Expired);
/// assert_eq!(registry.lookup(id, Caller::Owner(mine)), Err(gone));
/// assert_eq!(registry.lookup(id, other), Err(Missing::Unknown));
/// # Ok::<(), stream::RegistryFull>(())
/// ```
pub struct Registry<E> {
    table: Arc<Mutex<Table<E>>>,
}

impl<E> Registry<E> {
    /// An empty registry with these bounds.
    pub fn new(limits: RegistryLimits) -> Self {
        Self {
            table: Arc::new(Mutex::new(Table::new(limits))),
        }
    }

    /// Registers a stream that opens now.
    ///
    /// # Panics
    /// If an entry has this id already. Ids are 128 random bits, so a repetition is a bug of the caller.
    pub fn register(
        &self,
        id: StreamId,
        owner: Owner,
        now: Instant,
        payload: E,
    ) -> Result<Registration<E>, RegistryFull> {
        self.register_from(id, owner, (now, 0), payload)
    }

    /// As [`Self::register`]; the entry's number is at least the given one. With numbers that follow the wall clock, a
    /// [`ListCursor`] is valid in the next process, too.
    ///
    /// # Panics
    /// As [`Self::register`].
    pub fn register_from(
        &self,
        id: StreamId,
        owner: Owner,
        opened: (Instant, u64),
        payload: E,
    ) -> Result<Registration<E>, RegistryFull> {
        let payload = Arc::new(payload);
        let outcome = self.with(|table| {
            let open_max = table.limits().open_max;
            (table.open(id, owner, opened, &payload), open_max)
        });
        match outcome {
            (Ok(()), _) => Ok(Registration::new(self.clone(), id, payload)),
            (Err(RegisterError::Full), open_max) => Err(RegistryFull { open_max }),
            (Err(RegisterError::IdTaken), _) => panic!("{id:?} was registered twice"),
        }
    }

    /// Registers a stream of an earlier process, also beyond the limit of open streams: that process had accepted the
    /// stream. The number as for [`Self::register_from`]. `None` if an entry has this id already.
    pub fn restore(
        &self,
        id: StreamId,
        owner: Owner,
        opened: (Instant, u64),
        payload: E,
    ) -> Option<Registration<E>> {
        let payload = Arc::new(payload);
        self.with(|table| table.restore(id, owner, opened, &payload))
            .then(|| Registration::new(self.clone(), id, payload))
    }

    /// Reports that the stream has ended at `now`; from now on `bytes` count against
    /// [`retained_bytes_max`](RegistryLimits::retained_bytes_max). Older ends of the owner that retains most
    /// make room; if that owner has no other end than this stream's, this stream is removed. A stream that is
    /// larger than the limit is removed at once, and no other. Returns false, without an effect, if the stream
    /// is not open, for instance because the end was reported before.
    pub fn ended(&self, id: StreamId, now: Instant, bytes: usize) -> bool {
        let mut out = Vec::new();
        self.with(|table| table.end(id, now, bytes, &mut out))
    }

    /// Removes streams that ended [`retention`](RegistryLimits::retention) before `now` or earlier, and returns
    /// their number. Until this call they can be looked up.
    pub fn sweep(&self, now: Instant) -> usize {
        let mut released = 0;
        loop {
            // No allocation if nothing is due.
            let mut out = Vec::new();
            self.with(|table| table.expire(now, SWEEP_BATCH, &mut out));
            released += out.len();
            if out.len() < SWEEP_BATCH {
                return released;
            }
        }
    }

    /// Removes an ended entry to free memory for a stream that `owner` opens: the oldest end of the same owner,
    /// else of the owner that retains most bytes. `None` if nothing is retained.
    pub fn give_way(&self, owner: Owner) -> Option<Arc<E>> {
        self.with(|table| table.give_way(owner))
    }

    /// Removes an entry, open or ended, and returns the payload.
    pub fn forget(&self, id: StreamId) -> Option<Arc<E>> {
        self.take_out(id, Eviction::Forgotten)
    }

    /// The payload of a stream that `caller` may see. Another owner's stream and an unknown id give the same
    /// answer after the same work.
    pub fn lookup(&self, id: StreamId, caller: Caller) -> Result<Arc<E>, Missing> {
        self.entry(id, caller).map(|entry| entry.payload)
    }

    /// The entry of a stream, as [`Registry::lookup`].
    pub fn entry(&self, id: StreamId, caller: Caller) -> Result<Entry<E>, Missing> {
        self.with(|table| table.find(id, caller))
    }

    /// The streams that `caller` may see, open and ended, in order of opening: at most `limit` (1 to
    /// [`LIST_PAGE_MAX`]), from the first or from the end of an earlier page. Paging returns each entry that
    /// exists all the while exactly once.
    pub fn list(&self, caller: Caller, after: Option<ListCursor>, limit: usize) -> Page<E> {
        let after = after.unwrap_or(ListCursor(0));
        let limit = limit.clamp(1, LIST_PAGE_MAX);
        self.with(|table| table.page(caller, after, limit))
    }

    /// Changes the bounds. Open streams stay; ended streams beyond the new bounds are removed at once.
    /// `gone_max` does not change.
    pub fn rebound(&self, limits: RegistryLimits) {
        let mut out = Vec::new();
        self.with(|table| table.rebound(limits, &mut out));
    }

    /// Current counts.
    pub fn counts(&self) -> RegistryCounts {
        self.with(|table| table.counts())
    }

    /// Current bounds.
    pub fn limits(&self) -> RegistryLimits {
        self.with(|table| table.limits())
    }

    fn take_out(&self, id: StreamId, cause: Eviction) -> Option<Arc<E>> {
        self.with(|table| table.take_out(id, cause))
    }

    /// The only place that holds the lock. `work` must return the payloads that it removes from the table: a
    /// payload is dropped without the lock.
    fn with<R>(&self, work: impl FnOnce(&mut Table<E>) -> R) -> R {
        // No change of the table panics half-way, so a poisoned table is consistent.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut table)
    }
}

impl<E> Clone for Registry<E> {
    fn clone(&self) -> Self {
        Self {
            table: Arc::clone(&self.table),
        }
    }
}

/// Owner of a stream: an opaque number of the API key that opened the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// Caller of a registry operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Sees the streams of this owner; streams of other owners do not exist for this caller.
    Owner(Owner),
    /// Sees all streams.
    Admin,
}

impl Caller {
    /// Whether this caller may see a stream of `owner`.
    pub fn may_see(self, owner: Owner) -> bool {
        match self {
            Self::Owner(own) => own == owner,
            Self::Admin => true,
        }
    }
}

/// Bounds of a registry. An entry takes at most 400 bytes without the payload, a remembered id at most 160;
/// tables do not shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryLimits {
    /// Most open streams.
    pub open_max: usize,
    /// Most retained streams.
    pub retained_max: usize,
    /// Most bytes of retained streams, as reported at their ends.
    pub retained_bytes_max: usize,
    /// Retention time of ended streams.
    pub retention: Duration,
    /// Remembered ids of removed entries, so that a request for one can be answered with "gone".
    pub gone_max: usize,
}

/// The maximum number of streams is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryFull {
    /// The limit of open streams.
    pub open_max: usize,
}

impl std::fmt::Display for RegistryFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} streams are open, as many as may be", self.open_max)
    }
}

impl std::error::Error for RegistryFull {}

/// A consistent snapshot of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistryCounts {
    /// Streams open now.
    pub open: usize,
    /// Ended streams that are retained.
    pub retained: usize,
    /// Bytes of the retained streams.
    pub retained_bytes: usize,
    /// Ids of removed entries that are remembered.
    pub gone: usize,
    /// Streams ever registered.
    pub registered: u64,
    /// Registrations ever rejected.
    pub refused: u64,
    /// Entries ever removed, by cause.
    pub evicted: Evictions,
}

/// Entries ever removed, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// [`Eviction::Expired`].
    pub expired: u64,
    /// [`Eviction::Count`].
    pub count: u64,
    /// [`Eviction::Bytes`].
    pub bytes: u64,
    /// [`Eviction::Forgotten`].
    pub forgotten: u64,
    /// [`Eviction::Dropped`].
    pub dropped: u64,
}

impl Evictions {
    /// The count of a cause.
    pub fn of(&self, cause: Eviction) -> u64 {
        match cause {
            Eviction::Expired => self.expired,
            Eviction::Count => self.count,
            Eviction::Bytes => self.bytes,
            Eviction::Forgotten => self.forgotten,
            Eviction::Dropped => self.dropped,
        }
    }

    fn add(&mut self, cause: Eviction) {
        let count = match cause {
            Eviction::Expired => &mut self.expired,
            Eviction::Count => &mut self.count,
            Eviction::Bytes => &mut self.bytes,
            Eviction::Forgotten => &mut self.forgotten,
            Eviction::Dropped => &mut self.dropped,
        };
        *count += 1;
    }
}

/// The registration of an open stream, held by the owner of the generation, which reports the
/// [end](Self::ended). A drop without an end removes the entry, so that a stream that could not start, or whose
/// owner panicked, does not stay open forever.
///
/// Holds the registry and the payload, so do not store it inside that payload.
#[must_use = "dropping a registration takes the entry out"]
pub struct Registration<E> {
    registry: Registry<E>,
    id: StreamId,
    payload: Arc<E>,
    /// Whether this value has to report the end.
    mine: bool,
}

impl<E> Registration<E> {
    fn new(registry: Registry<E>, id: StreamId, payload: Arc<E>) -> Self {
        Self {
            registry,
            id,
            payload,
            mine: true,
        }
    }

    /// Id of the stream.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The registered payload.
    pub fn payload(&self) -> &Arc<E> {
        &self.payload
    }

    /// Reports the end, as [`Registry::ended`].
    pub fn ended(mut self, now: Instant, bytes: usize) -> bool {
        self.mine = false;
        self.registry.ended(self.id, now, bytes)
    }

    /// Leaves the entry open without this value; the end is reported through [`Registry::ended`] or
    /// [`Registry::forget`].
    pub fn keep(mut self) -> Arc<E> {
        self.mine = false;
        Arc::clone(&self.payload)
    }
}

impl<E> Drop for Registration<E> {
    fn drop(&mut self) {
        if self.mine {
            self.registry.take_out(self.id, Eviction::Dropped);
        }
    }
}
