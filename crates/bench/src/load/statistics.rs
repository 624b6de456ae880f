//! Latency statistics of a load run.

use super::options::LatencyTargets;
use super::request_trace::{Failure, RequestTrace};
use crate::Summary;
use std::collections::BTreeMap;
use std::time::Duration;

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
