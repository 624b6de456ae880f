//! Routes of Ollama's API for operations that this server does not support.

use crate::app::App;
use crate::error_response::Rejected;
use crate::routes::ollama_errors::not_supported;
use axum::Router;
use axum::routing::{any, post};

const BLOBS: &str = "pull the model, or put its file into a directory of models";
const PUSH: &str = "this server does not upload models";

/// The routes of unsupported operations.
pub(crate) fn routes() -> Router<App> {
    let rejected = |what, instead| async move || Rejected::from(not_supported(what, instead));
    Router::new()
        .route("/api/push", post(rejected("pushing models", PUSH)))
        .route("/api/blobs/{digest}", any(rejected("storing blobs", BLOBS)))
}
