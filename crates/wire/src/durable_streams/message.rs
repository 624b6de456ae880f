//! Messages of a durable stream: the jobs API's events of output and ends. Events and fields with times are left out
//! (`started`, `metrics`, `decode_time_ms`), since a message must be the same in every read.

use crate::json;
use crate::shared::event_parts::{StopReason, TokenRange, ToolCallEvent};
use crate::shared::job_error::JobError;
use crate::shared::job_outcome::{JobOutcome, job_outcome};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::event::{Delta, DeltaKind, Event, ToolCall};
use generate::stream_source::StreamSource;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use stream::End;

/// A message.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "DurableStreamMessage")]
pub enum DurableMessage<'a> {
    /// Text or reasoning.
    Token {
        /// The text.
        t: &'a str,
        /// `reasoning`; absent for text.
        #[serde(skip_serializing_if = "Option::is_none")]
        kind: Option<&'static str>,
        /// Tokens of the text.
        #[serde(flatten)]
        tokens: TokenRange,
        /// Index of the choice, where the stream has several.
        #[serde(skip_serializing_if = "Option::is_none")]
        choice: Option<usize>,
    },
    /// The end of a choice, or of a cancelled stream.
    End {
        /// Tokens of the choice; of the stream if cancelled.
        tokens_out: u64,
        /// Why the choice ended.
        #[serde(flatten)]
        reason: StopReason<'a>,
        /// Index of the choice, where the stream has several.
        #[serde(skip_serializing_if = "Option::is_none")]
        choice: Option<usize>,
    },
    /// The failure of the stream.
    Error(JobError<'a>),
    /// A part of a tool call.
    #[serde(untagged)]
    ToolCall {
        /// Name, arguments or end.
        #[serde(flatten)]
        part: ToolCallEvent<'a>,
        /// Tokens of the part.
        #[serde(flatten)]
        tokens: TokenRange,
        /// Index of the choice, where the stream has several.
        #[serde(skip_serializing_if = "Option::is_none")]
        choice: Option<usize>,
    },
}

/// Writes the messages of one stream.
pub struct MessageWriter {
    source: Arc<StreamSource>,
}

impl MessageWriter {
    /// A writer of this stream's messages.
    pub fn new(source: &Arc<StreamSource>) -> Self {
        let source = Arc::clone(source);
        Self { source }
    }

    /// Appends the message of an event of a choice, after a comma if `out` has messages.
    pub fn write_event(&self, event: &Event<'_>, out: &mut BytesMut) {
        match event {
            Event::Delta(delta) => write_message(&self.token_message(delta), out),
            Event::ToolCall(call) => write_message(&self.call_message(call), out),
            Event::ChoiceEnded {
                choice,
                end,
                tokens,
                ..
            } => write_message(&self.end_message(*end, *tokens, Some(*choice)), out),
            _ => {}
        }
    }

    /// Appends the last message of a stream that failed or was cancelled, with the tokens of all choices.
    pub fn write_failure(&self, end: End, tokens: u64, out: &mut BytesMut) {
        write_message(&self.end_message(end, tokens, None), out);
    }

    /// Appends the only message of a stream that never started.
    pub fn write_rejection(&self, error: &ApiError, out: &mut BytesMut) {
        match error.code {
            "cancelled" => self.write_failure(End::Cancelled, 0, out),
            _ => write_message(&DurableMessage::Error(JobError::new(error)), out),
        }
    }

    fn token_message<'a>(&self, delta: &Delta<'a>) -> DurableMessage<'a> {
        DurableMessage::Token {
            t: delta.text,
            kind: (delta.kind == DeltaKind::Reasoning).then_some("reasoning"),
            tokens: TokenRange::new(&delta.origin),
            choice: self.choice_index(delta.origin.choice),
        }
    }

    fn call_message<'a>(&self, call: &ToolCall<'a>) -> DurableMessage<'a> {
        DurableMessage::ToolCall {
            part: ToolCallEvent::new(call),
            tokens: TokenRange::new(&call.origin),
            choice: self.choice_index(call.origin.choice),
        }
    }

    fn end_message(&self, end: End, tokens_out: u64, choice: Option<usize>) -> DurableMessage<'_> {
        match job_outcome(end) {
            JobOutcome::End { reason, stop } => DurableMessage::End {
                tokens_out,
                reason: StopReason::new(reason, stop, &self.source.meta().stops),
                choice: choice.and_then(|choice| self.choice_index(choice)),
            },
            JobOutcome::Error(error) => DurableMessage::Error(error),
        }
    }

    /// Index of the choice, where the stream has several.
    fn choice_index(&self, choice: usize) -> Option<usize> {
        (self.source.meta().choices > 1).then_some(choice)
    }
}

fn write_message(message: &DurableMessage<'_>, out: &mut BytesMut) {
    if !out.is_empty() {
        json::raw(out, ",");
    }
    json::write(message, out);
}
