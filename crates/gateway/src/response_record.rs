//! A stored response or chat completion: the request's items, and the end.
//!
//! While the response is generated, the record refers to the stream. The first lookup after the end of the stream
//! decodes the answer from the log and releases the stream; so a client that received the end finds the whole
//! response at once.

use crate::durability::{DescriptionKind, ForgottenRecords, StoredBlob, StreamJournal};
use crate::ended_response::EndedResponse;
use crate::id_generator::IdGenerator;
use crate::stored_note::StoredNote;
use crate::stored_snapshot::{SNAPSHOT_VERSION, StoredSnapshot};
use crate::streams::StreamRecord;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stream::{Owner, StreamId};
use wire::clock;
use wire::metadata::Metadata;

/// Bytes of a record beside the texts.
const FIXED_BYTES: usize = 1024;

/// A response or chat completion that is stored.
pub struct ResponseRecord {
    /// Id of the response.
    pub response_id: Arc<str>,
    /// Id of the stream.
    pub id: StreamId,
    /// The model's name in the response.
    pub(crate) model: Box<str>,
    pub(crate) owner: Owner,
    /// Input items, and the previous response of the conversation.
    pub note: StoredNote,
    /// Metadata of a chat completion, which can be replaced.
    metadata: Mutex<Arc<Metadata>>,
    state: Mutex<RecordState>,
    /// The ended answer in the journal.
    blob: Mutex<StoredCopy>,
}

/// The copy of an answer in the journal.
#[derive(Default)]
struct StoredCopy {
    /// Wall time of the snapshot; 0 before the first.
    taken_unix_us: u64,
    blob: Option<Arc<StoredBlob>>,
    /// The answer was deleted: there is no further snapshot.
    is_deleted: bool,
}

/// The snapshots around a change of an answer.
pub(crate) struct WrittenSnapshot {
    before: Option<Arc<StoredBlob>>,
    new: Arc<StoredBlob>,
}

impl WrittenSnapshot {
    /// Waits until the new snapshot is in the journal, and then ends the retention of the one before.
    pub(crate) async fn written(self) {
        self.new.written().await;
        drop(self.before);
    }
}

enum RecordState {
    Running(Arc<StreamRecord>),
    Ended(Arc<EndedResponse>),
}

/// State of a stored response.
pub enum ResponseLookup {
    /// The response is being generated.
    Running(Arc<StreamRecord>),
    /// The response has ended.
    Ended(Arc<EndedResponse>),
}

impl ResponseRecord {
    /// The record of a stream that was just opened.
    pub(crate) fn new(entry: &Arc<StreamRecord>, note: StoredNote) -> Self {
        let meta = entry.meta();
        Self {
            response_id: meta.response_id.as_str().into(),
            id: entry.id(),
            model: meta.model.as_str().into(),
            owner: entry.terms().owner,
            metadata: Mutex::new(Arc::new(note.metadata.clone())),
            note,
            state: Mutex::new(RecordState::Running(Arc::clone(entry))),
            blob: Mutex::default(),
        }
    }

    /// The record of an answer that an earlier process has stored.
    pub(crate) fn restored(
        snapshot: StoredSnapshot,
        outcome: Arc<EndedResponse>,
        blob: StoredBlob,
    ) -> Self {
        Self {
            response_id: snapshot.response_id.into(),
            id: snapshot.stream,
            model: snapshot.model.into(),
            owner: Owner(snapshot.owner),
            metadata: Mutex::new(Arc::new(snapshot.note.metadata.clone())),
            note: snapshot.note,
            state: Mutex::new(RecordState::Ended(outcome)),
            blob: Mutex::new(StoredCopy {
                taken_unix_us: snapshot.taken_unix_us,
                blob: Some(Arc::new(blob)),
                is_deleted: false,
            }),
        }
    }

    /// Wall time of the last snapshot; 0 without a snapshot.
    pub(crate) fn taken_unix_us(&self) -> u64 {
        lock(&self.blob).taken_unix_us
    }

    /// Writes a snapshot of the ended answer to the journal. Without space in the journal, the snapshot of before stays.
    pub(crate) fn write_snapshot(
        &self,
        outcome: &EndedResponse,
        journal: &StreamJournal,
        ids: &IdGenerator,
    ) -> Option<WrittenSnapshot> {
        // Under the lock: the last snapshot has the last metadata.
        let mut copy = lock(&self.blob);
        if copy.is_deleted {
            return None;
        }
        let taken_unix_us = clock::unix_us().max(copy.taken_unix_us + 1);
        let snapshot = self.snapshot(outcome, taken_unix_us);
        let (description, outcome) = snapshot.encode(outcome).ok()?;
        let id = u128::from_be_bytes(ids.next_random());
        let new = Arc::new(journal.store_blob(id, description, outcome)?);
        copy.taken_unix_us = taken_unix_us;
        let before = copy.blob.replace(Arc::clone(&new));
        Some(WrittenSnapshot { before, new })
    }

    /// Ends the retention of the snapshot, for good.
    pub(crate) fn forget_snapshot(&self) -> ForgottenRecords {
        let mut forgotten = ForgottenRecords::default();
        let mut copy = lock(&self.blob);
        copy.is_deleted = true;
        if let Some(blob) = &copy.blob {
            blob.forget(&mut forgotten);
        }
        forgotten
    }

    fn snapshot(&self, outcome: &EndedResponse, taken_unix_us: u64) -> StoredSnapshot {
        StoredSnapshot {
            kind: DescriptionKind::StoredBlob,
            version: SNAPSHOT_VERSION,
            response_id: self.response_id.to_string(),
            stream: self.id,
            owner: self.owner.0,
            model: self.model.to_string(),
            ended_unix_us: outcome.ended_unix_us,
            taken_unix_us,
            note: StoredNote {
                metadata: Metadata::clone(&self.metadata()),
                ..self.note.clone()
            },
        }
    }

    /// Metadata of a chat completion.
    pub fn metadata(&self) -> Arc<Metadata> {
        Arc::clone(&lock(&self.metadata))
    }

    /// Replaces the metadata.
    pub(crate) fn set_metadata(&self, metadata: Metadata) {
        *lock(&self.metadata) = Arc::new(metadata);
    }

    /// Bytes of the record without the ended response.
    pub(crate) fn record_bytes(&self) -> usize {
        FIXED_BYTES + self.note.text_bytes() + metadata_bytes(&self.metadata())
    }

    /// State of the response, and whether this lookup was the first after the end.
    pub(crate) fn look_up(&self) -> (ResponseLookup, bool) {
        let mut state = lock(&self.state);
        match &*state {
            RecordState::Ended(outcome) => (ResponseLookup::Ended(Arc::clone(outcome)), false),
            RecordState::Running(entry) if !entry.is_over() => {
                (ResponseLookup::Running(Arc::clone(entry)), false)
            }
            RecordState::Running(entry) => {
                let outcome = Arc::new(EndedResponse::of_stream(entry, &self.note));
                *state = RecordState::Ended(Arc::clone(&outcome));
                (ResponseLookup::Ended(outcome), true)
            }
        }
    }
}

/// Bytes of metadata.
pub(crate) fn metadata_bytes(metadata: &Metadata) -> usize {
    let entries = metadata.iter();
    entries.map(|(name, value)| name.len() + value.len()).sum()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
