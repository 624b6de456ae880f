//! Metric families of the prompt cache on disk.

use crate::metrics::prometheus_text::PrometheusText;
use engine::Stats;
use std::time::Duration;

pub(super) fn write_disk_cache(text: &mut PrometheusText, stats: &Stats) {
    for (name, help, value) in [
        (
            "millrace_prompt_disk_hit_tokens_total",
            "Prompt tokens read from the prompt cache on disk instead of being computed.",
            stats.disk_hit_tokens(),
        ),
        (
            "millrace_prompt_disk_read_bytes_total",
            "Bytes of keys and values read from the prompt cache on disk.",
            stats.disk_bytes_read(),
        ),
        (
            "millrace_prompt_disk_written_bytes_total",
            "Bytes written to the prompt cache on disk.",
            stats.disk_bytes_written(),
        ),
        (
            "millrace_prompt_disk_damaged_total",
            "Damaged files of the prompt cache on disk that were removed.",
            stats.disk_damaged(),
        ),
        (
            "millrace_prompt_disk_failures_total",
            "Reads and writes of the prompt cache on disk that failed or had no reply.",
            stats.disk_failures(),
        ),
    ] {
        text.counter(name, help, value);
    }
    text.counter_seconds(
        "millrace_prompt_disk_read_seconds_total",
        "Total time that requests waited for the prompt cache on disk.",
        Duration::from_nanos(stats.disk_read_ns()),
    );
    text.gauge(
        "millrace_prompt_disk_bytes",
        "Bytes of the prompt cache on disk.",
        stats.disk_bytes() as f64,
    );
}
