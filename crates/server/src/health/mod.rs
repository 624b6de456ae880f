//! Health, readiness and load: `/health*`, `/v1/ready`, `/v1/loading/progress`, `/v1/heartbeats/stream`; the release:
//! `/version`.

mod heartbeats;
mod loading_progress;

pub(crate) use heartbeats::Heartbeat;
pub(crate) use loading_progress::LoadingEvent;

use crate::app::App;
use crate::cluster_slot::ClusterSlot;
use crate::config::live_config::LiveConfig;
use crate::response::stream_response;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::Stats;
use gateway::lifecycle::{Lifecycle, ServerStage};
use gateway::models::{LoadProgress, ModelRegistry, ModelState};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use wire::framing::Framing;

/// The route of the progress of loading.
const PROGRESS: &str = "/v1/loading/progress";

/// `GET /version`, as vLLM answers it.
pub(crate) async fn show_version() -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// The version of the server.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Version {
    version: &'static str,
}

/// The load of an engine: sequences by state, and KV cache pages by state.
#[derive(JsonSchema, Serialize)]
pub(crate) struct EngineLoad {
    queued: u64,
    running: u64,
    parked: u64,
    pages_free: u64,
    pages_used: u64,
    pages_cached: u64,
}

impl EngineLoad {
    /// The load of the default model's engine; `None` while the model is not loaded.
    pub(crate) fn of_first(models: &ModelRegistry) -> Option<Self> {
        let serving = models.first_entry().ready_model()?;
        Some(Self::of_stats(serving.model.handle.engine.stats()))
    }

    fn of_stats(stats: &Stats) -> Self {
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

/// Health details. 503 with llama.cpp's error while the first model is loaded, for clients that wait for 200, and 503 while
/// the server shuts down, for proxies.
pub(crate) async fn show_health(State(app): State<App>) -> Response {
    let lifecycle = &app.lifecycle;
    let stage = lifecycle.stage();
    let is_loading = matches!(stage, ServerStage::Unloaded | ServerStage::Loading);
    let status = match stage {
        ServerStage::Ready => "ok",
        other => other.name(),
    };
    let models = lifecycle.model_registry();
    let (model, engine) = (models.first_entry().id(), EngineLoad::of_first(models));
    let health = Health {
        status,
        model,
        engine,
        journal: app.gateway.generations.journal.health().map(|health| {
            let reason = health.err();
            let durable = reason.is_none();
            JournalHealth { durable, reason }
        }),
        error: is_loading.then_some(LoadingError {
            code: StatusCode::SERVICE_UNAVAILABLE.as_u16(),
            message: "Loading model",
            r#type: "unavailable_error",
        }),
    };
    if is_loading || stage == ServerStage::Draining {
        unavailable(lifecycle, &app.config, Json(health))
    } else {
        Json(health).into_response()
    }
}

/// 503 with the time after which a client may ask again.
fn unavailable(lifecycle: &Lifecycle, config: &LiveConfig, body: impl IntoResponse) -> Response {
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, body).into_response();
    let unknown = config.now().retry_after;
    let state = lifecycle.model_registry().first_entry().state();
    let wait = state.retry_after(unknown).unwrap_or(unknown);
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// The state of the server, and the load of the default model's engine.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Health<'a> {
    status: &'static str,
    model: &'a str,
    /// Load of the default model's engine; `null` while the model is not loaded.
    engine: Option<EngineLoad>,
    /// Absent if the settings want no journal, and while it is being read.
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<JournalHealth>,
    /// As llama.cpp's server has it while the model is loaded; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<LoadingError>,
}

/// Whether records of streams reach the disk, as the metric `millrace_journal_durable`.
#[derive(JsonSchema, Serialize)]
struct JournalHealth {
    durable: bool,
    /// Why not; absent if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The error of a server that loads its first model.
#[derive(JsonSchema, Serialize)]
struct LoadingError {
    code: u16,
    message: &'static str,
    r#type: &'static str,
}

/// 200 whenever the process can answer and its engines make progress.
pub(crate) async fn show_liveness(State(lifecycle): State<Arc<Lifecycle>>) -> Response {
    let reason = lifecycle.stall();
    let (code, status) = match reason {
        None => (StatusCode::OK, "ok"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "stuck"),
    };
    (code, Json(Liveness { status, reason })).into_response()
}

/// Whether the process works, or is to be replaced.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Liveness {
    /// `ok`, or `stuck`.
    status: &'static str,
    /// What is stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(crate) async fn show_readiness(
    State(lifecycle): State<Arc<Lifecycle>>,
    State(config): State<Arc<LiveConfig>>,
    State(cluster): State<ClusterSlot>,
) -> Response {
    let status = lifecycle.stage().name();
    let warnings = cluster_warnings(&cluster);
    ready_response(&lifecycle, &config, |reason, loading| Readiness {
        status,
        reason,
        warnings,
        loading,
    })
}

/// Whether requests are accepted.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Readiness {
    status: &'static str,
    /// Why requests are not accepted, or the engines of other processes cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// What an operator has to look after although requests are accepted: other instances that differ from this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(flatten)]
    loading: Option<LoadingReport>,
}

