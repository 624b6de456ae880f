//! Everything a change must pass.

use crate::shell::{self, Outcome, cargo};
use crate::skipped_tests::SkippedTests;
use crate::{test_programs, tidy};
use std::process::Stdio;

/// The features that have tests: one build for all of them.
const FEATURES: &str = "--features stream/futures-core,millrace/gpu";

/// Format, lints, tidy, tests, interleavings, doc tests, licences. The last lines say what was skipped, and why.
pub(crate) fn run() -> Outcome {
    let skipped = SkippedTests::begin()?;
    let outcome = run_all(&skipped);
    skipped.show();
    outcome
}

fn run_all(skipped: &SkippedTests) -> Outcome {
    cargo_runs("fmt --all --check")?;
    tidy::run(&[])?;
    cargo_runs(&format!(
        "clippy --locked --workspace {FEATURES} --all-targets --quiet -- -D warnings"
    ))?;
    // Not `--all-targets`: clippy has compiled the benchmarks and examples, which have no tests.
    let wanted = format!("--locked --workspace {FEATURES} --lib --bins --tests --quiet");
    test_programs::run(&wanted, skipped)?;
    cargo_runs(&format!(
        "test --locked --workspace {FEATURES} --doc --quiet"
    ))?;
    deny(skipped)
}

fn cargo_runs(line: &str) -> Outcome {
    let mut cargo = cargo();
    cargo.env("CARGO_INCREMENTAL", shell::incremental());
    shell::run(cargo.args(line.split(' ')))
}

/// Licences, advisories and bans, where the tool is installed. The bans are also checked by
/// `tidy`, which needs nothing.
fn deny(skipped: &SkippedTests) -> Outcome {
    let mut probe = cargo();
    probe
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        skipped.note("cargo deny", "not installed (`cargo install cargo-deny`)");
        return Ok(());
    }
    shell::run(cargo().args(["deny", "--offline", "check", "bans", "licenses", "sources"]))
}
