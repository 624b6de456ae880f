//! What Ollama's format has and this server does not: refused in words that say so.

use crate::app::App;
use crate::wire::ollama::refusal;
use axum::Router;
use axum::response::Response;
use axum::routing::{any, post};
use generate::error::{ApiError, ErrorKind};
use std::sync::Arc;

/// What there is instead of changing models.
pub(crate) const MODELS: &str =
    "models are configured by the operator (`millrace serve MODEL.gguf`)";

const BLOBS: &str = "pull the model, or put its file into a directory of models";
const PUSH: &str = "this server does not upload models";

/// The routes. Each says what it would have been.
pub(crate) fn routes() -> Router<Arc<App>> {
    let refused = |what, instead| async move || respond(what, instead);
    Router::new()
        .route("/api/push", post(refused("pushing models", PUSH)))
        .route("/api/blobs/{digest}", any(refused("storing blobs", BLOBS)))
}

/// The refusal of something.
pub(crate) fn refuse(what: &str, instead: &str) -> ApiError {
    let words = format!("{what}: not supported yet by this server; {instead}");
    ApiError::caller(ErrorKind::NotSupported, "not_supported", words)
}

fn respond(what: &str, instead: &str) -> Response {
    refusal::response(&refuse(what, instead))
}
