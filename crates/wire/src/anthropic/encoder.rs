//! The encoder of messages (`POST /v1/messages`).

use super::conversation::{Block, BlockDelta, ContentBlock};
use super::error_response::MessageErrorBody;
use crate::cursor::TerminalMarker;
use crate::encoder::{Collected, Encoder, FrameId, FrameWriter, write_wait_comment};
use crate::json;
use crate::schema::{self, ResponseSchemas};
use crate::shared::finish_reason;
use crate::shared::vision_proxy::VisionProxyUsage;
use bytes::BytesMut;
use generate::error::ApiError;
use generate::images::DescriptionState;
use generate::output::event::{DeltaKind, Event, ToolCallPart, Usage};
use generate::stream_source::StreamSource;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use stream::{End, Stop};

/// Schemas of messages.
pub(crate) const SCHEMAS: ResponseSchemas = ResponseSchemas {
    collected: schema::of::<MessageObject<'static>>,
    event: schema::either::<MessageEvent<'static>, MessageErrorBody<'static>>,
    error: schema::of::<MessageErrorBody<'static>>,
};

/// The encoder of one message.
pub(crate) struct MessagesEncoder {
    source: Arc<StreamSource>,
    /// Block state of each choice.
    blocks: Vec<Blocks>,
}

/// Block state of a choice.
#[derive(Clone, Copy, Default)]
struct Blocks {
    /// The open block.
    open: Option<Block>,
    /// Number of blocks that have begun.
    begun: usize,
}

/// An event of a message stream.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum MessageEvent<'a> {
    MessageStart {
        message: MessageObject<'a>,
    },
    ContentBlockStart {
        index: usize,
        content_block: ContentBlock<'a>,
    },
    ContentBlockDelta {
        index: usize,
        delta: BlockDelta<'a>,
    },
    ContentBlockStop {
        index: usize,
        /// Stop reason of the choice that ends with this block; only in responses with several choices.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<Option<&'static str>>,
    },
    MessageDelta {
        delta: StopFields<'a>,
        usage: MessageUsage<'a>,
    },
    MessageStop,
    Ping,
}

/// A message; without content in `message_start`.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Message")]
pub(crate) struct MessageObject<'a> {
    id: &'a str,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<ContentBlock<'a>>,
    #[serde(flatten)]
    stop: StopFields<'a>,
    usage: MessageUsage<'a>,
}

#[derive(Default, JsonSchema, Serialize)]
pub(crate) struct StopFields<'a> {
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'a str>,
}

/// Token counts. `input_tokens` excludes tokens found in the prefix cache.
#[derive(JsonSchema, Serialize)]
pub(crate) struct MessageUsage<'a> {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
    service_tier: &'static str,
    /// The model that described images, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    vision_proxy: Option<VisionProxyUsage<'a>>,
}

impl<'a> MessageUsage<'a> {
    fn new(usage: Usage, source: &'a StreamSource) -> Self {
        Self {
            input_tokens: usage.prompt_tokens.saturating_sub(usage.cached_tokens),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: usage.cached_tokens,
            output_tokens: usage.completion_tokens,
            service_tier: "standard",
            vision_proxy: VisionProxyUsage::of(source),
        }
    }
}

impl MessageEvent<'_> {
    /// SSE name of the event, equal to its `type`.
    fn event_name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Ping => "ping",
        }
    }

    fn write_to(&self, id: FrameId, out: &mut FrameWriter<'_>) {
        out.write_frame(id, Some(self.event_name()), self);
    }
}

impl Blocks {
    /// Whether output of this block has to start a new block.
    fn needs_start(self, block: Block) -> bool {
        self.open != Some(block)
    }

    fn start_block(&mut self, block: Block) {
        self.open = Some(block);
        self.begun += 1;
    }
}

impl MessagesEncoder {
    /// An encoder of this stream.
    pub(crate) fn new(source: &Arc<StreamSource>) -> Self {
        Self {
            source: Arc::clone(source),
            blocks: vec![Blocks::default()],
        }
    }

    fn has_several_choices(&self) -> bool {
        self.blocks.len() > 1
    }

    /// The block that an event belongs to.
    fn block_of(event: &Event<'_>) -> Option<Block> {
        match event {
            Event::Delta(delta) if delta.text.is_empty() => None,
            Event::Delta(delta) => Some(match delta.kind {
                DeltaKind::Text => Block::Text,
                DeltaKind::Reasoning => Block::Thinking,
            }),
            Event::ToolCall(call) => Some(Block::ToolUse(call.index)),
            _ => None,
        }
    }

    /// Index of a choice's open block. With several choices the indices of their blocks are disjoint and do not depend
    /// on the order of events.
    fn block_index(&self, choice: usize) -> usize {
        let begun = self.blocks[choice].begun;
        choice + self.blocks.len() * begun.saturating_sub(1)
    }

    /// Signs a thinking block before the block ends. The frame has no event id, so the signature is repeated after a
    /// reconnection.
    fn write_signature(&self, choice: usize, out: &mut FrameWriter<'_>) {
        if self.blocks[choice].open == Some(Block::Thinking) {
            self.write_delta(FrameId::None, choice, BlockDelta::end_of_thinking(), out);
        }
    }

