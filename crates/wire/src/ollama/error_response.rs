//! Error responses in Ollama's format: `{"error":".."}`. The member `code` is an extension for programs.

use crate::json;
use crate::openai::error_response;
use bytes::Bytes;
use generate::error::ApiError;
use http::Response;
use schemars::JsonSchema;
use serde::Serialize;

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
