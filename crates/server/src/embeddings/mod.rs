//! Embeddings: OpenAI's `/v1/embeddings`, and Ollama's `/api/embed` and `/api/embeddings`. Scores of documents: `/v1/rerank`.
//!
//! ```text
//! compute  from texts to vectors: admission, tokenizing, submission, pooling
//! openai   `/v1/embeddings`
//! ollama   `/api/embed` and `/api/embeddings`
//! pairs    a query with each document, tokenized as the model was trained
//! rerank   `/v1/rerank`
//! ```
//!
//! Each text is a request to the engine, scheduled like any other prompt: chunked prefill beside the running streams,
//! in the fair share of the caller's key. The pooling of hidden states into one vector is a property of the model
//! (`pooling_type` in the model file): the mean, or the hidden state of the last token.

mod compute;
pub(crate) mod ollama;
pub(crate) mod openai;
mod pairs;
pub(crate) mod rerank;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use generate::request::IgnoredFields;
use wire::field_table;

/// Texts of one request that the engine has at one time, so that prompts of other requests run between them.
pub(crate) const IN_FLIGHT_MAX: usize = 8;

/// The response of a request for embeddings.
pub(crate) struct EmbeddingsResponse {
    body: Bytes,
    ignored: IgnoredFields,
}

impl IntoResponse for EmbeddingsResponse {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        field_table::write_ignored(&self.ignored, response.headers_mut());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}
