//! Everything a change must pass.

use crate::shell::{self, Outcome, cargo};
use crate::tidy;
use std::process::Stdio;

/// Format, lints, tidy, tests, interleavings, doc tests, licences.
pub(crate) fn run() -> Outcome {
    cargo_runs("fmt --all --check")?;
    tidy::run()?;
    cargo_runs("clippy --locked --workspace --all-targets --quiet -- -D warnings")?;
    // Not `--all-targets`: that would run the benchmarks too, which clippy has compiled.
    cargo_runs("test --locked --workspace --lib --bins --tests --examples --quiet")?;
    cargo_runs("test --locked --workspace --doc --quiet")?;
    // The pool's protocol; the logs' is checked by `stream`'s own tests, under loom and shuttle.
    cargo_runs("test --locked --quiet -p kernels --features shuttle --lib")?;
    cargo_runs("test --locked --quiet -p stream --features futures-core --test rings")?;
    // The exporter is built by whoever wants it, so it is linted and tested beside what everybody builds.
    cargo_runs(
        "clippy --locked --workspace --features millrace/otlp --all-targets --quiet -- -D warnings",
    )?;
    cargo_runs(
        "test --locked --quiet --workspace --features millrace/otlp --test otlp --test dashboard",
    )?;
    deny()
}

fn cargo_runs(line: &str) -> Outcome {
    shell::run(cargo().args(line.split(' ')))
}

/// Licences, advisories and bans, where the tool is installed. The bans are also checked by
/// `tidy`, which needs nothing.
fn deny() -> Outcome {
    let mut probe = cargo();
    probe
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        println!("\n== cargo deny: skipped, not installed (`cargo install cargo-deny`)");
        return Ok(());
    }
    shell::run(cargo().args(["deny", "--offline", "check", "bans", "licenses", "sources"]))
}
