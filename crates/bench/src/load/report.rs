//! Results of a load run, as a table or as JSON, and their latency statistics.

use super::options::{Arrivals, LatencyTargets, LoadOptions};
use super::request_trace::{Failure, RequestTrace};
use crate::Summary;
use crate::summary::{aligned, cells};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Results of a load run. Times are in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// Name of the model.
    pub model: String,
    /// Arrival process.
    pub arrivals: String,
    /// Number of requests.
    pub requests: usize,
    /// Requests with a complete response.
    pub answered: usize,
    /// Failed requests by kind.
    pub failures: BTreeMap<String, usize>,
    /// Seconds from the first arrival to the last end.
    pub seconds: f64,
    /// Prompt tokens of all requests according to the server; 0 without usage.
    pub prompt_tokens: u64,
    /// Output tokens of all responses.
    pub tokens: u64,
    /// Whether tokens of a response were counted by frames, for lack of usage.
    pub counted_by_frames: bool,
    /// Frames with text.
    pub frames: u64,
    /// Output tokens per second.
    pub tokens_per_s: f64,
    /// Complete responses per second.
    pub requests_per_s: f64,
    /// Time to first token (TTFT), from the arrival.
    pub first_token_ms: Summary,
    /// Inter-token latencies (ITL); zero for tokens in the frame of the token before.
    pub between_tokens_ms: Summary,
    /// Times between frames.
    pub between_frames_ms: Summary,
    /// Time per output token (TPOT) of each response.
    pub mean_between_tokens_ms: Summary,
    /// Request latency, from the arrival to the end.
    pub whole_ms: Summary,
    /// Delay of this client when sending; large values mean that the client was the bottleneck.
    pub late_ms: Summary,
    /// Goodput, if latency targets were given.
    pub goodput: Option<Goodput>,
    /// CPU time of the server per token in microseconds, if its process is known.
    pub server_cpu_us_per_token: Option<f64>,
    /// Resident memory of the server at the end, bytes.
    pub server_resident_bytes: Option<u64>,
    /// Peak resident memory of the server, bytes.
    pub server_resident_peak_bytes: Option<u64>,
    /// CPU time of this client per token in microseconds.
    pub client_cpu_us_per_token: Option<f64>,
}

/// Responses that met the latency targets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodput {
    /// Target for the time to first token, if any.
    pub first_token_ms: Option<f64>,
    /// Target for the mean time per output token, if any.
    pub between_tokens_ms: Option<f64>,
    /// Number of responses that met the targets.
    pub answers: usize,
    /// Share of all requests, failures included; 0 to 1.
    pub share: f64,
    /// Responses per second that met the targets.
    pub requests_per_s: f64,
    /// Output tokens per second of these responses.
    pub tokens_per_s: f64,
}

impl LoadReport {
    pub(super) fn of(
        options: &LoadOptions,
        model: &str,
        outcomes: &[RequestOutcome],
        took: Duration,
    ) -> Self {
        let traces = || {
            outcomes
                .iter()
                .filter_map(|outcome| outcome.trace.as_ref().ok())
        };
        let seconds = took.as_secs_f64().max(1e-9);
        let statistics = LatencyStatistics::of(outcomes);
        let (answered, tokens) = (
            traces().count(),
            traces().map(RequestTrace::tokens).sum::<u64>(),
        );
        let usages = || traces().filter_map(|trace| trace.usage);
        Self {
            model: model.to_owned(),
            arrivals: options.arrivals.to_string(),
            requests: outcomes.len(),
            answered,
            failures: count_failures(outcomes),
            seconds,
            prompt_tokens: usages().map(|usage| usage.prompt_tokens).sum(),
            tokens,
            counted_by_frames: traces().any(|trace| trace.usage.is_none()),
            frames: traces().map(RequestTrace::frames).sum(),
            tokens_per_s: tokens as f64 / seconds,
            requests_per_s: answered as f64 / seconds,
            first_token_ms: statistics.first_token,
            between_tokens_ms: statistics.between_tokens,
            between_frames_ms: statistics.between_frames,
            mean_between_tokens_ms: statistics.mean_between_tokens,
            whole_ms: statistics.whole,
            late_ms: statistics.late,
            goodput: goodput(options, outcomes, seconds),
            server_cpu_us_per_token: None,
            server_resident_bytes: None,
            server_resident_peak_bytes: None,
            client_cpu_us_per_token: None,
        }
    }

