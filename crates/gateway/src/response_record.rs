//! A stored response: the input items, and the end.
//!
//! While the response is generated, the record refers to the stream. The first lookup after the end of the stream
//! decodes the answer from the log and releases the stream; so a client that received the end finds the whole
//! response at once.

use crate::streams::StreamRecord;
use bytes::Bytes;
use engine::Token;
use futures_util::StreamExt;
use generate::error::ApiError;
use generate::output::collected::CollectedAnswer;
use generate::output::replay;
use serde_json::{Map, Value};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use stream::{End, Owner, Read, StreamId};
use wire::json;
use wire::openai::finish_reason;
use wire::responses::input_page::InputItem;
use wire::responses::output_item;
use wire::responses::response_object::{self, ResponseStatus};
use wire::responses::stored_request::StoredRequest;

/// Tokens of a log that are read at a time.
const TOKENS_PER_READ: usize = 256;
/// Bytes of a record beside the texts.
const FIXED_BYTES: usize = 1024;

/// A response that is kept.
pub struct ResponseRecord {
    /// Id of the stream, which is the id of the response.
    pub id: StreamId,
    pub(crate) owner: Owner,
    /// Input items, each with an id.
    pub items: Box<[InputItem]>,
    /// The previous response of the conversation.
    pub(crate) previous: Option<StreamId>,
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

/// A response after the end.
pub struct EndedResponse {
    /// The response, as JSON.
    pub body: Bytes,
    /// Output items as JSON.
    pub(crate) items: Box<[Box<str>]>,
    /// The response never started, and the client never received the id.
    pub(crate) is_unknown: bool,
}

impl ResponseRecord {
    /// The record of a stream that was just opened. `fresh` makes ids for items that have none.
    pub(crate) fn new(
        entry: &Arc<StreamRecord>,
        note: StoredRequest,
        fresh: impl Fn() -> String,
    ) -> Self {
        let item = |item: Map<String, Value>| InputItem::new(item, &fresh);
        Self {
            id: entry.id(),
            owner: entry.terms().owner,
            items: note.items.into_iter().map(item).collect(),
            previous: note.previous,
            state: Mutex::new(RecordState::Running(Arc::clone(entry))),
        }
    }

    /// Bytes of the record without the ended response.
    pub(crate) fn record_bytes(&self) -> usize {
        let item = |item: &InputItem| item.id.len() + item.json.len();
        FIXED_BYTES + self.items.iter().map(item).sum::<usize>()
    }

    /// State of the response, and whether this lookup was the first after the end.
    pub(crate) fn look_up(&self) -> (ResponseLookup, bool) {
        // Nothing panics half-way through a change.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            RecordState::Ended(outcome) => (ResponseLookup::Ended(Arc::clone(outcome)), false),
            RecordState::Running(entry) if !entry.is_over() => {
                (ResponseLookup::Running(Arc::clone(entry)), false)
            }
            RecordState::Running(entry) => {
                let outcome = Arc::new(EndedResponse::of_stream(entry));
                *state = RecordState::Ended(Arc::clone(&outcome));
                (ResponseLookup::Ended(outcome), true)
            }
        }
    }
}

impl EndedResponse {
    /// The outcome of a stream that has ended.
    fn of_stream(entry: &Arc<StreamRecord>) -> Self {
        let answers = replay::answers(entry.source());
        let ends = || answers.iter().filter_map(|answer| answer.end);
        let refused = entry.rejection().cloned();
        let is_good = |end: &End| matches!(end, End::Stop(_) | End::Length);
        let broke = || {
            ends()
                .find(|end| !is_good(end))
                .map(finish_reason::end_error)
        };
        let error: Option<ApiError> = refused.or_else(broke);
        let status = match &error {
            Some(error) => ResponseStatus::of_error(error),
            None => ResponseStatus::of(ends().next()),
        };
        let opening = entry.terms();
        Self {
            body: response_body(entry, status, &answers),
            items: output_item::output_items(entry.source(), &answers)
                .iter()
                .map(|item| serde_json::to_string(item).unwrap_or_default().into())
                .collect(),
            is_unknown: entry.rejection().is_some() && !opening.resumable,
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
    let out = json::to_vec(&object);
    // Without spare capacity, because the bytes are stored.
    Bytes::from(out.to_vec().into_boxed_slice())
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
