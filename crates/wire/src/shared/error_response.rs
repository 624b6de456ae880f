//! Error responses in OpenAI's format.

use crate::json;
use bytes::Bytes;
use generate::error::{ApiError, Blame, ErrorKind, Problem};
use http::{HeaderValue, Response, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// The header with the position after which a stream can be read on.
const RESUME_AFTER: &str = "x-stream-resume-after";

/// Error code of a response, stored in the response's extensions for the metrics.
#[derive(Clone, Copy, Debug)]
pub struct RejectedWith(pub &'static str);

/// The body of an error response.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Error")]
pub struct ErrorBody<'a> {
    error: ErrorObject<'a>,
}

#[derive(JsonSchema, Serialize)]
struct ErrorObject<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError<'a>>,
    /// The position after which a stream can be read on; only in `stream_diverged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume_after: Option<&'a str>,
}

/// A rejected field of a request.
#[derive(JsonSchema, Serialize)]
pub struct FieldError<'a> {
    field: &'a str,
    constraint: &'a str,
}

impl<'a> ErrorBody<'a> {
    /// The body of an error.
    pub fn new(error: &'a ApiError) -> Self {
        Self {
            error: ErrorObject {
                message: &error.message,
                r#type: error_type(error),
                param: first_invalid_field(error),
                code: error.code,
                errors: field_errors(error),
                resume_after: error.resume_after.as_deref(),
            },
        }
    }
}

impl<'a> FieldError<'a> {
    fn new(problem: &'a Problem) -> Self {
        Self {
            field: &problem.field,
            constraint: &problem.constraint,
        }
    }
}

/// All rejected fields, in the order of the request.
pub fn field_errors(error: &ApiError) -> Vec<FieldError<'_>> {
    error.problems.iter().map(FieldError::new).collect()
}

/// The first rejected field.
pub fn first_invalid_field(error: &ApiError) -> Option<&str> {
    error.problems.first().map(|problem| &*problem.field)
}

/// The error response.
pub fn to_response<B: From<Bytes>>(error: &ApiError) -> Response<B> {
    with_body(error, json::to_vec(&ErrorBody::new(error)).freeze())
}

/// A response with the error's status and headers, and a body in any protocol.
pub fn with_body<B: From<Bytes>>(error: &ApiError, body: Bytes) -> Response<B> {
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status_code(error.kind);
    response.extensions_mut().insert(RejectedWith(error.code));
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
    if let Some(place) = &error.resume_after
        && let Ok(place) = HeaderValue::from_str(place)
    {
        headers.insert(RESUME_AFTER, place);
    }
    if error.kind == ErrorKind::TimedOut {
        // Official clients retry every 5xx; a request that missed its deadline once would miss it again.
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    response
}

fn error_type(error: &ApiError) -> &'static str {
    match (error.blame, error.code) {
        (_, "timeout") => "timeout",
        (Blame::Caller, "rate_limit_exceeded") => "rate_limit_error",
        (Blame::Caller, _) => "invalid_request_error",
        (Blame::Capacity | Blame::Ours, _) => "server_error",
    }
}

/// Rounded up, so that a client that waits this long is not early.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

fn whole_milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Status of a request that the client canceled: RFC 9110 defines none, nginx uses 499.
const CANCELLED: u16 = 499;

/// The HTTP status code of an error.
pub fn status_code(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        ErrorKind::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::Gone => StatusCode::GONE,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::UnsupportedMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorKind::Misdirected => StatusCode::MISDIRECTED_REQUEST,
        ErrorKind::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
        ErrorKind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorKind::NotSupported => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::Upstream => StatusCode::BAD_GATEWAY,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::Cancelled => StatusCode::from_u16(CANCELLED).unwrap_or(StatusCode::CONFLICT),
    }
}
