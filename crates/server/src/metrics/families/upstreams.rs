//! Families about servers of others that compute the tokens; all zero without them.

use crate::metrics::prometheus_text::{Labels, PrometheusText};
use ::upstream::UpstreamCounts;

pub(super) fn write_upstreams(text: &mut PrometheusText, counts: &UpstreamCounts) {
    let states = [("usable", counts.usable), ("unusable", counts.unusable)];
    let rows = states.map(|(state, count)| ([("state", state)], count as f64));
    text.gauges(
        "millrace_upstreams",
        "Upstreams that answer and serve the model, and others.",
        rows.iter().map(|(labels, count)| (&labels[..], *count)),
    );
    text.gauge(
        "millrace_upstream_calls_in_flight",
        "Calls of upstreams that run.",
        counts.in_flight as f64,
    );
    text.counter(
        "millrace_upstream_calls_total",
        "Calls of upstreams: one for each choice of a request, and one for each repetition.",
        counts.calls,
    );
    text.counter(
        "millrace_upstream_continuations_total",
        "Calls that continued an answer which another call had begun.",
        counts.continuations,
    );
    text.counter(
        "millrace_upstream_tokens_total",
        "Tokens that upstreams returned.",
        counts.tokens,
    );
    text.counters(
        "millrace_upstream_failures_total",
        "Calls that failed: without a response, cut before the end of the answer, refused or not understood.",
        [
            (&[("reason", "unavailable")] as Labels<'_>, counts.unavailable),
            (&[("reason", "cut")], counts.cut),
            (&[("reason", "refused")], counts.refused),
        ],
    );
}
