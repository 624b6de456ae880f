//! The ring behind the stream feed: state changes of all streams, and snapshots of the metrics.
//!
//! One bounded ring serves all readers and is written without waiting for a reader. A reader that the ring has
//! overtaken gets the number of missed events, and continues with the oldest event that is left.

use crate::keys::{Caller, Scope};
use crate::locks::lock;
use bytes::Bytes;
use generate::error::ApiError;
use generate::stream_source::Change;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use stream::{Owner, StreamId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};

/// Events kept for readers that are behind; older ones are dropped and counted. A burst of a few hundred streams that
/// open and end at one time fits.
const FEED_EVENTS_MAX: usize = 1024;

/// Readers of their own streams' changes. Each change wakes all readers, so those that anybody with a key may open are few.
const OWN_READERS_MAX: usize = 64;

/// Recoveries that later readers get.
const RECOVERIES_MAX: usize = 256;
/// Time in which they get them: streams are recovered at the start of the process, before a reader can have connected.
const RECOVERIES_KEPT: Duration = Duration::from_secs(10);
/// `Retry-After` of a reader over the limit.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The writing end of the ring. Clones write to the same ring; each stream has one, so a clone is a pointer.
#[derive(Clone)]
pub struct StreamFeed(Arc<FeedState>);

struct FeedState {
    ring: broadcast::Sender<FeedEvent>,
    /// At most [`RECOVERIES_MAX`].
    recoveries: Mutex<VecDeque<(Instant, FeedEvent)>>,
    own_readers: Arc<Semaphore>,
}

/// Whose streams a reader of the feed is told about.
#[derive(Debug)]
pub enum FeedView {
    /// All streams, and the metrics.
    All,
    /// Streams of one owner, within the limit of such readers.
    Own(Owner, OwnedSemaphorePermit),
}

impl FeedView {
    /// Whether the reader is told of an event.
    pub fn shows(&self, event: &FeedEvent) -> bool {
        match (self, event) {
            (Self::All, _) => true,
            (Self::Own(reader, _), FeedEvent::Change { owner, .. }) => owner == reader,
            // The metrics are about all streams. Whether a stream is durable is in its description.
            (Self::Own(..), FeedEvent::Metrics { .. } | FeedEvent::Undurable { .. }) => false,
        }
    }
}

/// An event in the ring.
#[derive(Clone, Debug)]
pub enum FeedEvent {
    /// The state of a stream changed.
    Change {
        /// Id of the stream.
        stream: StreamId,
        /// Owner of the stream.
        owner: Owner,
        /// The new state.
        change: Change,
        /// Index of the prompt, if the request has several.
        prompt: Option<u32>,
        /// Time of the change.
        at: Instant,
    },
    /// A durable stream does not outlive the process any more.
    Undurable {
        /// Id of the stream.
        stream: StreamId,
        /// Time of the change.
        at: Instant,
    },
    /// A snapshot of the metrics, as JSON.
    Metrics {
        /// The snapshot.
        snapshot: Bytes,
        /// Time of the snapshot.
        at: Instant,
    },
}

impl Default for StreamFeed {
    fn default() -> Self {
        Self::new()
    }
}

impl StreamFeed {
    /// An empty ring.
    pub fn new() -> Self {
        Self(Arc::new(FeedState {
            ring: broadcast::Sender::new(FEED_EVENTS_MAX),
            recoveries: Mutex::default(),
            own_readers: Arc::new(Semaphore::new(OWN_READERS_MAX)),
        }))
    }

    /// What this caller may read.
    ///
    /// # Errors
    /// Without the scope `admin`: there are as many readers as may be.
    pub fn view_of(&self, caller: &Caller) -> Result<FeedView, ApiError> {
        if caller.scopes.has(Scope::Admin) {
            return Ok(FeedView::All);
        }
        let place = Arc::clone(&self.0.own_readers).try_acquire_owned();
        let place = place.map_err(|_| {
            let message = format!(
                "{OWN_READERS_MAX} readers without the scope admin read the feed here; retry later"
            );
            ApiError::capacity("overloaded", message, RETRY_AFTER)
        })?;
        Ok(FeedView::Own(caller.owner, place))
    }

    /// Writes an event. Never waits for a reader; allocates nothing, unless a stream is recovered.
    pub fn publish(&self, event: FeedEvent) {
        let _kept = match event {
            FeedEvent::Change {
                change: Change::Recovered,
                at,
                ..
            } => {
                let mut kept = self.recoveries();
                if kept.len() == RECOVERIES_MAX {
                    kept.pop_front();
                }
                kept.push_back((at, event.clone()));
                Some(kept)
            }
            _ => None,
        };
        // `send` fails only without readers, and then the event is not needed.
        let _ = self.0.ring.send(event);
    }

    /// A reader of the events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<FeedEvent> {
        self.0.ring.subscribe()
    }

    /// A reader of the events from now on, and the recoveries of the last seconds.
    pub fn subscribe_after_recovery(
        &self,
        now: Instant,
    ) -> (broadcast::Receiver<FeedEvent>, Vec<FeedEvent>) {
        let mut kept = self.recoveries();
        kept.retain(|(at, _)| now.saturating_duration_since(*at) < RECOVERIES_KEPT);
        let recoveries = kept.iter().map(|(_, event)| event.clone());
        (self.0.ring.subscribe(), recoveries.collect())
    }

    fn recoveries(&self) -> MutexGuard<'_, VecDeque<(Instant, FeedEvent)>> {
        lock(&self.0.recoveries)
    }

    /// Whether there is a reader.
    pub fn has_readers(&self) -> bool {
        self.0.ring.receiver_count() > 0
    }
}

impl fmt::Debug for StreamFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamFeed({} readers)", self.0.ring.receiver_count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::clock;

    #[test]
    fn reader_that_connects_after_a_recovery_gets_it_once_and_for_a_while() {
        let (feed, now) = (StreamFeed::new(), clock::now());
        let publish = |change| {
            feed.publish(FeedEvent::Change {
                stream: StreamId::from_bits(7),
                owner: Owner(1),
                change,
                prompt: None,
                at: now,
            });
        };
        publish(Change::Opened);
        for _ in 0..=RECOVERIES_MAX {
            publish(Change::Recovered);
        }
        let (mut ring, recoveries) = feed.subscribe_after_recovery(now);
        assert_eq!(recoveries.len(), RECOVERIES_MAX);
        assert!(ring.try_recv().is_err(), "the others are over");
        let (_, recoveries) = feed.subscribe_after_recovery(now + RECOVERIES_KEPT);
        assert!(recoveries.is_empty());
    }
}
