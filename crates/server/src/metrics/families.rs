//! Every family of `GET /metrics`. Each is described in `docs/metrics.md`; a test compares.

mod engine;

use super::Metrics;
use super::meter::Outcome;
use super::text::{Labels, Text};
use crate::admission;
use crate::router::App;
use crate::served::{ServedModels, State};
use std::sync::atomic::Ordering;
use stream::RegistryCounts;

/// All families, as Prometheus text.
pub(crate) fn write(app: &App) -> String {
    let mut text = Text::default();
    text.gauges(
        "millrace_build_info",
        "Which build serves which model; always 1.",
        [(
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("model", app.models.first().id.as_str()),
            ] as Labels<'_>,
            1.0,
        )],
    );
    latencies(&mut text, &app.metrics);
    answers(&mut text, &app.metrics);
    http(&mut text, &app.metrics);
    #[cfg(feature = "otlp")]
    exports(&mut text, &app.metrics);
    streams(&mut text, app.streams.registry().counts());
    let state = app.models.first().state();
    loading(&mut text, &state);
    models(&mut text, &app.models);
    if let State::Ready(serving) = &state {
        admission(&mut text, serving.admission.snapshot());
        engine::write(&mut text, &serving.model);
    }
    text.finish()
}

/// Until the model is ready there are no families of admission and engine beside these.
fn loading(text: &mut Text, state: &State) {
    let (ready, ratio) = match state {
        State::Ready(_) => (1.0, 1.0),
        State::Loading { progress, .. } => (0.0, progress.percent() as f64 / 100.0),
        State::Unloaded | State::Queued { .. } | State::Failed | State::TooLarge { .. } => {
            (0.0, 0.0)
        }
    };
    text.gauge(
        "millrace_model_ready",
        "Whether the model answers: 1 or 0.",
        ready,
    );
    text.gauge(
        "millrace_model_load_ratio",
        "Part of the model's bytes that are loaded.",
        ratio,
    );
}

/// Those that are loaded, the first included.
fn models(text: &mut Text, models: &ServedModels) {
    text.gauge(
        "millrace_models_loaded",
        "Models that answer.",
        models.serving().count() as f64,
    );
    text.gauge(
        "millrace_models_bytes",
        "Memory of models that can be let go of, and of those that leave.",
        models.bytes() as f64,
    );
    text.gauge(
        "millrace_models_waiting",
        "Requests that wait for their model to be loaded.",
        models.waiting.load(Ordering::Relaxed) as f64,
    );
    text.counter(
        "millrace_model_loads_total",
        "Models that were loaded.",
        models.loads.load(Ordering::Relaxed),
    );
    text.counter(
        "millrace_model_unloads_total",
        "Models that were let go of.",
        models.unloads.load(Ordering::Relaxed),
    );
}

fn latencies(text: &mut Text, metrics: &Metrics) {
    text.histogram(
        "millrace_admission_wait_seconds",
        "Time from a request's body to its permit.",
        &metrics.admission_wait.read(),
    );
    text.histogram(
        "millrace_socket_time_to_first_token_seconds",
        "Time from a request's coming to when the connection took the frame with its first token.",
        &metrics.first_token.read(),
    );
    text.histogram(
        "millrace_socket_inter_token_seconds",
        "Time between two frames with tokens, as the connection took them.",
        &metrics.next_token.read(),
    );
    text.histogram(
        "millrace_reader_stall_seconds",
        "Time a frame waited for its reader, where that was more than copying it.",
        &metrics.reader_stall.read(),
    );
    text.histogram(
        "millrace_answer_seconds",
        "Time from a request's coming to its answer's last frame, of answers that were completed.",
        &metrics.answer_time.read(),
    );
}

