//! Is it alive, is it ready, how busy is it: `/health*`, `/v1/ready`, `/v1/loading/progress`,
//! `/v1/heartbeats/stream`; which release it is: `/version`.

use crate::app::App;
use crate::gateway::lifecycle::Stage;
use crate::gateway::served::State as Model;
use crate::heartbeats;
use crate::load_watch;
use crate::router::event_stream;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use engine::Stats;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Where progress is told as it comes.
const PROGRESS: &str = "/v1/loading/progress";

/// Routes of health probes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/health", get(health))
        .route("/health/liveness", get(liveness))
        .route("/health/readiness", get(readiness))
        .route("/v1/ready", get(ready))
        .route("/version", get(version))
        .route(PROGRESS, get(progress))
        .route("/v1/heartbeats/stream", get(beats))
}

/// As other servers tell theirs.
async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
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
    /// As of now; `None` as long as there is no engine.
    pub(crate) fn of_first(app: &App) -> Option<Self> {
        let serving = app.models.first().serving()?;
        Some(Self::of(serving.model.handle.engine.stats()))
    }

    fn of(stats: &Stats) -> Self {
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
    let status = match app.lifecycle.stage() {
        Stage::Ready => "ok",
        other => other.name(),
    };
    let (model, engine) = (&app.models.first().id, Load::of_first(&app));
    Json(json!({ "status": status, "model": model, "engine": engine })).into_response()
}

/// Liveness: the server answers.
async fn liveness() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

async fn readiness(State(app): State<Arc<App>>) -> Response {
    let told = json!({ "status": app.lifecycle.stage().name() });
    told_ready(&app, told)
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    let stage = app.lifecycle.stage();
    let told = json!({ "ready": stage == Stage::Ready, "state": stage.name() });
    told_ready(&app, told)
}

/// 200 when requests are taken; else 503, how far loading is, and when to come back.
fn told_ready(app: &App, mut told: Value) -> Response {
    let stage = app.lifecycle.stage();
    if stage == Stage::Ready {
        return Json(told).into_response();
    }
    let state = app.models.first().state();
    if let (Stage::Loading, Model::Loading { progress, .. }) = (stage, &state) {
        told["percent"] = json!(progress.percent());
        told["progress"] = json!(progress);
        told["progress_url"] = json!(PROGRESS);
    }
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, Json(told)).into_response();
    let unknown = app.config.now().retry_after;
    let wait = state.retry_after(unknown).unwrap_or(unknown);
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// How far loading is: as it goes on, or, for who asks for JSON, as of now.
async fn progress(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let mut kinds = accept.unwrap_or_default().split([',', ';']);
    if kinds.any(|kind| kind.trim() == "application/json") {
        return Json(load_watch::told(&app)).into_response();
    }
    event_stream(load_watch::body(app))
}

async fn beats(State(app): State<Arc<App>>) -> Response {
    event_stream(heartbeats::body(app))
}
