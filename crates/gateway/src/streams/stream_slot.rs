//! State that the handle of a durable stream, the recorder and the watchdog share.
//!
//! # Protocol
//!
//! A side with news for the recorder (an append to a log, a change from the handle) marks the slot ([`stream::Turns`]).
//! The first mark of a turn adds the slot's index to the journal's list; the first index of a list wakes the thread. The
//! recorder takes the list and reads the slots: nothing is missed, and the recorder writes nothing to a slot for that.
//!
//! `inbox` is locked for short moves between buffers, never during a write. The recorder locks `inbox` only where
//! `changes` has grown.

use super::feed::FeedEvent;
use super::journal_copy::JournalCopy;
use super::stream_journal::JournalState;
use super::stream_logs::StreamLogs;
use crate::locks::lock;
use crate::records::ControlState;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::Wake;
use stream::{StreamId, TurnMark};
use tokio::sync::Notify;
use wire::clock;

/// One stream of the journal.
pub(crate) struct StreamSlot {
    pub(crate) id: u128,
    serial: u64,
    pub(crate) state: Arc<JournalState>,
    /// Bytes of the description, counted in `state`.
    description_bytes: AtomicUsize,
    /// Index in the recorder's table. Another stream may have the index after the recorder has removed this one.
    index: u32,
    mark: WriterMark,
    /// Changes of the inbox ever, for a look without the lock.
    changes: AtomicU64,
    /// Whether everything so far is in the journal, and further records will be.
    is_durable: AtomicBool,
    /// Whether another gateway continues the stream: no end is recorded, and nothing is forgotten.
    pub(crate) is_leaving: AtomicBool,
    pub(crate) inbox: Mutex<StreamInbox>,
    /// Changes of the inbox that are in the journal.
    acknowledged: AtomicU64,
    acknowledgement: Notify,
}

/// The mark on a cache line of its own: the writer of the logs changes it in each turn.
#[repr(align(64))]
struct WriterMark(TurnMark);

/// The side of a slot that other threads than the recorder's change.
#[derive(Default)]
pub(crate) struct StreamInbox {
    /// Changes that the recorder has not taken.
    pub(crate) news: StreamNews,
    pub(crate) logs: Option<Arc<StreamLogs>>,
    /// Whether the records are not needed any more.
    pub(crate) is_forgotten: bool,
    /// Whether readers see everything at once, forever.
    pub(crate) is_open: bool,
    /// Whether the handle was dropped.
    pub(crate) is_released: bool,
}

impl StreamSlot {
    /// A slot in the journal's table of live streams: with the `copy` of an earlier process, or `first` to be recorded.
    pub(crate) fn insert(
        state: &Arc<JournalState>,
        id: u128,
        description_bytes: usize,
        copy: JournalCopy,
        first: Option<StreamNews>,
    ) -> Arc<Self> {
        let changes = u64::from(first.is_some());
        let inbox = StreamInbox {
            news: first.unwrap_or_default(),
            ..StreamInbox::default()
        };
        let slot = state.add_live(copy, |serial, index| {
            Arc::new(Self {
                id,
                serial,
                index,
                state: Arc::clone(state),
                description_bytes: AtomicUsize::new(description_bytes),
                mark: WriterMark(TurnMark::new()),
                changes: AtomicU64::new(changes),
                is_durable: AtomicBool::new(false),
                is_leaving: AtomicBool::new(false),
                acknowledged: AtomicU64::new(0),
                acknowledgement: Notify::new(),
                inbox: Mutex::new(inbox),
            })
        });
        slot.note_change();
        // The watchdog sets the flag and then opens the live streams, once. A stream that came between the caller's look at
        // the flag and the table is seen by one of the two: both lock the table of live streams.
        if state.is(|state| &state.is_stalled) {
            slot.open_gates();
            slot.note_change();
        }
        slot
    }

    /// Index in the recorder's table.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Changes of the inbox ever. What was changed is read under the lock of the inbox.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Makes the recorder read this slot, after the fence that [`stream::Turns::mark`] needs.
    fn note_news(&self) {
        if self.state.turns.mark(&self.mark.0) {
            self.state.push_news(self.index);
        }
    }

    /// Makes the recorder read this slot.
    pub(crate) fn note_change(&self) {
        fence(Ordering::SeqCst);
        self.note_news();
    }

