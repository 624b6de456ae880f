//! What the handle of a durable stream, the recorder and the watchdog share.
//!
//! # Protocol
//!
//! A side with news for the recorder (an append to a log, a change from the handle) sets `has_news`; whoever changed
//! the flag adds the slot to the journal's list and wakes the thread. The recorder clears the flag before reading the
//! slot, so news that arrive during the reading add the slot again: nothing is missed, and the list has each slot once.
//!
//! `inbox` is locked for short moves between buffers, never during a write. `recorded` belongs to the recorder's
//! thread, which holds the lock during writes.

use super::journal_state::{JournalState, lock};
use super::recorded_stream::RecordedStream;
use super::stream_logs::StreamLogs;
use super::stream_news::StreamNews;
use crate::streams::feed::FeedEvent;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Wake;
use stream::StreamId;
use tokio::sync::Notify;
use wire::clock;

/// One stream of the journal.
pub(crate) struct StreamSlot {
    pub(crate) id: u128,
    serial: u64,
    pub(crate) state: Arc<JournalState>,
    /// Bytes of the description, counted in `state`.
    description_bytes: AtomicUsize,
    has_news: AtomicBool,
    /// Whether everything so far is in the journal, and further records will be.
    is_durable: AtomicBool,
    pub(crate) inbox: Mutex<StreamInbox>,
    pub(crate) recorded: Mutex<RecordedStream>,
    /// Changes of the inbox that are in the journal.
    acknowledged: AtomicU64,
    acknowledgement: Notify,
}

/// The side of a slot that other threads than the recorder's change.
#[derive(Default)]
pub(crate) struct StreamInbox {
    /// Changes that the recorder has not taken.
    pub(crate) news: StreamNews,
    /// Number of changes ever.
    pub(crate) changes: u64,
    pub(crate) logs: Option<Arc<StreamLogs>>,
    /// Whether the records are not needed any more.
    pub(crate) is_forgotten: bool,
    /// Whether readers see everything at once, forever.
    pub(crate) is_open: bool,
}

impl StreamSlot {
    /// A slot in the journal's table of live streams.
    pub(crate) fn insert(
        state: &Arc<JournalState>,
        id: u128,
        description_bytes: usize,
        recorded: RecordedStream,
        inbox: StreamInbox,
    ) -> Arc<Self> {
        let slot = state.add_live(|serial| {
            Arc::new(Self {
                id,
                serial,
                state: Arc::clone(state),
                description_bytes: AtomicUsize::new(description_bytes),
                has_news: AtomicBool::new(false),
                is_durable: AtomicBool::new(false),
                acknowledged: AtomicU64::new(0),
                acknowledgement: Notify::new(),
                inbox: Mutex::new(inbox),
                recorded: Mutex::new(recorded),
            })
        });
        slot.note_news();
        slot
    }

    /// Makes the recorder read this slot.
    pub(crate) fn note_news(self: &Arc<Self>) {
        if !self.has_news.swap(true, Ordering::AcqRel) {
            self.state.push_news(Arc::clone(self));
        }
    }

    /// To be called by the recorder before reading.
    pub(crate) fn clear_news(&self) {
        self.has_news.swap(false, Ordering::AcqRel);
    }

    /// Changes the inbox and makes the recorder read the change.
    pub(crate) fn change(self: &Arc<Self>, change: impl FnOnce(&mut StreamInbox)) {
        let mut inbox = lock(&self.inbox);
        inbox.changes += 1;
        change(&mut inbox);
        drop(inbox);
        self.note_news();
    }

    /// Counts the bytes of a description that replaces the one before.
    pub(crate) fn set_description_bytes(&self, bytes: usize) {
        let before = self.description_bytes.swap(bytes, Ordering::Relaxed);
        self.state.replace_description_bytes(before, bytes);
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.is_durable.load(Ordering::Acquire)
    }

    /// Sets whether the stream is durable; the end of durability is published to the feed. A stream whose gates were opened
    /// stays as it is.
    pub(crate) fn set_durable(&self, is_durable: bool) {
        if is_durable && lock(&self.inbox).is_open {
            return;
        }
        let was_durable = self.is_durable.swap(is_durable, Ordering::AcqRel);
        if was_durable && !is_durable {
            let stream = StreamId::from_bits(self.id);
            let at = clock::now();
            self.state.feed.publish(FeedEvent::Undurable { stream, at });
        }
    }

    /// The first `changes` changes are in the journal, or never will be.
    pub(crate) fn acknowledge(&self, changes: u64) {
        self.acknowledged.fetch_max(changes, Ordering::AcqRel);
        self.acknowledgement.notify_waiters();
    }

    /// Waits until all changes so far are in the journal, or the stream is not durable any more.
    pub(crate) async fn wait_for_changes(&self) {
        let changes = lock(&self.inbox).changes;
        loop {
            let mut notified = std::pin::pin!(self.acknowledgement.notified());
            // A notification after this line is not missed.
            notified.as_mut().enable();
            if self.acknowledged.load(Ordering::Acquire) >= changes {
                return;
            }
            notified.await;
        }
    }

    /// Whether the recording was given up.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.inbox).is_open
    }

    /// Gives the recording up: readers see everything at once, and nothing waits for the journal.
    pub(crate) fn open_gates(&self) {
        let mut inbox = lock(&self.inbox);
        inbox.is_open = true;
        inbox.changes += 1;
        if let Some(logs) = &inbox.logs {
            logs.open_gates();
        }
        drop(inbox);
        self.set_durable(false);
        self.acknowledge(u64::MAX);
    }

    /// The handle was dropped: the logs are released, and the records are forgotten unless the journal was stopped.
    pub(crate) fn release(self: &Arc<Self>) {
        self.state.remove_live(self.serial);
        self.set_description_bytes(0);
        let is_forgotten = !self.state.is(|state| &state.is_stopped);
        self.change(|inbox| {
            inbox.logs = None;
            inbox.is_forgotten = is_forgotten;
        });
    }

    /// Tokens that readers do not see yet.
    pub(crate) fn hidden_tokens(&self) -> u64 {
        let inbox = lock(&self.inbox);
        inbox.logs.as_ref().map_or(0, |logs| logs.hidden_tokens())
    }
}

/// The waker of the stream's logs.
impl Wake for StreamSlot {
    fn wake(self: Arc<Self>) {
        self.note_news();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.note_news();
    }
}
