//! Stored responses and chat completions, each visible to the owner only. Of chat completions (`"store": true`) only
//! those that ended well are visible.
//!
//! The container ([`FairLru`]) bounds their number and the bytes of their input and output. An answer is registered when
//! the stream is opened, and becomes JSON at the first lookup after the end.

use super::fair_lru::FairLru;
use super::image_files::{self, ImageFiles};
use super::response_record::{
    EndedResponse, ResponseLookup, ResponseRecord, WrittenSnapshot, metadata_bytes,
};
use super::stored_snapshot::{StoredNote, StoredSnapshot, is_stored_answer};
use crate::id_generator::IdGenerator;
use crate::keys::{Caller, Scope};
use crate::limits::LiveLimits;
use crate::locks::lock;
use crate::media::MediaHandles;
use crate::streams::answer_storage::AnswerStorage;
use crate::streams::{ForgottenRecords, JournalSlot, RecoveredHandle, StoredBlob, StreamRecord};
use generate::error::{ApiError, ErrorKind};
use generate::request::MESSAGES_MAX;
use journal::BlobStore;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use stream::StreamId;
use wire::clock;
use wire::openai::stored_completion;
use wire::responses::ID_PREFIX;
use wire::stored_request::{History, IMAGE_LOST, Metadata, StoredKind};

/// Answers that are stored.
pub struct ResponseStore {
    kept: Mutex<FairLru<Arc<ResponseRecord>>>,
    limits: Arc<LiveLimits>,
    journal: Arc<JournalSlot>,
    ids: Arc<IdGenerator>,
    media: Arc<MediaHandles>,
    /// Answers of an earlier process that this one cannot read. Their bytes stay in the journal.
    unreadable: Mutex<Vec<StoredBlob>>,
}

/// A response of a conversation with its answer.
type Said = (Arc<ResponseRecord>, Arc<EndedResponse>);

/// Input and output items up to and including a response; the oldest first.
pub struct StoredHistory {
    said: Vec<Said>,
    /// Items with their images, by the number of the response and of the item.
    seen: HashMap<(usize, usize), String>,
}

/// The images of a conversation that a request continues, read before the request is parsed.
#[derive(Debug, Default)]
pub struct HistoryImages {
    /// The response that the request names.
    id: Option<String>,
    files: ImageFiles,
}

impl StoredHistory {
    /// Puts the images into their items.
    ///
    /// # Errors
    /// An image is lost: without it, the conversation would be another one.
    fn add_images(&mut self, files: &ImageFiles) -> Result<(), ApiError> {
        for (number, (record, _)) in self.said.iter().enumerate() {
            if record
                .note
                .images()
                .any(|image| files.find(image).is_none())
            {
                let words =
                    "previous_response_id: an image of that conversation is lost: send it again";
                return Err(previous_missing(IMAGE_LOST, words));
            }
            let items = record.note.items.iter().enumerate();
            for (item, stored) in items.filter(|(_, item)| !item.images.is_empty()) {
                let json = stored.with_images(&|image| files.find(image));
                self.seen.insert((number, item), json.into_owned());
            }
        }
        Ok(())
    }
}

impl History for StoredHistory {
    fn id(&self) -> Option<StreamId> {
        self.said.last().map(|(record, _)| record.id)
    }

    fn items(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        let said = self.said.iter().enumerate();
        Box::new(said.flat_map(move |(number, (record, outcome))| {
            let asked = record
                .note
                .items
                .iter()
                .enumerate()
                .map(move |(item, stored)| {
                    let seen = self.seen.get(&(number, item)).map(String::as_str);
                    seen.unwrap_or(&stored.json)
                });
            asked.chain(outcome.items.iter().map(|item| &**item))
        }))
    }
}

/// A stored chat completion.
pub struct StoredChat {
    /// The record in the store.
    pub record: Arc<ResponseRecord>,
    /// Metadata when the completion was looked up.
    pub metadata: Arc<Metadata>,
    outcome: Arc<EndedResponse>,
}

impl StoredChat {
    /// The model's name in the completion.
    pub fn model(&self) -> &str {
        &self.record.model
    }

    /// The completion as JSON, with the metadata.
    pub fn json(&self) -> String {
        let completion = std::str::from_utf8(&self.outcome.body).unwrap_or_default();
        stored_completion::with_metadata(completion, &self.metadata)
    }
}

impl ResponseStore {
    /// None yet.
    pub(crate) fn new(
        limits: Arc<LiveLimits>,
        journal: Arc<JournalSlot>,
        (ids, media): (Arc<IdGenerator>, Arc<MediaHandles>),
    ) -> Self {
        Self {
            kept: Mutex::default(),
            limits,
            journal,
            ids,
            media,
            unreadable: Mutex::default(),
        }
    }

