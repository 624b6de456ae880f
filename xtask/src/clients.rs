//! Other people's clients against our server: each suite starts the release binary on a synthetic
//! model and talks to it over loopback.

use crate::shell::{self, Outcome, python, release_binary, root};
use std::process::Command;

/// The packages of the suites, pinned: a suite tests us, not the registry's mood.
const PACKAGES: [&str; 3] = ["anthropic==2.11.0", "openai==3.52.0", "websockets==17.4"];
/// The suites, in `tools/clients`.
const SUITES: [&str; 3] = ["anthropic_suite.py", "openai_suite.py", "websockets_suite.py"];

/// Runs every suite in `tools/clients`.
pub(crate) fn run() -> Outcome {
    let binary = release_binary()?;
    let python = python("clients", &PACKAGES, &[])?;
    let folder = root().join("tools/clients");
    SUITES.iter().try_for_each(|suite| {
        let suite = folder.join(suite);
        shell::run(Command::new(&python).arg(suite).arg(&binary))
    })
}
