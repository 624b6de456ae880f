//! Streams by name: opened once, read by many, resumed after a lost connection.
//!
//! ```text
//! entry     everything it takes to read a stream again       governor  which reader returns credit
//! cursor    what a client was told, in `id:` lines           settings  bounds
//! run       the right to run; what is due at the end         keeper    runs a resumable stream without its client
//! wishes    what header fields ask for                      query     what a path's query asks for
//! opening   what it was opened with                      state     where it is
//! unread    ended, and its client does not read it          work      what the engine holds for one
//! describe  what the API tells of one                        http      the API
//! leash     ties a stream to its client              control     what a running one is told
//! orders    what it was told, kept                   measures    how it went, in figures
//! watch     a reader that comes to a stream, or back         transitions  what happened to one, as it happens
//! ```
//!
//! Every generation is registered when it is asked for, whichever route it came by and whether it is
//! streamed or whole. Who resumes one re-reads its logs from the first token, folds in silence up to
//! what it was told before, and goes on: there is no copy of text or frames.
//!
//! A plain stream lives with its client: it is cancelled when that leaves, and forgotten at its end. A
//! resumable one (`X-Stream-Resumable: 1`) is run by a [`keeper`], goes on without its client up to its
//! credit window and `detached_tokens`, and is kept for `retention` after its end. With the policy `detach` a
//! plain stream becomes a resumable one when its client takes nothing for too long.

pub(crate) mod control;
pub(crate) mod describe;
pub(crate) mod end_name;
pub(crate) mod entry;
pub(crate) mod feed;
pub(crate) mod governor;
pub(crate) mod keeper;
pub(crate) mod leash;
pub(crate) mod listener;
pub(crate) mod measures;
pub(crate) mod opening;
pub(crate) mod orders;
pub(crate) mod run;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod transitions;
pub(crate) mod unread;
pub(crate) mod work;

pub(crate) use control::Control;
pub(crate) use end_name::end_name;
pub(crate) use entry::{Entry, Started};
pub(crate) use feed::{FeedEvent, StreamFeed};
pub(crate) use generate::stream_source::{ChoiceLog, StartedGeneration};
pub(crate) use keeper::Keeper;
pub(crate) use leash::Leash;
pub(crate) use listener::Listener;
pub(crate) use measures::Taken;
pub(crate) use opening::Opening;

pub(crate) use run::{Run, cancelled};
pub use settings::StreamLimits;
pub(crate) use state::State;
pub(crate) use transitions::Changes;
pub(crate) use unread::{Answers, Unread};
pub(crate) use work::Work;

use crate::gateway::keys::{Caller, Scope};
use crate::wire::clock;
use generate::error::{ApiError, ErrorKind};
use generate::stream_meta::StreamMeta;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{ListCursor, Missing, Owner, Page, Registration, Registry, RegistryFull, StreamId};
use transitions::Transitions;

/// How often ended streams are looked through for those whose time is over, in parts of
/// `retention`; at most a second.
const SWEEPS_PER_RETENTION: u32 = 4;

/// All streams of this server.
pub(crate) struct Streams {
    registry: Registry<Entry>,
    unread: Arc<Unread>,
    retry_after: Duration,
    feed: StreamFeed,
}

impl Streams {
    /// None yet. What happens to them is told to `feed`.
    pub(crate) fn new(limits: StreamLimits, retry_after: Duration, feed: StreamFeed) -> Self {
        Self {
            registry: Registry::new(limits.of_registry()),
            unread: Arc::new(Unread::new(&limits)),
            retry_after,
            feed,
        }
    }

    /// Other bounds. No stream that is open is sent away; ended ones make room at once.
    pub(crate) fn rebound(&self, limits: StreamLimits) {
        self.registry.rebound(limits.of_registry());
        self.unread.rebound(&limits);
    }

    /// Those that have ended and were not read.
    pub(crate) fn unread(&self) -> &Arc<Unread> {
        &self.unread
    }

    /// The registry, for counts.
    pub(crate) fn registry(&self) -> &Registry<Entry> {
        &self.registry
    }

    /// Registers a stream that waits, under the id of its metadata.
    ///
    /// # Errors
    /// Too many are open.
    pub(crate) fn open(
        &self,
        meta: StreamMeta,
        opening: Opening,
        now: Instant,
    ) -> Result<Registration<Entry>, ApiError> {
        let (id, owner) = (meta.id, opening.owner);
        let transitions = Transitions::new(id, meta.prompts, self.feed.clone());
        let registration = self
            .registry
            .register(id, owner, now, Entry::new(meta, opening, transitions))
            .map_err(|full| self.full(full))?;
        registration.payload().transitions().opened(now);
        Ok(registration)
    }

    /// The stream with this name, if it is the caller's to see.
    ///
    /// # Errors
    /// 404 where there is none for this caller, 410 where there was one.
    pub(crate) fn find(&self, id: &str, caller: &Caller) -> Result<stream::Entry<Entry>, ApiError> {
        let id = id.parse().map_err(|_| unknown())?;
        self.registry.entry(id, asker(caller)).map_err(missing)
    }

    /// Some of the streams the caller may see, in order of opening.
    pub(crate) fn list(
        &self,
        caller: &Caller,
        after: Option<ListCursor>,
        limit: usize,
    ) -> Page<Entry> {
        self.registry.list(asker(caller), after, limit)
    }

    /// Takes an ended stream out.
    pub(crate) fn forget(&self, id: StreamId) {
        self.registry.forget(id);
    }

    /// Takes out one that has ended, so that its log's segments can be used for one that `owner` opens:
    /// who runs comes before who may come back. Its own goes first, then that of the owner that keeps
    /// most. False when there is none.
    pub(crate) fn make_room(&self, owner: Owner) -> bool {
        self.registry.give_way(owner).is_some()
    }

    /// Releases, for ever, what was kept long enough.
    pub(crate) async fn sweep(self: Arc<Self>) {
        loop {
            let period = self.registry.limits().retention / SWEEPS_PER_RETENTION;
            let period = period.clamp(Duration::from_millis(10), Duration::from_secs(1));
            tokio::time::sleep(period).await;
            self.registry.sweep(clock::now());
        }
    }

    fn full(&self, full: RegistryFull) -> ApiError {
        ApiError::capacity("overloaded", full.to_string(), self.retry_after)
    }
}

/// As whom a caller asks the registry.
fn asker(caller: &Caller) -> stream::Caller {
    if caller.scopes.has(Scope::Admin) {
        stream::Caller::Admin
    } else {
        stream::Caller::Owner(caller.owner)
    }
}

fn missing(missing: Missing) -> ApiError {
    match missing {
        Missing::Unknown => unknown(),
        Missing::Gone(_) => ApiError::caller(ErrorKind::Gone, "stream_gone", missing.to_string()),
    }
}

fn unknown() -> ApiError {
    ApiError::caller(
        ErrorKind::NotFound,
        "stream_not_found",
        Missing::Unknown.to_string(),
    )
}
