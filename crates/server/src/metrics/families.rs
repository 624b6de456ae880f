//! All metric families of `GET /metrics`. `docs/metrics.md` describes each; a test compares the names.

mod cluster;
mod demand;
mod engine;
mod journal;
mod records;
mod recovery;
mod upstreams;
mod webhooks;

use super::prometheus_text::{Labels, PrometheusText};
use super::{Metrics, MetricsSources};
use admission::AdmissionSnapshot;
use gateway::metrics::{GenerationMetrics, ResponseOutcome};
use gateway::models::{ModelRegistry, ModelState};
use std::sync::atomic::Ordering;
use stream::RegistryCounts;

/// All metric families as Prometheus text.
pub(crate) fn write_families(sources: &MetricsSources) -> String {
    let mut text = PrometheusText::default();
    text.gauges(
        "millrace_build_info",
        "Version of the server and name of its first model; always 1.",
        [(
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("model", sources.models.first_entry().id()),
            ] as Labels<'_>,
            1.0,
        )],
    );
    write_latencies(&mut text, &sources.metrics.generations);
    write_answers(&mut text, &sources.metrics.generations);
    write_requests(&mut text, &sources.metrics);
    let requests = sources.metrics.generations.requests.get();
    demand::write_demand(&mut text, requests, &sources.demand.advice());
    write_http(&mut text, &sources.metrics);
    write_streams(&mut text, sources.streams.registry().counts());
    recovery::write_recovery(&mut text, &sources.metrics.generations.recovery);
    journal::write_journal(&mut text, &sources.journal);
    let node = sources.cluster.get().map(|node| &**node);
    cluster::write_cluster(&mut text, node, sources.peer_calls.counts());
    records::write_records(&mut text, &sources.owners);
    let upstreams = sources.upstreams.get().map(|status| status.counts());
    upstreams::write_upstreams(&mut text, &upstreams.unwrap_or_default());
    webhooks::write_webhooks(&mut text, &sources.outbox);
    let state = sources.models.first_entry().state();
    write_loading(&mut text, &state);
    write_models(&mut text, &sources.models);
    if let ModelState::Ready(serving) = &state {
        write_admission(&mut text, serving.admission.snapshot());
        engine::write_engine(&mut text, &serving.model);
    }
    text.finish()
}

/// Families about the first model. Families of admission and engine exist only while the model is ready.
fn write_loading(text: &mut PrometheusText, state: &ModelState) {
    let (ready, ratio) = match state {
        ModelState::Ready(_) => (1.0, 1.0),
        ModelState::Loading { progress, .. } => (0.0, progress.percent() as f64 / 100.0),
        ModelState::Unloaded
        | ModelState::Queued { .. }
        | ModelState::Failed
        | ModelState::NoEngine(_)
        | ModelState::TooLarge { .. } => (0.0, 0.0),
    };
    text.gauge(
        "millrace_model_ready",
        "Whether the first model is loaded and ready: 1 or 0.",
        ready,
    );
    text.gauge(
        "millrace_model_load_ratio",
        "Loaded fraction of the first model's bytes, from 0 to 1.",
        ratio,
    );
}

/// Families about all loaded models, including the first.
fn write_models(text: &mut PrometheusText, models: &ModelRegistry) {
    text.gauge(
        "millrace_models_loaded",
        "Loaded models that accept requests.",
        models.ready_models().count() as f64,
    );
    text.gauge(
        "millrace_models_bytes",
        "Memory of models that can be evicted, including models being unloaded.",
        models.memory_bytes() as f64,
    );
    text.gauge(
        "millrace_models_waiting",
        "Requests waiting for their model to be loaded.",
        models.waiting.load(Ordering::Relaxed) as f64,
    );
    text.counter(
        "millrace_model_loads_total",
        "Model loads.",
        models.loads.load(Ordering::Relaxed),
    );
    text.counter(
        "millrace_model_unloads_total",
        "Model unloads and evictions.",
        models.unloads.load(Ordering::Relaxed),
    );
}

fn write_latencies(text: &mut PrometheusText, metrics: &GenerationMetrics) {
    text.histogram(
        "millrace_admission_wait_seconds",
        "Time from receiving a request's body to its admission.",
        &metrics.admission_wait.distribution(),
    );
    text.histogram(
        "millrace_socket_time_to_first_token_seconds",
        "Time from receiving a request to writing the frame with its first token to the socket.",
        &metrics.first_token.distribution(),
    );
    text.histogram(
        "millrace_socket_inter_token_seconds",
        "Time between two frames with tokens, as they were written to the socket.",
        &metrics.next_token.distribution(),
    );
    text.histogram(
        "millrace_reader_stall_seconds",
        "Time that a frame waited for a client that did not read.",
        &metrics.reader_stall.distribution(),
    );
    text.histogram(
        "millrace_answer_seconds",
        "Time from receiving a request to the last frame of its response, completed responses only.",
        &metrics.answer_time.distribution(),
    );
}

