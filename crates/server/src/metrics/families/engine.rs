//! Metric families of the engine and of the token logs.

mod disk_cache;

use crate::metrics::prometheus_text::{Labels, PrometheusText};
use engine::{Stats, Token, TopLogprob};
use gateway::models::ServedModel;
use std::time::Duration;
use stream::{Clock, PoolStats, SEGMENT_ITEMS};

pub(super) fn write_engine(text: &mut PrometheusText, served: &ServedModel) {
    let stats = served.handle.engine.stats();
    write_latencies(text, served);
    write_work(text, stats);
    disk_cache::write_disk_cache(text, stats);
    write_scheduling(text, stats);
    write_state(text, stats);
    write_ends(text, stats);
    write_logs(text, served);
}

fn write_latencies(text: &mut PrometheusText, served: &ServedModel) {
    let (stats, steps) = (served.handle.engine.stats(), &served.steps);
    for (name, help, distribution) in [
        (
            "millrace_engine_queue_wait_seconds",
            "Time that a request waited in the engine's queue.",
            stats.queue_wait().into(),
        ),
        (
            "millrace_engine_time_to_first_token_seconds",
            "Time from submission to the engine to the first token.",
            stats.time_to_first_token().into(),
        ),
        (
            "millrace_engine_inter_token_seconds",
            "Inter-token latency of a choice at the engine, excluding time parked or paused.",
            stats.inter_token().into(),
        ),
        (
            "millrace_step_seconds",
            "Duration of an engine step with a forward pass.",
            steps.time.distribution(),
        ),
        (
            "millrace_step_batch_sequences",
            "Sequences in the batch of a step.",
            steps.batch.distribution(),
        ),
        (
            "millrace_step_prefill_rows",
            "Prefill tokens in the batch of a step that had any.",
            steps.prefill_rows.distribution(),
        ),
    ] {
        text.histogram(name, help, &distribution);
    }
}

fn write_work(text: &mut PrometheusText, stats: &Stats) {
    for (name, help, value) in [
        (
            "millrace_generated_tokens_total",
            "Generated tokens.",
            stats.tokens_generated(),
        ),
        (
            "millrace_prefill_rows_total",
            "Prefill tokens computed, including recomputation after preemption.",
            stats.prompt_tokens_computed(),
        ),
        (
            "millrace_prefix_hit_tokens_total",
            "Prompt tokens taken from the prefix cache.",
            stats.prefix_hit_tokens(),
        ),
        (
            "millrace_steps_total",
            "Engine steps with a forward pass.",
            stats.steps(),
        ),
        (
            "millrace_step_rows_total",
            "Query tokens computed in all steps (prefill, decode and draft tokens).",
            stats.rows(),
        ),
        (
            "millrace_draft_tokens_total",
            "Draft tokens verified by speculative decoding.",
            stats.tokens_drafted(),
        ),
        (
            "millrace_draft_tokens_accepted_total",
            "Draft tokens accepted by speculative decoding.",
            stats.tokens_accepted(),
        ),
        (
            "millrace_forced_tokens_total",
            "Tokens forced by structured output and accepted without a step of their own.",
            stats.tokens_forced(),
        ),
        (
            "millrace_draft_faults_total",
            "Failed forward passes of the draft model or the MTP head.",
            stats.draft_faults(),
        ),
    ] {
        text.counter(name, help, value);
    }
}

fn write_scheduling(text: &mut PrometheusText, stats: &Stats) {
    for (name, help, value) in [
        (
            "millrace_preemptions_total",
            "Preemptions: sequences whose KV cache pages were taken to be recomputed later.",
            stats.preemptions(),
        ),
        (
            "millrace_forward_retries_total",
            "Forward passes that failed and were retried on parts of the batch.",
            stats.retries(),
        ),
        (
            "millrace_parks_total",
            "Times a sequence was parked because its client had not read (backpressure).",
            stats.parks(),
        ),
        (
            "millrace_pauses_total",
            "Times a sequence was paused by request.",
            stats.pauses(),
        ),
        (
            "millrace_resumes_total",
            "Times a sequence resumed after being parked or paused.",
            stats.resumes(),
        ),
        (
            "millrace_slow_consumers_total",
            "Times a request was parked for its client longer than the slow-consumer threshold.",
            stats.slow_consumers(),
        ),
        (
            "millrace_observer_panics_total",
            "Engine observers that panicked and were removed.",
            stats.observer_panics(),
        ),
    ] {
        text.counter(name, help, value);
    }
}

