//! The ring behind the stream feed: state changes of all streams, and snapshots of the metrics.
//!
//! One bounded ring serves all readers and is written without waiting for a reader. A reader that the ring has
//! overtaken gets the number of missed events, and continues with the oldest event that is left.

use bytes::Bytes;
use generate::stream_change::Change;
use std::fmt;
use std::time::Instant;
use stream::StreamId;
use tokio::sync::broadcast;

/// Events kept for readers that are behind; older ones are dropped and counted. A burst of a few hundred streams that
/// open and end at one time fits.
const FEED_EVENTS_MAX: usize = 1024;

/// The writing end of the ring. Clones write to the same ring.
#[derive(Clone)]
pub struct StreamFeed {
    ring: broadcast::Sender<FeedEvent>,
}

/// An event in the ring.
#[derive(Clone, Debug)]
pub enum FeedEvent {
    /// The state of a stream changed.
    Change {
        /// Id of the stream.
        stream: StreamId,
        /// The new state.
        change: Change,
        /// Index of the prompt, if the request has several.
        prompt: Option<usize>,
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
        Self {
            ring: broadcast::Sender::new(FEED_EVENTS_MAX),
        }
    }

    /// Writes an event. Never waits; allocates nothing.
    pub fn publish(&self, event: FeedEvent) {
        // `send` fails only without readers, and then the event is not needed.
        let _ = self.ring.send(event);
    }

    /// A reader of the events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<FeedEvent> {
        self.ring.subscribe()
    }

    /// Whether there is a reader.
    pub fn has_readers(&self) -> bool {
        self.ring.receiver_count() > 0
    }
}

impl fmt::Debug for StreamFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamFeed({} readers)", self.ring.receiver_count())
    }
}