    /// Applies changed limits: evicts responses above the bounds.
    pub(crate) fn apply_limits(&self) {
        let limits = self.limits.now().responses;
        lock(&self.kept).evict_to_fit(&limits);
    }

    /// Stores the answer of a stream that was just opened. To be called inside a runtime.
    ///
    /// # Errors
    /// The store is full of running answers.
    pub(crate) fn store_response(
        self: &Arc<Self>,
        entry: &Arc<StreamRecord>,
        note: StoredNote,
    ) -> Result<(), ApiError> {
        if self.insert_running(entry, note) {
            return Ok(());
        }
        let words = "there is no room to keep another response: send \"store\": false";
        Err(ApiError::capacity(
            "response_store_full",
            words,
            self.limits.now().retry_after,
        ))
    }

    /// Stores the answer of a stream that was recovered from the journal, with the note in its description, unless the
    /// ended answer is stored. To be called inside a runtime.
    pub fn restore_running(self: &Arc<Self>, entry: &Arc<StreamRecord>, note: &Value) {
        let response = &entry.meta().response_id;
        let note = match StoredNote::deserialize(note) {
            Ok(note) => note,
            Err(error) => {
                tracing::warn!(%error, response, "a recovered response is not stored: the note cannot be read");
                return;
            }
        };
        let is_stored = lock(&self.kept).get(response).is_some();
        if !is_stored && !self.insert_running(entry, note) {
            tracing::warn!(
                response,
                "a recovered response is not stored: 4096 are, or responses.stored_bytes is reached"
            );
        }
    }

    /// Restores the stored answers among the streams of a journal, and returns the others.
    pub fn restore_answers(&self, objects: Vec<RecoveredHandle>) -> Vec<RecoveredHandle> {
        let (answers, streams): (Vec<_>, Vec<_>) = objects
            .into_iter()
            .partition(|object| is_stored_answer(&object.records.description));
        for RecoveredHandle { records, durable } in answers {
            let outcome = records.outcome.as_deref().unwrap_or_default();
            self.restore(&records.description, outcome, durable.into());
        }
        streams
    }

    /// Restores an answer that an earlier process has written to the journal. An answer that cannot be read is logged,
    /// and stays in the journal.
    fn restore(&self, description: &[u8], outcome: &[u8], blob: StoredBlob) {
        match StoredSnapshot::decode(description, outcome) {
            Ok((snapshot, outcome)) => self.insert_ended(snapshot, outcome, blob),
            Err(error) => {
                tracing::warn!(%error, "a stored response of an earlier process cannot be read, and stays in the journal");
                let mut unreadable = lock(&self.unreadable);
                unreadable.push(blob);
            }
        }
    }

    /// Inserts a restored answer, unless a later snapshot of the answer is stored. The answer replaces that of a recovered
    /// stream.
    fn insert_ended(&self, snapshot: StoredSnapshot, outcome: EndedResponse, blob: StoredBlob) {
        let (created, taken) = (snapshot.note.created_unix_us, snapshot.taken_unix_us);
        let (ended, response_bytes) = (outcome.ended_unix_us, outcome.response_bytes());
        let images = image_files::references(snapshot.note.images(), self.blobs());
        let blobs = (blob, images);
        let record = Arc::new(ResponseRecord::restored(snapshot, Arc::new(outcome), blobs));
        let (id, bytes) = (&record.response_id, record.record_bytes());
        let limits = self.limits.now().responses;
        let mut kept = lock(&self.kept);
        if kept
            .get(id)
            .is_some_and(|known| known.taken_unix_us() >= taken)
        {
            return;
        }
        kept.insert(id, (record.owner, Arc::clone(&record)), bytes, created);
        kept.mark_ended(id, response_bytes, ended);
        kept.evict_to_fit(&limits);
    }

    /// Writes the ended answer to the journal, if there is one.
    fn write_snapshot(
        &self,
        record: &ResponseRecord,
        outcome: &EndedResponse,
    ) -> Option<WrittenSnapshot> {
        let journal = self.journal.get().filter(|_| record.note.is_durable)?;
        record.write_snapshot(outcome, journal, &self.ids)
    }

