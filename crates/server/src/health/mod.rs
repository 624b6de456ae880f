//! Health, readiness and load: `/health*`, `/v1/ready`, `/v1/loading/progress`, `/v1/heartbeats/stream`; the release:
//! `/version`.
//!
//! `/v1/heartbeats/stream`: periodic events with the stage of the server and the load of the engine.
//!
//! A heartbeat is written when the connection can take it. A slow reader gets the newest one, with the number of
//! heartbeats that were skipped; nothing is queued.
//!
//! `/v1/loading/progress`: progress of loading the default model, until loading has ended.
//!
//! A slow reader gets the newest progress; nothing is queued.

use crate::ClusterSlot;
use crate::app::App;
use crate::config::live_config::LiveConfig;
use crate::request::request_headers;
use crate::response::stream_response;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::Stats;
use futures_util::stream;
use gateway::lifecycle::{Lifecycle, ServerStage};
use gateway::models::{LoadProgress, ModelRegistry, ModelState};
use schemars::JsonSchema;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use wire::clock;
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
    ready_response(&lifecycle, &config, &cluster, |report| Readiness {
        status,
        report,
    })
}

/// Whether requests are accepted.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Readiness {
    status: &'static str,
    #[serde(flatten)]
    report: ReadyReport,
}

/// Facts about a server for those who wait until requests are accepted.
#[derive(JsonSchema, Serialize)]
struct ReadyReport {
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
    ready_response(&lifecycle, &config, &cluster, |report| ReadyState {
        ready: stage == ServerStage::Ready,
        state: stage.name(),
        report,
    })
}

/// Whether requests are accepted, and the state of the server.
#[derive(JsonSchema, Serialize)]
pub(crate) struct ReadyState {
    ready: bool,
    state: &'static str,
    #[serde(flatten)]
    report: ReadyReport,
}

/// 200 if requests are accepted; else 503 with the progress of loading and a `retry-after`.
fn ready_response<T: Serialize>(
    lifecycle: &Lifecycle,
    config: &LiveConfig,
    cluster: &ClusterSlot,
    describe: impl FnOnce(ReadyReport) -> T,
) -> Response {
    let stage = lifecycle.stage();
    let node = cluster.get();
    let warnings = node.map_or_else(Vec::new, |node| node.membership().warnings());
    let report = ReadyReport {
        reason: None,
        warnings,
        loading: None,
    };
    if stage == ServerStage::Ready {
        return Json(describe(report)).into_response();
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
    let report = ReadyReport {
        reason: lifecycle.engine_problem(),
        loading,
        ..report
    };
    unavailable(lifecycle, config, Json(describe(report)))
}

/// The progress of loading: as a stream of events, or as one JSON object for clients that accept JSON.
pub(crate) async fn show_progress(
    State(lifecycle): State<Arc<Lifecycle>>,
    State(config): State<Arc<LiveConfig>>,
    headers: HeaderMap,
) -> Response {
    if request_headers::accepts_json(&headers) {
        return Json(progress_report(&lifecycle)).into_response();
    }
    stream_response::framed_response(
        Framing::Sse,
        None,
        progress_body(lifecycle, config.now().keep_alive),
    )
}

pub(crate) async fn heartbeat_stream(State(lifecycle): State<Arc<Lifecycle>>) -> Response {
    stream_response::framed_response(Framing::Sse, None, heartbeat_body(lifecycle))
}

/// Time between two heartbeats.
const HEARTBEAT_EACH: Duration = Duration::from_secs(1);

/// Heartbeats until the client disconnects or the server shuts down.
fn heartbeat_body(lifecycle: Arc<Lifecycle>) -> Body {
    let beats = HeartbeatStream {
        draining: lifecycle.drain_watch(),
        lifecycle,
        schedule: HeartbeatSchedule::new(Instant::now(), HEARTBEAT_EACH),
        over: false,
    };
    Body::from_stream(stream::unfold(beats, |mut beats| async move {
        let beat = beats.next_heartbeat().await?;
        Some((Ok::<_, Infallible>(beat), beats))
    }))
}

/// A heartbeat.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Heartbeat {
    r#type: &'static str,
    /// Sequence number of the heartbeat.
    seq: u64,
    /// Number of heartbeats that were skipped so far because the reader was slow.
    dropped: u64,
    at: String,
    state: &'static str,
    engine: Option<EngineLoad>,
}

struct HeartbeatStream {
    lifecycle: Arc<Lifecycle>,
    draining: watch::Receiver<bool>,
    schedule: HeartbeatSchedule,
    over: bool,
}

impl HeartbeatStream {
    /// The first heartbeat is due at once; the last one reports the shutdown.
    async fn next_heartbeat(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let draining = self.draining.wait_for(|&draining| draining);
        tokio::select! {
            _ = draining => self.over = true,
            () = sleep_until(self.schedule.due_at(self.schedule.next)) => {}
        }
        let (seq, dropped) = self.schedule.take_due(Instant::now());
        let beat = Heartbeat {
            r#type: "heartbeat",
            seq,
            dropped,
            at: clock::utc_millis(clock::wall(clock::now())),
            state: self.lifecycle.stage().name(),
            engine: EngineLoad::of_first(self.lifecycle.model_registry()),
        };
        let beat = serde_json::to_string(&beat).unwrap_or_default();
        Some(Bytes::from(format!("data: {beat}\n\n")))
    }
}

