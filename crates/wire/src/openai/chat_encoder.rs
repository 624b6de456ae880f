//! The encoder of chat completions (`POST /v1/chat/completions`).

use crate::encoder::{Collected, Encoder, FrameId, FrameWriter};
use crate::openai::chunk::{ChunkWriter, CompletionObject, optional_finish_reason};
use crate::schema::{self, ResponseSchemas};
use crate::shared::error_response::ErrorBody;
use crate::shared::logprobs::{ChatLogprobs, TokenIds, all_ids, prompt_ids};
use crate::shared::tool_calls::CustomCalls;
use bytes::BytesMut;
use generate::output::choice_reader as refold;
use generate::output::collected::CollectedCall;
use generate::output::custom_input::input_of;
use generate::output::event::{Delta, DeltaKind, Event, Logprobs, ToolCall, ToolCallPart, Usage};
use generate::stream_source::StreamSource;
use generate::tools::{OfferedTool, find_offered};
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;
use stream::End;

/// Schemas of chat completions.
pub(crate) const SCHEMAS: ResponseSchemas = ResponseSchemas {
    collected: schema::of::<CompletionObject<'static, CollectedChoice<'static>>>,
    event: schema::either::<CompletionObject<'static, ChunkChoice<'static>>, ErrorBody<'static>>,
    error: schema::of::<ErrorBody<'static>>,
};

/// The encoder of one chat completion.
pub struct ChatEncoder {
    chunks: ChunkWriter,
    reasoning: ReasoningField,
    /// `None`: the request does not want ids.
    ids: Option<TokenIds>,
    custom_calls: CustomCalls,
}

/// The message field that holds reasoning. There is no standard: clients read one field or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning_content`.
    #[default]
    ReasoningContent,
    /// `reasoning`.
    Reasoning,
    /// Both fields.
    Both,
}

impl ReasoningField {
    /// All selections.
    pub const ALL: [Self; 3] = [Self::ReasoningContent, Self::Reasoning, Self::Both];

    /// Name of the selection in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReasoningContent => "reasoning_content",
            Self::Reasoning => "reasoning",
            Self::Both => "both",
        }
    }

    /// The selection with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// Reasoning under the selected field names.
#[derive(Default, JsonSchema, Serialize)]
struct ReasoningFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ChatChunk")]
pub(super) struct ChunkChoice<'a> {
    index: usize,
    delta: ChunkDelta<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    /// Ids of the tokens, with `return_token_ids`; those that are new.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [u32]>,
}

#[derive(Default, JsonSchema, Serialize)]
struct ChunkDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[ToolCallChunk<'a>; 1]>,
}

#[derive(JsonSchema, Serialize)]
struct ToolCallChunk<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<ChatFunction<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<ChatCustom<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct ChatFunction<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

/// The call of a custom tool.
#[derive(JsonSchema, Serialize)]
struct ChatCustom<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    input: Cow<'a, str>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Chat")]
pub(super) struct CollectedChoice<'a> {
    index: usize,
    message: ChatMessage<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    /// Ids of the tokens, with `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(JsonSchema, Serialize)]
struct ChatMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: (),
    #[serde(flatten)]
    reasoning: ReasoningFields<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChatToolCall<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct ChatToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<ChatFunction<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<ChatCustom<'a>>,
}

impl ReasoningField {
    fn reasoning_fields(self, text: &str) -> ReasoningFields<'_> {
        ReasoningFields {
            reasoning_content: (self != Self::Reasoning).then_some(text),
            reasoning: (self != Self::ReasoningContent).then_some(text),
        }
    }
}

impl<'a> ChunkDelta<'a> {
    fn from_delta(delta: &Delta<'a>, field: ReasoningField) -> Self {
        match delta.kind {
            DeltaKind::Text => Self {
                content: Some(delta.text),
                ..Self::default()
            },
            DeltaKind::Reasoning => {
                let fields = field.reasoning_fields(delta.text);
                Self {
                    reasoning_content: fields.reasoning_content,
                    reasoning: fields.reasoning,
                    ..Self::default()
                }
            }
        }
    }

