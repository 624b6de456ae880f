//! Output items of a response as JSON.

use super::sequence_number::ItemKind;
use crate::schema::written_as;
use crate::shared::finish_reason;
use crate::shared::logprobs::TokenLogprobs;
use generate::output::collected::{AnswerPart, CollectedAnswer};
use generate::output::custom_input::input_of;
use generate::output::event::{Event, Logprobs, ToolCallPart};
use generate::stream_source::StreamSource;
use generate::tools::{OfferedTool, find_offered};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::fmt::Display;
use stream::{End, StreamId};
use text::Tokenizer;

/// An output item of a response.
#[derive(JsonSchema, Serialize)]
pub struct OutputItem<'a> {
    id: ItemId,
    r#type: &'static str,
    status: &'static str,
    #[serde(flatten)]
    body: ItemBody<'a>,
}

#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
enum ItemBody<'a> {
    Message {
        role: &'static str,
        content: Vec<OutputPart<'a>>,
    },
    Reasoning {
        summary: [(); 0],
        content: Vec<OutputPart<'a>>,
    },
    Call {
        call_id: &'a str,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<&'a str>,
        #[serde(flatten)]
        given: CallContents<'a>,
    },
}

/// What a call gives to its tool.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
enum CallContents<'a> {
    /// Arguments of a function.
    Arguments(&'a str),
    /// The text for a custom tool.
    Input(Cow<'a, str>),
}

impl<'a> ItemBody<'a> {
    /// A call of the function that the model calls `name`.
    fn from_call(
        tools: &'a [OfferedTool],
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    ) -> Self {
        let tool = find_offered(tools, name);
        Self::Call {
            call_id,
            name: tool.map_or(name, |tool| &*tool.name),
            namespace: tool.and_then(|tool| tool.namespace.as_deref()),
            given: match tool {
                Some(tool) if tool.is_custom => CallContents::Input(input_of(arguments)),
                _ => CallContents::Arguments(arguments),
            },
        }
    }

    fn from_text(item: ItemKind, content: Vec<OutputPart<'a>>) -> Self {
        match item {
            ItemKind::Reasoning => Self::Reasoning {
                summary: [],
                content,
            },
            ItemKind::Message | ItemKind::Call => Self::Message {
                role: "assistant",
                content,
            },
        }
    }
}

/// The single content part of a message or of a reasoning item.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "ContentPart")]
pub enum OutputPart<'a> {
    /// Text of a message.
    OutputText {
        /// Always empty.
        annotations: [(); 0],
        /// Log-probabilities, if requested.
        logprobs: LogprobList<'a>,
        /// The text.
        text: &'a str,
    },
    /// Text of a reasoning item.
    ReasoningText {
        /// The text.
        text: &'a str,
    },
}

impl<'a> OutputPart<'a> {
    /// A content part with this text.
    pub fn new(item: ItemKind, text: &'a str, list: Option<Logprobs<'a>>) -> Self {
        match item {
            ItemKind::Message => Self::OutputText {
                annotations: [],
                logprobs: LogprobList(list),
                text,
            },
            ItemKind::Reasoning | ItemKind::Call => Self::ReasoningText { text },
        }
    }
}

/// Log-probabilities; `None` is an empty list.
pub struct LogprobList<'a>(pub Option<Logprobs<'a>>);

written_as!(LogprobList<'_> => TokenLogprobs<'static>, ItemId => String);

impl Serialize for LogprobList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(list) => TokenLogprobs(list).serialize(serializer),
            None => serializer.collect_seq([(); 0]),
        }
    }
}

/// Id of an item: the stream's id, followed by the item's index unless the index is 0.
#[derive(Clone, Copy)]
pub struct ItemId {
    /// Kind of the item.
    pub item: ItemKind,
    /// Whether the item calls a custom tool.
    pub is_custom: bool,
    /// The stream of the response.
    pub stream: StreamId,
    /// Index of the item in the output.
    pub index: usize,
}

impl Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.item {
            ItemKind::Message => "msg_",
            ItemKind::Reasoning => "rs_",
            ItemKind::Call if self.is_custom => "ctc_",
            ItemKind::Call => "fc_",
        };
        write!(f, "{prefix}{}", self.stream)?;
        match self.index {
            0 => Ok(()),
            index => write!(f, "_{index}"),
        }
    }
}

