//! The Prometheus text format, version 0.0.4.

use gateway::metrics::histogram::Distribution;
use std::fmt::Write;
use std::time::Duration;

/// The content type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A writer of metric families.
#[derive(Default)]
pub(crate) struct PrometheusText {
    out: String,
}

/// Labels of a sample and their values. Values are escaped; label names need no escaping.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

impl PrometheusText {
    /// A counter; `name` ends in `_total`.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help, [(&[] as Labels<'_>, value)]);
    }

    /// A counter with one sample for each label set.
    pub(crate) fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<'a>, u64)>,
    ) {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.write_head(name, help, "counter");
        for (labels, value) in rows {
            self.write_sample(name, "", labels, None, value as f64);
        }
    }

    /// A counter of seconds.
    pub(crate) fn counter_seconds(&mut self, name: &str, help: &str, time: Duration) {
        self.write_head(name, help, "counter");
        self.write_sample(name, "", &[], None, time.as_secs_f64());
    }

    /// A gauge.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help, [(&[] as Labels<'_>, value)]);
    }

    /// A gauge with one sample for each label set.
    pub(crate) fn gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<'a>, f64)>,
    ) {
        self.write_head(name, help, "gauge");
        for (labels, value) in rows {
            self.write_sample(name, "", labels, None, value);
        }
    }

    /// A histogram; the buckets are cumulated.
    pub(crate) fn histogram(&mut self, name: &str, help: &str, distribution: &Distribution) {
        self.write_head(name, help, "histogram");
        let mut below = 0;
        for (&bound, &count) in distribution.bounds.iter().zip(&distribution.counts) {
            below += count;
            self.write_sample(name, "_bucket", &[], Some(bound), below as f64);
        }
        let all = distribution.sample_count() as f64;
        self.write_sample(name, "_bucket", &[], Some(f64::INFINITY), all);
        self.write_sample(name, "_sum", &[], None, distribution.sum);
        self.write_sample(name, "_count", &[], None, all);
    }

    /// The written text.
    pub(crate) fn finish(self) -> String {
        self.out
    }

    fn write_head(&mut self, name: &str, help: &str, kind: &str) {
        debug_assert!(name.starts_with("millrace_"), "{name}");
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn write_sample(
        &mut self,
        name: &str,
        part: &str,
        labels: Labels<'_>,
        bound: Option<f64>,
        value: f64,
    ) {
        self.out.push_str(name);
        self.out.push_str(part);
        let mut before = '{';
        for (label, value) in labels {
            let _ = write!(self.out, "{before}{label}=\"");
            self.write_escaped(value);
            self.out.push('"');
            before = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(self.out, "{before}le=\"");
            self.write_number(bound);
            self.out.push('"');
            before = ',';
        }
        self.out.push_str(if before == ',' { "} " } else { " " });
        self.write_number(value);
        self.out.push('\n');
    }

    fn write_escaped(&mut self, value: &str) {
        for c in value.chars() {
            match c {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                c => self.out.push(c),
            }
        }
    }

    /// Writes a number without an exponent, which some parsers of the format do not accept.
    fn write_number(&mut self, value: f64) {
        let _ = match value {
            f64::INFINITY => self.out.write_str("+Inf"),
            value => write!(self.out, "{value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_of_each_kind_byte_for_byte() {
        let mut text = PrometheusText::default();
        text.counter("millrace_a_total", "What it is.", 3);
        text.gauges(
            "millrace_b",
            "How many.",
            [
                (&[("of", "one"), ("as", "x\"\\\n")] as Labels<'_>, 1.5),
                (&[("of", "two"), ("as", "y")], 0.0),
            ],
        );
        text.histogram(
            "millrace_c_seconds",
            "How long.",
            &Distribution {
                bounds: vec![0.0001, 0.25],
                counts: vec![2, 0, 1],
                sum: 7.5,
            },
        );
        let want = r#"# HELP millrace_a_total What it is.
# TYPE millrace_a_total counter
millrace_a_total 3
# HELP millrace_b How many.
# TYPE millrace_b gauge
millrace_b{of="one",as="x\"\\\n"} 1.5
millrace_b{of="two",as="y"} 0
# HELP millrace_c_seconds How long.
# TYPE millrace_c_seconds histogram
millrace_c_seconds_bucket{le="0.0001"} 2
millrace_c_seconds_bucket{le="0.25"} 2
millrace_c_seconds_bucket{le="+Inf"} 3
millrace_c_seconds_sum 7.5
millrace_c_seconds_count 3
"#;
        assert_eq!(text.finish(), want);
    }
}
