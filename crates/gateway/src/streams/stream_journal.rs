//! The journal of the server's streams, and the state that the recorder's thread, the streams and the watchdog share.
//!
//! Whether the journal works: a watchdog, metrics, and lines of the log.
//!
//! The watchdog detects a journal that makes no progress: a write that stalls, or a thread that is gone. Streams do not
//! wait for such a journal: readers see everything at once, and streams that begin are not durable until the thread makes
//! progress again.

use super::durable_stream::{DurableStream, StoredBlob};
use super::feed::StreamFeed;
use super::journal_copy::JournalCopy;
use super::recorder::StreamRecorder;
use super::stream_slot::{StreamNews, StreamSlot};
use super::stream_table::{NewsList, PendingNews, StreamTable, TableEntry};
use crate::locks::lock;
use crate::records::{DESCRIPTION_BYTES_MAX, files_of_description};
use journal::{
    BlobStore, Durability, FileSystem, Impairment, JournalThread, JournalWaker, Recovered,
    RecoveredStream, StreamKey, Writer,
};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use stream::Turns;
use tokio::time::MissedTickBehavior;
use wire::clock;

/// The journal with its thread.
pub struct StreamJournal {
    pub(crate) state: Arc<JournalState>,
    /// `None` after [`StreamJournal::stop`].
    pub(crate) thread: Mutex<Option<JournalThread>>,
    /// Files that records name; `None`: streams with images are not durable.
    blobs: Option<BlobStore>,
}

/// A stream that this process did not open: what was recorded of it, and the handle for further records.
pub struct RecoveredHandle {
    /// Everything that was recorded.
    pub records: Arc<RecoveredStream>,
    /// The handle for further records. The drop ends the retention of the stream.
    pub durable: DurableStream,
}

impl RecoveredHandle {
    fn new(state: &Arc<JournalState>, stream: RecoveredStream) -> Self {
        let records = Arc::new(stream);
        let copy = JournalCopy::of_recovered(&records);
        let first = copy.key.is_none().then(StreamNews::default);
        let bytes = copy.description.len();
        state.replace_description_bytes(0, bytes);
        let slot = StreamSlot::insert(state, records.id, bytes, copy, first);
        let durable = DurableStream::new(slot);
        Self { records, durable }
    }
}

impl RecoveredHandle {
    /// The handle with references to the files that the records name.
    fn with_blobs(self, store: Option<&BlobStore>) -> Self {
        let names = files_of_description(&self.records.description).into_iter();
        let blobs = store.map(|store| names.filter_map(|name| store.reference(name)).collect());
        let durable = self.durable.with_blobs(blobs.unwrap_or_default());
        Self { durable, ..self }
    }
}

/// The place of a journal that is set when the journal was read, or could not be used.
#[derive(Default)]
pub struct JournalSlot(OnceLock<Result<Arc<StreamJournal>, String>>);

impl JournalSlot {
    /// The journal, if there is one by now.
    pub fn get(&self) -> Option<&Arc<StreamJournal>> {
        self.0.get()?.as_ref().ok()
    }

    /// Sets the journal. To be called once.
    pub fn set(&self, journal: Arc<StreamJournal>) {
        let _ = self.0.set(Ok(journal));
    }

    /// The journal of the settings cannot be used for this reason, which the caller has logged.
    pub fn fail(&self, why: String) {
        let _ = self.0.set(Err(why));
    }

    /// Whether the settings' journal was opened, with the reason why records do not reach the disk. `None`: there is no
    /// journal, or it is being read.
    pub fn health(&self) -> Option<Result<(), String>> {
        Some(match self.0.get()? {
            Ok(journal) => journal.problem().map_or(Ok(()), Err),
            Err(why) => Err(why.clone()),
        })
    }
}