    /// False: the store is full of running answers.
    fn insert_running(self: &Arc<Self>, entry: &Arc<StreamRecord>, note: StoredNote) -> bool {
        let created = note.created_unix_us;
        let images = image_files::references(note.images(), self.blobs());
        let record = Arc::new(ResponseRecord::new(entry, note, images));
        let limits = self.limits.now().responses;
        let (id, bytes) = (&record.response_id, record.record_bytes());
        let mut kept = lock(&self.kept);
        kept.insert(id, (record.owner, Arc::clone(&record)), bytes, created);
        if !kept.evict_to_fit(&limits) {
            kept.remove(id);
            return false;
        }
        drop(kept);
        let pending = record.note.is_durable.then(|| {
            let (pending, storage) = AnswerStorage::begin(&self.journal);
            entry.set_storage(storage);
            pending
        });
        let (store, entry) = (Arc::clone(self), Arc::clone(entry));
        tokio::spawn(async move {
            entry.wait_for_end().await;
            if entry.has_left() {
                // The next owner stores the answer.
                return;
            }
            if let Some(snapshot) = store.write_ended(&record) {
                snapshot.written().await;
            }
            // Until here the records of the stream itself stay, and readers wait for the end.
            drop((entry, pending));
        });
        true
    }

    /// Where a response is.
    pub fn look_up(&self, record: &Arc<ResponseRecord>) -> ResponseLookup {
        let (look, has_just_ended) = record.look_up();
        if let (ResponseLookup::Ended(outcome), true) = (&look, has_just_ended) {
            self.record_end(record, outcome);
        }
        look
    }

    /// Writes the answer of a stream that has ended to the journal, unless the answer was deleted, evicted, or restored from a
    /// snapshot.
    fn write_ended(&self, record: &Arc<ResponseRecord>) -> Option<WrittenSnapshot> {
        let ResponseLookup::Ended(outcome) = self.look_up(record) else {
            return None;
        };
        let known = lock(&self.kept).get(&record.response_id).cloned();
        known.filter(|known| Arc::ptr_eq(known, record) && !outcome.is_discarded)?;
        self.write_snapshot(record, &outcome)
    }

    /// The answer has ended: from now on the answer can be evicted.
    fn record_end(&self, record: &Arc<ResponseRecord>, outcome: &EndedResponse) {
        let limits = self.limits.now().responses;
        let id = &record.response_id;
        let mut kept = lock(&self.kept);
        // Not where the answer was deleted, or restored from a snapshot.
        if kept.get(id).is_none_or(|known| !Arc::ptr_eq(known, record)) {
            return;
        }
        if outcome.is_discarded {
            return kept.remove(id);
        }
        kept.mark_ended(id, outcome.response_bytes(), outcome.ended_unix_us);
        kept.evict_to_fit(&limits);
    }

    /// The response of this id, if visible to the caller.
    ///
    /// # Errors
    /// The caller has no such response.
    pub fn find_response(
        &self,
        id: &str,
        caller: &Caller,
    ) -> Result<Arc<ResponseRecord>, ApiError> {
        self.find_record(id, StoredKind::Response, caller)
            .ok_or_else(unknown_response)
    }

    /// The answer of this id and kind, if visible to the caller; counts as a use.
    fn find_record(
        &self,
        id: &str,
        kind: StoredKind,
        caller: &Caller,
    ) -> Option<Arc<ResponseRecord>> {
        let mut kept = lock(&self.kept);
        let found = kept.get(id)?;
        if found.note.kind != kind || !is_visible(found, caller) {
            return None;
        }
        kept.mark_used(id, clock::unix_us())
    }

    /// Forgets one. The records of its stream are another matter.
    pub fn remove(&self, record: &ResponseRecord) -> ForgottenRecords {
        lock(&self.kept).remove(&record.response_id);
        record.forget_snapshot()
    }

    /// Input and output items up to the response of this id, with these images where it is the one that they were read for.
    ///
    /// # Errors
    /// The response, or an earlier one of the conversation, is not stored for this caller; the response is running; or an
    /// image is lost.
    pub fn history(
        &self,
        id: &str,
        caller: &Caller,
        images: &HistoryImages,
    ) -> Result<StoredHistory, ApiError> {
        let mut history = StoredHistory {
            said: self.conversation(id, caller)?,
            seen: HashMap::new(),
        };
        if images.id.as_deref() == Some(id) {
            history.add_images(&images.files)?;
        }
        Ok(history)
    }

    /// Reads the images of a conversation for [`Self::history`].
    pub async fn history_images(&self, id: Option<&str>, caller: &Caller) -> HistoryImages {
        // Errors are those of the history.
        let said = id.and_then(|id| self.conversation(id, caller).ok());
        let Some(said) = said else {
            return HistoryImages::default();
        };
        let records: Vec<_> = said.into_iter().map(|(record, _)| record).collect();
        HistoryImages {
            id: id.map(str::to_owned),
            files: ImageFiles::read(&records, self.blobs(), &self.media).await,
        }
    }

