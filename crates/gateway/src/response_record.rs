//! A stored response or chat completion: the request's items, and the end.
//!
//! While the response is generated, the record refers to the stream. The first lookup after the end of the stream
//! decodes the answer from the log and releases the stream; so a client that received the end finds the whole
//! response at once.

use crate::ended_response::EndedResponse;
use crate::stored_note::StoredNote;
use crate::streams::StreamRecord;
use engine::Token;
use futures_util::StreamExt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use stream::{Owner, Read, StreamId};
use wire::metadata::Metadata;

/// Tokens of a log that are read at a time.
const TOKENS_PER_READ: usize = 256;
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

/// Waits for the end of all choices, without reading the logs.
pub async fn wait_for_end(entry: &StreamRecord) {
    let Ok(started) = entry.wait_for_start().await else {
        return;
    };
    let mut changes = entry.transitions().follow_changes();
    while let Some(change) = changes.next().await {
        if matches!(change, generate::stream_change::Change::Ended { .. }) {
            break;
        }
    }
    // State changes are published before the logs are closed.
    for log in &started.choices {
        let Ok(mut reader) = log.tokens.attach(log.tokens.len()) else {
            continue;
        };
        let mut buffer = [Token {
            id: 0,
            logprob: 0.0,
        }; TOKENS_PER_READ];
        poll_fn(|cx| {
            loop {
                match reader.poll_read(cx, &mut buffer) {
                    Poll::Ready(Read::Ended(_)) => return Poll::Ready(()),
                    Poll::Ready(Read::Items(_)) => {}
                    Poll::Ready(Read::Empty) | Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }
}
