//! The routes of the server and the layers around them.

use crate::app::App;
use crate::authentication::{self, Authentication};
use crate::error_response::{self, Rejected};
use crate::routes::{
    ai_sdk, anthropic, generation, jobs, models, ollama, responses, streams, workflows,
};
use crate::{embeddings, health, metrics, openapi, paths, realtime, vocabulary};
use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use generate::error::{ApiError, ErrorKind};
use std::sync::Arc;

/// All routes, behind the authentication layer.
pub(crate) fn router(app: App, authentication: Authentication) -> Router {
    let metrics = Arc::clone(&app.metrics);
    Router::new()
        .route("/metrics", get(metrics::show))
        .merge(generation::routes())
        .merge(models::routes())
        .merge(streams::routes())
        .merge(jobs::routes())
        .merge(responses::routes())
        .merge(embeddings::routes())
        .merge(vocabulary::routes())
        .merge(openapi::routes())
        .merge(ai_sdk::routes())
        .merge(anthropic::routes())
        .merge(realtime::routes())
        .merge(ollama::routes())
        .merge(workflows::routes())
        .merge(health::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(async || not_allowed())
        .layer(from_fn(error_response::write_errors))
        .layer(from_fn_with_state(
            Arc::new(authentication),
            authentication::authenticate,
        ))
        .layer(from_fn_with_state(metrics, metrics::count))
        .with_state(app)
}

async fn not_found(method: Method, uri: Uri) -> Rejected {
    if method == Method::OPTIONS {
        return not_allowed();
    }
    let words = paths::not_found_words(uri.path());
    ApiError::caller(ErrorKind::NotFound, "not_found", words).into()
}

fn not_allowed() -> Rejected {
    let (kind, code) = (ErrorKind::MethodNotAllowed, "method_not_allowed");
    let words = "this path does not answer to this method";
    ApiError::caller(kind, code, words).into()
}
