//! Metric families about streams of earlier processes.

use super::{Labels, PrometheusText};
use gateway::metrics::{RecoveryMetrics, RecoveryOutcome};

/// Families about the recovery after the last start. The values do not change after the recovery.
pub(super) fn write_recovery(text: &mut PrometheusText, metrics: &RecoveryMetrics) {
    text.gauge(
        "millrace_recovery_seconds",
        "Time from reading the journal at the start to the submission of the last recovered stream; 0 before.",
        metrics.duration().as_secs_f64(),
    );
    let rows = RecoveryOutcome::ALL.map(|outcome| {
        let streams = metrics.streams(outcome) as f64;
        ([("outcome", outcome.name())], streams)
    });
    text.gauges(
        "millrace_recovery_streams",
        "Streams found in the journal at the start, by outcome.",
        rows.iter()
            .map(|(labels, streams)| (&labels[..] as Labels<'_>, *streams)),
    );
    text.gauge(
        "millrace_recovery_tokens",
        "Tokens of streams found in the journal at the start.",
        metrics.tokens.get() as f64,
    );
}
