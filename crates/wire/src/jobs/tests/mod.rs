//! Valid and invalid requests; every end of a stream; golden frames.

pub(crate) mod driver;
pub(crate) mod frame_order;
pub(crate) mod frames;

use super::request::{self, parse};
use crate::fields::Fields;
use crate::request_parser::ParsedBody;
use crate::request_parser::tests::context;
use crate::shared::job_outcome::JobErrorCode;
use generate::error::{ApiError, Blame, ErrorKind};
use generate::request::Prompt;
use serde_json::{Value, json};
use std::time::Duration;

fn parse_job(body: &Value) -> Result<ParsedBody, ApiError> {
    parse(Fields::parse(body.to_string().as_bytes())?, &context())
}

fn error_json(error: &ApiError) -> Value {
    let out = request::error_body(error);
    serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{e}: {out:?}"))
}

#[test]
fn valid_request_is_parsed() {
    let plain = parse_job(&json!({"prompt": "hi"})).unwrap();
    assert_eq!((plain.request.n, plain.job_id), (1, None));
    assert_eq!(plain.request.prompts, [Prompt::Text("hi".to_owned())]);
    assert!(plain.request.stream_options.stream, "streamed by default");
    let full = json!({"job_id": "my-job.1", "prompt": [1, 2], "max_tokens": 7, "temperature": 0.5, "top_p": 0.25,
        "top_k": 3, "seed": -1, "stop": ["a", "b"], "stream": false, "n": 1, "logprobs": false});
    let full = parse_job(&full).unwrap();
    assert_eq!(full.job_id.unwrap().as_str(), "my-job.1");
    assert_eq!(full.request.prompts, [Prompt::Ids(vec![1, 2])]);
    let params = full.request.params;
    assert_eq!((params.max_tokens, params.seed), (Some(7), Some(u64::MAX)));
    assert_eq!(params.stops, ["a", "b"]);
    assert_eq!(
        (params.sampling.temperature, params.sampling.top_k),
        (0.5, 3)
    );
    assert!(!full.request.stream_options.stream);
    let conversation =
        parse_job(&json!({"messages": [{"role": "user", "content": "hi"}]})).unwrap();
    assert!(
        matches!(&conversation.request.prompts[..], [Prompt::Conversation { messages, .. }] if messages.len() == 1)
    );
}

#[test]
fn all_invalid_fields_are_reported_at_once() {
    let bad = json!({"job_id": "a b", "max_tokens": 0, "temperature": 9, "top_p": "x", "top_k": -2, "seed": 0.5,
        "stop": [""], "stream": "yes", "n": 2, "logprobs": true});
    let error = parse_job(&bad).expect_err("all wrong");
    assert_eq!(error.kind, ErrorKind::Invalid);
    let output = error_json(&error);
    let rows = output["errors"].as_array().unwrap();
    let fields: Vec<_> = rows
        .iter()
        .map(|row| row["field"].as_str().unwrap())
        .collect();
    let mut sorted = fields.clone();
    sorted.sort_unstable();
    let want = [
        "job_id",
        "logprobs",
        "max_tokens",
        "n",
        "prompt",
        "seed",
        "stop[0]",
        "stream",
        "temperature",
        "top_k",
        "top_p",
    ];
    assert_eq!(sorted, want, "{output}");
    for row in rows {
        let (field, constraint) = (
            row["field"].as_str().unwrap(),
            row["constraint"].as_str().unwrap(),
        );
        assert_eq!(row["message"], format!("{field} {constraint}"));
        // Numbers and booleans are repeated in errors; text of a user is not.
        let shown = bad[field].is_number() || bad[field].is_boolean();
        assert_eq!(row.get("value"), shown.then_some(&bad[field]), "{field}");
    }
    assert!(output.get("error").is_none());
}

#[test]
fn invalid_field_is_named() {
    let rows = [
        ("no prompt", json!({}), "prompt"),
        ("both", json!({"prompt": "a", "messages": []}), "messages"),
        ("no ids", json!({"prompt": []}), "prompt"),
        ("an object", json!({"prompt": {}}), "prompt"),
        ("texts", json!({"prompt": [1, "a"]}), "prompt[1]"),
        ("an unknown id", json!({"prompt": [300]}), "prompt[0]"),
        ("no message", json!({"messages": []}), "messages"),
        (
            "no role",
            json!({"messages": [{"content": "a"}]}),
            "messages[0].role",
        ),
        (
            "a stream's id",
            json!({"prompt": "a", "job_id": "ab".repeat(16)}),
            "job_id",
        ),
        ("a number", json!({"prompt": "a", "job_id": 7}), "job_id"),
        ("tools", json!({"prompt": "a", "tools": [{}]}), "tools"),
    ];
    for (label, body, field) in rows {
        let error = parse_job(&body).expect_err(label);
        let fields: Vec<_> = error.problems.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(fields, [field], "{label}");
    }
}

/// An error from some layer of the server.
fn error_with(kind: ErrorKind, blame: Blame, code: &'static str, again: bool) -> ApiError {
    let retry_after = again.then_some(Duration::from_secs(1));
    ApiError {
        retry_after,
        ..ApiError::new(kind, blame, code, "words")
    }
}

#[test]
fn error_of_every_layer_has_a_code() {
    use Blame::{Caller, Capacity, Ours};
    #[rustfmt::skip]
    let rows = [
        (ErrorKind::NotFound, Caller, "not_found", false, "INVALID_REQUEST", false),
        (ErrorKind::Gone, Caller, "stream_gone", false, "INVALID_REQUEST", false),
        (ErrorKind::Invalid, Caller, "invalid_json", false, "INVALID_REQUEST", false),
        (ErrorKind::RateLimited, Caller, "rate_limit_exceeded", true, "QUEUE_FULL", true),
        (ErrorKind::Cancelled, Caller, "cancelled", false, "CANCELLED", false),
        (ErrorKind::Unavailable, Capacity, "overloaded", true, "QUEUE_FULL", true),
        (ErrorKind::Unavailable, Capacity, "timeout", true, "TIMEOUT", true),
        (ErrorKind::Unavailable, Capacity, "deadline_unattainable", true, "TIMEOUT", true),
        (ErrorKind::Unavailable, Capacity, "shutting_down", true, "WORKER_UNHEALTHY", true),
        (ErrorKind::Unavailable, Capacity, "recovering", true, "WORKER_UNHEALTHY", true),
        (ErrorKind::TimedOut, Ours, "timeout", false, "TIMEOUT", false),
        (ErrorKind::TimedOut, Ours, JobErrorCode::Timeout.name(), false, "TIMEOUT", false),
        (ErrorKind::Internal, Ours, "inference_failed", false, "INFERENCE_FAILED", true),
        (ErrorKind::Internal, Ours, "internal_error", false, "INTERNAL", true),
        (ErrorKind::Invalid, Caller, "too_long_for_memory", false, "INSUFFICIENT_RESOURCES", false),
    ];
    for (status, blame, internal_code, again, code, retriable) in rows {
        let error = error_with(status, blame, internal_code, again);
        let want = json!({"error": {"code": code, "message": "words", "retriable": retriable}});
        assert_eq!(error_json(&error), want, "{internal_code}");
    }
}
