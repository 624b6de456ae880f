//! Is it alive, is it ready, how busy is it: `/health*`, `/v1/ready`, `/v1/loading/progress`,
//! `/v1/heartbeats/stream`.

use crate::heartbeats;
use crate::readiness::Stage;
use crate::router::{App, event_stream};
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use engine::Stats;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

/// Its routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/health", get(health))
        .route("/health/liveness", get(liveness))
        .route("/health/readiness", get(readiness))
        .route("/v1/ready", get(ready))
        .route("/v1/loading/progress", get(progress))
        .route("/v1/heartbeats/stream", get(beats))
}

/// What the engine does now.
#[derive(Serialize)]
pub(crate) struct Load {
    queued: u64,
    running: u64,
    parked: u64,
    pages_free: u64,
    pages_used: u64,
    pages_cached: u64,
}

impl Load {
    /// As of now.
    pub(crate) fn of(stats: &Stats) -> Self {
        Self {
            queued: stats.queued(),
            running: stats.running(),
            parked: stats.parked(),
            pages_free: stats.pages_free(),
            pages_used: stats.pages_used(),
            pages_cached: stats.pages_cached(),
        }
    }
}

async fn health(State(app): State<Arc<App>>) -> Response {
    let status = match app.readiness.stage() {
        Stage::Ready => "ok",
        draining @ Stage::Draining => draining.name(),
    };
    let engine = Load::of(app.served.engine.stats());
    Json(json!({ "status": status, "model": app.served.id, "engine": engine })).into_response()
}

/// It answers; that is all there is to say.
async fn liveness() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

async fn readiness(State(app): State<Arc<App>>) -> Response {
    let stage = app.readiness.stage();
    let status = match stage {
        Stage::Ready => StatusCode::OK,
        Stage::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(json!({ "status": stage.name() }))).into_response()
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let stage = app.readiness.stage();
    let ready = stage == Stage::Ready;
    Json(json!({ "ready": ready, "state": stage.name() })).into_response()
}

/// How far loading is. The server is bound when it is done, so that is what there is to tell.
async fn progress(State(app): State<Arc<App>>) -> Response {
    let told = json!({ "type": "progress", "state": app.readiness.stage().name(), "percent": 100 });
    event_stream(Body::from(format!("data: {told}\n\ndata: [DONE]\n\n")))
}

async fn beats(State(app): State<Arc<App>>) -> Response {
    event_stream(heartbeats::body(app))
}
