//! Families about the journal of durable streams; all zero without a journal.

use super::PrometheusText;
use gateway::streams::JournalSlot;

pub(super) fn write_journal(text: &mut PrometheusText, journal: &JournalSlot) {
    let now = journal.get().map(|journal| journal.gauges());
    let now = now.unwrap_or_default();
    text.gauge(
        "millrace_journal_durable",
        "Whether records of streams reach the disk: 1 or 0. 0 without a journal.",
        f64::from(u8::from(now.is_durable)),
    );
    text.gauge(
        "millrace_journal_streams",
        "Streams and stored responses in the journal.",
        now.streams as f64,
    );
    text.gauge(
        "millrace_journal_behind_tokens",
        "Generated tokens of durable streams that readers do not see until they are written.",
        now.behind_tokens as f64,
    );
    text.gauge(
        "millrace_journal_segments",
        "Files of the journal.",
        now.segments as f64,
    );
    text.gauge(
        "millrace_journal_live_bytes",
        "Bytes of the records of streams in the journal.",
        now.live_bytes as f64,
    );
    text.counter(
        "millrace_journal_written_bytes_total",
        "Bytes written to the journal.",
        now.written_bytes,
    );
    text.counter(
        "millrace_journal_syncs_total",
        "Group commits: syncs that succeeded.",
        now.syncs,
    );
    text.counter(
        "millrace_journal_rewritten_streams_total",
        "Streams that were written once more, so that old files could be deleted.",
        now.rewritten_streams,
    );
    text.counter(
        "millrace_journal_errors_total",
        "Writes, syncs and removals of files that failed.",
        now.errors,
    );
}
