//! Streams by name: opened once, read by many subscribers, resumed after a lost connection.
//!
//! Every generation is registered when the request is parsed, for all routes and for streamed and collected
//! responses. A subscriber that resumes a stream reads the logs from the first token, decodes without emitting up to
//! the subscriber's position, and continues from there: neither text nor frames are stored.
//!
//! A plain stream is canceled when the client disconnects, and removed at the end. A resumable stream
//! (`X-Stream-Resumable: 1`) continues without a client, up to the credit window and `detached_tokens`, and is kept for
//! `retention` after the end. With the policy `detach` a plain stream becomes resumable when the client takes nothing
//! for too long.
//!
//! # The collaborators of a stream record
//!
//! The registry owns the [`StreamRecord`]: metadata, terms, logs and state. These values act on the record, each in
//! the drop of the value:
//!
//! | value | held by | effect of the drop |
//! |---|---|---|
//! | [`StreamRun`] | the generation of a plain stream; the detached driver of others | rejects a stream that never started, cancels a running stream, marks the output as drained, and removes the stream from the registry, unless `StreamRun::finish_stream` has retained the stream |
//! | `DetachedDriver` | a task for each resumable or detachable stream | drops the driver's `StreamRun`. The task reads every log, so that no log is abandoned, and cancels the stream if no client returns in time |
//! | `CancelOnDrop` | the generation of a detachable stream's client | cancels the stream, unless the client's credit was revoked before |
//! | [`Subscriber`] | every reader, from before the first read until the reader leaves | the credit owner gives the credit up, and the stream gets `detached_tokens` |
//! | `PermitHolder` | the engine, one sequence permit for each request | the admission permit is released with the last sequence permit; a stream without a driver is added to `UndeliveredStreams` |
//!
//! These act without a drop:
//!
//! - `CreditOwner`, in the record: the subscriber whose reading returns credit. There is no owner after the owner
//!   has left; the next subscriber that reads becomes the owner.
//! - `UndeliveredStreams`: ended streams that the client has not read to the end, within the bounds for retained
//!   streams. The one that ended first is cut when the bounds are exceeded.
//! - `ConnectionHandle`, in the record: closes the connection of such a stream. [`ResponseStream`] travels with the
//!   response and connects the two.
//! - `Attendance`, in the record: the readers that are present, and whether the end was read. An [`EndReceipt`] is the end on the way to one of them.
//! - `ControlHistory`, in the record: the last control updates.
//! - `TextEditions`, in the record: where the text may differ from what an earlier owner told.
//! - `Transitions`, shared with the engine's followers: the state changes, published to the [`StreamFeed`].

pub(crate) mod attendance;
pub(crate) mod cancel_on_drop;
pub mod control;
pub(crate) mod control_history;
pub(crate) mod credit_owner;
pub mod describe;
pub(crate) mod detached_driver;
pub mod diverged_stream;
pub(crate) mod end_name;
pub(crate) mod feed;
pub mod moved_stream;
pub(crate) mod permit_holder;
pub mod reached_positions;
pub(crate) mod recovery_state;
pub(crate) mod restored_record;
pub(crate) mod settings;
pub(crate) mod steering;
pub mod step_offsets;
pub(crate) mod stream_credit;
pub(crate) mod stream_metrics;
pub(crate) mod stream_orders;
pub mod stream_record;
pub(crate) mod stream_records;
pub(crate) mod stream_run;
pub mod stream_state;
pub(crate) mod stream_terms;
pub mod subscriber;
pub mod text_editions;
pub(crate) mod transitions;
pub(crate) mod undelivered;
pub mod unread_list;

pub use attendance::EndReceipt;
pub(crate) use cancel_on_drop::CancelOnDrop;
pub(crate) use detached_driver::DetachedDriver;
pub(crate) use end_name::end_name;
pub use end_name::end_words;
pub use feed::StreamFeed;
pub use feed::{FeedEvent, FeedView};
pub use generate::stream_source::ChoiceLog;
pub use generate::stream_source::StartedGeneration;
pub(crate) use permit_holder::PermitHolder;
pub(crate) use recovery_state::RecoveryNote;
pub use settings::StreamLimits;
pub(crate) use stream_metrics::SocketMetrics;
pub use stream_record::Started;
pub use stream_record::StreamRecord;
pub use stream_run::StreamRun;
pub(crate) use stream_run::cancelled_error;
pub use stream_state::StreamState;
pub use stream_terms::StreamTerms;
pub use subscriber::Subscriber;
pub(crate) use transitions::Changes;
pub use undelivered::ResponseStream;
pub(crate) use undelivered::UndeliveredStreams;

use crate::durability::{DurableStream, ForgottenRecords, unix_us};
use crate::keys::{Caller, Scope};
use generate::error::{ApiError, ErrorKind};
use generate::stream_meta::StreamMeta;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{ListCursor, Missing, Owner, Page, Registration, Registry, RegistryFull, StreamId};
use transitions::Transitions;
use wire::clock;

/// Searches for expired streams per `retention`; at most one a second.
const SWEEPS_PER_RETENTION: u32 = 4;

/// All streams of this server.
pub struct StreamRegistry {
    registry: Registry<StreamRecord>,
    undelivered: Arc<UndeliveredStreams>,
    retry_after: Duration,
    feed: StreamFeed,
}

impl StreamRegistry {
    /// No streams. State changes are published to `feed`.
    pub fn new(limits: StreamLimits, retry_after: Duration, feed: StreamFeed) -> Self {
        Self {
            registry: Registry::new(limits.of_registry()),
            undelivered: Arc::new(UndeliveredStreams::new(&limits)),
            retry_after,
            feed,
        }
    }

