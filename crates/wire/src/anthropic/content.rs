//! Content blocks of an answer: block starts, deltas, and complete blocks.

use crate::shared::tool_calls::tool_input;
use generate::output::collected::AnswerPart;
use generate::output::event::{Delta, DeltaKind, Event, ToolCall, ToolCallPart};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Signature of a thinking block. Clients require a signature; this server does not verify signatures.
const SIGNATURE: &str = "millrace";

/// The type of a content block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Text,
    Thinking,
    /// A tool call with this index.
    ToolUse(u32),
}

/// A content block: empty in `content_block_start`, or complete.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ContentBlock<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        thinking: &'a str,
        signature: &'static str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Input,
    },
}

/// Arguments of a tool call.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(rename = "ToolInput")]
pub(crate) enum Input {
    /// Empty, in `content_block_start`.
    Empty {},
    Complete(#[schemars(with = "Map<String, Value>")] Box<RawValue>),
}

/// The `delta` of a `content_block_delta`.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(
    clippy::enum_variant_names,
    reason = "the variants are the protocol's `type`s"
)]
pub(crate) enum BlockDelta<'a> {
    TextDelta { text: &'a str },
    ThinkingDelta { thinking: &'a str },
    InputJsonDelta { partial_json: &'a str },
    SignatureDelta { signature: &'static str },
}

impl<'a> ContentBlock<'a> {
    /// The empty block that begins with an event.
    pub(crate) fn started_by(event: &Event<'a>) -> Self {
        match event {
            Event::ToolCall(ToolCall {
                part: ToolCallPart::Start { id, name },
                ..
            }) => Self::ToolUse {
                id,
                name,
                input: Input::Empty {},
            },
            Event::Delta(Delta {
                kind: DeltaKind::Reasoning,
                ..
            }) => Self::Thinking {
                thinking: "",
                signature: "",
            },
            _ => Self::Text { text: "" },
        }
    }

    /// The complete block of a part of a collected answer.
    pub(crate) fn from_part(part: &'a AnswerPart) -> Self {
        match part {
            AnswerPart::Text(text) => Self::Text { text },
            AnswerPart::Reasoning(thinking) => Self::Thinking {
                thinking,
                signature: SIGNATURE,
            },
            AnswerPart::Call(call) => Self::ToolUse {
                id: &call.id,
                name: &call.name,
                input: Input::Complete(tool_input(call)),
            },
        }
    }
}

impl<'a> BlockDelta<'a> {
    /// A delta of text or reasoning.
    pub(crate) fn from_delta(delta: &Delta<'a>) -> Self {
        match delta.kind {
            DeltaKind::Text => Self::TextDelta { text: delta.text },
            DeltaKind::Reasoning => Self::ThinkingDelta {
                thinking: delta.text,
            },
        }
    }

    /// A delta of tool-call arguments; empty at the start of a call.
    pub(crate) fn from_tool_call_part(part: ToolCallPart<'a>) -> Self {
        let partial_json = match part {
            ToolCallPart::Args(fragment) => fragment,
            ToolCallPart::Start { .. } | ToolCallPart::End => "",
        };
        Self::InputJsonDelta { partial_json }
    }

    /// The signature, which ends a thinking block.
    pub(crate) fn end_of_thinking() -> Self {
        Self::SignatureDelta {
            signature: SIGNATURE,
        }
    }
}
