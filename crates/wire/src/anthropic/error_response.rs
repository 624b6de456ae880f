//! Error responses in Anthropic's format: `{"type":"error","error":{"type","message","details"}}`.

use super::message_request::THREAD_UNSUPPORTED;
use crate::json;
use crate::shared::error_response::status_code;
use crate::shared::error_response::{self, FieldError};
use bytes::Bytes;
use generate::error::{ApiError, Blame};
use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;

/// Anthropic's status of an overloaded server, for which the clients have an exception class.
const OVERLOADED: u16 = 529;
/// Code of an error while the server stops: its status is that of the health check. The clients retry both statuses, and some
/// change to another model after several 529.
const SHUTTING_DOWN: &str = "shutting_down";
/// Status of a request that the client closed, as in nginx.
const CANCELLED: u16 = 499;

/// The body of an error response, or the data of an `error` event.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "MessagesError")]
pub(crate) struct MessageErrorBody<'a> {
    r#type: &'static str,
    error: MessageError<'a>,
}

#[derive(JsonSchema, Serialize)]
struct MessageError<'a> {
    r#type: &'static str,
    message: Cow<'a, str>,
    details: MessageErrorDetails<'a>,
}

#[derive(JsonSchema, Serialize)]
struct MessageErrorDetails<'a> {
    error_code: &'a str,
    /// All rejected fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError<'a>>,
    /// The position after which a stream can be read on.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume_after: Option<&'a str>,
    /// Unsupported features; Anthropic's clients retry without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsupported: Option<[&'static str; 1]>,
}

impl<'a> MessageErrorBody<'a> {
    /// The body of an error.
    pub(crate) fn new(error: &'a ApiError) -> Self {
        Self {
            r#type: "error",
            error: MessageError {
                r#type: error_type(error),
                message: message(error),
                details: MessageErrorDetails {
                    error_code: error.code,
                    errors: error_response::field_errors(error),
                    resume_after: error.resume_after.as_deref(),
                    unsupported: (error.code == THREAD_UNSUPPORTED).then_some(["thread"]),
                },
            },
        }
    }
}

/// The error's message. Clients compact a conversation when they read that the prompt is too long, in these words.
fn message(error: &ApiError) -> Cow<'_, str> {
    match &error.full_context {
        Some(full) => format!(
            "prompt is too long: {} tokens > {} maximum",
            full.tokens, full.tokens_max
        )
        .into(),
        None => (&*error.message).into(),
    }
}

/// The error response.
pub fn to_response<B: From<Bytes>>(error: &ApiError) -> Response<B> {
    let body = json::to_vec(&MessageErrorBody::new(error)).freeze();
    let mut response = error_response::with_body(error, body);
    *response.status_mut() = http_status(error);
    response
}

/// HTTP status of an error in this protocol.
pub(crate) fn http_status(error: &ApiError) -> StatusCode {
    match error.blame {
        Blame::Capacity if error.code != SHUTTING_DOWN => {
            StatusCode::from_u16(OVERLOADED).unwrap_or(status_code(error.kind))
        }
        Blame::Capacity | Blame::Caller | Blame::Ours => status_code(error.kind),
    }
}

/// The error's `type`, a broad category. `details.error_code` has the exact reason.
pub(crate) fn error_type(error: &ApiError) -> &'static str {
    match (error.blame, status_code(error.kind).as_u16()) {
        (Blame::Capacity, _) => "overloaded_error",
        (_, 401) => "authentication_error",
        (_, 403) => "permission_error",
        (_, 404 | 410) => "not_found_error",
        (_, 413) => "request_too_large",
        (_, 429) => "rate_limit_error",
        (_, 504) => "timeout_error",
        (Blame::Ours, _) | (Blame::Caller, CANCELLED) => "api_error",
        (Blame::Caller, _) => "invalid_request_error",
    }
}
