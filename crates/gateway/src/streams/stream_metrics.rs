//! Metrics of one stream: the engine's timings of the stream's requests, and timings at the connection of the credit
//! owner.
//!
//! Sums, counts and longest times: a stream has no histogram (histograms of all streams together are at
//! `/metrics`), so that an idle stream stays small.

use super::StartedGeneration;
use super::stream_credit::{SocketMetrics, as_nanoseconds};
use super::stream_record::StreamRecord;
use engine::Progress;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stream::EntryState;

/// Metrics of a stream, over all choices.
#[derive(JsonSchema, Serialize)]
pub(crate) struct StreamMetrics {
    /// Milliseconds from the opening of the stream to the start of prefill, or until now or the end without
    /// prefill. `null` for a workflow run.
    queue_wait_ms: Option<f64>,
    /// Number of times that the stream was parked because the credit window was used up.
    parks: u64,
    /// Number of times that a client paused the stream.
    pauses: u64,
    /// Number of preemptions: the KV cache pages were taken because pages were short.
    preemptions: u64,
    /// Number of times that the stream resumed after being parked or paused.
    resumes: u64,
    /// Milliseconds for which the stream was parked because the credit window was used up.
    stall_ms: f64,
    /// Tokens per second from the first to the last token, stalls included. `null` with fewer than two tokens.
    tokens_per_s: Option<f64>,
    /// Inter-token latency in the engine, without parked time; `null` without a second token.
    inter_token_ms: Option<GapQuantiles>,
    socket: SocketTimings,
}

/// Timings at the connection of the client that returns credit.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SocketMeasures")]
struct SocketTimings {
    /// Number of frames with tokens that the connection took.
    frames: u64,
    /// Milliseconds that frames waited for the connection; waits under one millisecond are not counted.
    stall_ms: f64,
    /// Time from one frame with tokens to the next; `null` without a second frame.
    inter_token_ms: Option<GapQuantiles>,
}

/// Mean and maximum of a time in milliseconds.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "TokenGaps")]
struct GapQuantiles {
    mean: f64,
    max: f64,
}

impl GapQuantiles {
    /// `None` of none.
    fn of(count: u64, sum_ns: u64, max_ns: u64) -> Option<Self> {
        (count > 0).then(|| Self {
            mean: as_milliseconds(sum_ns / count),
            max: as_milliseconds(max_ns),
        })
    }
}

impl StreamMetrics {
    /// The metrics of a stream at `now`.
    pub(crate) fn of_stream(stream: &stream::Entry<StreamRecord>, now: Instant) -> Self {
        let started = stream.payload.started();
        let each = || started.iter().flat_map(|started| &started.requests);
        let sum = |of: fn(&Progress) -> u64| each().map(|r| of(&r.progress)).sum::<u64>();
        let max = |of: fn(&Progress) -> u64| each().map(|r| of(&r.progress)).max().unwrap_or(0);
        let now_ns = started.map_or(0, |started| {
            as_nanoseconds(now.saturating_duration_since(started.engine.epoch()))
        });
        let stalled = each().map(|r| r.progress.stalled_ns(now_ns)).sum();
        let gaps = sum(Progress::gaps);
        Self {
            queue_wait_ms: queue_wait(stream, started, now)
                .map(|wait| as_milliseconds(as_nanoseconds(wait))),
            parks: sum(Progress::parks),
            pauses: sum(Progress::pauses),
            preemptions: sum(Progress::preemptions),
            resumes: sum(Progress::resumes),
            stall_ms: as_milliseconds(stalled),
            tokens_per_s: tokens_per_second(
                gaps,
                first_token(started),
                max(Progress::last_token_ns),
            ),
            inter_token_ms: GapQuantiles::of(
                gaps,
                sum(Progress::gaps_ns),
                max(Progress::gap_max_ns),
            ),
            socket: SocketTimings::of(stream.payload.credit_owner.socket_metrics()),
        }
    }
}

impl SocketTimings {
    fn of(taken: &SocketMetrics) -> Self {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Self {
            frames: read(&taken.frames),
            stall_ms: as_milliseconds(read(&taken.stalled_ns)),
            inter_token_ms: GapQuantiles::of(
                read(&taken.gaps),
                read(&taken.gaps_ns),
                read(&taken.gap_max_ns),
            ),
        }
    }
}

fn queue_wait(
    stream: &stream::Entry<StreamRecord>,
    started: Option<&StartedGeneration>,
    now: Instant,
) -> Option<Duration> {
    if stream.payload.program().is_some() {
        return None;
    }
    let begun = started.and_then(|started| {
        let stamps = started.requests.iter().map(|r| r.progress.started_ns());
        let first = stamps.filter(|&ns| ns > 0).min()?;
        Some(started.engine.epoch() + Duration::from_nanos(first))
    });
    let over = match stream.state {
        EntryState::Ended { at } => at,
        EntryState::Open => now,
    };
    let begun = begun.unwrap_or(over);
    Some(begun.saturating_duration_since(stream.opened_at))
}

/// When the first token of all was made; 0 = there is none.
fn first_token(started: Option<&StartedGeneration>) -> u64 {
    let requests = started.iter().flat_map(|started| &started.requests);
    let stamps = requests.map(|r| r.progress.first_token_ns());
    stamps.filter(|&ns| ns > 0).min().unwrap_or(0)
}

fn tokens_per_second(tokens: u64, first_ns: u64, last_ns: u64) -> Option<f64> {
    let ns = last_ns.saturating_sub(first_ns);
    let seconds = Duration::from_nanos(ns).as_secs_f64();
    (tokens > 0 && ns > 0).then(|| tokens as f64 / seconds)
}

/// To the microsecond.
fn as_milliseconds(ns: u64) -> f64 {
    (ns / 1000) as f64 / 1000.0
}