/// Progress of a model that is being loaded.
#[derive(JsonSchema, Serialize)]
struct LoadingReport {
    percent: u64,
    progress: LoadProgress,
    /// Path of the endpoint that streams the progress.
    progress_url: String,
}

pub(crate) async fn show_ready(
    State(lifecycle): State<Arc<Lifecycle>>,
    State(config): State<Arc<LiveConfig>>,
    State(cluster): State<ClusterSlot>,
) -> Response {
    let stage = lifecycle.stage();
    let warnings = cluster_warnings(&cluster);
    ready_response(&lifecycle, &config, |reason, loading| ReadyState {
        warnings,
        ready: stage == ServerStage::Ready,
        state: stage.name(),
        reason,
        loading,
    })
}

/// Whether requests are accepted, and the state of the server.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ReadyState {
    ready: bool,
    state: &'static str,
    /// Why requests are not accepted, or the engines of other processes cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// What an operator has to look after although requests are accepted: other instances that differ from this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(flatten)]
    loading: Option<LoadingReport>,
}

fn cluster_warnings(cluster: &ClusterSlot) -> Vec<String> {
    let node = cluster.get();
    node.map_or_else(Vec::new, |node| node.membership().warnings())
}

/// 200 if requests are accepted; else 503 with the progress of loading and a `retry-after`.
fn ready_response<T: Serialize>(
    lifecycle: &Lifecycle,
    config: &LiveConfig,
    report: impl FnOnce(Option<String>, Option<LoadingReport>) -> T,
) -> Response {
    let stage = lifecycle.stage();
    if stage == ServerStage::Ready {
        return Json(report(None, None)).into_response();
    }
    let state = lifecycle.model_registry().first_entry().state();
    let loading = match (stage, &state) {
        (ServerStage::Loading, ModelState::Loading { progress, .. }) => Some(LoadingReport {
            percent: progress.percent(),
            progress: *progress,
            progress_url: format!("{}{PROGRESS}", config.now().api_prefix),
        }),
        _ => None,
    };
    let reason = lifecycle.engine_problem();
    unavailable(lifecycle, config, Json(report(reason, loading)))
}

/// The progress of loading: as a stream of events, or as one JSON object for clients that accept JSON.
pub(crate) async fn show_progress(
    State(lifecycle): State<Arc<Lifecycle>>,
    State(config): State<Arc<LiveConfig>>,
    headers: HeaderMap,
) -> Response {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let mut kinds = accept.unwrap_or_default().split([',', ';']);
    if kinds.any(|kind| kind.trim() == "application/json") {
        return Json(loading_progress::progress_report(&lifecycle)).into_response();
    }
    stream_response::framed_response(
        Framing::Sse,
        None,
        loading_progress::progress_body(lifecycle, config.now().keep_alive),
    )
}

pub(crate) async fn heartbeat_stream(State(lifecycle): State<Arc<Lifecycle>>) -> Response {
    stream_response::framed_response(Framing::Sse, None, heartbeats::heartbeat_body(lifecycle))
}
