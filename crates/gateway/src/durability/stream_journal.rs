//! The journal of the server's streams.

use super::DESCRIPTION_BYTES_MAX;
use super::durable_stream::{DurableStream, StoredBlob};
use super::journal_metrics::JournalGauges;
use super::journal_state::{JournalState, lock};
use super::recorded_stream::RecordedStream;
use super::recorder::StreamRecorder;
use super::stream_news::StreamNews;
use super::stream_slot::StreamSlot;
use crate::streams::feed::StreamFeed;
use journal::{FileSystem, JournalThread, Recovered, RecoveredStream, StreamKey, Writer};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use wire::clock;

/// The journal with its thread.
pub struct StreamJournal {
    pub(crate) state: Arc<JournalState>,
    /// `None` after [`StreamJournal::stop`].
    pub(crate) thread: Mutex<Option<JournalThread>>,
}

/// A stream that an earlier process has left.
pub struct AdoptedStream {
    /// Everything that was recorded.
    pub recovered: Arc<RecoveredStream>,
    /// The handle for further records. The drop ends the retention of the stream.
    pub durable: DurableStream,
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
        feed: StreamFeed,
    ) -> io::Result<(Arc<Self>, Vec<AdoptedStream>)> {
        let bytes_max = usize::try_from(writer.live_bytes_max()).unwrap_or(usize::MAX);
        let state = JournalState::new(bytes_max, feed);
        let mut adopted = Vec::new();
        for stream in recovered.streams {
            let (key, recovered) = (stream.key, Arc::new(stream));
            let slot = adopt_slot(&state, &recovered);
            slot.set_durable(writer.is_durable(key));
            let durable = DurableStream::new(slot);
            adopted.push(AdoptedStream { recovered, durable });
        }
        let recorder = StreamRecorder::new(&state);
        let start = clock::now();
        let thread = JournalThread::start(writer, recorder, move || clock::now() - start)?;
        state.set_waker(thread.waker());
        let journal = Self {
            state,
            thread: Mutex::new(Some(thread)),
        };
        Ok((Arc::new(journal), adopted))
    }

    /// Continues a stream that another process has recorded elsewhere: everything is recorded here, too. `None`: the journal
    /// does not work.
    pub fn adopt_stream(&self, stream: RecoveredStream) -> Option<AdoptedStream> {
        if !self.is_working() {
            return None;
        }
        let recovered = Arc::new(RecoveredStream {
            key: StreamKey::NONE,
            ..stream
        });
        let slot = adopt_slot(&self.state, &recovered);
        let durable = DurableStream::new(slot);
        Some(AdoptedStream { recovered, durable })
    }

    /// Makes the journal's thread look for streams that its tap needs once more.
    pub fn wake(&self) {
        self.state.wake_thread();
    }

    /// Begins a stream. `None`: the journal does not work, or the description is too large.
    pub fn open_stream(&self, id: u128, description: Vec<u8>) -> Option<DurableStream> {
        let slot = self.insert_slot(id, description, StreamNews::default())?;
        Some(DurableStream::new(slot))
    }

    /// Records an object that is not a stream and stays on this machine. `None` as for [`StreamJournal::open_stream`].
    pub fn store_blob(
        &self,
        id: u128,
        description: Vec<u8>,
        outcome: Vec<u8>,
    ) -> Option<StoredBlob> {
        self.insert_blob(id, description, (outcome, true))
    }

    /// Records an object that is not a stream, which another gateway can take over as a stream. `None` as for
    /// [`StreamJournal::open_stream`].
    pub(crate) fn store_shared_blob(
        &self,
        id: u128,
        description: Vec<u8>,
        outcome: Vec<u8>,
    ) -> Option<StoredBlob> {
        self.insert_blob(id, description, (outcome, false))
    }

    fn insert_blob(
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
            let recorded = RecordedStream::default();
            StreamSlot::insert(&self.state, id, bytes, recorded, Some(news))
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
        let gauges = self.state.metrics.get();
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
        let impairment = self.state.metrics.get().impairment;
        impairment.map(|why| why.to_string())
    }
}

fn adopt_slot(state: &Arc<JournalState>, recovered: &Arc<RecoveredStream>) -> Arc<StreamSlot> {
    let recorded = RecordedStream::of_recovered(recovered);
    let first = recorded.key.is_none().then(StreamNews::default);
    let bytes = recorded.description.len();
    state.replace_description_bytes(0, bytes);
    StreamSlot::insert(state, recovered.id, bytes, recorded, first)
}