fn write_state(text: &mut PrometheusText, stats: &Stats) {
    let stalled = Duration::from_nanos(stats.reader_stall_ns());
    text.counter_seconds(
        "millrace_engine_reader_stall_seconds_total",
        "Total time that sequences were parked for clients that did not read.",
        stalled,
    );
    text.gauge(
        "millrace_draft_pages_used",
        "KV cache pages of the draft model in use.",
        stats.draft_pages_used() as f64,
    );
    text.gauge(
        "millrace_requests_queued",
        "Requests in the engine's queue.",
        stats.queued() as f64,
    );
    text.gauges(
        "millrace_sequences",
        "Sequences in the engine, by state.",
        [
            (
                &[("state", "running")] as Labels<'_>,
                stats.running() as f64,
            ),
            (&[("state", "parked")], stats.parked() as f64),
            (&[("state", "paused")], stats.paused() as f64),
            (&[("state", "waiting")], stats.waiting() as f64),
        ],
    );
    text.gauges(
        "millrace_pages",
        "KV cache pages, by state.",
        [
            (
                &[("state", "free")] as Labels<'_>,
                stats.pages_free() as f64,
            ),
            (&[("state", "used")], stats.pages_used() as f64),
            (&[("state", "cached")], stats.pages_cached() as f64),
        ],
    );
}

fn write_ends(text: &mut PrometheusText, stats: &Stats) {
    let ends = stats.endings();
    text.counters(
        "millrace_endings_total",
        "Choices ended, by reason.",
        [
            (&[("kind", "eos")] as Labels<'_>, ends.eos),
            (&[("kind", "stop_string")], ends.stop_string),
            (&[("kind", "tool_calls")], ends.tool_calls),
            (&[("kind", "length")], ends.length),
            (&[("kind", "cancelled")], ends.cancelled),
            (&[("kind", "deadline")], ends.deadline),
            (&[("kind", "timed_out")], ends.timed_out),
            (&[("kind", "inference_failed")], ends.inference),
            (&[("kind", "panic")], ends.panic),
            (&[("kind", "shutdown")], ends.shutdown),
            (&[("kind", "constraint")], ends.constraint),
        ],
    );
    let clocks = [
        ([("clock", "queue")], Clock::Queue),
        ([("clock", "first_token")], Clock::FirstToken),
        ([("clock", "idle")], Clock::Idle),
        ([("clock", "total")], Clock::Total),
        ([("clock", "reader")], Clock::Reader),
    ];
    text.counters(
        "millrace_clocks_fired_total",
        "Choices ended by a timeout, by which.",
        clocks
            .iter()
            .map(|(labels, clock)| (&labels[..], stats.timed_out(*clock))),
    );
}

fn write_logs(text: &mut PrometheusText, served: &ServedModel) {
    let pools = [
        (
            "tokens",
            served.handle.token_pool.stats(),
            size_of::<Token>(),
        ),
        (
            "alternatives",
            served.handle.top_pool.stats(),
            size_of::<TopLogprob>(),
        ),
    ];
    let row = |of: fn(&PoolStats, usize) -> u64| {
        pools.map(|(pool, stats, item)| ([("pool", pool)], of(&stats, item)))
    };
    let bytes = row(|stats, item| (stats.in_use * SEGMENT_ITEMS * item) as u64);
    text.gauges(
        "millrace_log_bytes",
        "Bytes of token log segments in use.",
        bytes.iter().map(|(l, n)| (&l[..], *n as f64)),
    );
    let reserved = row(|stats, _| stats.reserved as u64);
    text.gauges(
        "millrace_log_segments_reserved",
        "Token log segments reserved for open streams.",
        reserved.iter().map(|(l, n)| (&l[..], *n as f64)),
    );
    let allocated = row(|stats, _| stats.allocated as u64);
    text.counters(
        "millrace_log_segments_allocated_total",
        "Token log segments allocated from the system.",
        allocated.iter().map(|(l, n)| (&l[..], *n)),
    );
    let reused = row(|stats, _| stats.reused);
    text.counters(
        "millrace_log_segments_reused_total",
        "Token log segments reused from the free list.",
        reused.iter().map(|(l, n)| (&l[..], *n)),
    );
}