    /// Divides CPU times by the number of tokens.
    pub(super) fn per_token(&mut self, server: Option<Duration>, client: Option<Duration>) {
        let tokens = self.tokens;
        let each = |time: Duration| (tokens > 0).then(|| time.as_secs_f64() * 1e6 / tokens as f64);
        self.server_cpu_us_per_token = server.and_then(each);
        self.client_cpu_us_per_token = client.and_then(each);
    }
}

fn goodput(options: &LoadOptions, outcomes: &[RequestOutcome], seconds: f64) -> Option<Goodput> {
    let targets = options.targets;
    if targets.first_token.is_none() && targets.between_tokens.is_none() {
        return None;
    }
    let traces = outcomes
        .iter()
        .filter_map(|outcome| outcome.trace.as_ref().ok());
    let good: Vec<_> = traces.filter(|trace| targets.are_met(trace)).collect();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Some(Goodput {
        first_token_ms: targets.first_token.map(ms),
        between_tokens_ms: targets.between_tokens.map(ms),
        answers: good.len(),
        share: good.len() as f64 / outcomes.len().max(1) as f64,
        requests_per_s: good.len() as f64 / seconds,
        tokens_per_s: good.iter().copied().map(RequestTrace::tokens).sum::<u64>() as f64 / seconds,
    })
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson { rate } => write!(f, "open loop, {rate} requests/s"),
            Self::Clients(1) => write!(f, "closed loop, 1 client"),
            Self::Clients(clients) => write!(f, "closed loop, {clients} clients"),
        }
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.model, self.arrivals)?;
        writeln!(
            f,
            "{} of {} requests answered in {:.2} s: {:.2} requests/s, {:.1} tokens/s",
            self.answered, self.requests, self.seconds, self.requests_per_s, self.tokens_per_s
        )?;
        let counted = if self.counted_by_frames {
            " (counted as frames: no usage)"
        } else {
            ""
        };
        writeln!(
            f,
            "{} prompt tokens, {} tokens{counted} in {} frames",
            self.prompt_tokens, self.tokens, self.frames
        )?;
        let head = cells(["ms", "mean", "p50", "p95", "p99", "max"]);
        let rows = [
            ("first token", &self.first_token_ms),
            ("between tokens", &self.between_tokens_ms),
            ("between frames", &self.between_frames_ms),
            (
                "an answer's mean between tokens",
                &self.mean_between_tokens_ms,
            ),
            ("whole answer", &self.whole_ms),
            ("client's own lateness", &self.late_ms),
        ];
        let lines = rows.map(|(name, summary)| summary_cells(name, summary));
        f.write_str(&aligned(
            &std::iter::once(head).chain(lines).collect::<Vec<_>>(),
        ))?;
        for (kind, count) in &self.failures {
            writeln!(f, "failed: {count} x {kind}")?;
        }
        self.write_rest(f)
    }
}

impl LoadReport {
    fn write_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(good) = &self.goodput {
            writeln!(
                f,
                "goodput: {:.1}% of requests, {:.2} requests/s, {:.1} tokens/s",
                100.0 * good.share,
                good.requests_per_s,
                good.tokens_per_s
            )?;
        }
        if let Some(cpu) = self.server_cpu_us_per_token {
            writeln!(f, "server: {cpu:.1} us of processor time per token")?;
        }
        if let Some(bytes) = self.server_resident_peak_bytes {
            writeln!(f, "server: {} MiB resident at most", bytes >> 20)?;
        }
        if let Some(cpu) = self.client_cpu_us_per_token {
            writeln!(f, "client: {cpu:.1} us of processor time per token")?;
        }
        Ok(())
    }
}

fn summary_cells(name: &str, summary: &Summary) -> Vec<String> {
    let statistics = [
        summary.mean,
        summary.p50,
        summary.p95,
        summary.p99,
        summary.max,
    ];
    let statistics = statistics.map(|value| format!("{value:.2}"));
    std::iter::once(name.to_owned()).chain(statistics).collect()
}

/// Outcome of one request.
pub(super) struct RequestOutcome {
    /// Delay between the arrival of the request and the time the client sent it.
    pub(super) late: Duration,
    pub(super) trace: Result<RequestTrace, Failure>,
}

/// Latency distributions over all responses, milliseconds.
pub(super) struct LatencyStatistics {
    pub(super) first_token: Summary,
    pub(super) between_tokens: Summary,
    pub(super) between_frames: Summary,
    pub(super) mean_between_tokens: Summary,
    pub(super) whole: Summary,
    pub(super) late: Summary,
}

