//! The server's soak, in the release profile.

use crate::shell::{self, Outcome, cargo};

/// Runs it; arguments (`--minutes 10 --seed 1 --actors 24`) are the program's own.
pub(crate) fn run(args: &[String]) -> Outcome {
    let mut soak = cargo();
    soak.args([
        "bench", "--locked", "--quiet", "-p", "server", "--bench", "soak", "--",
    ]);
    shell::run(soak.args(args))
}
