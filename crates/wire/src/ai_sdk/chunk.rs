//! The chunks of a UI message stream, and the complete message of a non-streaming response.

use crate::schema::written_as;
use generate::output::event::Usage;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use stream::{End, Stop};

/// A chunk of a UI message stream.
#[derive(JsonSchema, Serialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub(super) enum UiMessageChunk<'a> {
    Start {
        message_id: &'a str,
    },
    StartStep,
    TextStart {
        id: PartId,
    },
    TextDelta {
        id: PartId,
        delta: &'a str,
    },
    TextEnd {
        id: PartId,
    },
    ReasoningStart {
        id: PartId,
    },
    ReasoningDelta {
        id: PartId,
        delta: &'a str,
    },
    ReasoningEnd {
        id: PartId,
    },
    ToolInputStart {
        tool_call_id: &'a str,
        tool_name: &'a str,
    },
    ToolInputDelta {
        tool_call_id: &'a str,
        input_text_delta: &'a str,
    },
    ToolInputAvailable {
        tool_call_id: &'a str,
        tool_name: &'a str,
        #[schemars(with = "Map<String, Value>")]
        input: &'a RawValue,
    },
    ToolInputError {
        tool_call_id: &'a str,
        tool_name: &'a str,
        input: &'a str,
        error_text: &'static str,
    },
    FinishStep,
    Finish {
        finish_reason: &'static str,
        message_metadata: MessageMetadata,
    },
    Error {
        error_text: &'a str,
    },
    Abort {
        reason: &'static str,
    },
}

/// Id of a text or reasoning part, unique within its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartId {
    /// Index of the choice.
    pub(super) choice: usize,
    /// Index of the part in its choice.
    pub(super) part: usize,
}

written_as!(PartId => String);

impl Serialize for PartId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.choice {
            0 => serializer.collect_str(&self.part),
            choice => serializer.collect_str(&format_args!("choice{choice}-{}", self.part)),
        }
    }
}

/// Metadata of a message: token counts.
#[derive(Clone, Copy, JsonSchema, Serialize)]
pub(super) struct MessageMetadata {
    usage: TokenUsage,
}

/// Token counts under the names of the SDK's `LanguageModelUsage`.
#[derive(Clone, Copy, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenUsage {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    reasoning_tokens: u64,
    cached_input_tokens: u64,
}

impl MessageMetadata {
    pub(super) fn new(usage: Usage) -> Self {
        Self {
            usage: TokenUsage {
                input_tokens: usage.prompt_tokens,
                output_tokens: usage.completion_tokens,
                total_tokens: usage.prompt_tokens + usage.completion_tokens,
                reasoning_tokens: usage.reasoning_tokens,
                cached_input_tokens: usage.cached_tokens,
            },
        }
    }
}

/// A complete message of the assistant.
#[derive(JsonSchema, Serialize)]
pub(super) struct UiMessage<'a> {
    pub(super) id: &'a str,
    pub(super) role: &'static str,
    pub(super) metadata: MessageMetadata,
    pub(super) parts: Vec<UiPart<'a>>,
}

/// A part of a complete message.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
pub(super) enum UiPart<'a> {
    Text {
        r#type: &'static str,
        text: &'a str,
        state: &'static str,
    },
    #[serde(rename_all = "camelCase")]
    Tool {
        r#type: String,
        tool_call_id: &'a str,
        state: &'static str,
        #[schemars(with = "Option<Map<String, Value>>")]
        input: Option<&'a RawValue>,
    },
}

/// The SDK's `finishReason` of a completed stream; failed streams end with other chunks.
pub(super) fn finish_reason(end: Option<End>) -> &'static str {
    match end {
        Some(End::Stop(Stop::Eos | Stop::StopString(_))) => "stop",
        Some(End::Stop(Stop::ToolCalls)) => "tool-calls",
        Some(End::Length) => "length",
        _ => "other",
    }
}
