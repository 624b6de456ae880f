//! Errors in OpenAI's shape.

use crate::metrics::Refused;
use crate::wire::json;
use crate::wire::status::status_code;
use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::{Bytes, BytesMut};
use generate::error::{ApiError, Blame, ErrorKind};
use std::time::Duration;

/// The error as a response.
pub(crate) fn response(error: &ApiError) -> Response<Body> {
    let mut out = BytesMut::new();
    write(error, &mut out);
    with_body(error, out.freeze())
}

/// The error's status and header fields, over its words in some format.
pub(crate) fn with_body(error: &ApiError, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status_code(error.kind);
    response.extensions_mut().insert(Refused(error.code));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if let Some(wait) = error.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        headers.insert(
            "retry-after-ms",
            HeaderValue::from(whole_milliseconds(wait)),
        );
    }
    if error.kind == ErrorKind::TimedOut {
        // Official clients retry what says 5xx; a deadline that passed once would pass again.
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    response
}

/// `{"error":{...}}`.
pub(crate) fn write(error: &ApiError, out: &mut BytesMut) {
    json::raw(out, "{\"error\":{\"message\":");
    json::string(out, &error.message);
    json::raw(out, ",\"type\":");
    json::string(out, kind(error));
    json::raw(out, ",\"param\":");
    match error.problems.first() {
        Some(problem) => json::string(out, &problem.field),
        None => json::raw(out, "null"),
    }
    json::raw(out, ",\"code\":");
    json::string(out, error.code);
    if !error.problems.is_empty() {
        write_problems(error, out);
    }
    json::raw(out, "}}");
}

fn write_problems(error: &ApiError, out: &mut BytesMut) {
    json::raw(out, ",\"errors\":[");
    for (i, problem) in error.problems.iter().enumerate() {
        json::raw(
            out,
            if i == 0 {
                "{\"field\":"
            } else {
                ",{\"field\":"
            },
        );
        json::string(out, &problem.field);
        json::raw(out, ",\"constraint\":");
        json::string(out, &problem.constraint);
        json::raw(out, "}");
    }
    json::raw(out, "]");
}

fn kind(error: &ApiError) -> &'static str {
    match (error.blame, error.code) {
        (_, "timeout") => "timeout",
        (Blame::Caller, "rate_limit_exceeded") => "rate_limit_error",
        (Blame::Caller, _) => "invalid_request_error",
        (Blame::Capacity | Blame::Ours, _) => "server_error",
    }
}

/// Rounded up: who comes back at the time that was told finds it true.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

fn whole_milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