fn write_answers(text: &mut PrometheusText, metrics: &GenerationMetrics) {
    text.gauge(
        "millrace_answers_open",
        "Responses being generated or sent.",
        metrics.answers_open.get() as f64,
    );
    text.gauge(
        "millrace_attached_open",
        "Subscribers that attached to an existing stream or resumed it.",
        metrics.attached_open.get() as f64,
    );
    for (name, help, table) in [
        (
            "millrace_answers_total",
            "Responses started, by wire protocol (dialect) and outcome.",
            &metrics.answers,
        ),
        (
            "millrace_attached_total",
            "Subscribers that attached to an existing stream, by wire protocol (dialect) and outcome.",
            &metrics.attached,
        ),
    ] {
        let rows = table.iter().flat_map(|(dialect, counts)| {
            ResponseOutcome::ALL
                .map(|(outcome, word)| (dialect, word, counts[outcome as usize].get()))
        });
        let rows: Vec<_> = rows
            .filter(|row| row.2 > 0)
            .map(|(dialect, outcome, count)| ([("dialect", dialect), ("outcome", outcome)], count))
            .collect();
        let rows = rows.iter().map(|(labels, count)| (&labels[..], *count));
        text.counters(name, help, rows);
    }
}

fn write_requests(text: &mut PrometheusText, metrics: &Metrics) {
    let rows: Vec<_> = metrics
        .rejections
        .iter()
        .map(|(reason, counter)| ([("reason", reason)], counter.get()))
        .filter(|row| row.1 > 0)
        .collect();
    text.counters(
        "millrace_rejections_total",
        "Requests and connections rejected with an error, by error code.",
        rows.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    text.counter(
        "millrace_prompt_tokens_total",
        "Prompt tokens of admitted requests, including cached tokens.",
        metrics.generations.prompt_tokens.get(),
    );
}

fn write_http(text: &mut PrometheusText, metrics: &Metrics) {
    let rows: Vec<_> = metrics
        .requests
        .iter()
        .flat_map(|(route, statuses)| {
            let label = move |(status, count)| ([("route", route), ("status", status)], count);
            statuses.iter().map(label)
        })
        .collect();
    text.counters(
        "millrace_http_requests_total",
        "HTTP requests, by route and status; 499 = the client disconnected before the response's headers.",
        rows.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    text.gauge(
        "millrace_connections_open",
        "Open connections.",
        metrics.connections_open.get() as f64,
    );
    text.counter(
        "millrace_connections_accepted_total",
        "Accepted connections.",
        metrics.connections_accepted.get(),
    );
    text.counters(
        "millrace_http_bytes_total",
        "Bytes received and sent on connections, including headers and framing.",
        [
            (
                &[("direction", "received")] as Labels<'_>,
                metrics.bytes_received.get(),
            ),
            (&[("direction", "sent")], metrics.bytes_sent.get()),
        ],
    );
}

fn write_streams(text: &mut PrometheusText, now: RegistryCounts) {
    text.gauges(
        "millrace_streams",
        "StreamRegistry in the registry, by state: open, or ended and retained.",
        [
            (&[("state", "open")] as Labels<'_>, now.open as f64),
            (&[("state", "retained")], now.retained as f64),
        ],
    );
    text.gauge(
        "millrace_streams_retained_bytes",
        "Bytes of retained streams.",
        now.retained_bytes as f64,
    );
    text.counter(
        "millrace_streams_registered_total",
        "StreamRegistry registered.",
        now.registered,
    );
    text.counters(
        "millrace_streams_evicted_total",
        "Retained streams evicted, by cause.",
        [
            (&[("cause", "expired")] as Labels<'_>, now.evicted.expired),
            (&[("cause", "count")], now.evicted.count),
            (&[("cause", "bytes")], now.evicted.bytes),
            (&[("cause", "forgotten")], now.evicted.forgotten),
            (&[("cause", "dropped")], now.evicted.dropped),
        ],
    );
}

fn write_admission(text: &mut PrometheusText, now: AdmissionSnapshot) {
    text.gauges(
        "millrace_admission_streams",
        "Admitted streams, and the current concurrency limit.",
        [
            (&[("state", "running")] as Labels<'_>, now.running as f64),
            (&[("state", "limit")], now.limit as f64),
        ],
    );
    text.gauge(
        "millrace_admission_waiting",
        "Requests waiting for admission.",
        now.waiting as f64,
    );
    text.gauges(
        "millrace_admission_pages",
        "KV cache pages reserved for admitted requests, and the limit.",
        [
            (
                &[("state", "reserved")] as Labels<'_>,
                now.pages_reserved as f64,
            ),
            (&[("state", "limit")], now.pages_limit as f64),
        ],
    );
    text.gauge(
        "millrace_admission_prefill_pending_tokens",
        "Prompt tokens of admitted requests that have no first token yet.",
        now.prefill_pending as f64,
    );
}
