//! Samples of all metric families of `GET /metrics`.

mod cluster;
mod durability;
mod engine;

use super::prometheus_text::PrometheusText;
use super::{Metrics, MetricsSources};
use ::cluster::forecast::ScaleAdvice;
use ::upstream::UpstreamCounts;
use admission::AdmissionSnapshot;
use gateway::media::MediaHandles;
use gateway::metrics::{GenerationMetrics, ResponseOutcome};
use gateway::models::{ModelRegistry, ModelState};
use std::sync::atomic::Ordering;
use stream::RegistryCounts;

/// All metric families as Prometheus text.
pub(crate) fn write_families(sources: &MetricsSources) -> String {
    let mut text = PrometheusText::default();
    let version_and_model = [env!("CARGO_PKG_VERSION"), sources.models.first_entry().id()];
    text.samples("millrace_build_info", [(version_and_model, 1_u64)]);
    write_devices(&mut text, &sources.models);
    let generations = &sources.metrics.generations;
    write_latencies(&mut text, generations);
    write_answers(&mut text, generations);
    text.value("millrace_requests_total", generations.requests.get());
    write_demand(&mut text, &sources.demand.advice());
    write_http(&mut text, &sources.metrics);
    write_streams(&mut text, sources.streams.registry().counts());
    durability::write_recovery(&mut text, &generations.recovery);
    durability::write_journal(&mut text, &sources.journal);
    let node = sources.cluster.get().map(|node| &**node);
    cluster::write_cluster(&mut text, node, sources.peer_calls.counts());
    durability::write_records(&mut text, &sources.owners);
    let upstreams = sources.upstreams.get().map(|status| status.counts());
    write_upstreams(&mut text, &upstreams.unwrap_or_default());
    durability::write_webhooks(&mut text, &sources.outbox);
    write_images(&mut text, &sources.media);
    let state = sources.models.first_entry().state();
    write_models(&mut text, &state, &sources.models);
    if let ModelState::Ready(serving) = &state {
        write_admission(&mut text, serving.admission.snapshot());
        engine::write_engine(&mut text, &serving.model);
    }
    text.finish()
}

fn write_devices(text: &mut PrometheusText, models: &ModelRegistry) {
    let named = models.ready_models().filter_map(|(entry, serving)| {
        let device = serving.model.device.as_ref()?;
        Some([entry.id().to_owned(), device()])
    });
    let named: Vec<_> = named.collect();
    let rows = named
        .iter()
        .map(|names| (names.each_ref().map(String::as_str), 1_u64));
    text.samples("millrace_device_info", rows);
}

/// Families about the first model, and about all loaded models, including the first. Families of admission and engine exist
/// only while the first model is ready.
fn write_models(text: &mut PrometheusText, first: &ModelState, models: &ModelRegistry) {
    let (is_ready, ratio) = match first {
        ModelState::Ready(_) => (true, 1.0),
        ModelState::Loading { progress, .. } => (false, progress.percent() as f64 / 100.0),
        ModelState::Unloaded
        | ModelState::Queued { .. }
        | ModelState::Failed
        | ModelState::NoEngine(_)
        | ModelState::TooLarge(_) => (false, 0.0),
    };
    text.value("millrace_model_ready", is_ready);
    text.value("millrace_model_load_ratio", ratio);
    text.value("millrace_models_loaded", models.ready_models().count());
    text.value("millrace_models_bytes", models.memory_bytes());
    let waiting = models.waiting.load(Ordering::Relaxed);
    text.value("millrace_models_waiting", waiting);
    let loads = models.loads.load(Ordering::Relaxed);
    text.value("millrace_model_loads_total", loads);
    let unloads = models.unloads.load(Ordering::Relaxed);
    text.value("millrace_model_unloads_total", unloads);
}

fn write_latencies(text: &mut PrometheusText, metrics: &GenerationMetrics) {
    for (name, histogram) in [
        ("millrace_admission_wait_seconds", &metrics.admission_wait),
        (
            "millrace_socket_time_to_first_token_seconds",
            &metrics.first_token,
        ),
        ("millrace_socket_inter_token_seconds", &metrics.next_token),
        ("millrace_reader_stall_seconds", &metrics.reader_stall),
        ("millrace_answer_seconds", &metrics.answer_time),
    ] {
        text.histogram(name, &histogram.distribution());
    }
}

fn write_answers(text: &mut PrometheusText, metrics: &GenerationMetrics) {
    text.value("millrace_answers_open", metrics.answers_open.get());
    text.value("millrace_attached_open", metrics.attached_open.get());
    for (name, table) in [
        ("millrace_answers_total", &metrics.answers),
        ("millrace_attached_total", &metrics.attached),
    ] {
        let rows = table.iter().flat_map(|(dialect, counts)| {
            ResponseOutcome::ALL
                .map(|(outcome, word)| ([dialect, word], counts[outcome as usize].get()))
        });
        text.samples(name, rows.filter(|row| row.1 > 0));
    }
    let tokens = metrics.prompt_tokens.get();
    text.value("millrace_prompt_tokens_total", tokens);
}

