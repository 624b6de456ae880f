//! Errors in the native shape: `{"errors":[..]}` for fields, `{"error":{..}}` for all else.

use super::code::{Code, is_retriable};
use crate::wire::json;
use crate::wire::openai::refusal;
use axum::body::Body;
use axum::http::Response;
use bytes::BytesMut;
use generate::error::{ApiError, Problem};

/// The error as a response.
pub(crate) fn response(error: &ApiError) -> Response<Body> {
    let mut out = BytesMut::new();
    write(error, &mut out);
    refusal::with_body(error, out.freeze())
}

/// All bad fields, or the one error.
pub(crate) fn write(error: &ApiError, out: &mut BytesMut) {
    if error.problems.is_empty() {
        json::raw(out, "{\"error\":{");
        write_error(Code::of(error), &error.message, is_retriable(error), out);
        json::raw(out, "}}");
        return;
    }
    json::raw(out, "{\"errors\":[");
    for (i, problem) in error.problems.iter().enumerate() {
        json::raw(out, if i == 0 { "" } else { "," });
        write_problem(problem, out);
    }
    json::raw(out, "]}");
}

/// The inside of an error object.
pub(crate) fn write_error(code: Code, message: &str, retriable: bool, out: &mut BytesMut) {
    json::raw(out, "\"code\":\"");
    json::raw(out, code.name());
    json::raw(out, "\",\"message\":");
    json::string(out, message);
    json::raw(
        out,
        if retriable {
            ",\"retriable\":true"
        } else {
            ",\"retriable\":false"
        },
    );
}

fn write_problem(problem: &Problem, out: &mut BytesMut) {
    json::raw(out, "{\"field\":");
    json::string(out, &problem.field);
    json::raw(out, ",\"constraint\":\"");
    json::escape(out, &problem.constraint);
    json::raw(out, "\",\"message\":\"");
    json::escape(out, &problem.field);
    json::raw(out, " ");
    json::escape(out, &problem.constraint);
    json::raw(out, "\"");
    if let Some(value) = &problem.value {
        json::raw(out, ",\"value\":");
        json::raw(out, value);
    }
    json::raw(out, "}");
}