impl LatencyStatistics {
    pub(super) fn of(outcomes: &[RequestOutcome]) -> Self {
        let traces = || {
            outcomes
                .iter()
                .filter_map(|outcome| outcome.trace.as_ref().ok())
        };
        let mut frames: Vec<f64> = traces().flat_map(|trace| &trace.gaps).map(ms).collect();
        let mut tokens = frames.clone();
        for trace in traces() {
            let merged = usize::try_from(trace.merged_tokens()).unwrap_or(0);
            tokens.extend(std::iter::repeat_n(0.0, merged));
        }
        let each = |of: fn(&RequestTrace) -> Option<Duration>| {
            Summary::of(
                &mut traces()
                    .filter_map(of)
                    .map(|time| ms(&time))
                    .collect::<Vec<_>>(),
            )
        };
        Self {
            first_token: each(|trace| Some(trace.first)),
            between_tokens: Summary::of(&mut tokens),
            between_frames: Summary::of(&mut frames),
            mean_between_tokens: each(RequestTrace::between_tokens),
            whole: each(|trace| Some(trace.end)),
            late: Summary::of(
                &mut outcomes
                    .iter()
                    .map(|outcome| ms(&outcome.late))
                    .collect::<Vec<_>>(),
            ),
        }
    }
}

/// Number of failures by name.
pub(super) fn count_failures(outcomes: &[RequestOutcome]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for failure in outcomes
        .iter()
        .filter_map(|outcome| outcome.trace.as_ref().err())
    {
        *counts.entry(failure.name()).or_default() += 1;
    }
    counts
}

impl LatencyTargets {
    /// Whether a response meets the targets.
    pub(super) fn are_met(&self, trace: &RequestTrace) -> bool {
        let within = |bound: Option<Duration>, time: Option<Duration>| match (bound, time) {
            (Some(bound), Some(time)) => time <= bound,
            _ => true,
        };
        within(self.first_token, Some(trace.first))
            && within(self.between_tokens, trace.between_tokens())
    }
}

fn ms(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::super::chunk::Usage;
    use super::*;

    fn trace(first: u64, gaps: &[u64], tokens: u64) -> RequestTrace {
        let ms = Duration::from_millis;
        let last = ms(first + gaps.iter().sum::<u64>());
        RequestTrace {
            first: ms(first),
            last,
            end: last,
            gaps: gaps.iter().copied().map(ms).collect(),
            usage: Some(Usage {
                prompt_tokens: 1,
                completion_tokens: tokens,
            }),
        }
    }

    fn outcome(trace: Result<RequestTrace, Failure>) -> RequestOutcome {
        RequestOutcome {
            late: Duration::ZERO,
            trace,
        }
    }

    #[test]
    fn merged_tokens_have_zero_latency() {
        let outcomes = [
            outcome(Ok(trace(10, &[4, 8], 5))),
            outcome(Ok(trace(30, &[6], 2))),
        ];
        let statistics = LatencyStatistics::of(&outcomes);
        assert_eq!(
            (statistics.first_token.p50, statistics.first_token.max),
            (10.0, 30.0)
        );
        assert_eq!(statistics.between_frames.count, 3);
        // Four latencies and one: 0, 0, 4, 8 and 6.
        assert_eq!(
            (
                statistics.between_tokens.count,
                statistics.between_tokens.p50
            ),
            (5, 4.0)
        );
        assert_eq!(statistics.mean_between_tokens.min, 3.0);
    }

    #[test]
    fn failures_are_counted_by_name() {
        let outcomes = [
            outcome(Err(Failure::Status(503))),
            outcome(Err(Failure::Status(503))),
            outcome(Err(Failure::Timeout)),
            outcome(Ok(trace(1, &[], 1))),
        ];
        let wanted = [("status 503".to_owned(), 2), ("timeout".to_owned(), 1)];
        assert_eq!(count_failures(&outcomes), BTreeMap::from(wanted));
        assert_eq!(LatencyStatistics::of(&outcomes).first_token.count, 1);
    }

    #[test]
    fn goodput_requires_all_given_targets() {
        let ms = |value| Some(Duration::from_millis(value));
        let targets = |first_token, between_tokens| LatencyTargets {
            first_token,
            between_tokens,
        };
        let trace = trace(100, &[10, 30], 3);
        let rows = [
            (targets(None, None), true),
            (targets(ms(100), None), true),
            (targets(ms(99), None), false),
            (targets(None, ms(20)), true),
            (targets(ms(100), ms(19)), false),
        ];
        for (targets, holds) in rows {
            assert_eq!(targets.are_met(&trace), holds, "{targets:?}");
        }
    }
}
