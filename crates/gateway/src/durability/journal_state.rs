//! State that the recorder's thread, the streams and the watchdog share.

use super::journal_metrics::JournalMetrics;
use super::news_list::{ArrivedStream, NewsList, PendingNews};
use super::recorded_stream::RecordedStream;
use super::stream_slot::StreamSlot;
use super::stream_table::StreamTable;
use crate::streams::feed::StreamFeed;
use journal::JournalWaker;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use stream::Turns;

/// State of a [`StreamJournal`](super::StreamJournal).
pub(crate) struct JournalState {
    /// Streams with news for the recorder.
    news: Mutex<PendingNews>,
    pub(crate) turns: Turns,
    /// The recorder's table.
    pub(crate) table: Mutex<StreamTable>,
    /// Streams with a handle.
    live: Mutex<HashMap<u64, Arc<StreamSlot>>>,
    next_serial: AtomicU64,
    waker: OnceLock<JournalWaker>,
    /// Counts beginnings and ends of the recorder's turns.
    pub(crate) beats: AtomicU64,
    /// Whether a turn is running.
    pub(crate) is_busy: AtomicBool,
    /// Whether the thread has made no progress for too long: streams are not durable.
    pub(crate) is_stalled: AtomicBool,
    /// Whether ends by the shutdown are not recorded.
    pub(crate) is_shutting_down: AtomicBool,
    /// Whether handles that are dropped leave the records in the journal.
    pub(crate) is_stopped: AtomicBool,
    /// Bytes of the descriptions of live streams.
    description_bytes: AtomicUsize,
    description_bytes_max: usize,
    pub(crate) metrics: JournalMetrics,
    pub(crate) feed: StreamFeed,
}

impl JournalState {
    /// The state of a journal whose live streams have descriptions of at most so many bytes together.
    pub(crate) fn new(description_bytes_max: usize, feed: StreamFeed) -> Arc<Self> {
        Arc::new(Self {
            news: Mutex::default(),
            turns: Turns::new(),
            table: Mutex::default(),
            live: Mutex::default(),
            next_serial: AtomicU64::new(0),
            waker: OnceLock::new(),
            beats: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            is_shutting_down: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            description_bytes: AtomicUsize::new(0),
            description_bytes_max,
            metrics: JournalMetrics::default(),
            feed,
        })
    }

    /// Sets the handle that wakes the recorder's thread. To be called once.
    pub(crate) fn set_waker(&self, waker: JournalWaker) {
        let _ = self.waker.set(waker);
        self.wake_thread();
    }

    pub(crate) fn wake_thread(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Adds a stream that the slot's mark allows to be added. The thread is woken by the first one of a turn.
    pub(crate) fn push_news(&self, index: u32) {
        let was_empty = lock(&self.news).push(index);
        if was_empty {
            self.wake_thread();
        }
    }

    /// Exchanges the list of streams with news for an empty one and begins the recorder's turn.
    pub(crate) fn take_news(&self, empty: &mut NewsList) {
        lock(&self.news).take(empty);
        self.turns.begin();
    }

    /// Returns the index of a stream that was removed from the table.
    pub(crate) fn free_index(&self, index: u32) {
        lock(&self.news).free_index(index);
    }

    /// Whether a stream waits for the recorder.
    pub(crate) fn has_news(&self) -> bool {
        !lock(&self.news).is_empty()
    }

    /// Adds a live stream, with what an earlier process has recorded. `make` gets the stream's number and index.
    pub(crate) fn add_live(
        &self,
        recorded: RecordedStream,
        make: impl FnOnce(u64, u32) -> Arc<StreamSlot>,
    ) -> Arc<StreamSlot> {
        let serial = self.next_serial.fetch_add(1, Ordering::Relaxed);
        let index = lock(&self.news).take_index();
        let slot = make(serial, index);
        lock(&self.live).insert(serial, Arc::clone(&slot));
        lock(&self.news).push_arrived(ArrivedStream {
            slot: Arc::clone(&slot),
            recorded: Box::new(recorded),
        });
        slot
    }

    pub(crate) fn remove_live(&self, serial: u64) {
        lock(&self.live).remove(&serial);
    }

    /// The live streams.
    pub(crate) fn live_slots(&self) -> Vec<Arc<StreamSlot>> {
        lock(&self.live).values().cloned().collect()
    }

    /// Counts bytes of a description; false beyond the bound.
    pub(crate) fn take_description_bytes(&self, bytes: usize) -> bool {
        let sum = self.description_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_within = sum <= self.description_bytes_max;
        if !is_within {
            self.replace_description_bytes(bytes, 0);
        }
        is_within
    }

    /// Counts bytes of a description that replaces another one, also beyond the bound.
    pub(crate) fn replace_description_bytes(&self, before: usize, after: usize) {
        self.description_bytes.fetch_add(after, Ordering::Relaxed);
        self.description_bytes.fetch_sub(before, Ordering::Relaxed);
    }

    pub(crate) fn is(&self, flag: fn(&Self) -> &AtomicBool) -> bool {
        flag(self).load(Ordering::Acquire)
    }
}

/// Locks a mutex under which no code panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
