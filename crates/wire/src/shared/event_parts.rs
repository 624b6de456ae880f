//! Parts of events in this server's own protocols: jobs, durable streams and WebSocket messages.

use generate::output::event::{Delta, DeltaKind, PartOrigin, ToolCall, ToolCallPart};
use schemars::JsonSchema;
use serde::Serialize;

/// Part of a tool call, in jobs and in WebSocket messages.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type")]
pub(crate) enum ToolCallEvent<'a> {
    #[serde(rename = "tool_call")]
    Start {
        call: u32,
        id: &'a str,
        name: &'a str,
    },
    #[serde(rename = "tool_args")]
    Arguments { call: u32, t: &'a str },
    #[serde(rename = "tool_end")]
    End { call: u32 },
}

impl<'a> ToolCallEvent<'a> {
    /// The event of this part.
    pub(crate) fn new(call: &ToolCall<'a>) -> Self {
        let index = call.index;
        match call.part {
            ToolCallPart::Start { id, name } => Self::Start {
                call: index,
                id,
                name,
            },
            ToolCallPart::Args(t) => Self::Arguments { call: index, t },
            ToolCallPart::End => Self::End { call: index },
        }
    }
}

/// Text or reasoning of a choice, in jobs and in durable streams.
#[derive(JsonSchema, Serialize)]
pub struct TextEvent<'a> {
    /// The text.
    t: &'a str,
    /// `reasoning`; absent for text.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(flatten)]
    tokens: TokenRange,
    /// Index of the choice, where the stream has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<usize>,
}

impl<'a> TextEvent<'a> {
    /// The event of this text.
    pub(crate) fn new(delta: &Delta<'a>, choices: usize) -> Self {
        Self {
            t: delta.text,
            kind: (delta.kind == DeltaKind::Reasoning).then_some("reasoning"),
            tokens: TokenRange::new(&delta.origin),
            choice: choice_index(delta.origin.choice, choices),
        }
    }
}

/// A part of a tool call of a choice, in jobs and in durable streams.
#[derive(JsonSchema, Serialize)]
pub struct CallEvent<'a> {
    #[serde(flatten)]
    part: ToolCallEvent<'a>,
    #[serde(flatten)]
    tokens: TokenRange,
    /// Index of the choice, where the stream has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<usize>,
}

impl<'a> CallEvent<'a> {
    /// The event of this part.
    pub(crate) fn new(call: &ToolCall<'a>, choices: usize) -> Self {
        Self {
            part: ToolCallEvent::new(call),
            tokens: TokenRange::new(&call.origin),
            choice: choice_index(call.origin.choice, choices),
        }
    }
}

/// Index of a choice, as events name the choice: only if there are several.
pub(crate) fn choice_index(choice: usize, choices: usize) -> Option<usize> {
    (choices > 1).then_some(choice)
}

/// The range of tokens that an event covers.
#[derive(JsonSchema, Serialize)]
pub(crate) struct TokenRange {
    /// Index of the first token.
    i: u64,
    /// Number of tokens; absent for a single token.
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<u64>,
}

impl TokenRange {
    /// Token range of a part of a choice.
    pub(crate) fn new(at: &PartOrigin<'_>) -> Self {
        Self {
            i: at.first,
            n: (at.tokens != 1).then_some(at.tokens),
        }
    }
}

/// Why a choice ended.
#[derive(JsonSchema, Serialize)]
pub struct StopReason<'a> {
    stop_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_sequence_matched: Option<&'a str>,
}

impl<'a> StopReason<'a> {
    /// The reason with the stop string of this index, if one matched.
    pub(crate) fn new(stop_reason: &'static str, stop: Option<u16>, stops: &'a [String]) -> Self {
        let stop = stop.and_then(|index| stops.get(usize::from(index)));
        Self {
            stop_reason,
            stop_sequence_matched: stop.map(String::as_str),
        }
    }
}
