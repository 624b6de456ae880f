//! The commands of README.md and `docs/*.md`, run as a reader would on the built-in model.

use crate::shell::{self, Outcome, root};
use std::process::Command;

/// Runs every command with the release binary, or with the one that `--debug` or `--binary PATH` chooses.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (binary, _) = shell::binary(args)?;
    let script = root().join("tools/docs/commands.py");
    shell::run(Command::new("python3").arg(script).arg(&binary))
}
