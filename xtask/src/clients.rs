//! Other people's clients against our server: each suite starts the release binary on a synthetic
//! model and talks to it over loopback.

use crate::conformance;
use crate::shell::{self, Outcome, node_modules, python, release_binary, root};
use std::process::Command;

/// The packages of the suites, pinned: a suite tests us, not the registry's mood.
const PACKAGES: [&str; 4] = [
    "anthropic==2.11.0",
    "ollama==0.6.3",
    "openai==3.52.0",
    "websockets==17.4",
];
/// The suites, in `tools/clients`.
const SUITES: [&str; 5] = [
    "anthropic_suite.py",
    "ollama_suite.py",
    "openai_responses_suite.py",
    "openai_suite.py",
    "websockets_suite.py",
];
/// The same of the suites for Node.
pub(crate) const NODE_PACKAGES: [&str; 1] = ["ollama@0.6.4"];
const NODE_SUITES: [&str; 1] = ["ollama_suite.mjs"];

/// Runs every suite in `tools/clients`.
pub(crate) fn run() -> Outcome {
    let binary = release_binary()?;
    let python = python("clients", &PACKAGES, &[])?;
    let folder = root().join("tools/clients");
    SUITES.iter().try_for_each(|suite| {
        let suite = folder.join(suite);
        shell::run(Command::new(&python).arg(suite).arg(&binary))
    })?;
    let Some(packages) = node_modules("clients", &NODE_PACKAGES)? else {
        println!(
            "\n== {}: skipped, npm is not installed",
            NODE_SUITES.join(", ")
        );
        return conformance::fast(&binary);
    };
    NODE_SUITES.iter().try_for_each(|suite| {
        let suite = folder.join(suite);
        shell::run(Command::new("node").arg(suite).arg(&binary).arg(&packages))
    })?;
    conformance::fast(&binary)
}
