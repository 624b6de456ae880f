//! Every family of `GET /metrics`. Each is described in `docs/metrics.md`; a test compares.

use super::Metrics;
use super::meter::Outcome;
use super::text::{Labels, Text};
use crate::admission;
use crate::router::App;
use crate::served::ServedModel;
use engine::{Stats, Token, TopLogprob};
use std::time::Duration;
use stream::{Clock, PoolStats, RegistryCounts, SEGMENT_ITEMS};

/// All families, as Prometheus text.
pub(crate) fn write(app: &App) -> String {
    let mut text = Text::default();
    text.gauges(
        "millrace_build_info",
        "Which build serves which model; always 1.",
        [(
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("model", app.served.id.as_str()),
            ] as Labels<'_>,
            1.0,
        )],
    );
    latencies(&mut text, &app.metrics);
    answers(&mut text, &app.metrics);
    http(&mut text, &app.metrics);
    let stats = app.served.engine.stats();
    streams(&mut text, app.streams.registry().counts());
    admission(&mut text, app.admission.snapshot());
    engine_latencies(&mut text, &app.served);
    engine_work(&mut text, stats);
    engine_state(&mut text, stats);
    endings(&mut text, stats);
    logs(&mut text, &app.served);
    text.finish()
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

fn engine_latencies(text: &mut Text, served: &ServedModel) {
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

fn engine_work(text: &mut Text, stats: &Stats) {
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

fn engine_state(text: &mut Text, stats: &Stats) {
    let stalled = Duration::from_nanos(stats.reader_stall_ns());
    text.counter_seconds(
        "millrace_engine_reader_stall_seconds_total",
        "Time that sequences were parked for their readers, all together.",
        stalled,
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
            (&[("kind", "out_of_pages")], ends.out_of_pages),
            (&[("kind", "shutdown")], ends.shutdown),
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
