//! Stored chat completions (`"store": true`): found, listed, and changed. Only completions that ended well are visible.

use crate::ended_response::EndedResponse;
use crate::keys::Caller;
use crate::response_record::{ResponseLookup, ResponseRecord, metadata_bytes};
use crate::response_store::{ResponseStore, is_visible};
use generate::error::{ApiError, ErrorKind};
use std::sync::Arc;
use wire::metadata::Metadata;
use wire::openai::stored_completion;
use wire::stored_request::StoredKind;

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
            let kept = self.lock_stored();
            kept.by_age().filter(is_listed).cloned().collect()
        };
        let ended = records.into_iter();
        ended
            .filter_map(|record| self.ended_completion(record))
            .collect()
    }

    /// Replaces the metadata of a chat completion, also in the journal.
    pub async fn set_metadata(&self, completion: &mut StoredChat, metadata: Metadata) {
        self.replace_metadata(completion, metadata);
        let written = self.write_snapshot(&completion.record, &completion.outcome);
        if let Some(written) = written {
            written.written().await;
        }
    }

    fn replace_metadata(&self, completion: &mut StoredChat, metadata: Metadata) {
        let record = &completion.record;
        let limits = self.response_limits();
        let mut kept = self.lock_stored();
        let before = metadata_bytes(&record.metadata());
        let id = &record.response_id;
        let bytes = kept.bytes_of(id) + metadata_bytes(&metadata);
        let bytes = bytes.saturating_sub(before);
        record.set_metadata(metadata);
        kept.resize(id, bytes);
        kept.evict_to_fit(&limits);
        drop(kept);
        completion.metadata = completion.record.metadata();
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

fn unknown_completion() -> ApiError {
    let words = "there is no stored chat completion of this name, or it is no longer kept; \
                 only completions with \"store\": true are stored, when they have ended";
    ApiError::caller(ErrorKind::NotFound, "completion_not_found", words)
}
