//! All streams of this server, by id.

use super::change_of_owner::StreamOrigin;
use super::control::SteeringState;
use super::durable_stream::{DurableStream, ForgottenRecords};
use super::feed::StreamFeed;
use super::stream_logs::NO_TOKEN;
use super::stream_record::{StreamRecord, StreamTerms};
use super::transitions::Transitions;
use super::undelivered::{StreamLimits, UndeliveredStreams};
use crate::keys::{Caller, Scope};
use crate::records::{ControlState, unix_us};
use futures_util::StreamExt;
use generate::error::{ApiError, ErrorKind};
use generate::stream_source::StreamMeta;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use stream::{
    Entry, EntryState, LIST_PAGE_MAX, ListCursor, Missing, Owner, Page, Read, Registration,
    Registry, StreamId,
};
use tokio::sync::watch;
use wire::clock;

/// Searches for expired streams per `retention`; at most one a second.
const SWEEPS_PER_RETENTION: u32 = 4;

/// All streams of this server.
pub struct StreamRegistry {
    registry: Registry<StreamRecord>,
    /// Ended streams that were not read to the end.
    pub(crate) undelivered: Arc<UndeliveredStreams>,
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
        let origin = (StreamOrigin::Request, 0);
        let record = StreamRecord::new(meta, terms, durable, origin, transitions);
        let registration = self
            .registry
            .register_from(id, owner, (now, place), record)
            .map_err(|full| ApiError::capacity("overloaded", full.to_string(), self.retry_after))?;
        registration.payload().transitions.publish_opened(now);
        Ok(registration)
    }

    /// Registers the waiting stream of another process, also beyond the limit of open streams. `None` if this process has
    /// a stream of the same id.
    pub(crate) fn restore(
        &self,
        meta: StreamMeta,
        terms: StreamTerms,
        durable: DurableStream,
        origin: (StreamOrigin, u64),
        opened_unix_us: u64,
    ) -> Option<Registration<StreamRecord>> {
        let (id, owner, opened_at) = (meta.id, terms.owner, meta.arrived);
        let transitions = Transitions::new((id, owner), meta.prompts, self.feed.clone());
        let record = StreamRecord::new(meta, terms, Some(durable), origin, transitions);
        self.registry
            .restore(id, owner, (opened_at, opened_unix_us), record)
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
            self.undelivered.cut_oldest();
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

/// A page of unread streams.
pub struct UnreadPage {
    /// The streams with their positions in this list, which ascend.
    pub streams: Vec<(ListCursor, Entry<StreamRecord>)>,
    /// Whether there are more streams after these.
    pub has_more: bool,
}

impl StreamRegistry {
    /// The owner's unread streams after a position: at most `limit`, and those that ended in the same microsecond as the
    /// last one. A position is the time of the end, so it is valid in the next process, too.
    pub fn list_unread(&self, owner: Owner, after: ListCursor, limit: usize) -> UnreadPage {
        let mut unread = Vec::new();
        let mut opened_after = None;
        loop {
            let caller = stream::Caller::Owner(owner);
            let page = self.registry().list(caller, opened_after, LIST_PAGE_MAX);
            let entries = page.entries.into_iter().filter(|entry| {
                matches!(entry.state, EntryState::Ended { .. }) && entry.payload.is_unread()
            });
            let ends = entries.map(|entry| (ListCursor(entry.payload.ended_unix_us()), entry));
            unread.extend(ends.filter(|(ended, _)| *ended > after));
            if page.next.is_none() {
                break;
            }
            opened_after = page.next;
        }
        unread.sort_by_key(|(ended, entry)| (*ended, entry.cursor));
        let last = unread.get(limit.saturating_sub(1));
        let last = last.map_or(ListCursor(u64::MAX), |(ended, _)| *ended);
        let count = unread.partition_point(|(ended, _)| *ended <= last);
        let has_more = count < unread.len();
        unread.truncate(count);
        UnreadPage {
            streams: unread,
            has_more,
        }
    }
}

/// Longest wait of a request. A journal of this project's size is read in a fraction of that time.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A barrier for requests that name a stream: until the journal is read, this process does not know whether the stream
/// exists. Open unless closed.
#[derive(Debug)]
pub struct RegistrationBarrier {
    is_open: watch::Sender<bool>,
}

impl Default for RegistrationBarrier {
    fn default() -> Self {
        Self {
            is_open: watch::Sender::new(true),
        }
    }
}

impl RegistrationBarrier {
    /// A journal is about to be read.
    pub fn close(&self) {
        self.is_open.send_replace(false);
    }

    /// Recovered streams are registered.
    pub fn open(&self) {
        self.is_open.send_replace(true);
    }

    /// Waits until the streams are registered. False: the wait took too long.
    pub async fn wait(&self) -> bool {
        if *self.is_open.borrow() {
            return true;
        }
        let mut is_open = self.is_open.subscribe();
        let opened = is_open.wait_for(|is_open| *is_open);
        tokio::time::timeout(WAIT_MAX, opened).await.is_ok()
    }
}

/// Tokens that a wait for the end skips at a time.
const TOKENS_PER_READ: usize = 256;

/// How long a confirmation of a cancellation waits for the end: some steps of a slow model.
const CANCEL_WAIT_MAX: Duration = Duration::from_secs(5);

impl StreamRecord {
    /// Control updates that all requests have applied in this process.
    pub(crate) fn updates_applied(&self) -> u64 {
        let requests = self.started().into_iter().flat_map(|s| &s.requests);
        let applied = requests.map(|request| request.progress.updates_applied());
        applied.min().unwrap_or(0)
    }

    /// Records the control updates of a durable stream.
    pub(crate) fn record_control(&self, steering: &SteeringState) {
        if let Some(durable) = self.durable() {
            let now = clock::now();
            let (count, history) = self.control_history.timed_updates(now, unix_us(now));
            durable.steer(ControlState {
                count,
                history,
                ..steering.state.clone()
            });
        }
    }

    /// Whether the stream continues after a restart of the process.
    pub fn is_durable(&self) -> bool {
        self.durable().is_some_and(DurableStream::is_durable)
    }

    /// Whether the stream is recorded, so that it continues after a restart of the process once the records are written.
    pub fn is_recorded(&self) -> bool {
        self.durable().is_some_and(DurableStream::is_recorded)
    }

    /// Waits until everything that was sent to a client by now is in the journal, at most a second. Returns whether the
    /// stream is durable.
    pub async fn wait_written(&self) -> bool {
        match self.durable() {
            Some(durable) => durable.written().await,
            None => false,
        }
    }

    /// Cancels the stream. Where there is a journal, waits until the end is recorded: a restart must not continue a stream
    /// whose cancellation was confirmed. At most some seconds; the stream ends in any case.
    pub async fn cancel_written(&self) {
        self.cancel();
        if self.durable().is_none() {
            return;
        }
        let ended = async {
            self.wait_for_end().await;
            self.wait_written().await;
        };
        let _ = tokio::time::timeout(CANCEL_WAIT_MAX, ended).await;
    }

    /// Waits for the end of all choices, without reading the logs.
    pub async fn wait_for_end(&self) {
        let Ok(started) = self.wait_for_outcome().await else {
            return;
        };
        let mut changes = self.transitions.follow_changes();
        while let Some(change) = changes.next().await {
            if matches!(change, generate::stream_source::Change::Ended { .. }) {
                break;
            }
        }
        // State changes are published before the logs are closed.
        for log in &started.choices {
            let Ok(mut reader) = log.tokens.attach(log.tokens.len()) else {
                continue;
            };
            let mut buffer = [NO_TOKEN; TOKENS_PER_READ];
            poll_fn(|cx| {
                loop {
                    match reader.poll_read(cx, &mut buffer) {
                        Poll::Ready(Read::Ended(_)) => return Poll::Ready(()),
                        Poll::Ready(Read::Items(_)) => {}
                        Poll::Ready(Read::Empty) | Poll::Pending => return Poll::Pending,
                    }
                }
            })
            .await;
        }
    }

    /// Ends the retention of the stream's records at once.
    pub fn forget_records(&self) -> ForgottenRecords {
        let mut forgotten = ForgottenRecords::default();
        self.durable()
            .into_iter()
            .for_each(|durable| forgotten.add(durable));
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_wait_until_streams_are_registered() {
        let barrier = RegistrationBarrier::default();
        assert!(barrier.wait().await, "no journal");
        barrier.close();
        assert!(!barrier.wait().await, "the wait is bounded");
        let (waited, ()) = tokio::join!(barrier.wait(), async { barrier.open() });
        assert!(waited);
    }
}