    /// The delta of a tool-call part; the end of a call has no field. `input` is that of a custom tool, in which a part without
    /// new input has no field.
    fn from_tool_call(call: &ToolCall<'a>, input: Option<Cow<'a, str>>) -> Self {
        let (id, name, arguments) = match call.part {
            ToolCallPart::Start { id, name } => (Some(id), Some(name), ""),
            ToolCallPart::Args(fragment) => (None, None, fragment),
            ToolCallPart::End => (None, None, ""),
        };
        let given = input.as_deref().unwrap_or(arguments);
        if id.is_none() && given.is_empty() {
            return Self::default();
        }
        let is_custom = input.is_some();
        let kind = if is_custom { "custom" } else { "function" };
        Self {
            tool_calls: Some([ToolCallChunk {
                index: call.index,
                id,
                r#type: id.map(|_| kind),
                function: (!is_custom).then_some(ChatFunction { name, arguments }),
                custom: input.map(|input| ChatCustom { name, input }),
            }]),
            ..Self::default()
        }
    }
}

impl ChatEncoder {
    /// An encoder of this stream.
    pub fn new(source: &Arc<StreamSource>, reasoning: ReasoningField) -> Self {
        Self {
            chunks: ChunkWriter {
                source: Arc::clone(source),
                chunk: "chat.completion.chunk",
                collected: "chat.completion",
            },
            reasoning,
            ids: TokenIds::new(source),
            custom_calls: CustomCalls::new(source.meta().choices),
        }
    }

    /// Tools that the client gave in another form than the model's.
    fn offered_tools(&self) -> &[OfferedTool] {
        &self.chunks.source.meta().stream_options.offered_tools
    }

    fn chat_logprobs<'a>(&self, list: Logprobs<'a>) -> Option<ChatLogprobs<'a>> {
        let is_requested = self.chunks.source.meta().logprobs;
        is_requested.then_some(ChatLogprobs(list))
    }

    /// The opening frames; the first has the prompt's ids.
    fn write_opened(&mut self, choices: usize, usage: Usage, out: &mut FrameWriter<'_>) {
        for index in 0..choices {
            let delta = ChunkDelta {
                role: Some("assistant"),
                content: Some(""),
                ..ChunkDelta::default()
            };
            let choice = chunk_choice(index, delta, None, None);
            let prompt = prompt_ids(&self.chunks.source, index).filter(|_| index == 0);
            let chunk = (choice, prompt);
            self.chunks
                .write_choice_and_prompt(FrameId::None, chunk, usage, out);
        }
    }

    fn tool_call(&mut self, call: &ToolCall<'_>, out: &mut FrameWriter<'_>) {
        let tools = &self.chunks.source.meta().stream_options.offered_tools;
        self.custom_calls.follow(tools, call);
        let custom_calls = std::mem::take(&mut self.custom_calls);
        let input = self.new_input(&custom_calls, call);
        self.write_call(call, input, out);
        self.custom_calls = custom_calls;
    }

    /// New input of a call of a custom tool: with its end, the input of arguments in another form than the decoder's.
    fn new_input<'a>(
        &self,
        custom_calls: &'a CustomCalls,
        call: &ToolCall<'_>,
    ) -> Option<Cow<'a, str>> {
        let choice = call.origin.choice;
        let input = custom_calls.new_input(choice)?;
        if call.part != ToolCallPart::End || !custom_calls.has_no_input(choice) {
            return Some(input.into());
        }
        let answer = refold::answer(&self.chunks.source, choice);
        let call = answer.calls().nth(call.index as usize);
        let input = call.map(|call| input_of(&call.arguments).into_owned());
        Some(input.unwrap_or_default().into())
    }

    fn write_call(
        &mut self,
        call: &ToolCall<'_>,
        input: Option<Cow<'_, str>>,
        out: &mut FrameWriter<'_>,
    ) {
        let logprobs = self.chat_logprobs(call.origin.logprobs);
        let has_logprobs = logprobs.is_some() && !call.origin.logprobs.entries.is_empty();
        let delta = ChunkDelta::from_tool_call(call, input);
        if delta.tool_calls.is_none() && !has_logprobs {
            return;
        }
        let choice = chunk_choice(call.origin.choice, delta, logprobs, None);
        let read = call.origin.first + call.origin.tokens;
        self.write_choice(choice, read, call.origin.usage, out);
    }

    /// The chunk of a choice, of which the client then has the log up to item `read`.
    fn write_choice(
        &mut self,
        choice: ChunkChoice<'_>,
        read: u64,
        usage: Usage,
        out: &mut FrameWriter<'_>,
    ) {
        let mut choice: ChunkChoice<'_> = choice;
        if let Some(ids) = &mut self.ids {
            choice.token_ids = Some(ids.new_ids(&self.chunks.source, choice.index, read));
        }
        self.chunks
            .write_choice(FrameId::Position, choice, usage, out);
    }
}

