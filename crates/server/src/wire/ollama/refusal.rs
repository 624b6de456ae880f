//! Errors in Ollama's shape: `{"error":".."}`. The code beside it is ours, for programs.

use crate::wire::json;
use crate::wire::openai::refusal;
use axum::body::Body;
use axum::http::Response;
use bytes::BytesMut;
use generate::error::ApiError;

/// The error as a response.
pub(crate) fn response(error: &ApiError) -> Response<Body> {
    let mut out = BytesMut::new();
    begin(error, &mut out);
    json::raw(&mut out, "}");
    refusal::with_body(error, out.freeze())
}

/// The error's object, left open.
pub(crate) fn begin(error: &ApiError, out: &mut BytesMut) {
    json::raw(out, "{\"error\":");
    json::string(out, &error.message);
    json::raw(out, ",\"code\":");
    json::string(out, error.code);
}