impl StreamJournal {
    /// Starts the threads. All recovered streams are live and can be rewritten; those whose handle is dropped are
    /// forgotten. Streams that cease to be durable are published to `feed`.
    ///
    /// # Errors
    /// A thread cannot be created.
    pub fn start<F: FileSystem>(
        writer: Writer<F>,
        recovered: Recovered,
        (feed, blobs): (StreamFeed, Option<BlobStore>),
    ) -> io::Result<(Arc<Self>, Vec<RecoveredHandle>)> {
        let bytes_max = usize::try_from(writer.live_bytes_max()).unwrap_or(usize::MAX);
        let state = JournalState::new(bytes_max, feed);
        let streams = recovered.streams.into_iter().map(|stream| {
            let is_durable = writer.is_durable(stream.key);
            let handle = RecoveredHandle::new(&state, stream);
            handle.durable.slot().set_durable(is_durable);
            handle.with_blobs(blobs.as_ref())
        });
        let streams = streams.collect();
        let recorder = StreamRecorder::new(&state);
        let start = clock::now();
        let thread = JournalThread::start(writer, recorder, move || clock::now() - start)?;
        state.set_waker(thread.waker());
        let journal = Self {
            state,
            thread: Mutex::new(Some(thread)),
            blobs,
        };
        Ok((Arc::new(journal), streams))
    }

    /// Continues a stream that another process has recorded elsewhere: everything is recorded here, too. `None`: the journal
    /// does not work.
    pub fn continue_stream(&self, stream: RecoveredStream) -> Option<RecoveredHandle> {
        let stream = RecoveredStream {
            key: StreamKey::NONE,
            ..stream
        };
        let blobs = self.blobs.as_ref();
        self.is_working()
            .then(|| RecoveredHandle::new(&self.state, stream).with_blobs(blobs))
    }

    /// Makes the journal's thread look for streams that its tap needs once more.
    pub fn wake(&self) {
        self.state.wake_thread();
    }

    /// The files that records name.
    pub(crate) fn blobs(&self) -> Option<&BlobStore> {
        self.blobs.as_ref()
    }

    /// Begins a stream. `None`: the journal does not work, or the description is too large.
    pub fn open_stream(&self, id: u128, description: Vec<u8>) -> Option<DurableStream> {
        let slot = self.insert_slot(id, description, StreamNews::default())?;
        Some(DurableStream::new(slot))
    }

    /// Records an object that is not a stream: one that stays on this machine (`is_local`), or one that another gateway can
    /// take over as a stream. `None` as for [`StreamJournal::open_stream`].
    pub(crate) fn store_blob(
        &self,
        id: u128,
        description: Vec<u8>,
        (outcome, is_local): (Vec<u8>, bool),
    ) -> Option<StoredBlob> {
        let news = StreamNews {
            outcome: Some(outcome.into()),
            is_local,
            ..StreamNews::default()
        };
        let slot = self.insert_slot(id, description, news)?;
        Some(StoredBlob::new(slot))
    }

    fn insert_slot(
        &self,
        id: u128,
        description: Vec<u8>,
        news: StreamNews,
    ) -> Option<Arc<StreamSlot>> {
        let outcome = news.outcome.as_ref();
        let bytes = description.len() + outcome.map_or(0, |outcome| outcome.len());
        let is_accepted = self.is_working()
            && bytes <= DESCRIPTION_BYTES_MAX
            && self.state.take_description_bytes(bytes);
        is_accepted.then(|| {
            let news = StreamNews {
                open: Some(description.into()),
                ..news
            };
            StreamSlot::insert(&self.state, id, bytes, JournalCopy::default(), Some(news))
        })
    }

    /// Whether streams that begin now are recorded.
    pub(crate) fn is_working(&self) -> bool {
        let state = &self.state;
        !state.is(|state| &state.is_stalled) && !state.is(|state| &state.is_stopped)
    }

    /// Begins the shutdown: from now on an end by the shutdown is neither recorded nor shown, so that the streams
    /// continue in the next process.
    pub fn begin_shutdown(&self) {
        self.state.is_shutting_down.store(true, Ordering::Release);
        if let Some(blobs) = &self.blobs {
            blobs.leave_to_next();
        }
    }

