//! Families about the records of streams in JetStream; all zero without them.

use crate::metrics::prometheus_text::{Labels, PrometheusText};
use gateway::owners_slot::{OwnersSlot, RecordsReport};

pub(super) fn write_records(text: &mut PrometheusText, owners: &OwnersSlot) {
    let report = owners.get().map(|owners| owners.report());
    let report = report.unwrap_or_default();
    write_sizes(text, &report);
    let counts = report.counters;
    text.counter(
        "millrace_records_messages_total",
        "Messages with records that JetStream has stored.",
        counts.stored_messages,
    );
    text.counter(
        "millrace_records_bytes_total",
        "Bytes of messages with records that JetStream has stored.",
        counts.stored_bytes,
    );
    text.counter(
        "millrace_records_copies_total",
        "Streams that were written to JetStream once more from memory.",
        counts.copies,
    );
    text.counters(
        "millrace_records_errors_total",
        "Answers that were not clear, full buffers, and streams of which JetStream has lost messages.",
        [
            (&[("kind", "unclear")] as Labels<'_>, counts.checks),
            (&[("kind", "overflow")], counts.overflows),
            (&[("kind", "regression")], counts.regressions),
        ],
    );
    text.counter(
        "millrace_streams_claimed_total",
        "Streams of other gateways that this one has taken over.",
        counts.claimed,
    );
    text.counter(
        "millrace_streams_fenced_total",
        "Streams of this gateway that others have taken over.",
        counts.fenced,
    );
}

fn write_sizes(text: &mut PrometheusText, report: &RecordsReport) {
    text.gauge(
        "millrace_records_store_ready",
        "Whether records can be stored in JetStream: 1 or 0.",
        f64::from(u8::from(report.is_stored)),
    );
    text.gauge(
        "millrace_records_store_bytes",
        "Bytes of all gateways' records in JetStream.",
        report.store_bytes as f64,
    );
    text.gauge(
        "millrace_records_behind_bytes",
        "Bytes of records that are not stored yet.",
        report.behind_bytes as f64,
    );
    text.gauge(
        "millrace_records_lag_seconds",
        "Age of the oldest record that is not stored yet.",
        report.lag.as_secs_f64(),
    );
    text.gauges(
        "millrace_records_streams",
        "Streams of this gateway in the records, by state.",
        [
            (
                &[("state", "followed")] as Labels<'_>,
                report.followed as f64,
            ),
            (&[("state", "missing")], report.missing as f64),
        ],
    );
}
