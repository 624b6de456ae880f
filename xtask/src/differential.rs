//! Our answer parser beside other people's, on our goldens.

use crate::shell::{self, Outcome, cargo, root};

/// Builds `tools/differential`, a workspace of its own, and runs it with the caller's arguments.
pub(crate) fn run(args: &[String]) -> Outcome {
    let target = root().join("target").join("differential");
    shell::run(
        cargo()
            .args(["run", "--locked", "--manifest-path"])
            .arg(root().join("tools/differential/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .arg("--")
            .args(args),
    )
}
