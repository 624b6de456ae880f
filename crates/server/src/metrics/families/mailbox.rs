//! Families about events in mailboxes.

use crate::metrics::prometheus_text::PrometheusText;
use gateway::mailbox::Mailboxes;

pub(super) fn write_mailboxes(text: &mut PrometheusText, mailboxes: &Mailboxes) {
    let metrics = mailboxes.metrics();
    text.gauge(
        "millrace_mailbox_events",
        "Events in mailboxes that are not acknowledged.",
        mailboxes.len() as f64,
    );
    text.counter(
        "millrace_mailbox_added_total",
        "Events that were put into a mailbox.",
        metrics.added.get(),
    );
    text.counter(
        "millrace_mailbox_acknowledged_total",
        "Events that clients have acknowledged.",
        metrics.acknowledged.get(),
    );
    text.counter(
        "millrace_mailbox_dropped_total",
        "Events that were removed by number or age before an acknowledgement.",
        metrics.dropped.get(),
    );
}
