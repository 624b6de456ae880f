//! The encoder of UI message streams.

use crate::cursor::TerminalMarker;
use crate::encoder::{Collected, DONE, Encoder, FrameId, FrameWriter, write_wait_comment};
use crate::json;
use crate::schema::{self, ResponseSchemas, written_as};
use crate::shared::error_response::ErrorBody;
use crate::shared::vision_proxy::{ImageProgress, VisionProxyUsage};
use bytes::BytesMut;
use generate::error::ApiError;
use generate::output::collected::AnswerPart;
use generate::output::event::{Delta, DeltaKind, Event, ToolCall, ToolCallPart, Usage};
use generate::stream_source::StreamSource;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::Arc;
use stream::{End, Stop};

/// Error text of a tool call whose arguments are not complete.
const TRUNCATED_INPUT: &str = "the arguments of this tool call are not complete";
/// Arguments of a tool call without arguments.
const NO_INPUT: &str = "{}";

/// Schemas of UI message streams.
pub(crate) const SCHEMAS: ResponseSchemas = ResponseSchemas {
    collected: schema::of::<UiMessage<'static>>,
    event: schema::of::<UiMessageChunk<'static>>,
    error: schema::of::<ErrorBody<'static>>,
};

/// The encoder of one message.
pub struct UiMessageEncoder {
    source: Arc<StreamSource>,
    /// State of each choice.
    choices: Vec<ChoiceState>,
}

/// The parts of a choice that were sent.
#[derive(Default)]
struct ChoiceState {
    /// The open text or reasoning part.
    open: Option<(DeltaKind, PartId)>,
    /// Number of text and reasoning parts that have begun.
    begun: usize,
    /// The latest tool call; its complete input is sent when the call ends.
    call: CallInput,
}

/// A tool call and its arguments so far.
#[derive(Default)]
struct CallInput {
    id: String,
    name: String,
    input: String,
}

/// Receives chunks; `None` discards chunks that the client received on an earlier connection.
type Frames<'a, 'b> = Option<&'a mut FrameWriter<'b>>;

fn write_chunk(out: &mut Frames<'_, '_>, id: FrameId, chunk: &UiMessageChunk<'_>) {
    if let Some(out) = out {
        out.write_frame(id, None, chunk);
    }
}

impl ChoiceState {
    fn close_part(&mut self, id: FrameId, out: &mut Frames<'_, '_>) {
        match self.open.take() {
            Some((DeltaKind::Text, part)) => {
                write_chunk(out, id, &UiMessageChunk::TextEnd { id: part });
            }
            Some((DeltaKind::Reasoning, part)) => {
                write_chunk(out, id, &UiMessageChunk::ReasoningEnd { id: part });
            }
            None => {}
        }
    }

    fn add_delta(&mut self, delta: &Delta<'_>, out: &mut Frames<'_, '_>) {
        if delta.text.is_empty() {
            return;
        }
        let id = match self.open {
            Some((kind, id)) if kind == delta.kind => id,
            _ => self.open_part(delta, out),
        };
        let delta = match delta.kind {
            DeltaKind::Text => UiMessageChunk::TextDelta {
                id,
                delta: delta.text,
            },
            DeltaKind::Reasoning => UiMessageChunk::ReasoningDelta {
                id,
                delta: delta.text,
            },
        };
        write_chunk(out, FrameId::Position, &delta);
    }

    fn open_part(&mut self, delta: &Delta<'_>, out: &mut Frames<'_, '_>) -> PartId {
        self.close_part(FrameId::None, out);
        let id = PartId {
            choice: delta.origin.choice,
            part: self.begun,
        };
        self.begun += 1;
        self.open = Some((delta.kind, id));
        let start = match delta.kind {
            DeltaKind::Text => UiMessageChunk::TextStart { id },
            DeltaKind::Reasoning => UiMessageChunk::ReasoningStart { id },
        };
        write_chunk(out, FrameId::None, &start);
        id
    }

    fn add_tool_call(&mut self, call: &ToolCall<'_>, out: &mut Frames<'_, '_>) {
        match call.part {
            ToolCallPart::Start { id, name } => {
                self.close_part(FrameId::None, out);
                self.call.restart(id, name);
                let start = UiMessageChunk::ToolInputStart {
                    tool_call_id: id,
                    tool_name: name,
                };
                write_chunk(out, FrameId::Position, &start);
            }
            ToolCallPart::Args(fragment) => {
                self.call.input.push_str(fragment);
                let delta = UiMessageChunk::ToolInputDelta {
                    tool_call_id: &self.call.id,
                    input_text_delta: fragment,
                };
                write_chunk(out, FrameId::Position, &delta);
            }
            ToolCallPart::End => write_chunk(out, FrameId::Position, &self.call.end_chunk()),
        }
    }
}

impl CallInput {
    fn restart(&mut self, id: &str, name: &str) {
        for (field, value) in [
            (&mut self.id, id),
            (&mut self.name, name),
            (&mut self.input, ""),
        ] {
            field.clear();
            field.push_str(value);
        }
    }

    fn end_chunk(&self) -> UiMessageChunk<'_> {
        match parsed_input(&self.input) {
            Some(input) => UiMessageChunk::ToolInputAvailable {
                tool_call_id: &self.id,
                tool_name: &self.name,
                input,
            },
            None => UiMessageChunk::ToolInputError {
                tool_call_id: &self.id,
                tool_name: &self.name,
                input: &self.input,
                error_text: TRUNCATED_INPUT,
            },
        }
    }
}

/// The arguments of a tool call as JSON; `None` for truncated ones.
fn parsed_input(input: &str) -> Option<&RawValue> {
    let input = if input.is_empty() { NO_INPUT } else { input };
    serde_json::from_str(input).ok()
}

