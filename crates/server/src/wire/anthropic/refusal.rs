//! Errors in Anthropic's shape: `{"type":"error","error":{"type","message","details"}}`.

use super::message_request::THREAD_UNSUPPORTED;
use crate::wire::json;
use crate::wire::openai::refusal;
use crate::wire::status::status_code;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use bytes::BytesMut;
use generate::error::{ApiError, Blame};

/// Anthropic's status for a server that has no room: its clients know it by a class of its own.
const OVERLOADED: u16 = 529;
/// What nginx says for "the client closed the request".
const CANCELLED: u16 = 499;

/// The error as a response.
pub(crate) fn response(error: &ApiError) -> Response<Body> {
    let mut out = BytesMut::new();
    write(error, &mut out);
    let mut response = refusal::with_body(error, out.freeze());
    *response.status_mut() = status(error);
    response
}

/// The status it has in this format.
pub(crate) fn status(error: &ApiError) -> StatusCode {
    match error.blame {
        Blame::Capacity => StatusCode::from_u16(OVERLOADED).unwrap_or(status_code(error.kind)),
        Blame::Caller | Blame::Ours => status_code(error.kind),
    }
}

/// The type it has in this format: the broad reason. The exact one is in `details.error_code`.
pub(crate) fn kind(error: &ApiError) -> &'static str {
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

/// The whole object. All bad fields are in `details.errors`.
pub(crate) fn write(error: &ApiError, out: &mut BytesMut) {
    json::raw(out, "{\"type\":\"error\",\"error\":{\"type\":\"");
    json::raw(out, kind(error));
    json::raw(out, "\",\"message\":");
    json::string(out, &error.message);
    json::raw(out, ",\"details\":{\"error_code\":");
    json::string(out, error.code);
    for (i, problem) in error.problems.iter().enumerate() {
        json::raw(out, if i == 0 { ",\"errors\":[" } else { "," });
        json::raw(out, "{\"field\":");
        json::string(out, &problem.field);
        json::raw(out, ",\"constraint\":");
        json::string(out, &problem.constraint);
        json::raw(out, "}");
    }
    // Read by the clients' own fallback.
    if error.code == THREAD_UNSUPPORTED {
        json::raw(out, "],\"unsupported\":[\"thread\"");
    }
    let list_ends = if error.problems.is_empty() { "" } else { "]" };
    json::raw(out, list_ends);
    json::raw(out, "}}}");
}
