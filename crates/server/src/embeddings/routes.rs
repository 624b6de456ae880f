//! The routes.

use super::{ollama, openai};
use crate::app::App;
use axum::Router;
use axum::routing::post;

/// The routes.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/embeddings", post(openai::embeddings))
        .route("/api/embed", post(ollama::embed))
        .route("/api/embeddings", post(ollama::embeddings))
}