/// Demand, and the engines that it needs.
fn write_demand(text: &mut PrometheusText, advice: &ScaleAdvice) {
    let (arrivals, tokens) = (advice.arrivals, advice.tokens);
    for (name, rate) in [
        ("millrace_demand_requests_per_second", arrivals),
        ("millrace_demand_tokens_per_second", tokens),
    ] {
        text.samples(name, [(["now"], rate.now), (["horizon"], rate.predicted)]);
    }
    for (name, requests, tokens) in [
        ("millrace_demand_error_ratio", arrivals.error, tokens.error),
        ("millrace_demand_bias_ratio", arrivals.bias, tokens.bias),
    ] {
        text.samples(name, [(["requests"], requests), (["tokens"], tokens)]);
    }
    text.value(
        "millrace_engine_capacity_tokens_per_second",
        advice.engine_tokens_per_s,
    );
    let wanted = advice.engines_wanted.map(|engines| ([], engines));
    text.samples("millrace_engines_wanted", wanted);
}

fn write_http(text: &mut PrometheusText, metrics: &Metrics) {
    let rejections = metrics.rejections.iter();
    let rows = rejections.map(|(reason, counter)| ([reason], counter.get()));
    text.samples("millrace_rejections_total", rows.filter(|row| row.1 > 0));
    let rows = metrics.requests.iter().flat_map(|(route, statuses)| {
        let statuses = statuses.iter();
        statuses.map(move |(status, count)| ([route, status], count))
    });
    text.samples("millrace_http_requests_total", rows);
    let open = metrics.connections_open.get();
    text.value("millrace_connections_open", open);
    let accepted = metrics.connections_accepted.get();
    text.value("millrace_connections_accepted_total", accepted);
    text.samples(
        "millrace_http_bytes_total",
        [
            (["received"], metrics.bytes_received.get()),
            (["sent"], metrics.bytes_sent.get()),
        ],
    );
}

fn write_streams(text: &mut PrometheusText, now: RegistryCounts) {
    text.samples(
        "millrace_streams",
        [(["open"], now.open), (["retained"], now.retained)],
    );
    text.value("millrace_streams_retained_bytes", now.retained_bytes);
    text.value("millrace_streams_registered_total", now.registered);
    text.samples(
        "millrace_streams_evicted_total",
        [
            (["expired"], now.evicted.expired),
            (["count"], now.evicted.count),
            (["bytes"], now.evicted.bytes),
            (["forgotten"], now.evicted.forgotten),
            (["dropped"], now.evicted.dropped),
        ],
    );
}

/// Third-party servers that compute the tokens; all zero without them.
fn write_upstreams(text: &mut PrometheusText, counts: &UpstreamCounts) {
    text.samples(
        "millrace_upstreams",
        [(["usable"], counts.usable), (["unusable"], counts.unusable)],
    );
    text.value("millrace_upstream_calls_in_flight", counts.in_flight);
    text.value("millrace_upstream_calls_total", counts.calls);
    text.value(
        "millrace_upstream_continuations_total",
        counts.continuations,
    );
    text.value("millrace_upstream_tokens_total", counts.tokens);
    text.samples(
        "millrace_upstream_failures_total",
        [
            (["unavailable"], counts.unavailable),
            (["cut"], counts.cut),
            (["refused"], counts.refused),
        ],
    );
}

/// Images of requests before the engine has them.
fn write_images(text: &mut PrometheusText, media: &MediaHandles) {
    let counts = media.threads.counts();
    text.samples(
        "millrace_images_prepared_total",
        [(["ok"], counts.prepared), (["failed"], counts.failed)],
    );
    text.value("millrace_images_known_total", media.prepared.hits());
    let busy_s = counts.busy.as_secs_f64();
    text.value("millrace_image_prepare_seconds_total", busy_s);
    text.value("millrace_image_bytes", media.pixels.used());
    let described = media.described.counts();
    text.samples(
        "millrace_image_descriptions_total",
        [
            (["described"], described.described),
            (["cached"], described.cached),
            (["failed"], described.failed),
        ],
    );
}

fn write_admission(text: &mut PrometheusText, now: AdmissionSnapshot) {
    text.samples(
        "millrace_admission_streams",
        [(["running"], now.running), (["limit"], now.limit)],
    );
    text.value("millrace_admission_waiting", now.waiting);
    text.samples(
        "millrace_admission_pages",
        [
            (["reserved"], now.pages_reserved),
            (["limit"], now.pages_limit),
        ],
    );
    text.value(
        "millrace_admission_prefill_pending_tokens",
        now.prefill_pending,
    );
}