impl Serialize for ItemId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The items of all choices, ordered by output index.
pub fn output_items<'a>(
    source: &'a StreamSource,
    answers: &'a [CollectedAnswer],
) -> Vec<OutputItem<'a>> {
    let Some(started) = source.started() else {
        return Vec::new();
    };
    let tools = &source.meta().stream_options.offered_tools[..];
    let rows = answers.iter().map(item_count).max().unwrap_or(0);
    let places = (0..rows).flat_map(|at| (0..answers.len()).map(move |choice| (choice, at)));
    let there = places.filter(|&(choice, at)| at < item_count(&answers[choice]));
    there
        .map(|(choice, at)| {
            let answer = &answers[choice];
            let part = answer.parts.get(at);
            let id = ItemId {
                item: item_kind(part),
                is_custom: is_custom_call(part, tools),
                stream: source.meta().id,
                index: choice + answers.len() * at,
            };
            let list = message_logprobs(answer, at, &started.tokenizer);
            output_item(id, part, tools, item_status(answer, at), list)
        })
        .collect()
}

/// Number of items of an answer. A completed answer without output is one empty message.
fn item_count(answer: &CollectedAnswer) -> usize {
    let is_over = matches!(answer.end, Some(End::Stop(_) | End::Length));
    answer.parts.len().max(usize::from(is_over))
}

fn item_kind(part: Option<&AnswerPart>) -> ItemKind {
    match part {
        Some(AnswerPart::Text(_)) | None => ItemKind::Message,
        Some(AnswerPart::Reasoning(_)) => ItemKind::Reasoning,
        Some(AnswerPart::Call(_)) => ItemKind::Call,
    }
}

fn is_custom_call(part: Option<&AnswerPart>, tools: &[OfferedTool]) -> bool {
    let Some(AnswerPart::Call(call)) = part else {
        return false;
    };
    find_offered(tools, &call.name).is_some_and(|tool| tool.is_custom)
}

/// The text or the arguments of an item.
pub fn part_text(part: Option<&AnswerPart>) -> &str {
    match part {
        Some(AnswerPart::Text(text) | AnswerPart::Reasoning(text)) => text,
        Some(AnswerPart::Call(call)) => &call.arguments,
        None => "",
    }
}

/// The `status` of an item.
pub fn item_status(answer: &CollectedAnswer, at: usize) -> &'static str {
    // A tool call is complete or not, regardless of later items.
    let is_complete = match answer.parts.get(at) {
        Some(AnswerPart::Call(call)) => serde_json::from_str::<IgnoredAny>(&call.arguments).is_ok(),
        _ => at + 1 < answer.parts.len(),
    };
    let is_call = matches!(answer.parts.get(at), Some(AnswerPart::Call(_)));
    match answer.end.map(finish_reason::finish_reason) {
        _ if is_complete => "completed",
        None => "in_progress",
        Some(_) if is_call => "incomplete",
        Some(Ok("length") | Err(_)) => "incomplete",
        Some(Ok(_)) => "completed",
    }
}

/// Log-probabilities of an item, if that is a message.
pub fn message_logprobs<'a>(
    answer: &'a CollectedAnswer,
    at: usize,
    tokenizer: &'a Tokenizer,
) -> Option<Logprobs<'a>> {
    let is_message = matches!(answer.parts.get(at), Some(AnswerPart::Text(_)));
    is_message.then(|| answer.part_logprobs(at, tokenizer))
}

/// The item that begins with an event, without output.
pub fn started_item<'a>(id: ItemId, event: &Event<'a>, tools: &'a [OfferedTool]) -> OutputItem<'a> {
    let body = match event {
        Event::ToolCall(call) if id.item == ItemKind::Call => match call.part {
            ToolCallPart::Start { id, name } => ItemBody::from_call(tools, id, name, ""),
            ToolCallPart::Args(_) | ToolCallPart::End => ItemBody::from_text(id.item, Vec::new()),
        },
        _ => ItemBody::from_text(id.item, Vec::new()),
    };
    with_id(id, "in_progress", body)
}

/// An item with its output; `None` is an empty item.
pub fn output_item<'a>(
    id: ItemId,
    part: Option<&'a AnswerPart>,
    tools: &'a [OfferedTool],
    status: &'static str,
    list: Option<Logprobs<'a>>,
) -> OutputItem<'a> {
    let body = match part {
        Some(AnswerPart::Call(call)) if id.item == ItemKind::Call => {
            ItemBody::from_call(tools, &call.id, &call.name, &call.arguments)
        }
        _ => ItemBody::from_text(
            id.item,
            vec![OutputPart::new(id.item, part_text(part), list)],
        ),
    };
    with_id(id, status, body)
}

fn with_id<'a>(id: ItemId, status: &'static str, body: ItemBody<'a>) -> OutputItem<'a> {
    OutputItem {
        id,
        r#type: match id.item {
            ItemKind::Message => "message",
            ItemKind::Reasoning => "reasoning",
            ItemKind::Call if id.is_custom => "custom_tool_call",
            ItemKind::Call => "function_call",
        },
        status,
        body,
    }
}
