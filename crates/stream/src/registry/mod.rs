//! Streams by name: who opened them, whether they have ended, and how long they are kept.
//!
//! # States
//!
//! An entry is *open* from its registration until its end is told, then *ended* and kept for
//! re-reading until its time, the room by count or the room by bytes runs out (the oldest end of the
//! owner that keeps most goes first: nobody is pushed out of its share by another), then *gone*: of the last [`gone_max`](RegistryLimits::gone_max) of these the id and the
//! owner are remembered, so that asking for one has an answer of its own. An entry can also leave
//! at once, from either state, because somebody says so or because its [`Registration`] is dropped.
//!
//! # Who tells the end
//!
//! The one who runs the stream: [`Registration::ended`] (or [`Registry::ended`], by id), with the
//! time and with the bytes the payload holds from then on (for logs [`Tap::bytes`]). The registry
//! does not ask its payloads: it would have to ask each of them again and again, and a time found
//! by asking is late. Who prefers to ask can turn the pages of [`Registry::list`] as
//! [`Caller::Admin`] and look at the payloads of what is open.
//!
//! # The lock
//!
//! All of it is behind one mutex. None of it is on a token's path: it is taken a few times in a
//! stream's life, and held for a few look-ups (for a page of a list, or [`SWEEP_BATCH`] entries of
//! a sweep, at the longest). While it is held no payload is dropped and no foreign code runs, so a
//! payload may use the registry in its own drop.
//!
//! [`Tap::bytes`]: crate::Tap::bytes

mod caller;
mod counts;
mod entry;
mod gone;
mod limits;
mod registration;
mod share;
mod table;

pub use caller::{Caller, Owner};
pub use counts::{Evictions, RegistryCounts};
pub use entry::{Entry, EntryState, ListCursor, Missing, Page};
pub use gone::Eviction;
pub use limits::{RegistryFull, RegistryLimits};
pub use registration::Registration;

use crate::StreamId;
use crate::sync::{Arc, Mutex};
use std::sync::PoisonError;
use std::time::Instant;
use table::{Refusal, Table};

/// Entries in one page of a list, at most.
pub const LIST_PAGE_MAX: usize = 100;

/// Entries a sweep takes out at a time: it lets others in between.
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

    /// Takes in a stream that opens now.
    ///
    /// # Panics
    /// If an entry has this id already. Ids are 128 random bits: it is a bug of who made them.
    pub fn register(
        &self,
        id: StreamId,
        owner: Owner,
        now: Instant,
        payload: E,
    ) -> Result<Registration<E>, RegistryFull> {
        let payload = Arc::new(payload);
        let outcome = self.with(|table| {
            let open_max = table.limits().open_max;
            (table.open(id, owner, now, &payload), open_max)
        });
        match outcome {
            (Ok(()), _) => Ok(Registration::new(self.clone(), id, payload)),
            (Err(Refusal::Full), open_max) => Err(RegistryFull { open_max }),
            (Err(Refusal::IdTaken), _) => panic!("{id:?} was registered twice"),
        }
    }

    /// The stream has ended at `now`; from here on it has `bytes` that count against
    /// [`retained_bytes_max`](RegistryLimits::retained_bytes_max). Older ends make room for it,
    /// of the owner that keeps most; where that is its own and it has no other, it goes itself. If
    /// it is larger than all there is, it goes at once and nobody else does. False (and nothing
    /// happens) when it is not open, for instance because its end was told before.
    pub fn ended(&self, id: StreamId, now: Instant, bytes: usize) -> bool {
        let mut out = Vec::new();
        self.with(|table| table.end(id, now, bytes, &mut out))
    }

    /// Releases what ended [`retention`](RegistryLimits::retention) before `now` or earlier. Says
    /// how many. Until it is called they can still be looked up.
    pub fn sweep(&self, now: Instant) -> usize {
        let mut released = 0;
        loop {
            // Nothing is allocated where nothing is due.
            let mut out = Vec::new();
            self.with(|table| table.expire(now, SWEEP_BATCH, &mut out));
            released += out.len();
            if out.len() < SWEEP_BATCH {
                return released;
            }
        }
    }

    /// Takes an ended entry out so that what it holds can be used for a stream that `owner` opens: the
    /// oldest end of its own, else of the owner that keeps most bytes. `None`: nothing is kept.
    pub fn give_way(&self, owner: Owner) -> Option<Arc<E>> {
        self.with(|table| table.give_way(owner))
    }

    /// Takes an entry out, open or ended, and hands it over.
    pub fn forget(&self, id: StreamId) -> Option<Arc<E>> {
        self.take_out(id, Eviction::Forgotten)
    }

    /// The stream with this name, if it is `caller`'s to see. Another owner's is as unknown as one
    /// that never was: the answer is the same, and so is the work done for it.
    pub fn lookup(&self, id: StreamId, caller: Caller) -> Result<Arc<E>, Missing> {
        self.entry(id, caller).map(|entry| entry.payload)
    }

    /// The same, with all that is known of it.
    pub fn entry(&self, id: StreamId, caller: Caller) -> Result<Entry<E>, Missing> {
        self.with(|table| table.find(id, caller))
    }

    /// The streams that are `caller`'s to see, open and ended, in order of opening: at most `limit`
    /// of them (1 to [`LIST_PAGE_MAX`]), from the first or from where a page before this one ended.
    /// Who turns all pages sees each entry that was there all the while, once.
    pub fn list(&self, caller: Caller, after: Option<ListCursor>, limit: usize) -> Page<E> {
        let after = after.unwrap_or(ListCursor(0));
        let limit = limit.clamp(1, LIST_PAGE_MAX);
        self.with(|table| table.page(caller, after, limit))
    }

    /// Other bounds. Nobody who is open is sent away; ended streams that are now too many, or too
    /// large together, leave at once. `gone_max` stays as it was.
    pub fn rebound(&self, limits: RegistryLimits) {
        let mut out = Vec::new();
        self.with(|table| table.rebound(limits, &mut out));
    }

    /// Counts as of now.
    pub fn counts(&self) -> RegistryCounts {
        self.with(|table| table.counts())
    }

    /// The bounds.
    pub fn limits(&self) -> RegistryLimits {
        self.with(|table| table.limits())
    }

    fn take_out(&self, id: StreamId, cause: Eviction) -> Option<Arc<E>> {
        self.with(|table| table.take_out(id, cause))
    }

    /// The only place where the lock is held. What `work` takes out of the table must leave it
    /// alive.
    fn with<R>(&self, work: impl FnOnce(&mut Table<E>) -> R) -> R {
        // Nothing panics half-way through a change of the table, so a poisoned one is sound.
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
