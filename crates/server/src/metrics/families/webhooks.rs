//! Families about events for webhooks.

use crate::metrics::prometheus_text::{Labels, PrometheusText};
use gateway::webhooks::Outbox;

pub(super) fn write_webhooks(text: &mut PrometheusText, outbox: &Outbox) {
    let (metrics, (waiting, dead)) = (outbox.metrics(), outbox.sizes());
    let rows = [
        ([("outcome", "delivered")], metrics.delivered.get()),
        ([("outcome", "failed")], metrics.failed_attempts.get()),
    ];
    text.counters(
        "millrace_webhook_attempts_total",
        "Attempts to deliver an event, by outcome.",
        rows.iter()
            .map(|(labels, attempts)| (&labels[..] as Labels<'_>, *attempts)),
    );
    text.counter(
        "millrace_webhook_dead_total",
        "Events whose attempts ended without success.",
        metrics.dead.get(),
    );
    text.gauge(
        "millrace_webhook_waiting",
        "Running streams with a webhook, and events that are not delivered yet.",
        waiting as f64,
    );
    text.gauge(
        "millrace_webhook_dead_letters",
        "Events whose attempts ended without success and that are kept.",
        dead as f64,
    );
}