fn answers(text: &mut Text, metrics: &Metrics) {
    text.gauge(
        "millrace_answers_open",
        "Answers that are being generated or handed over.",
        metrics.answers_open.get() as f64,
    );
    text.gauge(
        "millrace_attached_open",
        "Readers that came to a stream later, or came back.",
        metrics.attached_open.get() as f64,
    );
    for (name, help, table) in [
        (
            "millrace_answers_total",
            "Answers that were begun, by dialect and by how they were left.",
            &metrics.answers,
        ),
        (
            "millrace_attached_total",
            "Readers that came to a stream later, likewise.",
            &metrics.attached,
        ),
    ] {
        let rows = table.iter().flat_map(|(dialect, counts)| {
            Outcome::ALL.map(|(outcome, word)| (dialect, word, counts[outcome as usize].get()))
        });
        let rows: Vec<_> = rows
            .filter(|row| row.2 > 0)
            .map(|(dialect, outcome, count)| ([("dialect", dialect), ("outcome", outcome)], count))
            .collect();
        let rows = rows.iter().map(|(labels, count)| (&labels[..], *count));
        text.counters(name, help, rows);
    }
    let rows: Vec<_> = metrics
        .rejections
        .iter()
        .map(|(reason, counter)| ([("reason", reason)], counter.get()))
        .filter(|row| row.1 > 0)
        .collect();
    text.counters(
        "millrace_rejections_total",
        "Requests and connections that got an error instead of an answer, by its code.",
        rows.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    text.counter(
        "millrace_prompt_tokens_total",
        "Prompt tokens of requests that got a permit, cached ones included.",
        metrics.prompt_tokens.get(),
    );
}

fn http(text: &mut Text, metrics: &Metrics) {
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
        "Requests, by route and status; 499 = the client did not wait for the answer's head.",
        rows.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    text.gauge(
        "millrace_connections_open",
        "Connections that are open.",
        metrics.connections_open.get() as f64,
    );
    text.counter(
        "millrace_connections_accepted_total",
        "Connections that were taken.",
        metrics.connections_accepted.get(),
    );
    text.counters(
        "millrace_http_bytes_total",
        "Bytes that connections carried, heads and framing included.",
        [
            (
                &[("direction", "received")] as Labels<'_>,
                metrics.bytes_received.get(),
            ),
            (&[("direction", "sent")], metrics.bytes_sent.get()),
        ],
    );
}

#[cfg(feature = "otlp")]
fn exports(text: &mut Text, metrics: &Metrics) {
    text.counters(
        "millrace_otlp_exports_total",
        "Messages to the OpenTelemetry collector, by whether it took them.",
        [
            (
                &[("outcome", "accepted")] as Labels<'_>,
                metrics.exports_accepted.get(),
            ),
            (&[("outcome", "failed")], metrics.exports_failed.get()),
        ],
    );
}

fn streams(text: &mut Text, now: RegistryCounts) {
    text.gauges(
        "millrace_streams",
        "Named streams, by whether they are open or kept to be read again.",
        [
            (&[("state", "open")] as Labels<'_>, now.open as f64),
            (&[("state", "retained")], now.retained as f64),
        ],
    );
    text.gauge(
        "millrace_streams_retained_bytes",
        "Bytes of streams that are kept to be read again.",
        now.retained_bytes as f64,
    );
    text.counter(
        "millrace_streams_registered_total",
        "Streams that got a name.",
        now.registered,
    );
    text.counters(
        "millrace_streams_evicted_total",
        "Streams that were forgotten, by why.",
        [
            (&[("cause", "expired")] as Labels<'_>, now.evicted.expired),
            (&[("cause", "count")], now.evicted.count),
            (&[("cause", "bytes")], now.evicted.bytes),
            (&[("cause", "forgotten")], now.evicted.forgotten),
            (&[("cause", "dropped")], now.evicted.dropped),
        ],
    );
}

fn admission(text: &mut Text, now: admission::Snapshot) {
    text.gauges(
        "millrace_admission_streams",
        "Streams by where they are at admission, and how many may run.",
        [
            (&[("state", "running")] as Labels<'_>, now.running as f64),
            (&[("state", "limit")], now.limit as f64),
        ],
    );
    text.gauge(
        "millrace_admission_waiting",
        "Requests that wait for a permit.",
        now.waiting as f64,
    );
    text.gauges(
        "millrace_admission_pages",
        "Pages promised to requests that run, and how many may be.",
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
        "Prompt tokens let in that have no first token yet.",
        now.prefill_pending as f64,
    );
}