    /// Replaces the limits. Open streams stay; ended streams above the limits are removed at once.
    pub(crate) fn set_limits(&self, limits: StreamLimits) {
        self.registry.rebound(limits.of_registry());
        self.undelivered.set_limits(&limits);
    }

    /// Ended streams that were not read to the end.
    pub(crate) fn undelivered_streams(&self) -> &Arc<UndeliveredStreams> {
        &self.undelivered
    }

    /// The feed of state changes.
    pub(crate) fn feed(&self) -> &StreamFeed {
        &self.feed
    }

    /// The registry, for counts.
    pub fn registry(&self) -> &Registry<StreamRecord> {
        &self.registry
    }

    /// Registers a queued stream under the id in the stream's metadata; with the records of a durable stream, whose
    /// retention ends with the record's.
    ///
    /// # Errors
    /// The registry is full.
    pub fn open(
        &self,
        meta: StreamMeta,
        terms: StreamTerms,
        durable: Option<DurableStream>,
        now: Instant,
    ) -> Result<Registration<StreamRecord>, ApiError> {
        let (id, owner, place) = (meta.id, terms.owner, unix_us(meta.arrived));
        let transitions = Transitions::new((id, owner), meta.prompts, self.feed.clone());
        let record = StreamRecord::new(meta, terms, durable, transitions);
        let registration = self
            .registry
            .register_from(id, owner, (now, place), record)
            .map_err(|full| self.full_error(full))?;
        registration.payload().transitions().publish_opened(now);
        Ok(registration)
    }

    /// Registers the waiting stream of an earlier process, also beyond the limit of open streams. `None` if this process
    /// has a stream of the same id.
    pub(crate) fn restore(
        &self,
        meta: StreamMeta,
        terms: StreamTerms,
        durable: Option<DurableStream>,
        (note, opened_unix_us): (RecoveryNote, u64),
        now: Instant,
    ) -> Option<Registration<StreamRecord>> {
        let (id, owner, opened_at) = (meta.id, terms.owner, meta.arrived);
        let transitions = Transitions::new((id, owner), meta.prompts, self.feed.clone());
        let record = StreamRecord::new(meta, terms, durable, transitions);
        record.recovery_state().set_note(note);
        let registration = self
            .registry
            .restore(id, owner, (opened_at, opened_unix_us), record)?;
        if !note.is_undecided {
            let transitions = registration.payload().transitions();
            transitions.publish_restored(note.is_claimed, now);
        }
        Some(registration)
    }

    /// The stream with this id, if visible to the caller.
    ///
    /// # Errors
    /// 404: the caller has no such stream. 410: the stream was removed.
    pub fn find_stream(
        &self,
        id: &str,
        caller: &Caller,
    ) -> Result<stream::Entry<StreamRecord>, ApiError> {
        let id = id.parse().map_err(|_| unknown_stream())?;
        self.registry
            .entry(id, registry_caller(caller))
            .map_err(missing_error)
    }

    /// Some of the streams the caller may see, in order of opening.
    pub fn list_streams(
        &self,
        caller: &Caller,
        after: Option<ListCursor>,
        limit: usize,
    ) -> Page<StreamRecord> {
        self.registry.list(registry_caller(caller), after, limit)
    }

    /// Takes an ended stream out, and its records out of the journal.
    pub fn forget_stream(&self, record: &StreamRecord) -> ForgottenRecords {
        let forgotten = record.forget_records();
        self.remove_stream(record.id());
        forgotten
    }

    /// Takes an ended stream out. The records end with the last reader.
    pub fn remove_stream(&self, id: StreamId) {
        self.registry.forget(id);
    }

    /// Removes an ended stream, so that a new stream of `owner` can use the log's segments: running streams precede
    /// retained ones. Streams of `owner` go first, then streams of the owner with the most. False: there is no ended
    /// stream.
    pub fn make_room(&self, owner: Owner) -> bool {
        self.registry.give_way(owner).is_some()
    }

    /// Frees segments of ended streams for a log that `owner` opens; false when there are none to free.
    pub(crate) fn free_segments(&self, owner: Owner) -> bool {
        let freed = self.make_room(owner);
        if !freed {
            // An ended stream that is not read makes room for the next request.
            self.undelivered_streams().cut_oldest();
        }
        freed
    }

    /// Removes expired streams, forever.
    pub async fn sweep_expired(self: Arc<Self>) {
        loop {
            let period = self.registry.limits().retention / SWEEPS_PER_RETENTION;
            let period = period.clamp(Duration::from_millis(10), Duration::from_secs(1));
            tokio::time::sleep(period).await;
            self.registry.sweep(clock::now());
        }
    }

    fn full_error(&self, full: RegistryFull) -> ApiError {
        ApiError::capacity("overloaded", full.to_string(), self.retry_after)
    }
}

/// The registry's view of a caller.
pub fn registry_caller(caller: &Caller) -> stream::Caller {
    if caller.scopes.has(Scope::Admin) {
        stream::Caller::Admin
    } else {
        stream::Caller::Owner(caller.owner)
    }
}

fn missing_error(missing: Missing) -> ApiError {
    match missing {
        Missing::Unknown => unknown_stream(),
        Missing::Gone(_) => ApiError::caller(ErrorKind::Gone, "stream_gone", missing.to_string()),
    }
}

fn unknown_stream() -> ApiError {
    ApiError::caller(
        ErrorKind::NotFound,
        "stream_not_found",
        Missing::Unknown.to_string(),
    )
}
