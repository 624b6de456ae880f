//! Streams with a finished generation that the client has not read to the end.
//!
//! Such a stream holds neither engine resources nor a permit, only logs. The client may read at any speed while all
//! these streams stay within the bounds of retained streams (`retained_max`, `retention_bytes`). Beyond the bounds
//! the stream that ended first is cut: the connection is closed, since a client that does not read cannot be sent an
//! error.
//!
//! The engine's thread adds a stream before the log shows the end. The drop of the [`StreamRun`](super::StreamRun)
//! removes the stream: at the end of reading, or when the client disconnects, which may be earlier. `is_drained` is
//! set before the removal and read after the addition, so that a stream without a reader is not kept in either order
//! of the two.

use super::stream_record::StreamRecord;
use crate::locks::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use stream::RegistryLimits;
use tokio::sync::Notify;

/// The streams and their bounds.
pub(crate) struct UndeliveredStreams {
    streams: Mutex<StreamQueue>,
}

struct StreamQueue {
    streams_max: usize,
    bytes_max: usize,
    /// In the order of their ends; 0 ..= `streams_max`.
    ended: VecDeque<UndeliveredStream>,
    bytes: usize,
}

struct UndeliveredStream {
    record: Weak<StreamRecord>,
    bytes: usize,
}

impl UndeliveredStreams {
    /// No streams.
    pub(crate) fn new(limits: &StreamLimits) -> Self {
        Self {
            streams: Mutex::new(StreamQueue {
                streams_max: limits.retained_max,
                bytes_max: limits.retention_bytes,
                ended: VecDeque::new(),
                bytes: 0,
            }),
        }
    }

    /// Applies other bounds.
    pub(crate) fn set_limits(&self, limits: &StreamLimits) {
        let mut streams = lock(&self.streams);
        streams.streams_max = limits.retained_max;
        streams.bytes_max = limits.retention_bytes;
        streams.cut_to_fit();
    }

    /// Adds a stream; streams that ended earlier are cut to make room.
    pub(crate) fn add_stream(self: &Arc<Self>, record: &Arc<StreamRecord>) {
        record
            .connection
            .undelivered
            .get_or_init(|| Arc::clone(self));
        let bytes = record.memory_bytes();
        let mut streams = lock(&self.streams);
        streams.bytes += bytes;
        streams.ended.push_back(UndeliveredStream {
            record: Arc::downgrade(record),
            bytes,
        });
        streams.cut_to_fit();
        drop(streams);
        if record.connection.is_drained.load(Ordering::SeqCst) {
            self.remove_stream(record);
        }
    }

    /// Cuts the stream that ended first, if there is one.
    pub(crate) fn cut_oldest(&self) {
        lock(&self.streams).cut_oldest();
    }

    /// Removes a stream that is drained.
    fn remove_stream(&self, record: &StreamRecord) {
        let mut streams = lock(&self.streams);
        // The allocation lives as long as the weak reference, so no other stream has this address.
        let is_this = |ended: &UndeliveredStream| std::ptr::eq(ended.record.as_ptr(), record);
        if let Some(at) = streams.ended.iter().position(is_this)
            && let Some(ended) = streams.ended.remove(at)
        {
            streams.bytes -= ended.bytes;
        }
    }
}

impl StreamQueue {
    fn cut_to_fit(&mut self) {
        while self.ended.len() > self.streams_max || self.bytes > self.bytes_max {
            self.cut_oldest();
        }
    }

    fn cut_oldest(&mut self) {
        let Some(oldest) = self.ended.pop_front() else {
            return;
        };
        self.bytes -= oldest.bytes;
        if let Some(record) = oldest.record.upgrade() {
            record.connection.cut_connection();
        }
    }
}

/// A reference from a stream to the client's connection.
#[derive(Default)]
pub(crate) struct ConnectionHandle {
    connection: OnceLock<Arc<Notify>>,
    is_cut: AtomicBool,
    is_drained: AtomicBool,
    /// The set that the stream may be in after the permit is released.
    undelivered: OnceLock<Arc<UndeliveredStreams>>,
}

impl ConnectionHandle {
    /// Closes the connection, also one that is set later.
    fn cut_connection(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        if let Some(connection) = self.connection.get() {
            connection.notify_one();
        }
    }

    /// The client has read the stream to the end, or has disconnected.
    pub(crate) fn mark_drained(&self, record: &StreamRecord) {
        self.is_drained.store(true, Ordering::SeqCst);
        if let Some(undelivered) = self.undelivered.get() {
            undelivered.remove_stream(record);
        }
    }
}

/// Bounds of named streams (`streams.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Streams open at one time, detached ones included; beyond the limit a request is rejected with 503.
    pub open_max: usize,
    /// How long a resumable stream can be read again after the end. Other streams are removed at the end.
    pub retention: Duration,
    /// Ended streams kept at one time; the oldest end makes room.
    pub retained_max: usize,
    /// Bytes of log segments the ended streams kept may hold; the oldest end makes room.
    pub retention_bytes: usize,
    /// Tokens that a detached stream may generate beyond the credit window, per choice and once.
    pub detached_tokens: u64,
    /// How long a detached stream may wait for credit before the stream is canceled.
    pub detached_wait: Duration,
    /// Ids of removed streams that are remembered, so that a request for one is answered with 410.
    pub gone_max: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            open_max: 4096,
            retention: Duration::from_secs(60),
            retained_max: 1024,
            retention_bytes: 32 << 20,
            detached_tokens: 16_384,
            detached_wait: Duration::from_secs(60),
            gone_max: 8192,
        }
    }
}

impl StreamLimits {
    pub(crate) fn of_registry(&self) -> RegistryLimits {
        RegistryLimits {
            open_max: self.open_max,
            retained_max: self.retained_max,
            retained_bytes_max: self.retention_bytes,
            retention: self.retention,
            gone_max: self.gone_max,
        }
    }
}

/// Extension of a response: the stream whose events the response carries.
#[derive(Clone)]
pub struct ResponseStream(Weak<StreamRecord>);

impl ResponseStream {
    /// The extension of a response that carries this stream.
    pub fn new(record: &Arc<StreamRecord>) -> Self {
        Self(Arc::downgrade(record))
    }

    /// Sets the signal that closes the connection of the response.
    pub fn carried_by(&self, connection: &Arc<Notify>) {
        let Some(record) = self.0.upgrade() else {
            return;
        };
        let handle = &record.connection;
        let named = handle.connection.set(Arc::clone(connection)).is_ok();
        if named && handle.is_cut.load(Ordering::SeqCst) {
            connection.notify_one();
        }
    }
}
