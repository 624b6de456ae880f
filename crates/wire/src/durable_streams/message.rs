//! Messages of a durable stream: the jobs API's events of output and ends. Events and fields with times are left out
//! (`started`, `metrics`, `decode_time_ms`), since a message must be the same in every read.
//!
//! Live reads: the cursor that keeps caches from answering with an old response again, and the control event after the
//! messages of an event stream.
//!
//! Offsets: sixteen digits, the number of steps. Where a stream has several choices, six digits of the choice and `_`
//! precede the steps. Offsets of one stream sort as text in the order of their positions.

use crate::json;
use crate::schema::written_as;
use crate::shared::event_parts::{CallEvent, StopReason, TextEvent, choice_index};
use crate::shared::job_outcome::{JobError, JobOutcome, job_outcome};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::event::Event;
use generate::stream_source::StreamSource;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::fmt::{self, Display};
use std::sync::Arc;
use stream::End;

/// A message.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "DurableStreamMessage")]
pub enum DurableMessage<'a> {
    /// Text or reasoning.
    Token(TextEvent<'a>),
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
    ToolCall(CallEvent<'a>),
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
            Event::Delta(delta) => {
                let message = TextEvent::new(delta, self.choices());
                write_message(&DurableMessage::Token(message), out);
            }
            Event::ToolCall(call) => {
                let message = CallEvent::new(call, self.choices());
                write_message(&DurableMessage::ToolCall(message), out);
            }
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

    fn choices(&self) -> usize {
        self.source.meta().choices
    }

    fn end_message(&self, end: End, tokens_out: u64, choice: Option<usize>) -> DurableMessage<'_> {
        match job_outcome(end) {
            JobOutcome::End { reason, stop } => DurableMessage::End {
                tokens_out,
                reason: StopReason::new(reason, stop, &self.source.meta().stops),
                choice: choice.and_then(|choice| choice_index(choice, self.choices())),
            },
            JobOutcome::Error(error) => DurableMessage::Error(error),
        }
    }
}

fn write_message(message: &DurableMessage<'_>, out: &mut BytesMut) {
    if !out.is_empty() {
        json::raw(out, ",");
    }
    json::write(message, out);
}

/// Beginning of the protocol's time in seconds since the Unix epoch: 2024-10-09T00:00:00Z.
const CURSOR_EPOCH_S: u64 = 1_728_432_000;
/// Length of an interval of the protocol's time in seconds.
const INTERVAL_S: u64 = 20;
/// Limit of the intervals by which a cursor precedes that of the client: an hour.
const JITTER_INTERVALS: u64 = 3600 / INTERVAL_S;

/// The cursor of a response: the current interval, or, for a client that has that cursor already, a later one.
/// `random` is any number.
pub fn response_cursor(client: Option<&str>, now_unix_s: u64, random: u64) -> u64 {
    let current = now_unix_s.saturating_sub(CURSOR_EPOCH_S) / INTERVAL_S;
    let client = client.and_then(|cursor| cursor.parse::<u64>().ok());
    match client.filter(|client| *client >= current) {
        Some(client) => client.saturating_add(1 + random % JITTER_INTERVALS),
        None => current,
    }
}

/// A cursor as text.
pub struct LiveCursor(pub u64);

written_as!(LiveCursor => String);

impl Serialize for LiveCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The control event of an event stream: the client's position after the messages before.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DurableStreamControl")]
pub struct ControlEvent {
    /// The offset to continue from.
    pub stream_next_offset: OffsetText,
    /// The cursor to send with the next request; absent at the end of the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_cursor: Option<LiveCursor>,
    /// True if the client has all messages.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub up_to_date: bool,
    /// True if the client has all messages and the stream has ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stream_closed: bool,
}

/// Writes the messages, without brackets, as one event; no event without messages.
pub fn write_messages(messages: &[u8], out: &mut BytesMut) {
    if !messages.is_empty() {
        json::raw(out, "event: data\ndata: [");
        out.extend_from_slice(messages);
        json::raw(out, "]\n\n");
    }
}

/// Writes a control event.
pub fn write_control(control: &ControlEvent, out: &mut BytesMut) {
    json::raw(out, "event: control\ndata: ");
    json::write(control, out);
    json::raw(out, "\n\n");
}