    /// Writes everything with the seal, and ends the threads. Handles that are dropped later forget nothing. Blocks
    /// while the disk does.
    pub fn stop(&self) {
        self.begin_shutdown();
        self.state.is_stopped.store(true, Ordering::Release);
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            thread.stop();
        }
    }

    /// Counts and sizes for metrics.
    pub fn gauges(&self) -> JournalGauges {
        let slots = self.state.live_slots();
        let gauges = *lock(&self.state.gauges);
        JournalGauges {
            behind_tokens: slots.iter().map(|slot| slot.hidden_tokens()).sum(),
            is_durable: gauges.is_durable && !self.state.is(|state| &state.is_stalled),
            ..gauges
        }
    }

    /// Why records do not reach the disk; `None`: they do.
    pub fn problem(&self) -> Option<String> {
        if self.state.is(|state| &state.is_stalled) {
            return Some("the journal makes no progress".to_owned());
        }
        let impairment = lock(&self.state.gauges).impairment;
        impairment.map(|why| why.to_string())
    }
}

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
    /// As of the last commit, without tokens.
    pub(crate) gauges: Mutex<JournalGauges>,
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
            gauges: Mutex::default(),
            feed,
        })
    }

    /// Sets the handle that wakes the recorder's thread. To be called once.
    fn set_waker(&self, waker: JournalWaker) {
        let _ = self.waker.set(waker);
        self.wake_thread();
    }

    fn wake_thread(&self) {
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
        copy: JournalCopy,
        make: impl FnOnce(u64, u32) -> Arc<StreamSlot>,
    ) -> Arc<StreamSlot> {
        let serial = self.next_serial.fetch_add(1, Ordering::Relaxed);
        let index = lock(&self.news).take_index();
        let slot = make(serial, index);
        lock(&self.live).insert(serial, Arc::clone(&slot));
        lock(&self.news).push_new(TableEntry::new(&slot, copy));
        slot
    }

    pub(crate) fn remove_live(&self, serial: u64) {
        lock(&self.live).remove(&serial);
    }

    /// The live streams.
    fn live_slots(&self) -> Vec<Arc<StreamSlot>> {
        lock(&self.live).values().cloned().collect()
    }

    /// Counts bytes of a description; false beyond the bound.
    fn take_description_bytes(&self, bytes: usize) -> bool {
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

/// Time between two checks.
const PERIOD: Duration = Duration::from_millis(250);

/// Time without progress after which the gates are opened.
const STALL_MAX: Duration = Duration::from_secs(2);

/// The last progress of the recorder.
#[derive(Default)]
pub(crate) struct Watchdog {
    last: Option<(u64, Instant)>,
}

/// Watches the journal, from the time at which there is one. To be run as a task.
pub async fn watch_journal(slot: Arc<JournalSlot>) {
    let mut watchdog = Watchdog::default();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(journal) = slot.get() {
            watchdog.check_progress(journal, clock::now());
        }
    }
}

impl StreamJournal {
    fn is_running(&self) -> bool {
        let thread = lock(&self.thread);
        thread
            .as_ref()
            .is_some_and(journal::JournalThread::is_running)
    }

    /// Gives the recording of all present streams up.
    fn open_all_gates(&self) {
        for slot in self.state.live_slots() {
            slot.open_gates();
            slot.note_change();
        }
    }

    /// Returns the memory of streams that have ended while the thread stalls.
    fn drop_released_logs(&self) {
        if let Ok(mut table) = self.state.table.try_lock() {
            table.drop_released_logs();
        }
    }
}