/// Schedule of the heartbeats, and the number of those skipped.
struct HeartbeatSchedule {
    start: Instant,
    each: Duration,
    /// The next heartbeat's number.
    next: u64,
    dropped: u64,
}

impl HeartbeatSchedule {
    fn new(start: Instant, each: Duration) -> Self {
        Self {
            start,
            each,
            next: 0,
            dropped: 0,
        }
    }

    fn due_at(&self, number: u64) -> Instant {
        self.start + self.each.mul_f64(number as f64)
    }

    /// The newest heartbeat that is due (or the next one, early), and the number of heartbeats skipped so far.
    fn take_due(&mut self, now: Instant) -> (u64, u64) {
        let mut newest = self.next;
        let passed = now.saturating_duration_since(self.start).as_nanos() / self.each.as_nanos();
        newest = newest.max(u64::try_from(passed).unwrap_or(u64::MAX));
        self.dropped += newest - self.next;
        self.next = newest + 1;
        (newest, self.dropped)
    }
}

/// One event now and one for each change. The last event reports a model that is ready, a failed load or the
/// shutdown; `[DONE]` follows.
fn progress_body(lifecycle: Arc<Lifecycle>, keep_alive: Duration) -> Body {
    let progress = ProgressStream {
        model: lifecycle.model_registry().first_entry().watch_state(),
        draining: lifecycle.drain_watch(),
        lifecycle,
        keep_alive,
        reported: None,
    };
    Body::from_stream(stream::unfold(progress, |mut progress| async move {
        let frame = progress.next_event().await?;
        Some((Ok::<_, Infallible>(frame), progress))
    }))
}

/// The progress now.
fn progress_report(lifecycle: &Lifecycle) -> LoadingEvent {
    let (entry, stage) = (lifecycle.model_registry().first_entry(), lifecycle.stage());
    let mut report = LoadingEvent {
        r#type: "progress",
        model: entry.id().to_owned(),
        state: stage.name(),
        percent: None,
        progress: None,
    };
    match entry.state() {
        ModelState::Ready(_) => report.percent = Some(100),
        ModelState::Loading { progress, .. } => {
            report.percent = Some(progress.percent());
            report.progress = Some(progress);
        }
        ModelState::Unloaded
        | ModelState::Queued { .. }
        | ModelState::Failed
        | ModelState::NoEngine(_)
        | ModelState::TooLarge(_) => {}
    }
    report
}

/// Progress of loading the default model.
#[derive(JsonSchema, Serialize)]
pub(crate) struct LoadingEvent {
    r#type: &'static str,
    model: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<LoadProgress>,
}

struct ProgressStream {
    lifecycle: Arc<Lifecycle>,
    keep_alive: Duration,
    model: watch::Receiver<ModelState>,
    draining: watch::Receiver<bool>,
    /// The stage reported last. A stage other than loading ends the stream.
    reported: Option<ServerStage>,
}

impl ProgressStream {
    async fn next_event(&mut self) -> Option<Bytes> {
        match self.reported {
            None => {}
            Some(ServerStage::Loading | ServerStage::Unloaded) => self.wait_for_change().await,
            Some(_) => return None,
        }
        // Changes from here on are reported by the next event.
        self.model.mark_unchanged();
        let stage = self.lifecycle.stage();
        let event = progress_report(&self.lifecycle);
        self.reported = Some(stage);
        let done = match stage {
            ServerStage::Loading | ServerStage::Unloaded => "",
            ServerStage::Ready
            | ServerStage::Unavailable
            | ServerStage::Failed
            | ServerStage::Draining => "data: [DONE]\n\n",
        };
        Some(Bytes::from(format!(
            "data: {}\n\n{done}",
            serde_json::to_string(&event).unwrap_or_default()
        )))
    }

    /// Waits for a change, or for the time of a keep-alive.
    async fn wait_for_change(&mut self) {
        tokio::select! {
            // The sender lives as long as `lifecycle`.
            _ = self.model.changed() => {}
            _ = self.draining.wait_for(|&draining| draining) => {}
            // Unchanged progress is reported again as a keep-alive.
            () = tokio::time::sleep(self.keep_alive) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_reader_gets_the_newest_heartbeat_and_the_number_skipped() {
        let (start, each) = (Instant::now(), Duration::from_secs(1));
        let mut schedule = HeartbeatSchedule::new(start, each);
        let rows = [
            (0, (0, 0)),
            (1000, (1, 0)),
            (2500, (2, 0)),
            (6100, (6, 3)),
            (6900, (7, 3)),
            (8000, (8, 3)),
        ];
        for (ms, want) in rows {
            assert_eq!(
                schedule.take_due(start + Duration::from_millis(ms)),
                want,
                "{ms}"
            );
        }
        assert_eq!(schedule.due_at(schedule.next), start + 9 * each);
    }
}
