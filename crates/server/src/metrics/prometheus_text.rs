//! The Prometheus text format, version 0.0.4.

use super::family_table::{FamilyKind, MetricFamily};
use gateway::metrics::histogram::Distribution;
use std::fmt::Write;
use std::time::Duration;

/// The content type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A value of a sample.
pub(super) trait SampleValue {
    /// As the format has it: seconds for a time, 1 or 0 for a condition.
    fn number(self) -> f64;
}

impl SampleValue for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl SampleValue for u64 {
    fn number(self) -> f64 {
        self as f64
    }
}

impl SampleValue for usize {
    fn number(self) -> f64 {
        self as f64
    }
}

impl SampleValue for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

impl SampleValue for Duration {
    fn number(self) -> f64 {
        self.as_secs_f64()
    }
}

/// A writer of samples. Names, types and labels are those of the table; a family that is not in the table is left out.
#[derive(Default)]
pub(super) struct PrometheusText {
    out: String,
}

impl PrometheusText {
    /// A family with one sample, without labels.
    pub(super) fn value(&mut self, name: &str, value: impl SampleValue) {
        self.samples(name, [([], value)]);
    }

    /// A family with one sample for each row: the values of the labels, and the sample's value.
    pub(super) fn samples<'a, const N: usize, V: SampleValue>(
        &mut self,
        name: &str,
        rows: impl IntoIterator<Item = ([&'a str; N], V)>,
    ) {
        let Some(family) = self.begin(name) else {
            return;
        };
        debug_assert!(family.labels.len() == N, "labels of {name}");
        debug_assert!(family.kind != FamilyKind::Histogram, "{name}");
        for (labels, value) in rows {
            self.write_sample(family, "", &labels, None, value.number());
        }
    }

    /// A histogram; the buckets are cumulated.
    pub(super) fn histogram(&mut self, name: &str, distribution: &Distribution) {
        let Some(family) = self.begin(name) else {
            return;
        };
        debug_assert!(family.kind == FamilyKind::Histogram, "{name}");
        let mut below = 0;
        for (&bound, &count) in distribution.bounds.iter().zip(&distribution.counts) {
            below += count;
            self.write_sample(family, "_bucket", &[], Some(bound), below as f64);
        }
        let all = distribution.sample_count() as f64;
        self.write_sample(family, "_bucket", &[], Some(f64::INFINITY), all);
        self.write_sample(family, "_sum", &[], None, distribution.sum);
        self.write_sample(family, "_count", &[], None, all);
    }

    /// The written text.
    pub(super) fn finish(self) -> String {
        self.out
    }

    /// Writes the head of a family.
    fn begin(&mut self, name: &str) -> Option<&'static MetricFamily> {
        let family = MetricFamily::named(name);
        debug_assert!(family.is_some(), "{name} is not in the table");
        let (help, kind) = (family?.help(), family?.kind.name());
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        family
    }

    fn write_sample(
        &mut self,
        family: &MetricFamily,
        part: &str,
        values: &[&str],
        bound: Option<f64>,
        value: f64,
    ) {
        self.out.push_str(family.name);
        self.out.push_str(part);
        let mut before = '{';
        for (label, value) in family.labels.iter().zip(values) {
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
        text.value("millrace_steps_total", 3_u64);
        text.samples(
            "millrace_attached_total",
            [(["x\"\\\n", "one"], 1.5), (["y", "two"], 0.0)],
        );
        text.histogram(
            "millrace_step_seconds",
            &Distribution {
                bounds: vec![0.0001, 0.25],
                counts: vec![2, 0, 1],
                sum: 7.5,
            },
        );
        let want = r#"# HELP millrace_steps_total steps with a forward pass
# TYPE millrace_steps_total counter
millrace_steps_total 3
# HELP millrace_attached_total ended subscriptions of that kind; outcomes as of millrace_answers_total
# TYPE millrace_attached_total counter
millrace_attached_total{dialect="x\"\\\n",outcome="one"} 1.5
millrace_attached_total{dialect="y",outcome="two"} 0
# HELP millrace_step_seconds duration of a step with a forward pass
# TYPE millrace_step_seconds histogram
millrace_step_seconds_bucket{le="0.0001"} 2
millrace_step_seconds_bucket{le="0.25"} 2
millrace_step_seconds_bucket{le="+Inf"} 3
millrace_step_seconds_sum 7.5
millrace_step_seconds_count 3
"#;
        assert_eq!(text.finish(), want);
    }
}
