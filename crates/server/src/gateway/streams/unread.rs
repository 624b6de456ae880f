//! Streams whose work is over and whose client has not read them to the end.
//!
//! Nothing of the engine is theirs any more, and no permit; what they hold is their logs. A client has all
//! the time it wants to read, as long as these stay within the bounds for ended streams (`retained_max`,
//! `retention_bytes`). Beyond them the one that ended first is cut: its connection is closed, for there is
//! nothing else that a client which does not read could be told.
//!
//! A stream is added by the engine's thread, before its log says the end, and taken out when its
//! [`Run`](super::Run) is dropped: by its reader at the end, or with a client that left, which may be
//! earlier. `read_out` is set before it is taken out, and looked at after it was added, so a stream that
//! nobody will read is not kept in whichever order the two come.

use super::StreamLimits;
use super::entry::Entry;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::Notify;

/// The streams, and their bounds.
pub(crate) struct Unread {
    streams: Mutex<Streams>,
}

struct Streams {
    streams_max: usize,
    bytes_max: usize,
    /// The one that ended first comes first; 0 ..= `streams_max`.
    ended: VecDeque<Ended>,
    bytes: usize,
}

struct Ended {
    entry: Weak<Entry>,
    bytes: usize,
}

impl Unread {
    /// None yet.
    pub(crate) fn new(limits: &StreamLimits) -> Self {
        Self {
            streams: Mutex::new(Streams {
                streams_max: limits.retained_max,
                bytes_max: limits.retention_bytes,
                ended: VecDeque::new(),
                bytes: 0,
            }),
        }
    }

    /// Other bounds, from now on.
    pub(crate) fn rebound(&self, limits: &StreamLimits) {
        let mut streams = self.lock();
        streams.streams_max = limits.retained_max;
        streams.bytes_max = limits.retention_bytes;
        streams.cut_to_fit();
    }

    /// One more. Who ended before makes room for it.
    pub(crate) fn add(self: &Arc<Self>, entry: &Arc<Entry>) {
        entry.line().unread.get_or_init(|| Arc::clone(self));
        let bytes = entry.bytes();
        let mut streams = self.lock();
        streams.bytes += bytes;
        streams.ended.push_back(Ended {
            entry: Arc::downgrade(entry),
            bytes,
        });
        streams.cut_to_fit();
        drop(streams);
        if entry.line().is_read_out.load(Ordering::SeqCst) {
            self.remove(entry);
        }
    }

    /// Cuts the one that ended first, if there is one.
    pub(crate) fn cut_oldest(&self) {
        self.lock().cut_oldest();
    }

    /// The stream is read, or nobody will.
    fn remove(&self, entry: &Entry) {
        let mut streams = self.lock();
        // Its place is kept as long as there is a weak reference, so no other has its address.
        let is_it = |ended: &Ended| std::ptr::eq(ended.entry.as_ptr(), entry);
        if let Some(at) = streams.ended.iter().position(is_it)
            && let Some(ended) = streams.ended.remove(at)
        {
            streams.bytes -= ended.bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
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
        if let Some(entry) = oldest.entry.upgrade() {
            entry.line().cut();
        }
    }
}

/// From a stream to the connection that carries it to its client.
#[derive(Default)]
pub(crate) struct Line {
    connection: OnceLock<Arc<Notify>>,
    is_cut: AtomicBool,
    is_read_out: AtomicBool,
    /// Where it may be, once its work is over.
    unread: OnceLock<Arc<Unread>>,
}

impl Line {
    /// Closes the connection, also one that is yet to be named.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        if let Some(connection) = self.connection.get() {
            connection.notify_one();
        }
    }

    /// Nobody has to read it any more.
    pub(crate) fn read_out(&self, entry: &Entry) {
        self.is_read_out.store(true, Ordering::SeqCst);
        if let Some(unread) = self.unread.get() {
            unread.remove(entry);
        }
    }
}

/// Rides on an answer: the stream it tells.
#[derive(Clone)]
pub(crate) struct Answers(pub(crate) Weak<Entry>);

impl Answers {
    /// The connection that carries it is cut by this.
    pub(crate) fn carried_by(&self, connection: &Arc<Notify>) {
        let Some(entry) = self.0.upgrade() else {
            return;
        };
        let line = entry.line();
        let named = line.connection.set(Arc::clone(connection)).is_ok();
        if named && line.is_cut.load(Ordering::SeqCst) {
            connection.notify_one();
        }
    }
}
