//! What Ollama's format has and this server does not: refused in words that say so.

use super::refusal;
use crate::error::ApiError;
use crate::router::App;
use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{any, delete, post};
use std::sync::Arc;

const MODELS: &str = "its operator gives it its models (`millrace serve MODEL.gguf`)";

/// The routes. Each says what it would have been.
pub(super) fn routes() -> Router<Arc<App>> {
    let refused = |what, instead| async move || respond(what, instead);
    Router::new()
        .route("/api/pull", post(refused("pulling models", MODELS)))
        .route("/api/push", post(refused("pushing models", MODELS)))
        .route("/api/create", post(refused("creating models", MODELS)))
        .route("/api/copy", post(refused("copying models", MODELS)))
        .route("/api/delete", delete(refused("deleting models", MODELS)))
        .route("/api/blobs/{digest}", any(refused("storing blobs", MODELS)))
        .route(
            "/api/embed",
            post(refused("embeddings", "it generates text")),
        )
        .route(
            "/api/embeddings",
            post(refused("embeddings", "it generates text")),
        )
}

/// The refusal of something.
pub(super) fn refuse(what: &str, instead: &str) -> ApiError {
    let words = format!("{what}: not supported yet by this server; {instead}");
    ApiError::caller(StatusCode::NOT_IMPLEMENTED, "not_supported", words)
}

fn respond(what: &str, instead: &str) -> Response {
    refusal::response(&refuse(what, instead))
}
