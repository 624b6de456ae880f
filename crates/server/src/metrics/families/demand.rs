//! Metric families about demand, and the engines that it needs.

use super::{Labels, PrometheusText};
use cluster::forecast::{PredictedRate, ScaleAdvice};

pub(super) fn write_demand(text: &mut PrometheusText, requests: u64, advice: &ScaleAdvice) {
    text.counter(
        "millrace_requests_total",
        "Requests that asked for admission, including rejected ones.",
        requests,
    );
    write_rate(
        text,
        "millrace_demand_requests_per_second",
        "Requests per second, at present and as predicted for the horizon.",
        advice.arrivals,
    );
    write_rate(
        text,
        "millrace_demand_tokens_per_second",
        "Tokens per second that these requests need to be computed.",
        advice.tokens,
    );
    let (arrivals, tokens) = (advice.arrivals, advice.tokens);
    for (name, help, values) in [
        (
            "millrace_demand_error_ratio",
            "Mean absolute error of earlier predictions, from 0 to 2 (sMAPE).",
            [arrivals.error, tokens.error],
        ),
        (
            "millrace_demand_bias_ratio",
            "Mean error of earlier predictions, from -2 (too low) to 2 (too high).",
            [arrivals.bias, tokens.bias],
        ),
    ] {
        let rows = [
            (&[("of", "requests")] as Labels<'_>, values[0]),
            (&[("of", "tokens")], values[1]),
        ];
        text.gauges(name, help, rows);
    }
    text.gauge(
        "millrace_engine_capacity_tokens_per_second",
        "Tokens per second of one engine with all slots in use; 0 while unknown.",
        advice.engine_tokens_per_s,
    );
    text.gauges(
        "millrace_engines_wanted",
        "Engines that the demand predicted for the horizon needs; absent while an engine's capacity is unknown.",
        advice.engines_wanted.map(|engines| (&[] as Labels<'_>, engines)),
    );
}

fn write_rate(text: &mut PrometheusText, name: &str, help: &str, rate: PredictedRate) {
    let rows = [
        (&[("at", "now")] as Labels<'_>, rate.now),
        (&[("at", "horizon")], rate.predicted),
    ];
    text.gauges(name, help, rows);
}