/// Writes a comment that keeps an idle connection open.
pub fn write_ping(out: &mut BytesMut) {
    json::raw(out, ": ping\n\n");
}

/// Digits of a number of steps.
const STEP_DIGITS: usize = 16;
/// Digits of a choice.
const CHOICE_DIGITS: usize = 6;

/// A position in a stream, one choice after another: all of the earlier choices, and so many steps of
/// this one (see [`Position`](generate::output::position::Position)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepOffset {
    /// Index of the choice.
    pub choice: usize,
    /// Whole steps of the choice.
    pub steps: u64,
}

impl StepOffset {
    /// Parses an offset of a stream with `choices` choices.
    pub fn parse(text: &str, choices: usize) -> Option<Self> {
        let (choice, steps) = match choices {
            1 => (0, text),
            _ => {
                let (choice, steps) = text.split_once('_')?;
                (parse_digits(choice, CHOICE_DIGITS)?, steps)
            }
        };
        let choice = usize::try_from(choice).ok()?;
        let steps = parse_digits(steps, STEP_DIGITS)?;
        (choice < choices).then_some(Self { choice, steps })
    }

    /// The offset as text, for a stream with `choices` choices.
    pub fn of_choices(self, choices: usize) -> OffsetText {
        OffsetText {
            offset: self,
            has_choice: choices != 1,
        }
    }
}

fn parse_digits(text: &str, digits: usize) -> Option<u64> {
    let plain = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// An offset as text.
#[derive(Clone, Copy)]
pub struct OffsetText {
    offset: StepOffset,
    has_choice: bool,
}

impl Display for OffsetText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepOffset { choice, steps } = self.offset;
        if self.has_choice {
            write!(f, "{choice:0CHOICE_DIGITS$}_")?;
        }
        write!(f, "{steps:0STEP_DIGITS$}")
    }
}

written_as!(OffsetText => String);

impl Serialize for OffsetText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_follow_the_time_and_never_go_back() {
        let now = CURSOR_EPOCH_S + 1000 * INTERVAL_S + 7;
        for client in [None, Some("999"), Some("x"), Some("-1"), Some("")] {
            assert_eq!(response_cursor(client, now, 5), 1000, "{client:?}");
        }
        assert_eq!(response_cursor(Some("1000"), now, 0), 1001);
        assert_eq!(response_cursor(Some("2000"), now, 179), 2180);
        assert_eq!(response_cursor(Some("2000"), now, 180), 2001);
        assert_eq!(response_cursor(None, 0, 0), 0);
    }

    #[test]
    fn offset_text_parses_to_its_offset_and_sorts_as_its_position() {
        for choices in [1, 2, 128] {
            let mut before = String::new();
            for choice in [0, choices / 2, choices - 1] {
                for steps in [0, 1, 9, 10, 99_999] {
                    let offset = StepOffset { choice, steps };
                    let text = offset.of_choices(choices).to_string();
                    assert_eq!(StepOffset::parse(&text, choices), Some(offset), "{text}");
                    if choice > 0 || before < text {
                        assert!(
                            before < text || choice == choices / 2 || choices < 3,
                            "{text}"
                        );
                    }
                    before = text;
                }
            }
        }
        assert_eq!(
            StepOffset::default().of_choices(1).to_string(),
            "0000000000000000"
        );
        let last = StepOffset {
            choice: 1,
            steps: 7,
        };
        assert_eq!(last.of_choices(2).to_string(), "000001_0000000000000007");
    }

    #[test]
    fn other_texts_are_no_offsets() {
        let rows = [
            ("", 1),
            ("-1", 1),
            ("now", 1),
            ("7", 1),
            ("000000000000000x", 1),
            ("+000000000000001", 1),
            ("00000000000000001", 1),
            ("000000_0000000000000001", 1),
            ("0000000000000001", 2),
            ("000002_0000000000000001", 2),
            ("00001_0000000000000001", 2),
            ("000001_000000000000001", 2),
        ];
        for (text, choices) in rows {
            assert_eq!(StepOffset::parse(text, choices), None, "{text}");
        }
    }
}
