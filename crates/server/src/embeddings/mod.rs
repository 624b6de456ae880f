//! Texts as vectors: OpenAI's `/v1/embeddings`, and Ollama's `/api/embed` and `/api/embeddings`.
//!
//! ```text
//! run     from texts to vectors: let in, tokenised, submitted, pooled     openai  /v1/embeddings
//! input   the texts of a request                                         ollama  /api/embed, /api/embeddings
//! vector  normed, cut, written                                           routes  who answers what
//! ```
//!
//! Each text is a request of the engine's own, scheduled like any other prompt: chunk by chunk beside the
//! streams that run, on its key's account. How hidden states become one vector is the model's matter
//! (`pooling_type` in its file): their mean, or that of the last token.

pub(crate) mod ollama;
pub(crate) mod openai;
mod run;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use generate::request::IgnoredFields;
use wire::field_table;

/// Texts of one request that the engine has at one time: others' prompts come between the rest.
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
