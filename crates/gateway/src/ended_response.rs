//! The stored form of an ended answer: JSON, decoded once from the token logs.

use crate::stored_note::StoredNote;
use crate::streams::StreamRecord;
use bytes::{Bytes, BytesMut};
use generate::error::ApiError;
use generate::output::choice_reader as replay;
use generate::output::collected::CollectedAnswer;
use std::sync::Arc;
use stream::End;
use wire::clock;
use wire::json;
use wire::openai::stored_completion;
use wire::protocol::EncoderSettings;
use wire::responses::output_item;
use wire::responses::response_object::{self, ResponseStatus};
use wire::shared::finish_reason;
use wire::stored_request::StoredKind;

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
        let usage = replay::usage(source, answers);
        let mut completion = BytesMut::new();
        let encoder = encoding.encoder;
        encoder.encode_collected(answers, &started.tokenizer, usage, &mut completion);
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

fn is_good(end: End) -> bool {
    matches!(end, End::Stop(_) | End::Length)
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
