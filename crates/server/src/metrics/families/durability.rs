//! Families about what outlives a process: the journal and the recovery from it, records in JetStream, and webhooks. All zero
//! without them.

use crate::metrics::prometheus_text::PrometheusText;
use gateway::metrics::{RecoveryMetrics, RecoveryOutcome};
use gateway::owners_slot::OwnersSlot;
use gateway::streams::JournalSlot;
use gateway::webhooks::Outbox;

/// The recovery after the last start. The values do not change after the recovery.
pub(super) fn write_recovery(text: &mut PrometheusText, metrics: &RecoveryMetrics) {
    text.value("millrace_recovery_seconds", metrics.duration());
    let rows = RecoveryOutcome::ALL.map(|outcome| ([outcome.name()], metrics.streams(outcome)));
    text.samples("millrace_recovery_streams", rows);
    text.value("millrace_recovery_tokens", metrics.tokens.get());
}

pub(super) fn write_journal(text: &mut PrometheusText, journal: &JournalSlot) {
    let now = journal.get().map(|journal| journal.gauges());
    let now = now.unwrap_or_default();
    text.value("millrace_journal_durable", now.is_durable);
    text.value("millrace_journal_streams", now.streams);
    text.value("millrace_journal_behind_tokens", now.behind_tokens);
    text.value("millrace_journal_segments", now.segments);
    text.value("millrace_journal_live_bytes", now.live_bytes);
    text.value("millrace_journal_written_bytes_total", now.written_bytes);
    text.value("millrace_journal_syncs_total", now.syncs);
    let rewritten = now.rewritten_streams;
    text.value("millrace_journal_rewritten_streams_total", rewritten);
    text.value("millrace_journal_errors_total", now.errors);
}

pub(super) fn write_records(text: &mut PrometheusText, owners: &OwnersSlot) {
    let report = owners.get().map(|owners| owners.report());
    let report = report.unwrap_or_default();
    text.value("millrace_records_store_ready", report.is_stored);
    text.value("millrace_records_store_bytes", report.store_bytes);
    text.value("millrace_records_behind_bytes", report.behind_bytes);
    text.value("millrace_records_lag_seconds", report.lag);
    text.samples(
        "millrace_records_streams",
        [
            (["followed"], report.followed),
            (["missing"], report.missing),
        ],
    );
    let counts = report.counters;
    text.value("millrace_records_messages_total", counts.stored_messages);
    text.value("millrace_records_bytes_total", counts.stored_bytes);
    text.value("millrace_records_copies_total", counts.copies);
    text.samples(
        "millrace_records_errors_total",
        [
            (["unclear"], counts.checks),
            (["overflow"], counts.overflows),
            (["regression"], counts.regressions),
        ],
    );
    text.value("millrace_streams_claimed_total", counts.claimed);
    text.value("millrace_streams_fenced_total", counts.fenced);
}

pub(super) fn write_webhooks(text: &mut PrometheusText, outbox: &Outbox) {
    let (metrics, (waiting, dead)) = (outbox.metrics(), outbox.sizes());
    text.samples(
        "millrace_webhook_attempts_total",
        [
            (["delivered"], metrics.delivered.get()),
            (["failed"], metrics.failed_attempts.get()),
        ],
    );
    text.value("millrace_webhook_dead_total", metrics.dead.get());
    text.value("millrace_webhook_waiting", waiting);
    text.value("millrace_webhook_dead_letters", dead);
}
