//! A stored response or chat completion: the request's items, and the end.
//!
//! While the response is generated, the record refers to the stream. The first lookup after the end of the stream
//! decodes the answer from the log and releases the stream; so a client that received the end finds the whole
//! response at once.

use super::stored_snapshot::{SNAPSHOT_VERSION, StoredNote, StoredSnapshot};
use crate::id_generator::IdGenerator;
use crate::locks::lock;
use crate::records::DescriptionKind;
use crate::streams::{ForgottenRecords, StoredBlob, StreamJournal, StreamRecord};
use bytes::{Bytes, BytesMut};
use generate::error::ApiError;
use generate::output::choice_reader as replay;
use generate::output::collected::CollectedAnswer;
use generate::output::generation_reader::is_good;
use journal::BlobReference;
use std::sync::{Arc, Mutex};
use stream::{Owner, StreamId};
use wire::encoder::Collected;
use wire::openai::stored_completion;
use wire::protocol::EncoderSettings;
use wire::responses::output_item;
use wire::responses::response_object::{self, ResponseStatus};
use wire::shared::finish_reason;
use wire::stored_request::{Metadata, StoredKind};
use wire::{clock, json};

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
    state: Mutex<ResponseLookup>,
    /// The ended answer in the journal.
    blob: Mutex<StoredCopy>,
    /// Files of the note's images, which are removed with the last answer or stream that names them.
    _images: Vec<BlobReference>,
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

/// State of a stored response.
#[derive(Clone)]
pub enum ResponseLookup {
    /// The response is being generated.
    Running(Arc<StreamRecord>),
    /// The response has ended.
    Ended(Arc<EndedResponse>),
}

impl ResponseRecord {
    /// The record of a stream that was just opened.
    pub(crate) fn new(
        entry: &Arc<StreamRecord>,
        note: StoredNote,
        images: Vec<BlobReference>,
    ) -> Self {
        let meta = entry.meta();
        Self {
            response_id: meta.response_id.as_str().into(),
            id: entry.id(),
            model: meta.model.as_str().into(),
            owner: entry.terms().owner,
            metadata: Mutex::new(Arc::new(note.metadata.clone())),
            note,
            state: Mutex::new(ResponseLookup::Running(Arc::clone(entry))),
            blob: Mutex::default(),
            _images: images,
        }
    }

    /// The record of an answer that an earlier process has stored.
    pub(crate) fn restored(
        snapshot: StoredSnapshot,
        outcome: Arc<EndedResponse>,
        (blob, images): (StoredBlob, Vec<BlobReference>),
    ) -> Self {
        Self {
            response_id: snapshot.response_id.into(),
            id: snapshot.stream,
            model: snapshot.model.into(),
            owner: Owner(snapshot.owner),
            metadata: Mutex::new(Arc::new(snapshot.note.metadata.clone())),
            note: snapshot.note,
            state: Mutex::new(ResponseLookup::Ended(outcome)),
            blob: Mutex::new(StoredCopy {
                taken_unix_us: snapshot.taken_unix_us,
                blob: Some(Arc::new(blob)),
                is_deleted: false,
            }),
            _images: images,
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
        let new = Arc::new(journal.store_blob(id, description, (outcome, true))?);
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
        FIXED_BYTES + self.note.stored_bytes() + metadata_bytes(&self.metadata())
    }

    /// State of the response, and whether this lookup was the first after the end.
    pub(crate) fn look_up(&self) -> (ResponseLookup, bool) {
        let mut state = lock(&self.state);
        let ended = match &*state {
            ResponseLookup::Running(entry) if entry.is_over() => {
                EndedResponse::of_stream(entry, &self.note)
            }
            known => return (known.clone(), false),
        };
        *state = ResponseLookup::Ended(Arc::new(ended));
        (state.clone(), true)
    }
}

/// Bytes of metadata.
pub(crate) fn metadata_bytes(metadata: &Metadata) -> usize {
    let entries = metadata.iter();
    entries.map(|(name, value)| name.len() + value.len()).sum()
}

/// A response or chat completion after the end.
pub struct EndedResponse {
    /// The answer as JSON; a chat completion without metadata.
    pub body: Bytes,
    /// Output items of a response as JSON.
    pub(crate) items: Box<[Box<str>]>,
    /// Wall time at which the end was noticed.
    pub(crate) ended_unix_us: u64,
    /// The answer is not to be stored: a response that never started and whose id the client never received, or a
    /// chat completion that failed.
    pub(crate) is_discarded: bool,
}

impl EndedResponse {
    /// The outcome of a stream that has ended.
    pub(crate) fn of_stream(entry: &Arc<StreamRecord>, note: &StoredNote) -> Self {
        let answers = replay::answers(entry.source());
        match note.kind {
            StoredKind::Response => Self::of_response(entry, &answers),
            StoredKind::ChatCompletion => Self::of_completion(entry, note, &answers),
        }
    }

