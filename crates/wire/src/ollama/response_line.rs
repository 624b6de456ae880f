//! Lines of Ollama's protocol as JSON.

use crate::clock::Nanos;
use crate::json;
use crate::schema::written_as;
use crate::shared::error_response;
use crate::shared::finish_reason::finish_reason;
use crate::shared::logprobs::TokenLogprobs;
use crate::shared::tool_calls::tool_input;
use crate::shared::vision_proxy::VisionProxyUsage;
use bytes::Bytes;
use engine::Token;
use generate::error::ApiError;
use generate::output::collected::CollectedCall;
use generate::stream_source::ChoiceLog;
use http::Response;
use schemars::JsonSchema;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::time::Duration;
use stream::{End, Read};

/// Tokens read from the token log at a time.
const TOKENS_PER_READ: usize = 256;

/// A line of a stream, or a non-streaming response.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OllamaResponse")]
pub(super) struct ResponseLine<'a> {
    pub(super) model: &'a str,
    pub(super) created_at: Nanos,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<OllamaMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) thinking: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) tool_calls: &'a [ToolCallObject<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logprobs: Option<TokenLogprobs<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) choice: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queued: Option<usize>,
    pub(super) done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) percent: Option<u64>,
    #[serde(flatten)]
    pub(super) summary: Option<LineSummary<'a>>,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct OllamaMessage<'a> {
    pub(super) role: &'static str,
    pub(super) content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) thinking: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) tool_calls: &'a [ToolCallObject<'a>],
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OllamaToolCall")]
pub(super) struct ToolCallObject<'a> {
    id: &'a str,
    function: OllamaFunction<'a>,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct OllamaFunction<'a> {
    name: &'a str,
    #[schemars(with = "Map<String, Value>")]
    arguments: Box<RawValue>,
}

/// Finish reason, durations in nanoseconds and token counts of a choice that has ended.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OllamaSummary")]
pub(super) struct LineSummary<'a> {
    pub(super) done_reason: &'static str,
    pub(super) total_duration: u64,
    pub(super) load_duration: u64,
    pub(super) prompt_eval_count: u64,
    pub(super) prompt_eval_duration: u64,
    pub(super) eval_count: u64,
    pub(super) eval_duration: u64,
    /// The model that described images, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vision_proxy: Option<VisionProxyUsage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<ContextIds<'a>>,
}

/// Token ids of the prompt and of the answer: a client that sends them with the next request continues the
/// conversation.
pub(super) struct ContextIds<'a> {
    pub(super) log: &'a ChoiceLog,
    pub(super) prompt: &'a [u32],
}

/// Output of one line.
#[derive(Default)]
pub(super) struct LineOutput<'a> {
    pub(super) text: &'a str,
    pub(super) thinking: &'a str,
    pub(super) tool_calls: &'a [ToolCallObject<'a>],
}

impl<'a> ToolCallObject<'a> {
    pub(super) fn new(call: &'a CollectedCall) -> Self {
        Self {
            id: &call.id,
            function: OllamaFunction {
                name: &call.name,
                arguments: tool_input(call),
            },
        }
    }
}

written_as!(ContextIds<'_> => Vec<u32>);

impl Serialize for ContextIds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for id in self.prompt {
            list.serialize_element(id)?;
        }
        // Position 0 of a token log can always be read.
        let Ok(mut reader) = self.log.tokens.attach(0) else {
            return list.end();
        };
        let mut buffer = [Token::default(); TOKENS_PER_READ];
        while let Read::Items(n) = reader.read(&mut buffer) {
            for token in &buffer[..n] {
                list.serialize_element(&token.id)?;
            }
        }
        list.end()
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The body of an error response, or the last line of a failed stream.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OllamaError")]
pub struct ErrorLine<'a> {
    error: &'a str,
    code: &'a str,
    /// Number of generated tokens; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_count: Option<u64>,
    /// The position after which a stream can be read on; only in `stream_diverged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume_after: Option<&'a str>,
}

impl<'a> ErrorLine<'a> {
    /// The error line after `tokens` generated tokens.
    pub fn new(error: &'a ApiError, tokens: u64) -> Self {
        Self {
            error: &error.message,
            code: error.code,
            eval_count: (tokens > 0).then_some(tokens),
            resume_after: error.resume_after.as_deref(),
        }
    }
}

/// The error response.
pub(crate) fn to_response<B: From<Bytes>>(error: &ApiError) -> Response<B> {
    let body = json::to_vec(&ErrorLine::new(error, 0));
    error_response::with_body(error, body.freeze())
}

/// The `done_reason` of a completed stream; an end by a tool call is "stop".
///
/// # Errors
/// The error of a stream that did not complete.
pub(super) fn done_reason(end: End) -> Result<&'static str, ApiError> {
    finish_reason(end).map(|reason| match reason {
        "length" => "length",
        _ => "stop",
    })
}