    /// Changes the inbox and makes the recorder read the change.
    pub(crate) fn change(&self, change: impl FnOnce(&mut StreamInbox)) {
        let mut inbox = lock(&self.inbox);
        change(&mut inbox);
        self.changes.fetch_add(1, Ordering::Release);
        drop(inbox);
        self.note_change();
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

    /// Waits until the first `changes` are in the journal, or the stream is not durable any more.
    pub(crate) async fn wait_for(&self, changes: u64) {
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

    /// Whether the handle was dropped.
    pub(crate) fn is_released(&self) -> bool {
        lock(&self.inbox).is_released
    }

    /// Gives the recording up: readers see everything at once, and nothing waits for the journal. The recorder reads the
    /// change with the next news.
    pub(crate) fn open_gates(&self) {
        let mut inbox = lock(&self.inbox);
        inbox.is_open = true;
        self.changes.fetch_add(1, Ordering::Release);
        if let Some(logs) = &inbox.logs {
            logs.open_gates();
        }
        drop(inbox);
        self.set_durable(false);
        self.acknowledge(u64::MAX);
    }

    /// The handle was dropped: the logs are released, and the records are forgotten unless the journal was stopped.
    pub(crate) fn release(&self) {
        self.state.remove_live(self.serial);
        self.set_description_bytes(0);
        let is_forgotten = !self.state.is(|state| &state.is_stopped) && !self.is_leaving();
        self.change(|inbox| {
            inbox.logs = None;
            inbox.is_forgotten |= is_forgotten;
            inbox.is_released = true;
        });
    }

    /// The records are not needed any more, before the handle is dropped: readers see everything from now on. Returns the
    /// changes that include this one; `None` where the records are left to another process.
    pub(crate) fn forget(&self) -> Option<u64> {
        if self.state.is(|state| &state.is_stopped) || self.is_leaving() {
            return None;
        }
        self.show_all();
        self.change(|inbox| inbox.is_forgotten = true);
        Some(self.changes())
    }

    /// Whether another gateway continues the stream.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// Whether the logs have ended, and readers see all their tokens.
    pub(crate) fn is_at_rest(&self) -> bool {
        let inbox = lock(&self.inbox);
        let logs = inbox.logs.as_ref();
        logs.is_none_or(|logs| logs.have_ended() && logs.hidden_tokens() == 0)
    }

    /// Shows everything in the logs at once; the records stay.
    pub(crate) fn show_all(&self) {
        if let Some(logs) = &lock(&self.inbox).logs {
            logs.open_gates();
        }
    }

    /// Tokens that readers do not see yet.
    pub(crate) fn hidden_tokens(&self) -> u64 {
        let inbox = lock(&self.inbox);
        inbox.logs.as_ref().map_or(0, |logs| logs.hidden_tokens())
    }
}

/// The waker of the stream's logs, which pass a sequentially consistent fence between a write and the wake.
impl Wake for StreamSlot {
    fn wake(self: Arc<Self>) {
        self.note_news();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.note_news();
    }
}

/// Changes that the recorder has not taken yet, by kind, in the order in which they are recorded. A later change of one
/// kind replaces an earlier one, so the memory is bounded.
#[derive(Default)]
pub(crate) struct StreamNews {
    /// Whether an object that is opened stays on this machine.
    pub(crate) is_local: bool,
    /// The description of a stream that begins.
    pub(crate) open: Option<Arc<[u8]>>,
    pub(crate) claim: Option<Claim>,
    pub(crate) prepared: Option<PreparedNews>,
    pub(crate) control: Option<ControlState>,
    pub(crate) is_paused: Option<bool>,
    /// The error of a stream that never starts, or a stored object.
    pub(crate) outcome: Option<Arc<[u8]>>,
    /// Whether the tokens of an earlier process are not needed for a rewriting: an object that is not a stream.
    pub(crate) has_no_tokens: bool,
}

/// The prompts of a submitted stream.
pub(crate) struct PreparedNews {
    /// Body of the record.
    pub(crate) body: Box<[u8]>,
    /// The description with these prompts, for a rewriting.
    pub(crate) description: Arc<[u8]>,
}

/// A record `Claimed`: this process takes a recovered stream over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Grows with each owner.
    pub generation: u64,
    /// The process.
    pub instance: u64,
    /// How many times the stream was submitted to an engine.
    pub attempt: u32,
    /// The caller's code of the reason.
    pub why: u32,
    /// Tokens of all choices at the claim.
    pub tokens: u64,
}

impl Claim {
    /// The claim as a record.
    pub(crate) fn to_record(self) -> journal::Record<'static> {
        let Self {
            generation,
            instance,
            attempt,
            why,
            tokens,
        } = self;
        journal::Record::Claimed {
            generation,
            instance,
            attempt,
            why,
            tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::StreamFeed;

    #[test]
    fn stream_that_comes_after_the_watchdog_opened_the_gates_is_open() {
        let state = JournalState::new(1 << 20, StreamFeed::new());
        let insert = |id| {
            let first = Some(StreamNews::default());
            StreamSlot::insert(&state, id, 0, JournalCopy::default(), first)
        };
        let before = insert(1);
        // The stall begins after the second caller has found the journal working.
        state.is_stalled.store(true, Ordering::Release);
        let after = insert(2);
        assert_eq!((before.is_open(), after.is_open()), (false, true));
        assert!(
            state.has_news(),
            "the recorder reads the change when it resumes"
        );
    }
}
