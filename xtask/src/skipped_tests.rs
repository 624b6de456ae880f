//! What a run of the tests has skipped, and why.

use crate::shell::root;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file that tests write to (`testing::program`): a test, a tab, and the reason in each line.
pub(crate) struct SkippedTests(PathBuf);

impl SkippedTests {
    /// An empty file.
    pub(crate) fn begin() -> Result<Self, String> {
        let file = root().join("target").join("skipped-tests.txt");
        let told = |why| format!("{}: {why}", file.display());
        std::fs::create_dir_all(root().join("target")).map_err(told)?;
        std::fs::write(&file, "").map_err(told)?;
        Ok(Self(file))
    }

    pub(crate) fn file(&self) -> &Path {
        &self.0
    }

    /// Notes a check that is no test.
    pub(crate) fn note(&self, name: &str, why: &str) {
        let file = OpenOptions::new().append(true).open(&self.0);
        let noted = file.and_then(|mut file| writeln!(file, "{name}\t{why}"));
        if let Err(error) = noted {
            println!("{}: {error}\n{name} was skipped: {why}", self.0.display());
        }
    }

    /// Shows what was skipped, by reason.
    pub(crate) fn show(&self) {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        println!("\n{}", summary(&text));
    }
}

fn summary(text: &str) -> String {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, why) in text.lines().filter_map(|line| line.split_once('\t')) {
        reasons.entry(why).or_default().push(name);
    }
    if reasons.is_empty() {
        return "== nothing was skipped".to_owned();
    }
    let lines = reasons.into_iter().map(|(why, mut names)| {
        names.sort_unstable();
        names.dedup();
        format!("\n  {why}: {}", names.join(", "))
    });
    format!("== SKIPPED:{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_listed_by_reason() {
        assert_eq!(summary(""), "== nothing was skipped");
        let text = "b::two\tno nats-server\na::one\tno node\na::one\tno nats-server\n";
        let expected = "== SKIPPED:\n  no nats-server: a::one, b::two\n  no node: a::one";
        assert_eq!(summary(text), expected);
    }
}