/// A choice of a chunk without token ids.
fn chunk_choice<'a>(
    index: usize,
    delta: ChunkDelta<'a>,
    logprobs: Option<ChatLogprobs<'a>>,
    end: Option<End>,
) -> ChunkChoice<'a> {
    ChunkChoice {
        index,
        delta,
        logprobs,
        finish_reason: optional_finish_reason(end),
        token_ids: None,
    }
}

impl Encoder for ChatEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut FrameWriter<'_>) {
        match event {
            Event::Opened { choices, usage } => self.write_opened(*choices, *usage, out),
            Event::Delta(delta) => {
                let (at, content) = (&delta.origin, ChunkDelta::from_delta(delta, self.reasoning));
                let logprobs = self.chat_logprobs(at.logprobs);
                let choice = chunk_choice(at.choice, content, logprobs, None);
                self.write_choice(choice, at.first + at.tokens, at.usage, out);
            }
            Event::ToolCall(call) => self.tool_call(call, out),
            Event::ChoiceEnded {
                choice, end, usage, ..
            } => {
                let choice = chunk_choice(*choice, ChunkDelta::default(), None, Some(*end));
                self.write_choice(choice, u64::MAX, *usage, out);
            }
            _ => {
                if let Some(ids) = &mut self.ids {
                    ids.note_resumption(&self.chunks.source, event);
                }
                self.chunks.write_stream_event(event, out);
            }
        }
    }

    fn replay_event(&mut self, event: &Event<'_>) {
        if let Event::ToolCall(call) = event {
            let tools = &self.chunks.source.meta().stream_options.offered_tools;
            self.custom_calls.follow(tools, call);
        }
    }

    fn encode_collected(&self, collected: Collected<'_>, out: &mut BytesMut) {
        let Collected {
            answers,
            tokenizer,
            usage,
        } = collected;
        let texts: Vec<_> = answers.iter().map(|a| (a.text(), a.reasoning())).collect();
        let choices = answers.iter().zip(&texts).enumerate();
        let choices: Vec<_> = choices
            .map(|(index, (answer, (text, reasoning)))| {
                let calls = answer.calls();
                let tool_calls = calls.map(|call| ChatToolCall::new(call, self.offered_tools()));
                let tool_calls: Vec<_> = tool_calls.collect();
                let says_nothing = text.is_empty() && !tool_calls.is_empty();
                CollectedChoice {
                    index,
                    message: ChatMessage {
                        role: "assistant",
                        content: (!says_nothing).then_some(&**text),
                        refusal: (),
                        reasoning: if reasoning.is_empty() {
                            ReasoningFields::default()
                        } else {
                            self.reasoning.reasoning_fields(reasoning)
                        },
                        tool_calls,
                    },
                    logprobs: self.chat_logprobs(answer.logprobs(tokenizer)),
                    finish_reason: optional_finish_reason(answer.end),
                    token_ids: all_ids(&self.chunks.source, index),
                }
            })
            .collect();
        let prompt = prompt_ids(&self.chunks.source, 0);
        self.chunks.encode_collected(&choices, prompt, usage, out);
    }
}

impl<'a> ChatToolCall<'a> {
    fn new(call: &'a CollectedCall, tools: &[OfferedTool]) -> Self {
        let name = Some(call.name.as_str());
        let arguments = call.arguments.as_str();
        let is_custom = find_offered(tools, &call.name).is_some_and(|tool| tool.is_custom);
        Self {
            id: &call.id,
            r#type: if is_custom { "custom" } else { "function" },
            function: (!is_custom).then_some(ChatFunction { name, arguments }),
            custom: is_custom.then(|| ChatCustom {
                name,
                input: input_of(arguments),
            }),
        }
    }
}