impl Watchdog {
    /// Compares the recorder's progress with that of the last check.
    fn check_progress(&mut self, journal: &StreamJournal, now: Instant) {
        let state = &journal.state;
        if state.is(|state| &state.is_stopped) {
            return;
        }
        let beats = state.beats.load(Ordering::Acquire);
        let is_waiting = state.is(|state| &state.is_busy) || state.has_news();
        let before = self.last.filter(|(last, _)| is_waiting && *last == beats);
        let (_, since) = *self.last.insert(before.unwrap_or((beats, now)));
        let is_stalled = now.saturating_duration_since(since) >= STALL_MAX || !journal.is_running();
        let was_stalled = state.is_stalled.swap(is_stalled, Ordering::AcqRel);
        if is_stalled {
            journal.drop_released_logs();
        }
        if is_stalled && !was_stalled {
            tracing::error!("the journal makes no progress: streams are not durable");
            journal.open_all_gates();
        } else if was_stalled && !is_stalled {
            tracing::warn!("the journal makes progress again: new streams are durable");
        }
    }
}

/// Counts and sizes of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalGauges {
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Syncs that succeeded.
    pub syncs: u64,
    /// Writes, syncs and removals that failed.
    pub errors: u64,
    /// Streams that were rewritten.
    pub rewritten_streams: u64,
    /// Segments on the disk.
    pub segments: u64,
    /// Bytes of live streams' records.
    pub live_bytes: u64,
    /// Live streams.
    pub streams: u64,
    /// Whether records reach the disk.
    pub is_durable: bool,
    /// Why not.
    pub impairment: Option<Impairment>,
    /// Tokens that are generated and not shown yet.
    pub behind_tokens: u64,
}

impl JournalGauges {
    pub(crate) fn of_writer<F: FileSystem>(writer: &Writer<F>) -> Self {
        let (counts, sizes) = (writer.counts(), writer.sizes());
        Self {
            written_bytes: counts.written_bytes,
            syncs: counts.syncs,
            errors: counts.errors,
            rewritten_streams: counts.rewritten_streams,
            segments: sizes.segments as u64,
            live_bytes: sizes.live_bytes,
            streams: sizes.streams as u64,
            is_durable: writer.durability() == Durability::Durable,
            impairment: match writer.durability() {
                Durability::Durable => None,
                Durability::NotDurable(why) => Some(why),
            },
            behind_tokens: 0,
        }
    }
}

/// What the log says so far.
#[derive(Debug, Default)]
pub(crate) struct DurabilityLog {
    is_lost: bool,
}

/// A line that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueLine {
    Lost(journal::Impairment),
    Back,
}

impl DurabilityLog {
    /// Logs a change of the durability; `gaps` streams have missing records.
    pub(crate) fn note(&mut self, durability: Durability, gaps: usize) {
        match self.due_line(durability, gaps) {
            Some(DueLine::Lost(why)) => tracing::error!(
                "the journal is not durable: {why}; streams continue, and are lost if the process ends"
            ),
            Some(DueLine::Back) => {
                tracing::warn!("the journal is durable again, with all streams");
            }
            None => {}
        }
    }

    /// Durability is back when the disk has all streams again: a single write that succeeds says little, and each attempt
    /// would be a line.
    fn due_line(&mut self, durability: Durability, gaps: usize) -> Option<DueLine> {
        match (durability, self.is_lost) {
            (Durability::NotDurable(why), false) => {
                self.is_lost = true;
                Some(DueLine::Lost(why))
            }
            (Durability::Durable, true) if gaps == 0 => {
                self.is_lost = false;
                Some(DueLine::Back)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::Impairment;

    #[test]
    fn each_loss_of_durability_has_two_lines() {
        let full = Durability::NotDurable(Impairment::DiskFull);
        let slow = Durability::NotDurable(Impairment::SyncSlow);
        let lost = Some(DueLine::Lost(Impairment::DiskFull));
        let mut log = DurabilityLog::default();
        let steps = [
            (Durability::Durable, 0, None),
            (full, 1, lost),
            (full, 2, None),
            // An attempt: the streams are not whole yet.
            (Durability::Durable, 2, None),
            (slow, 2, None),
            (Durability::Durable, 0, Some(DueLine::Back)),
            (Durability::Durable, 0, None),
            (full, 0, lost),
        ];
        for (step, (durability, gaps, line)) in steps.into_iter().enumerate() {
            assert_eq!(log.due_line(durability, gaps), line, "step {step}");
        }
    }
}
