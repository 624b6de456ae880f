//! Error responses, in the wire protocol of a request's path.
//!
//! A handler or an extractor answers with [`Rejected`]; the error layer of the router writes it. Layers before the
//! routes, and the guard against panics, call [`response`]. A new wire protocol adds a row.

use crate::wire::status::status_code;
use crate::wire::{anthropic, native, ollama, openai};
use axum::body::Body;
use axum::extract::Request;
use axum::http;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use generate::error::ApiError;
use std::sync::Arc;

/// An error that ends a request. It becomes a response in the error layer.
#[derive(Debug)]
pub(crate) struct Rejected(Arc<ApiError>);

impl From<ApiError> for Rejected {
    fn from(error: ApiError) -> Self {
        Self(Arc::new(error))
    }
}

impl IntoResponse for Rejected {
    /// A placeholder with the error as an extension.
    fn into_response(self) -> Response {
        let mut response = status_code(self.0.kind).into_response();
        response.extensions_mut().insert(Unwritten(self.0));
        response
    }
}

/// The error of a placeholder response.
#[derive(Clone)]
struct Unwritten(Arc<ApiError>);

/// The error layer: replaces placeholders by error responses in the wire protocol of the request's path.
pub(crate) async fn write_errors(request: Request, next: Next) -> Response {
    let uri = request.uri().clone();
    let mut answered = next.run(request).await;
    match answered.extensions_mut().remove::<Unwritten>() {
        Some(Unwritten(error)) => response(uri.path(), &error),
        None => answered,
    }
}

/// Writes an error as a response.
type WriteError = fn(&ApiError) -> http::Response<Body>;

/// Paths, each with everything below it, and how their errors are written; all others as OpenAI's.
const PROTOCOLS: &[(&str, WriteError)] = &[
    ("/v1/messages", anthropic::refusal::response),
    ("/v1/inference", native::refusal::response),
    ("/v1/jobs", native::refusal::response),
    ("/v1/workflows", native::refusal::response),
    ("/v1/runs", native::refusal::response),
    ("/v1/heartbeats", native::refusal::response),
    ("/v1/loading", native::refusal::response),
    ("/v1/ready", native::refusal::response),
    ("/health", native::refusal::response),
    ("/api", ollama::refusal::response),
];

/// The error response to a request for `path`.
pub(crate) fn response(path: &str, error: &ApiError) -> Response {
    let row = PROTOCOLS.iter().find(|(root, _)| is_under(path, root));
    let write = row.map_or(openai::refusal::response as WriteError, |&(_, write)| write);
    write(error)
}

fn is_under(path: &str, root: &str) -> bool {
    let rest = path.strip_prefix(root);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::is_under;

    #[test]
    fn protocol_row_covers_the_path_and_paths_below_it() {
        let rows = [
            ("/v1/jobs", true),
            ("/v1/jobs/", true),
            ("/v1/jobs/7/stream", true),
            ("/v1/jobsite", false),
            ("/v1/job", false),
            ("/x/v1/jobs", false),
        ];
        for (path, want) in rows {
            assert_eq!(is_under(path, "/v1/jobs"), want, "{path}");
        }
    }
}
