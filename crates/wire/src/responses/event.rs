//! Events of a response as JSON.

use super::output_item::{ItemId, LogprobList, OutputItem, OutputPart};
use super::response_object::ResponseObject;
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;

/// An event of a response stream, with a sequence number.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "{T}Event")]
pub(super) struct Numbered<T> {
    pub(super) r#type: &'static str,
    pub(super) sequence_number: u64,
    #[serde(flatten)]
    pub(super) fields: T,
}

/// An event of a response stream.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum ResponseEvent<'a> {
    Response(Numbered<WithResponse<'a>>),
    Item(Numbered<WithItem<'a>>),
    Part(Numbered<ItemEvent<WithPart<'a>>>),
    Delta(Numbered<ItemEvent<WithDelta<'a>>>),
    Contents(Numbered<ItemEvent<ItemContents<'a>>>),
    Error(Numbered<ErrorFields<'a>>),
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ResponseState")]
pub(super) struct WithResponse<'a> {
    pub(super) response: ResponseObject<'a>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ResponseItem")]
pub(super) struct WithItem<'a> {
    pub(super) output_index: usize,
    pub(super) item: OutputItem<'a>,
}

/// Fields of an event about an item that was sent before.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "{T}")]
pub(super) struct ItemEvent<T> {
    pub(super) output_index: usize,
    pub(super) item_id: ItemId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_index: Option<usize>,
    #[serde(flatten)]
    pub(super) fields: T,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ResponsePart")]
pub(super) struct WithPart<'a> {
    pub(super) part: OutputPart<'a>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ResponseDelta")]
pub(super) struct WithDelta<'a> {
    pub(super) delta: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logprobs: Option<LogprobList<'a>>,
}

/// Complete contents of an item.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
#[schemars(rename = "ResponseContents")]
pub(super) enum ItemContents<'a> {
    Call {
        name: &'a str,
        arguments: &'a str,
    },
    CustomCall {
        input: Cow<'a, str>,
    },
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<LogprobList<'a>>,
    },
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ResponseStreamError")]
pub(super) struct ErrorFields<'a> {
    pub(super) code: &'a str,
    pub(super) message: &'a str,
    pub(super) param: Option<&'a str>,
}