    fn write_delta(
        &self,
        id: FrameId,
        choice: usize,
        delta: BlockDelta<'_>,
        out: &mut FrameWriter<'_>,
    ) {
        let index = self.block_index(choice);
        MessageEvent::ContentBlockDelta { index, delta }.write_to(id, out);
    }

    fn stop_block(
        &mut self,
        id: FrameId,
        choice: usize,
        end: Option<End>,
        out: &mut FrameWriter<'_>,
    ) {
        let index = self.block_index(choice);
        if self.blocks[choice].open.take().is_some() {
            let stop_reason = end.map(|end| self.stop_fields(Some(end)).stop_reason);
            MessageEvent::ContentBlockStop { index, stop_reason }.write_to(id, out);
        }
    }

    /// Starts the block of an event if that block is not open, and ends the block before. These frames have no event
    /// ids.
    fn prepare_block(&mut self, choice: usize, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        let is_end = matches!(event, Event::ChoiceEnded { .. });
        if is_end {
            self.write_signature(choice, out);
        }
        // Each of several choices has at least one block, even for an empty answer.
        let is_empty = is_end && self.has_several_choices() && self.blocks[choice].begun == 0;
        let block = if is_empty {
            Some(Block::Text)
        } else {
            Self::block_of(event)
        };
        let Some(block) = block.filter(|&block| self.blocks[choice].needs_start(block)) else {
            return;
        };
        self.write_signature(choice, out);
        self.stop_block(FrameId::None, choice, None, out);
        self.blocks[choice].start_block(block);
        let start = MessageEvent::ContentBlockStart {
            index: self.block_index(choice),
            content_block: ContentBlock::started_by(event),
        };
        start.write_to(FrameId::None, out);
    }

    fn stop_fields(&self, end: Option<End>) -> StopFields<'_> {
        let stop_reason = end.and_then(|end| stop_reason(end).ok());
        let index = stop_reason.and_then(|stop_reason| stop_reason.stop);
        let stop = index.and_then(|index| self.source.meta().stops.get(usize::from(index)));
        StopFields {
            stop_reason: stop_reason.map(|stop_reason| stop_reason.reason),
            stop_sequence: stop.map(String::as_str),
        }
    }

    fn message_object<'a>(
        &'a self,
        content: Vec<ContentBlock<'a>>,
        end: Option<End>,
        usage: Usage,
    ) -> MessageObject<'a> {
        let meta = self.source.meta();
        MessageObject {
            id: &meta.response_id,
            r#type: "message",
            role: "assistant",
            model: &meta.model,
            content,
            stop: self.stop_fields(end),
            usage: MessageUsage::new(usage, &self.source),
        }
    }

    fn choice_event(&mut self, choice: usize, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        self.prepare_block(choice, event, out);
        let id = FrameId::Position;
        match event {
            Event::Delta(delta) if !delta.text.is_empty() => {
                self.write_delta(id, choice, BlockDelta::from_delta(delta), out);
            }
            Event::ToolCall(call) => match call.part {
                ToolCallPart::Start { .. } | ToolCallPart::Args(_) => {
                    self.write_delta(id, choice, BlockDelta::from_tool_call_part(call.part), out);
                }
                ToolCallPart::End => self.stop_block(id, choice, None, out),
            },
            Event::ChoiceEnded { end, .. } => {
                let end = Some(*end).filter(|_| self.has_several_choices());
                self.stop_block(id, choice, end, out);
            }
            _ => {}
        }
    }
}

fn write_error(id: FrameId, error: &ApiError, out: &mut FrameWriter<'_>) {
    out.write_frame(id, Some("error"), &MessageErrorBody::new(error));
}

