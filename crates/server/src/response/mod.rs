//! Responses: streaming, non-streaming and deferred ones, keep-alives, and error responses.
//!
//! Error responses, in the wire protocol of a request's path.
//!
//! A handler or an extractor returns [`Rejected`]; the error layer of the router writes the response. Layers before
//! the routes, and the guard against panics, call [`for_path`].

pub(crate) mod deferred_response;
pub(crate) mod stream_body;
pub(crate) mod stream_response;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use generate::error::ApiError;
use std::sync::Arc;
use wire::protocol::Protocol;
use wire::shared::error_response::status_code;

/// An error that ends a request. The error layer turns the error into a response.
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
        response.extensions_mut().insert(UnwrittenError(self.0));
        response
    }
}

/// The error of a placeholder response.
#[derive(Clone)]
struct UnwrittenError(Arc<ApiError>);

/// The error layer: replaces placeholders by error responses in the wire protocol of the request's path.
pub(crate) async fn write_errors(request: Request, next: Next) -> Response {
    let uri = request.uri().clone();
    let mut answered = next.run(request).await;
    match answered.extensions_mut().remove::<UnwrittenError>() {
        Some(UnwrittenError(error)) => for_path(uri.path(), &error),
        None => answered,
    }
}

/// The error response to a request for `path`.
pub(crate) fn for_path(path: &str, error: &ApiError) -> Response {
    Protocol::of_path(path).error(error)
}
