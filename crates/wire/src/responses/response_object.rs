//! The response object as JSON.

use super::output_item::{OutputItem, output_items};
use super::request::RequestFields;
use crate::shared::vision_proxy::VisionProxyUsage;
use crate::{clock, json};
use bytes::Bytes;
use generate::error::ApiError;
use generate::output::choice_reader as refold;
use generate::output::collected::CollectedAnswer;
use generate::output::event::Usage;
use generate::stream_source::StreamSource;
use schemars::JsonSchema;
use serde::Serialize;
use stream::End;

/// State of a response.
#[derive(Clone, Copy)]
pub enum ResponseStatus<'a> {
    /// The request waits for admission.
    Queued,
    /// The response is being generated.
    InProgress,
    /// The response completed.
    Completed,
    /// The response ended at the token limit of the request.
    Incomplete,
    /// The response was canceled.
    Cancelled,
    /// The response failed.
    Failed(&'a ApiError),
}

impl<'a> ResponseStatus<'a> {
    /// Status of a response that did not fail.
    pub fn of(end: Option<End>) -> Self {
        match end {
            Some(End::Length) => Self::Incomplete,
            _ => Self::Completed,
        }
    }

    /// Status of a response that failed.
    pub fn of_error(error: &'a ApiError) -> Self {
        match error.code {
            "cancelled" => Self::Cancelled,
            _ => Self::Failed(error),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }

    /// Name of the event that ends a stream with this status.
    pub fn end_event(self) -> &'static str {
        match self {
            Self::Queued | Self::InProgress | Self::Completed => "response.completed",
            Self::Incomplete => "response.incomplete",
            Self::Cancelled | Self::Failed(_) => "response.failed",
        }
    }
}

/// The response object.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Response")]
pub struct ResponseObject<'a> {
    id: &'a str,
    object: &'static str,
    created_at: u64,
    /// When the response completed, in seconds since the Unix epoch; `null` unless `status` is `completed`.
    completed_at: Option<u64>,
    status: &'static str,
    background: bool,
    error: Option<ResponseError<'a>>,
    incomplete_details: Option<IncompleteDetails>,
    model: &'a str,
    #[serde(flatten)]
    request: RequestFields,
    output: Vec<OutputItem<'a>>,
    usage: Option<ResponseUsage<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct ResponseError<'a> {
    code: &'a str,
    message: &'a str,
}

#[derive(JsonSchema, Serialize)]
struct IncompleteDetails {
    reason: &'static str,
}

#[derive(JsonSchema, Serialize)]
struct ResponseUsage<'a> {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
    /// The model that described images, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    vision_proxy: Option<VisionProxyUsage<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct InputDetails {
    cached_tokens: u64,
    /// Always 0: writes to the prefix cache are free, but clients' types require the field.
    cache_write_tokens: u64,
    /// Rows of images, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_tokens: Option<u64>,
}

#[derive(JsonSchema, Serialize)]
struct OutputDetails {
    reasoning_tokens: u64,
}

impl<'a> ResponseUsage<'a> {
    fn new(usage: Usage, source: &'a StreamSource) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached_tokens,
                cache_write_tokens: 0,
                image_tokens: (usage.image_tokens > 0).then_some(usage.image_tokens),
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputDetails {
                reasoning_tokens: usage.reasoning_tokens,
            },
            total_tokens: usage.prompt_tokens + usage.completion_tokens,
            vision_proxy: VisionProxyUsage::of(source),
        }
    }
}

/// A response object with this output.
pub fn response_object<'a>(
    source: &'a StreamSource,
    status: ResponseStatus<'a>,
    usage: Option<Usage>,
    output: Vec<OutputItem<'a>>,
) -> ResponseObject<'a> {
    let meta = source.meta();
    ResponseObject {
        id: &meta.response_id,
        object: "response",
        created_at: u64::try_from(meta.created_unix_s).unwrap_or(0),
        completed_at: match status {
            ResponseStatus::Completed => Some(completed_unix_s(source)),
            _ => None,
        },
        status: status.name(),
        background: meta.stream_options.background,
        error: match status {
            ResponseStatus::Failed(error) => Some(ResponseError {
                code: error.code,
                message: &error.message,
            }),
            _ => None,
        },
        incomplete_details: match status {
            ResponseStatus::Incomplete => Some(IncompleteDetails {
                reason: "max_output_tokens",
            }),
            _ => None,
        },
        model: &meta.model,
        request: RequestFields::new(meta.stream_options.repeated_fields.as_deref()),
        output,
        usage: usage.map(|usage| ResponseUsage::new(usage, source)),
    }
}

fn completed_unix_s(source: &StreamSource) -> u64 {
    let ended_unix_us = source.ended_time().recorded_or(clock::unix_us());
    ended_unix_us / 1_000_000
}

/// The object of an ended response, with the collected answers.
pub fn ended_response<'a>(
    source: &'a StreamSource,
    status: ResponseStatus<'a>,
    answers: &'a [CollectedAnswer],
    usage: Usage,
) -> ResponseObject<'a> {
    response_object(source, status, Some(usage), output_items(source, answers))
}

/// The object of a running response, with the output so far.
pub fn response_so_far(source: &StreamSource, is_queued: bool) -> Bytes {
    let status = if is_queued {
        ResponseStatus::Queued
    } else {
        ResponseStatus::InProgress
    };
    let answers = refold::answers(source);
    let object = response_object(source, status, None, output_items(source, &answers));
    json::to_vec(&object).freeze()
}
