//! How things stand, as one value: what telemetry sends and what `/metrics` says in JSON.

use super::histogram::Latency;
use crate::router::App;
use serde::Serialize;

/// How things stand. Counts are since the start, latencies too.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) connections_open: u64,
    pub(crate) answers_open: u64,
    pub(crate) requests_queued: u64,
    pub(crate) sequences_running: u64,
    pub(crate) sequences_parked: u64,
    pub(crate) sequences_waiting: u64,
    pub(crate) pages_free: u64,
    pub(crate) pages_used: u64,
    pub(crate) pages_cached: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) prefix_hit_tokens: u64,
    pub(crate) steps: u64,
    pub(crate) step_rows: u64,
    pub(crate) parks: u64,
    pub(crate) preemptions: u64,
    pub(crate) endings: u64,
    pub(crate) admission_wait: Quantiles,
    pub(crate) socket_time_to_first_token: Quantiles,
    pub(crate) socket_inter_token: Quantiles,
    pub(crate) reader_stall: Quantiles,
}

/// A latency in short; without samples there are no quantiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) count: u64,
    pub(crate) sum_s: f64,
    pub(crate) p50_s: Option<f64>,
    pub(crate) p95_s: Option<f64>,
    pub(crate) p99_s: Option<f64>,
}

impl Quantiles {
    fn of(latency: &Latency) -> Self {
        let read = latency.read();
        Self {
            count: read.count(),
            sum_s: read.sum,
            p50_s: read.quantile(0.5),
            p95_s: read.quantile(0.95),
            p99_s: read.quantile(0.99),
        }
    }
}

/// How things stand now.
pub(crate) fn take(app: &App) -> Snapshot {
    let (metrics, stats) = (&app.metrics, app.served.engine.stats());
    Snapshot {
        connections_open: metrics.connections_open.get(),
        answers_open: metrics.answers_open.get(),
        requests_queued: stats.queued(),
        sequences_running: stats.running(),
        sequences_parked: stats.parked(),
        sequences_waiting: stats.waiting(),
        pages_free: stats.pages_free(),
        pages_used: stats.pages_used(),
        pages_cached: stats.pages_cached(),
        prompt_tokens: metrics.prompt_tokens.get(),
        generated_tokens: stats.tokens_generated(),
        prefix_hit_tokens: stats.prefix_hit_tokens(),
        steps: stats.steps(),
        step_rows: stats.rows(),
        parks: stats.parks(),
        preemptions: stats.preemptions(),
        endings: stats.endings().total(),
        admission_wait: Quantiles::of(&metrics.admission_wait),
        socket_time_to_first_token: Quantiles::of(&metrics.first_token),
        socket_inter_token: Quantiles::of(&metrics.next_token),
        reader_stall: Quantiles::of(&metrics.reader_stall),
    }
}
