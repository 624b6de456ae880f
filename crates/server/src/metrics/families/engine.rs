//! Metric families of the engine and of the token logs.

use crate::metrics::prometheus_text::PrometheusText;
use engine::{Stats, Token, TopLogprob};
use gateway::models::ServedModel;
use std::time::Duration;
use stream::{Clock, PoolStats, SEGMENT_ITEMS};

pub(super) fn write_engine(text: &mut PrometheusText, served: &ServedModel) {
    let stats = served.handle.engine.stats();
    write_latencies(text, served);
    write_counts(text, stats);
    write_times(text, stats);
    write_state(text, stats);
    write_ends(text, stats);
    write_logs(text, served);
}

fn write_latencies(text: &mut PrometheusText, served: &ServedModel) {
    let (stats, steps) = (served.handle.engine.stats(), &served.steps);
    for (name, distribution) in [
        (
            "millrace_engine_queue_wait_seconds",
            stats.queue_wait().into(),
        ),
        (
            "millrace_engine_time_to_first_token_seconds",
            stats.time_to_first_token().into(),
        ),
        (
            "millrace_engine_inter_token_seconds",
            stats.inter_token().into(),
        ),
        ("millrace_step_seconds", steps.time.distribution()),
        ("millrace_step_batch_sequences", steps.batch.distribution()),
        (
            "millrace_step_prefill_rows",
            steps.prefill_rows.distribution(),
        ),
    ] {
        text.histogram(name, &distribution);
    }
}

/// Reads a value of the engine's.
type ReadStats = fn(&Stats) -> u64;

/// Counters and gauges without labels, in the engine's units.
const VALUES: [(&str, ReadStats); 32] = [
    ("millrace_generated_tokens_total", Stats::tokens_generated),
    ("millrace_prefill_rows_total", Stats::prompt_tokens_computed),
    ("millrace_prefix_hit_tokens_total", Stats::prefix_hit_tokens),
    ("millrace_steps_total", Stats::steps),
    ("millrace_step_rows_total", Stats::rows),
    ("millrace_rows_void_total", Stats::rows_void),
    ("millrace_draft_tokens_total", Stats::tokens_drafted),
    (
        "millrace_draft_tokens_accepted_total",
        Stats::tokens_accepted,
    ),
    ("millrace_forced_tokens_total", Stats::tokens_forced),
    ("millrace_draft_faults_total", Stats::draft_faults),
    ("millrace_draft_pages_used", Stats::draft_pages_used),
    ("millrace_encodings_total", Stats::encodings),
    ("millrace_encodings_failed_total", Stats::encodings_failed),
    ("millrace_encoding_hits_total", Stats::encoding_hits),
    ("millrace_encodings_dropped_total", Stats::encodings_dropped),
    ("millrace_encoding_bytes", Stats::encoding_bytes),
    ("millrace_preemptions_total", Stats::preemptions),
    ("millrace_forward_retries_total", Stats::retries),
    ("millrace_device_faults_total", Stats::device_faults),
    ("millrace_device_lost", Stats::device_lost),
    ("millrace_parks_total", Stats::parks),
    ("millrace_pauses_total", Stats::pauses),
    ("millrace_resumes_total", Stats::resumes),
    ("millrace_slow_consumers_total", Stats::slow_consumers),
    ("millrace_observer_panics_total", Stats::observer_panics),
    ("millrace_requests_queued", Stats::queued),
    (
        "millrace_prompt_disk_hit_tokens_total",
        Stats::disk_hit_tokens,
    ),
    (
        "millrace_prompt_disk_read_bytes_total",
        Stats::disk_bytes_read,
    ),
    (
        "millrace_prompt_disk_written_bytes_total",
        Stats::disk_bytes_written,
    ),
    ("millrace_prompt_disk_bytes", Stats::disk_bytes),
    ("millrace_prompt_disk_damaged_total", Stats::disk_damaged),
    ("millrace_prompt_disk_failures_total", Stats::disk_failures),
];

fn write_counts(text: &mut PrometheusText, stats: &Stats) {
    for (name, value) in VALUES {
        text.value(name, value(stats));
    }
}

fn write_times(text: &mut PrometheusText, stats: &Stats) {
    for (name, ns) in [
        (
            "millrace_engine_reader_stall_seconds_total",
            stats.reader_stall_ns(),
        ),
        (
            "millrace_prompt_disk_read_seconds_total",
            stats.disk_read_ns(),
        ),
        ("millrace_encode_seconds_total", stats.encode_ns()),
    ] {
        text.value(name, Duration::from_nanos(ns));
    }
}

fn write_state(text: &mut PrometheusText, stats: &Stats) {
    text.samples(
        "millrace_sequences",
        [
            (["running"], stats.running()),
            (["parked"], stats.parked()),
            (["paused"], stats.paused()),
            (["waiting"], stats.waiting()),
        ],
    );
    text.samples(
        "millrace_pages",
        [
            (["free"], stats.pages_free()),
            (["used"], stats.pages_used()),
            (["cached"], stats.pages_cached()),
        ],
    );
}

fn write_ends(text: &mut PrometheusText, stats: &Stats) {
    let ends = stats.endings();
    text.samples(
        "millrace_endings_total",
        [
            (["eos"], ends.eos),
            (["stop_string"], ends.stop_string),
            (["tool_calls"], ends.tool_calls),
            (["length"], ends.length),
            (["cancelled"], ends.cancelled),
            (["deadline"], ends.deadline),
            (["timed_out"], ends.timed_out),
            (["inference_failed"], ends.inference),
            (["panic"], ends.panic),
            (["shutdown"], ends.shutdown),
            (["constraint"], ends.constraint),
        ],
    );
    let clocks = [
        (["queue"], Clock::Queue),
        (["first_token"], Clock::FirstToken),
        (["idle"], Clock::Idle),
        (["total"], Clock::Total),
        (["reader"], Clock::Reader),
    ];
    let rows = clocks.map(|(label, clock)| (label, stats.timed_out(clock)));
    text.samples("millrace_clocks_fired_total", rows);
}

fn write_logs(text: &mut PrometheusText, served: &ServedModel) {
    let (tokens, top) = (&served.handle.token_pool, &served.handle.top_pool);
    let pools = [
        ("tokens", tokens.stats(), size_of::<Token>()),
        ("alternatives", top.stats(), size_of::<TopLogprob>()),
    ];
    let rows = |of: fn(&PoolStats, usize) -> u64| {
        pools.map(|(pool, stats, item)| ([pool], of(&stats, item)))
    };
    let bytes = rows(|stats, item| (stats.in_use * SEGMENT_ITEMS * item) as u64);
    text.samples("millrace_log_bytes", bytes);
    let reserved = rows(|stats, _| stats.reserved as u64);
    text.samples("millrace_log_segments_reserved", reserved);
    let allocated = rows(|stats, _| stats.allocated as u64);
    text.samples("millrace_log_segments_allocated_total", allocated);
    let reused = rows(|stats, _| stats.reused);
    text.samples("millrace_log_segments_reused_total", reused);
}