    /// Reads the images of an answer's request.
    pub async fn images_of(&self, record: &Arc<ResponseRecord>) -> ImageFiles {
        ImageFiles::read(&[Arc::clone(record)], self.blobs(), &self.media).await
    }

    fn blobs(&self) -> Option<&BlobStore> {
        self.journal.get()?.blobs()
    }

    /// The responses of a conversation up to this one, the oldest first.
    fn conversation(&self, id: &str, caller: &Caller) -> Result<Vec<Said>, ApiError> {
        let mut said = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next {
            let record = self
                .find_response(&id, caller)
                .map_err(|_| no_such_previous())?;
            let ResponseLookup::Ended(outcome) = self.look_up(&record) else {
                let words = "previous_response_id: that response is still in progress";
                return Err(previous_missing("previous_response_in_progress", words));
            };
            next = record.note.previous.map(|id| format!("{ID_PREFIX}{id}"));
            said.push((record, outcome));
            if said.len() > MESSAGES_MAX {
                let words = format!("previous_response_id: has more than {MESSAGES_MAX} before it");
                return Err(previous_missing("invalid_value", &words));
            }
        }
        said.reverse();
        Ok(said)
    }

    /// The chat completion of this id, if visible to the caller; counts as a use.
    ///
    /// # Errors
    /// The caller has no such completion.
    pub fn find_completion(&self, id: &str, caller: &Caller) -> Result<StoredChat, ApiError> {
        let found = self.find_record(id, StoredKind::ChatCompletion, caller);
        found
            .and_then(|record| self.ended_completion(record))
            .ok_or_else(unknown_completion)
    }

    /// All chat completions that the caller may see, the oldest first.
    pub fn completions(&self, caller: &Caller) -> Vec<StoredChat> {
        let is_listed = |record: &&Arc<ResponseRecord>| {
            record.note.kind == StoredKind::ChatCompletion && is_visible(record, caller)
        };
        let records: Vec<_> = {
            let kept = lock(&self.kept);
            kept.by_age().filter(is_listed).cloned().collect()
        };
        let ended = records.into_iter();
        ended
            .filter_map(|record| self.ended_completion(record))
            .collect()
    }

    /// Replaces the metadata of a chat completion, also in the journal.
    pub async fn set_metadata(&self, completion: &mut StoredChat, metadata: Metadata) {
        self.replace_metadata(&completion.record, metadata);
        completion.metadata = completion.record.metadata();
        let written = self.write_snapshot(&completion.record, &completion.outcome);
        if let Some(written) = written {
            written.written().await;
        }
    }

    fn replace_metadata(&self, record: &ResponseRecord, metadata: Metadata) {
        let limits = self.limits.now().responses;
        let mut kept = lock(&self.kept);
        let before = metadata_bytes(&record.metadata());
        let id = &record.response_id;
        let bytes = kept.bytes_of(id) + metadata_bytes(&metadata);
        let bytes = bytes.saturating_sub(before);
        record.set_metadata(metadata);
        kept.resize(id, bytes);
        kept.evict_to_fit(&limits);
    }

    fn ended_completion(&self, record: Arc<ResponseRecord>) -> Option<StoredChat> {
        match self.look_up(&record) {
            ResponseLookup::Ended(outcome) if !outcome.is_discarded => Some(StoredChat {
                metadata: record.metadata(),
                record,
                outcome,
            }),
            _ => None,
        }
    }
}

/// Whether the caller may see an answer.
fn is_visible(record: &ResponseRecord, caller: &Caller) -> bool {
    record.owner == caller.owner || caller.scopes.has(Scope::Admin)
}

fn unknown_response() -> ApiError {
    let words = "there is no response of this name, or it is no longer kept";
    ApiError::caller(ErrorKind::NotFound, "response_not_found", words)
}

fn no_such_previous() -> ApiError {
    let words = "previous_response_id: it, or a response before it, is not kept here (any more)";
    previous_missing("previous_response_not_found", words)
}

fn previous_missing(code: &'static str, words: &str) -> ApiError {
    ApiError::field("previous_response_id", code, words)
}

fn unknown_completion() -> ApiError {
    let words = "there is no stored chat completion of this name, or it is no longer kept; \
                 only completions with \"store\": true are stored, when they have ended";
    ApiError::caller(ErrorKind::NotFound, "completion_not_found", words)
}

#[cfg(test)]
#[path = "response_store_tests.rs"]
mod tests;