impl Encoder for MessagesEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        match event {
            Event::Queued { .. } | Event::Loading { .. } => write_wait_comment(event, out),
            Event::Image {
                state: DescriptionState::Describing,
                ..
            } => self.keep_alive(out),
            Event::Opened { choices, usage } => {
                self.blocks = vec![Blocks::default(); *choices];
                let message = self.message_object(Vec::new(), None, *usage);
                MessageEvent::MessageStart { message }.write_to(FrameId::None, out);
            }
            Event::Usage { end, usage } => {
                let event = MessageEvent::MessageDelta {
                    delta: self.stop_fields(*end),
                    usage: MessageUsage::new(*usage, &self.source),
                };
                event.write_to(FrameId::Terminal(TerminalMarker::Usage), out);
            }
            Event::Finished { .. } => {
                MessageEvent::MessageStop.write_to(FrameId::Terminal(TerminalMarker::Done), out);
            }
            Event::Failed { end, .. } => {
                let failed = finish_reason::end_error(*end);
                write_error(FrameId::Terminal(TerminalMarker::Done), &failed, out);
            }
            Event::Rejected(rejected) => write_error(FrameId::None, rejected, out),
            _ => {
                if let Some(choice) = event.choice() {
                    self.choice_event(choice, event, out);
                }
            }
        }
    }

    /// Blocks that started before the client's position are open.
    fn replay_event(&mut self, event: &Event<'_>) {
        if let Event::Resumed { positions } = event {
            self.blocks = vec![Blocks::default(); positions.len()];
        }
        let Some(choice) = event.choice() else {
            return;
        };
        let blocks = &mut self.blocks[choice];
        if let Some(block) = Self::block_of(event).filter(|&block| blocks.needs_start(block)) {
            blocks.start_block(block);
        }
        if matches!(event, Event::ToolCall(call) if call.part == ToolCallPart::End) {
            blocks.open = None;
        }
    }

    fn encode_collected(&self, collected: Collected<'_>, out: &mut BytesMut) {
        let Collected { answers, usage, .. } = collected;
        let parts = answers.iter().flat_map(|answer| &answer.parts);
        let content = parts.map(ContentBlock::from_part).collect();
        let end = answers.first().and_then(|answer| answer.end);
        json::write(&self.message_object(content, end, usage), out);
    }

    fn keep_alive(&mut self, out: &mut FrameWriter<'_>) {
        MessageEvent::Ping.write_to(FrameId::None, out);
    }
}

/// The `stop_reason` of a completed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageStopReason {
    /// The `stop_reason`.
    pub(crate) reason: &'static str,
    /// Index of the request's stop string that matched.
    pub(crate) stop: Option<u16>,
}

/// The `stop_reason` of a completed message.
///
/// # Errors
/// The error of a stream that did not complete.
pub(crate) fn stop_reason(end: End) -> Result<MessageStopReason, ApiError> {
    let (reason, stop) = match end {
        End::Stop(Stop::Eos) => ("end_turn", None),
        End::Stop(Stop::StopString(index)) => ("stop_sequence", Some(index)),
        End::Stop(Stop::ToolCalls) => ("tool_use", None),
        End::Length => ("max_tokens", None),
        End::Cancelled | End::Deadline | End::TimedOut(_) | End::Failed(_) | End::Lost => {
            return Err(finish_reason::end_error(end));
        }
    };
    Ok(MessageStopReason { reason, stop })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anthropic::error_response::{error_type, http_status};
    use stream::{Clock, FailCode};

    #[test]
    #[expect(clippy::too_many_lines, reason = "a row for each end")]
    fn every_end_has_a_stop_reason_or_an_error() {
        let rows = [
            (End::Stop(Stop::Eos), Ok(("end_turn", None))),
            (
                End::Stop(Stop::StopString(3)),
                Ok(("stop_sequence", Some(3))),
            ),
            (End::Stop(Stop::ToolCalls), Ok(("tool_use", None))),
            (End::Length, Ok(("max_tokens", None))),
            (End::Cancelled, Err((499, "api_error", "cancelled"))),
            (End::Deadline, Err((504, "timeout_error", "timeout"))),
            (
                End::TimedOut(Clock::Queue),
                Err((529, "overloaded_error", "timeout")),
            ),
            (
                End::TimedOut(Clock::FirstToken),
                Err((504, "timeout_error", "timeout")),
            ),
            (
                End::TimedOut(Clock::Idle),
                Err((504, "timeout_error", "timeout")),
            ),
            (
                End::TimedOut(Clock::Total),
                Err((504, "timeout_error", "timeout")),
            ),
            (
                End::TimedOut(Clock::Reader),
                Err((504, "timeout_error", "timeout")),
            ),
            (
                End::Failed(FailCode::Inference),
                Err((500, "api_error", "inference_failed")),
            ),
            (
                End::Failed(FailCode::NotFinite),
                Err((500, "api_error", "inference_failed")),
            ),
            (
                End::Failed(FailCode::Panic),
                Err((500, "api_error", "internal_error")),
            ),
            (
                End::Failed(FailCode::Shutdown),
                Err((503, "overloaded_error", "shutting_down")),
            ),
            (
                End::Failed(FailCode::Constraint),
                Err((400, "invalid_request_error", "grammar_limit")),
            ),
            (
                End::Failed(FailCode::ModelChanged),
                Err((500, "api_error", "model_changed")),
            ),
            (
                End::Failed(FailCode::Device),
                Err((500, "api_error", "device_failed")),
            ),
            (
                End::Failed(FailCode::CrashedEngines),
                Err((500, "api_error", "crashed_engines")),
            ),
            (
                End::Failed(FailCode::NoEngine),
                Err((529, "overloaded_error", "no_engine")),
            ),
            (
                End::Failed(FailCode::Upstream(0)),
                Err((502, "api_error", "upstream_failed")),
            ),
            (End::Lost, Err((500, "api_error", "lost"))),
        ];
        for (end, want) in rows {
            let got = stop_reason(end)
                .map(|stop_reason| (stop_reason.reason, stop_reason.stop))
                .map_err(|error| (http_status(&error).as_u16(), error_type(&error), error.code));
            assert_eq!(got, want, "{end:?}");
        }
    }
}
