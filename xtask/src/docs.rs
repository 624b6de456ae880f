//! The commands of README.md and `docs/*.md`, run as a reader would on the built-in model.

use crate::shell::{self, Outcome, release_binary, root};
use std::process::Command;

/// Builds the release binary and runs every command with it.
pub(crate) fn run() -> Outcome {
    let binary = release_binary()?;
    let script = root().join("tools/docs/commands.py");
    shell::run(Command::new("python3").arg(script).arg(&binary))
}