impl UiMessageEncoder {
    /// An encoder of this stream.
    pub fn new(source: &Arc<StreamSource>) -> Self {
        let mut choices = Vec::new();
        choices.resize_with(source.meta().choices.max(1), ChoiceState::default);
        Self {
            source: Arc::clone(source),
            choices,
        }
    }

    /// Processes an event of one choice; false for any other event.
    fn follow_event(&mut self, event: &Event<'_>, mut out: Frames<'_, '_>) -> bool {
        let Some(state) = event.choice().and_then(|i| self.choices.get_mut(i)) else {
            return false;
        };
        match event {
            Event::Delta(delta) => state.add_delta(delta, &mut out),
            Event::ToolCall(call) => state.add_tool_call(call, &mut out),
            _ => state.close_part(FrameId::Position, &mut out),
        }
        true
    }

    fn write_failed(end: End, out: &mut FrameWriter<'_>) {
        let id = FrameId::Terminal(TerminalMarker::Failed);
        if end == End::Cancelled {
            let reason = "the request was cancelled";
            out.write_frame(id, None, &UiMessageChunk::Abort { reason });
        } else {
            let error = crate::shared::finish_reason::end_error(end);
            let error_text = &*error.message;
            out.write_frame(id, None, &UiMessageChunk::Error { error_text });
        }
        out.write_text(FrameId::Terminal(TerminalMarker::Done), DONE);
    }

    fn write_rejected(error: &ApiError, out: &mut FrameWriter<'_>) {
        let error_text = &*error.message;
        out.write_frame(FrameId::None, None, &UiMessageChunk::Error { error_text });
        out.write_text(FrameId::None, DONE);
    }
}

impl Encoder for UiMessageEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        if self.follow_event(event, Some(&mut *out)) {
            return;
        }
        match event {
            Event::Opened { .. } => {
                let message_id = &self.source.meta().response_id;
                out.write_frame(FrameId::None, None, &UiMessageChunk::Start { message_id });
                out.write_frame(FrameId::None, None, &UiMessageChunk::StartStep);
            }
            Event::Finished { end, usage } => {
                // `[DONE]` is a separate terminal frame: a client that has received only `finish` gets only `[DONE]`.
                let before = FrameId::Before(TerminalMarker::Usage);
                out.write_frame(before, None, &UiMessageChunk::FinishStep);
                let finish = UiMessageChunk::Finish {
                    finish_reason: finish_reason(*end),
                    message_metadata: MessageMetadata::new(*usage, &self.source),
                };
                out.write_frame(FrameId::Terminal(TerminalMarker::Usage), None, &finish);
                out.write_text(FrameId::Terminal(TerminalMarker::Done), DONE);
            }
            Event::Failed { end, .. } => Self::write_failed(*end, out),
            Event::Image { index, state, .. } => {
                let image = UiMessageChunk::DataImage {
                    id: format!("image-{index}"),
                    data: ImageProgress::new(*index, *state),
                    transient: true,
                };
                out.write_frame(FrameId::None, None, &image);
            }
            Event::Rejected(error) => Self::write_rejected(error, out),
            _ => write_wait_comment(event, out),
        }
    }

    fn replay_event(&mut self, event: &Event<'_>) {
        self.follow_event(event, None);
    }

    fn encode_collected(&self, collected: Collected<'_>, out: &mut BytesMut) {
        let Collected { answers, usage, .. } = collected;
        let parts = answers.iter().flat_map(|answer| &answer.parts);
        let message = UiMessage {
            id: &self.source.meta().response_id,
            role: "assistant",
            metadata: MessageMetadata::new(usage, &self.source),
            parts: parts.map(ui_part).collect(),
        };
        json::write(&message, out);
    }
}

fn ui_part(part: &AnswerPart) -> UiPart<'_> {
    let text_part = |kind, text| UiPart::Text {
        r#type: kind,
        text,
        state: "done",
    };
    match part {
        AnswerPart::Text(text) => text_part("text", text),
        AnswerPart::Reasoning(text) => text_part("reasoning", text),
        AnswerPart::Call(call) => UiPart::Tool {
            r#type: format!("tool-{}", call.name),
            tool_call_id: &call.id,
            state: "input-available",
            input: parsed_input(&call.arguments),
        },
    }
}

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
        message_metadata: MessageMetadata<'a>,
    },
    /// An image is on its way to its description by another model; no part of the message.
    DataImage {
        id: String,
        data: ImageProgress,
        transient: bool,
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
pub(super) struct MessageMetadata<'a> {
    usage: TokenUsage<'a>,
}

/// Token counts under the names of the SDK's `LanguageModelUsage`.
#[derive(Clone, Copy, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenUsage<'a> {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    reasoning_tokens: u64,
    cached_input_tokens: u64,
    /// The model that described images, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    vision_proxy: Option<VisionProxyUsage<'a>>,
}

impl<'a> MessageMetadata<'a> {
    pub(super) fn new(usage: Usage, source: &'a StreamSource) -> Self {
        Self {
            usage: TokenUsage {
                input_tokens: usage.prompt_tokens,
                output_tokens: usage.completion_tokens,
                total_tokens: usage.prompt_tokens + usage.completion_tokens,
                reasoning_tokens: usage.reasoning_tokens,
                cached_input_tokens: usage.cached_tokens,
                vision_proxy: VisionProxyUsage::of(source),
            },
        }
    }
}

/// A complete message of the assistant.
#[derive(JsonSchema, Serialize)]
pub(super) struct UiMessage<'a> {
    pub(super) id: &'a str,
    pub(super) role: &'static str,
    pub(super) metadata: MessageMetadata<'a>,
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
