//! The metrics of several instances as one text in the Prometheus format: each family once, each sample with the labels
//! `instance` and `role`.

use std::collections::HashMap;
use std::fmt::Write;

/// Families of all instances together. The server has fewer than 200; an instance of another version may have others.
const FAMILIES_MAX: usize = 1000;

/// The text of several instances.
#[derive(Debug, Default)]
pub(super) struct MergedText {
    families: Vec<Family>,
    by_name: HashMap<String, usize>,
    /// Lines that are no samples, and samples of families that another instance describes as another type.
    pub(super) skipped: u64,
}

#[derive(Debug)]
struct Family {
    name: String,
    help: String,
    kind: String,
    samples: String,
}

impl MergedText {
    /// Adds the text of an instance.
    pub(super) fn add(&mut self, text: &str, instance: &str, role: &str) {
        let labels = format!("instance=\"{instance}\",role=\"{role}\"");
        let (mut help, mut family) = (("", ""), None);
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                help = rest.split_once(' ').unwrap_or((rest, ""));
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split_once(' ').and_then(|(name, kind)| {
                    let help = if help.0 == name { help.1 } else { "" };
                    self.family(name, help, kind)
                });
            } else if !line.starts_with('#') {
                match family {
                    Some(index) if self.families[index].push(line, &labels) => {}
                    _ => self.skipped += 1,
                }
            }
        }
    }

    /// Adds a gauge with one sample for each instance.
    pub(super) fn add_gauge(&mut self, name: &str, help: &str, rows: &[(String, &str, f64)]) {
        let text = |value| format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
        for (instance, role, value) in rows {
            self.add(&text(value), instance, role);
        }
    }

    /// The text.
    pub(super) fn finish(self) -> String {
        let mut out = String::new();
        for family in self.families {
            let Family {
                name,
                help,
                kind,
                samples,
            } = family;
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
        out
    }

    /// Index of the family of this name and type.
    fn family(&mut self, name: &str, help: &str, kind: &str) -> Option<usize> {
        if let Some(&index) = self.by_name.get(name) {
            return (self.families[index].kind == kind).then_some(index);
        }
        if self.families.len() >= FAMILIES_MAX || !is_name(name) {
            return None;
        }
        let index = self.families.len();
        self.families.push(Family {
            name: name.to_owned(),
            help: help.to_owned(),
            kind: kind.to_owned(),
            samples: String::new(),
        });
        self.by_name.insert(name.to_owned(), index);
        Some(index)
    }
}

impl Family {
    /// Appends a sample with more labels. False: the line is no sample of this family.
    fn push(&mut self, line: &str, labels: &str) -> bool {
        let Some(end) = line.find(['{', ' ']) else {
            return false;
        };
        let (name, rest) = line.split_at(end);
        let suffix = name.strip_prefix(self.name.as_str());
        if !suffix.is_some_and(|suffix| matches!(suffix, "" | "_bucket" | "_sum" | "_count")) {
            return false;
        }
        let (own, value) = match rest.strip_prefix('{') {
            None => ("", rest),
            Some(rest) => match rest.rsplit_once('}') {
                Some(parts) => parts,
                None => return false,
            },
        };
        let is_value = value
            .strip_prefix(' ')
            .is_some_and(|value| value.parse::<f64>().is_ok());
        if !is_value {
            return false;
        }
        self.samples.push_str(name);
        self.samples.push('{');
        self.samples.push_str(labels);
        if !own.is_empty() {
            self.samples.push(',');
            push_renamed(own, &mut self.samples);
        }
        self.samples.push('}');
        self.samples.push_str(value);
        self.samples.push('\n');
        true
    }
}

/// Labels of a sample that have the names of added ones get the prefix `exported_`, as in Prometheus.
fn push_renamed(labels: &str, out: &mut String) {
    let mut rest = labels;
    while !rest.is_empty() {
        let (label, after) = rest.split_at(label_end(rest));
        if label.starts_with("instance=") || label.starts_with("role=") {
            out.push_str("exported_");
        }
        out.push_str(label);
        rest = after.strip_prefix(',').unwrap_or(after);
        if !rest.is_empty() {
            out.push(',');
        }
    }
}

/// End of the first label: after the quote that closes the value.
fn label_end(labels: &str) -> usize {
    let (mut quotes, mut is_escaped) = (0, false);
    for (at, byte) in labels.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => quotes += 1,
            _ => {}
        }
        if quotes == 2 {
            return at + 1;
        }
    }
    labels.len()
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
    !name.is_empty() && name.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = r#"# HELP m_a_total What it is.
# TYPE m_a_total counter
m_a_total{instance="x",of="1,role=\"2\"",role="y"} 3
# HELP m_b_seconds How long.
# TYPE m_b_seconds histogram
m_b_seconds_bucket{le="+Inf"} 2
m_b_seconds_sum 7.5
m_b_seconds_count 2
"#;

    #[test]
    fn families_of_two_instances_are_written_once() {
        let mut text = MergedText::default();
        text.add(A, "1", "gateway");
        let b = "# HELP m_b_seconds Other words.\n# TYPE m_b_seconds histogram\nm_b_seconds_sum 1\n\
                 # TYPE m_c gauge\nm_c 4\n";
        text.add(b, "2", "engine");
        text.add_gauge(
            "m_up",
            "Whether.",
            &[
                ("1".to_owned(), "gateway", 1.0),
                ("3".to_owned(), "engine", 0.0),
            ],
        );
        assert_eq!(text.skipped, 0);
        let expected = r#"# HELP m_a_total What it is.
# TYPE m_a_total counter
m_a_total{instance="1",role="gateway",exported_instance="x",of="1,role=\"2\"",exported_role="y"} 3
# HELP m_b_seconds How long.
# TYPE m_b_seconds histogram
m_b_seconds_bucket{instance="1",role="gateway",le="+Inf"} 2
m_b_seconds_sum{instance="1",role="gateway"} 7.5
m_b_seconds_count{instance="1",role="gateway"} 2
m_b_seconds_sum{instance="2",role="engine"} 1
# HELP m_c 
# TYPE m_c gauge
m_c{instance="2",role="engine"} 4
# HELP m_up Whether.
# TYPE m_up gauge
m_up{instance="1",role="gateway"} 1
m_up{instance="3",role="engine"} 0
"#;
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn lines_that_are_no_samples_are_left_out() {
        let rows = [
            ("m_x 1\n", 1),
            ("# TYPE m_a_total gauge\nm_a_total 1\n", 1),
            ("# TYPE m_a_total counter\nm_other 1\n", 1),
            ("# TYPE m_a_total counter\nm_a_total{a=\"b\n", 1),
            ("# TYPE m_a_total counter\nm_a_total one\n", 1),
            ("# TYPE m a\nm_a_total 2\n", 1),
            ("<html>\n</html>\n", 2),
            (
                "# TYPE m_a_total counter\n# a comment\n\nm_a_total +Inf\n",
                0,
            ),
        ];
        for (broken, skipped) in rows {
            let mut text = MergedText::default();
            text.add(A, "1", "all");
            text.add(broken, "2", "all");
            assert_eq!(text.skipped, skipped, "{broken}");
        }
    }
}
