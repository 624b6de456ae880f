//! What the engine measures, and the logs it writes.

use crate::metrics::text::{Labels, Text};
use crate::served::ServedModel;
use engine::{Stats, Token, TopLogprob};
use std::time::Duration;
use stream::{Clock, PoolStats, SEGMENT_ITEMS};

pub(super) fn write(text: &mut Text, served: &ServedModel) {
    let stats = served.engine.stats();
    latencies(text, served);
    work(text, stats);
    turns(text, stats);
    state(text, stats);
    endings(text, stats);
    logs(text, served);
}

fn latencies(text: &mut Text, served: &ServedModel) {
    let (stats, steps) = (served.engine.stats(), &served.steps);
    for (name, help, told) in [
        (
            "millrace_engine_queue_wait_seconds",
            "Time from a request's coming to the engine to its start.",
            stats.queue_wait().into(),
        ),
        (
            "millrace_engine_time_to_first_token_seconds",
            "Time from a request's coming to the engine to its first token.",
            stats.time_to_first_token().into(),
        ),
        (
            "millrace_engine_inter_token_seconds",
            "Time from a choice's token to its next, time parked or paused left out.",
            stats.inter_token().into(),
        ),
        (
            "millrace_step_seconds",
            "Time of a step in which the model ran.",
            steps.time.read(),
        ),
        (
            "millrace_step_batch_sequences",
            "Sequences that had rows in a step.",
            steps.batch.read(),
        ),
        (
            "millrace_step_prefill_rows",
            "Rows of prompts in a step that had some.",
            steps.prefill_rows.read(),
        ),
    ] {
        text.histogram(name, help, &told);
    }
}

fn work(text: &mut Text, stats: &Stats) {
    for (name, help, value) in [
        (
            "millrace_generated_tokens_total",
            "Tokens appended to logs.",
            stats.tokens_generated(),
        ),
        (
            "millrace_prefill_rows_total",
            "Prompt positions computed, recomputation after a preemption included.",
            stats.prompt_tokens_computed(),
        ),
        (
            "millrace_prefix_hit_tokens_total",
            "Prompt positions taken from the prefix cache instead of being computed.",
            stats.prefix_hit_tokens(),
        ),
        (
            "millrace_steps_total",
            "Steps in which the model ran.",
            stats.steps(),
        ),
        (
            "millrace_step_rows_total",
            "Rows given to the model in those steps.",
            stats.rows(),
        ),
        (
            "millrace_draft_tokens_total",
            "Tokens that were guessed and verified.",
            stats.tokens_drafted(),
        ),
        (
            "millrace_draft_tokens_accepted_total",
            "Guessed tokens that were right.",
            stats.tokens_accepted(),
        ),
        (
            "millrace_forced_tokens_total",
            "Tokens that a form left no choice about and that took no step of their own.",
            stats.tokens_forced(),
        ),
        (
            "millrace_draft_faults_total",
            "Passes of the draft model that failed.",
            stats.draft_faults(),
        ),
    ] {
        text.counter(name, help, value);
    }
}

fn turns(text: &mut Text, stats: &Stats) {
    for (name, help, value) in [
        (
            "millrace_preemptions_total",
            "Times a sequence gave up its pages because they were short.",
            stats.preemptions(),
        ),
        (
            "millrace_forward_retries_total",
            "Forward passes that failed and were tried again in parts.",
            stats.retries(),
        ),
        (
            "millrace_parks_total",
            "Times a sequence was parked because its reader had not taken its window.",
            stats.parks(),
        ),
        (
            "millrace_pauses_total",
            "Times a sequence was paused because somebody asked for it.",
            stats.pauses(),
        ),
        (
            "millrace_resumes_total",
            "Times a sequence went on after it was parked or paused.",
            stats.resumes(),
        ),
        (
            "millrace_slow_consumers_total",
            "Times a request was parked for its reader longer than the threshold.",
            stats.slow_consumers(),
        ),
        (
            "millrace_observer_panics_total",
            "Observers of the engine that failed and were let go.",
            stats.observer_panics(),
        ),
    ] {
        text.counter(name, help, value);
    }
}

fn state(text: &mut Text, stats: &Stats) {
    let stalled = Duration::from_nanos(stats.reader_stall_ns());
    text.counter_seconds(
        "millrace_engine_reader_stall_seconds_total",
        "Time that sequences were parked for their readers, all together.",
        stalled,
    );
    text.gauge(
        "millrace_draft_pages_used",
        "Pages of the draft model that sequences hold.",
        stats.draft_pages_used() as f64,
    );
    text.gauge(
        "millrace_requests_queued",
        "Requests that the engine has not started.",
        stats.queued() as f64,
    );
    text.gauges(
        "millrace_sequences",
        "Sequences that were started and have not ended, by what they do.",
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
        "Pages of keys and values, by what they hold.",
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

fn endings(text: &mut Text, stats: &Stats) {
    let ends = stats.endings();
    text.counters(
        "millrace_endings_total",
        "Choices that ended, by how.",
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
        "Choices that a clock ended, by which.",
        clocks
            .iter()
            .map(|(labels, clock)| (&labels[..], stats.timed_out(*clock))),
    );
}

fn logs(text: &mut Text, served: &ServedModel) {
    let pools = [
        ("tokens", served.token_pool.stats(), size_of::<Token>()),
        (
            "alternatives",
            served.top_pool.stats(),
            size_of::<TopLogprob>(),
        ),
    ];
    let row = |of: fn(&PoolStats, usize) -> u64| {
        pools.map(|(pool, stats, item)| ([("pool", pool)], of(&stats, item)))
    };
    let bytes = row(|stats, item| (stats.in_use * SEGMENT_ITEMS * item) as u64);
    text.gauges(
        "millrace_log_bytes",
        "Bytes of the segments that hold logs now.",
        bytes.iter().map(|(l, n)| (&l[..], *n as f64)),
    );
    let reserved = row(|stats, _| stats.reserved as u64);
    text.gauges(
        "millrace_log_segments_reserved",
        "Segments promised to open logs.",
        reserved.iter().map(|(l, n)| (&l[..], *n as f64)),
    );
    let allocated = row(|stats, _| stats.allocated as u64);
    text.counters(
        "millrace_log_segments_allocated_total",
        "Segments that were allocated from the system.",
        allocated.iter().map(|(l, n)| (&l[..], *n)),
    );
    let reused = row(|stats, _| stats.reused);
    text.counters(
        "millrace_log_segments_reused_total",
        "Segments that were taken from the free list instead.",
        reused.iter().map(|(l, n)| (&l[..], *n)),
    );
}