    fn of_response(entry: &Arc<StreamRecord>, answers: &[CollectedAnswer]) -> Self {
        let ends = || answers.iter().filter_map(|answer| answer.end);
        let refused = entry.rejection().cloned();
        let broke = || {
            ends()
                .find(|end| !is_good(*end))
                .map(finish_reason::end_error)
        };
        let error: Option<ApiError> = refused.or_else(broke);
        let status = match &error {
            Some(error) => ResponseStatus::of_error(error),
            None => ResponseStatus::of(ends().next()),
        };
        let opening = entry.terms();
        Self {
            body: response_body(entry, status, answers),
            items: output_item::output_items(entry.source(), answers)
                .iter()
                .map(|item| serde_json::to_string(item).unwrap_or_default().into())
                .collect(),
            ended_unix_us: clock::unix_us(),
            is_discarded: entry.rejection().is_some() && !opening.resumable,
        }
    }

    /// As OpenAI, only completions that ended well are stored.
    fn of_completion(
        entry: &Arc<StreamRecord>,
        note: &StoredNote,
        answers: &[CollectedAnswer],
    ) -> Self {
        let (source, terms) = (entry.source(), entry.terms());
        let is_complete = |answer: &CollectedAnswer| answer.end.is_some_and(is_good);
        let started = source.started();
        let Some(started) = started.filter(|_| answers.iter().all(is_complete)) else {
            return Self::discarded();
        };
        let settings = EncoderSettings {
            reasoning_field: terms.reasoning_field,
        };
        let encoding = terms.protocol.encoding(source, terms.framing, settings);
        let collected = Collected {
            answers,
            tokenizer: &started.tokenizer,
            usage: replay::usage(source, answers),
        };
        let mut completion = BytesMut::new();
        let encoder = encoding.encoder;
        encoder.encode_collected(collected, &mut completion);
        let completion = std::str::from_utf8(&completion).unwrap_or_default();
        let body = stored_completion::add_members(completion, &note.repeated_fields);
        Self {
            body: exact_bytes(body.as_bytes()),
            items: Box::default(),
            ended_unix_us: clock::unix_us(),
            is_discarded: false,
        }
    }

    fn discarded() -> Self {
        Self {
            body: Bytes::new(),
            items: Box::default(),
            ended_unix_us: clock::unix_us(),
            is_discarded: true,
        }
    }

    /// Bytes of the ended response.
    pub(crate) fn response_bytes(&self) -> usize {
        self.body.len() + self.items.iter().map(|item| item.len()).sum::<usize>()
    }
}

fn response_body(
    entry: &StreamRecord,
    status: ResponseStatus<'_>,
    answers: &[CollectedAnswer],
) -> Bytes {
    let source = entry.source();
    let object = match entry.started() {
        Some(_) => {
            response_object::ended_response(source, status, answers, replay::usage(source, answers))
        }
        None => response_object::response_object(source, status, None, Vec::new()),
    };
    exact_bytes(&json::to_vec(&object))
}

/// Bytes without spare capacity, because the bytes are stored.
fn exact_bytes(bytes: &[u8]) -> Bytes {
    Bytes::from(bytes.to_vec().into_boxed_slice())
}
