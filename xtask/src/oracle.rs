//! Our logits and tokens against llama.cpp's, on synthetic models of every architecture and format; and towers of images.

use crate::shell::{self, Outcome, cargo, python, root, target_dir};
use std::process::Command;

/// llama.cpp as its Python binding carries it; built from source, a few minutes on two cores.
pub(crate) const PACKAGES: [&str; 5] = [
    "numpy",
    "gguf",
    "--no-binary",
    "llama-cpp-python",
    "llama-cpp-python==0.3.36",
];

/// gcc 12 drops stores that its AMX set-up needs unless dead-store elimination is off.
pub(crate) const BUILD_ENV: [(&str, &str); 4] = [
    ("CFLAGS", "-fno-tree-dse -fno-dse"),
    ("CXXFLAGS", "-fno-tree-dse -fno-dse"),
    (
        "CMAKE_ARGS",
        // With its library for images, `mtmd`.
        "-DGGML_NATIVE=ON -DLLAVA_BUILD=ON",
    ),
    ("CMAKE_BUILD_PARALLEL_LEVEL", "2"),
];

/// Builds our side, then hands over to `tools/oracle/oracle.py` with the caller's arguments; with `--mtmd` to `mtmd.py`, which
/// needs nothing of ours: towers of images.
pub(crate) fn run(args: &[String]) -> Outcome {
    let python = python("oracle", &PACKAGES, &BUILD_ENV)?;
    let scripts = root().join("tools/oracle");
    let mut script = Command::new(python);
    if args.first().is_some_and(|arg| arg == "--mtmd") {
        return shell::run(script.arg(scripts.join("mtmd.py")).args(&args[1..]));
    }
    shell::run(cargo().args(["build", "--release", "-p", "cpu", "--examples"]))?;
    let examples = target_dir()?.join("release").join("examples");
    shell::run(
        script
            .arg(scripts.join("oracle.py"))
            .arg("--examples")
            .arg(examples)
            .args(args),
    )
}
