//! A snapshot of the most important metrics, for `/v1/streams/feed` and for `/metrics` as JSON.

use super::MetricsSources;
use admission::AdmissionSnapshot;
use engine::Stats;
use gateway::metrics::StepMetrics;
use gateway::metrics::histogram::Distribution;
use schemars::JsonSchema;
use serde::Serialize;

/// A snapshot of the metrics. Counts and latencies are cumulative since the start of the server.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
#[schemars(rename = "MetricsSnapshot")]
pub(crate) struct MetricsSnapshot {
    pub(crate) connections_open: u64,
    pub(crate) answers_open: u64,
    pub(crate) requests_queued: u64,
    pub(crate) sequences_running: u64,
    pub(crate) sequences_parked: u64,
    pub(crate) sequences_waiting: u64,
    pub(crate) sequences_paused: u64,
    pub(crate) streams_open: usize,
    pub(crate) streams_retained: usize,
    pub(crate) streams_retained_bytes: usize,
    pub(crate) admission_running: usize,
    pub(crate) admission_limit: usize,
    pub(crate) admission_waiting: usize,
    pub(crate) pages_free: u64,
    pub(crate) pages_used: u64,
    pub(crate) pages_cached: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) prefix_hit_tokens: u64,
    pub(crate) steps: u64,
    pub(crate) step_rows: u64,
    pub(crate) draft_tokens: u64,
    pub(crate) draft_tokens_accepted: u64,
    /// Accepted draft tokens divided by draft tokens; `null` without draft tokens.
    pub(crate) draft_acceptance_rate: Option<f64>,
    pub(crate) parks: u64,
    pub(crate) resumes: u64,
    pub(crate) preemptions: u64,
    pub(crate) endings: u64,
    pub(crate) admission_wait: Quantiles,
    pub(crate) socket_time_to_first_token: Quantiles,
    pub(crate) socket_inter_token: Quantiles,
    pub(crate) reader_stall: Quantiles,
    pub(crate) engine_queue_wait: Quantiles,
    pub(crate) engine_time_to_first_token: Quantiles,
    pub(crate) engine_inter_token: Quantiles,
    pub(crate) step_time: Quantiles,
}

/// Count, sum and quantiles of a latency, in seconds; quantiles are absent without samples.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) count: u64,
    pub(crate) sum_s: f64,
    pub(crate) p50_s: Option<f64>,
    pub(crate) p95_s: Option<f64>,
    pub(crate) p99_s: Option<f64>,
}

impl Quantiles {
    fn of(read: impl Into<Distribution>) -> Self {
        let read = read.into();
        Self {
            count: read.sample_count(),
            sum_s: read.sum,
            p50_s: read.quantile(0.5),
            p95_s: read.quantile(0.95),
            p99_s: read.quantile(0.99),
        }
    }
}

/// The metrics of a model that is not ready.
#[derive(Default)]
struct UnloadedMetrics {
    stats: Stats,
    steps: StepMetrics,
    admission: AdmissionSnapshot,
}

fn acceptance_rate(drafted: u64, accepted: u64) -> Option<f64> {
    (drafted > 0).then(|| accepted as f64 / drafted as f64)
}

/// Takes a snapshot.
pub(crate) fn take_snapshot(sources: &MetricsSources) -> MetricsSnapshot {
    let (serving, none) = (
        sources.models.first_entry().ready_model(),
        UnloadedMetrics::default(),
    );
    let (stats, steps, admission) = match &serving {
        Some(serving) => (
            serving.model.handle.engine.stats(),
            &*serving.model.steps,
            serving.admission.snapshot(),
        ),
        None => (&none.stats, &none.steps, none.admission),
    };
    let (metrics, streams) = (&sources.metrics, sources.streams.registry().counts());
    let generations = &metrics.generations;
    MetricsSnapshot {
        connections_open: metrics.connections_open.get(),
        answers_open: generations.answers_open.get(),
        requests_queued: stats.queued(),
        sequences_running: stats.running(),
        sequences_parked: stats.parked(),
        sequences_waiting: stats.waiting(),
        sequences_paused: stats.paused(),
        streams_open: streams.open,
        streams_retained: streams.retained,
        streams_retained_bytes: streams.retained_bytes,
        admission_running: admission.running,
        admission_limit: admission.limit,
        admission_waiting: admission.waiting,
        pages_free: stats.pages_free(),
        pages_used: stats.pages_used(),
        pages_cached: stats.pages_cached(),
        prompt_tokens: generations.prompt_tokens.get(),
        generated_tokens: stats.tokens_generated(),
        prefix_hit_tokens: stats.prefix_hit_tokens(),
        steps: stats.steps(),
        step_rows: stats.rows(),
        draft_tokens: stats.tokens_drafted(),
        draft_tokens_accepted: stats.tokens_accepted(),
        draft_acceptance_rate: acceptance_rate(stats.tokens_drafted(), stats.tokens_accepted()),
        parks: stats.parks(),
        resumes: stats.resumes(),
        preemptions: stats.preemptions(),
        endings: stats.endings().total(),
        admission_wait: Quantiles::of(generations.admission_wait.distribution()),
        socket_time_to_first_token: Quantiles::of(generations.first_token.distribution()),
        socket_inter_token: Quantiles::of(generations.next_token.distribution()),
        reader_stall: Quantiles::of(generations.reader_stall.distribution()),
        engine_queue_wait: Quantiles::of(stats.queue_wait()),
        engine_time_to_first_token: Quantiles::of(stats.time_to_first_token()),
        engine_inter_token: Quantiles::of(stats.inter_token()),
        step_time: Quantiles::of(steps.time.distribution()),
    }
}
