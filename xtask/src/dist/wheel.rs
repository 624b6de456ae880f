//! The wheel for Python's package managers, installed into an environment of its own.

use super::build::{self, FEATURES, STATIC};
use super::{empty_folder, folder, release_folder};
use crate::shell::{self, Outcome, output, python, root};
use std::process::Command;

/// The builder of wheels from PyPI.
const MATURIN: &str = "maturin>=1.9,<2";

/// Builds the wheel and runs the binary that it installs.
pub(super) fn run(is_glibc: bool) -> Outcome {
    let is_static = !is_glibc && build::can_be_static();
    let maturin = python("maturin", &[MATURIN], &[])?.with_file_name("maturin");
    let built = folder().join("wheel");
    empty_folder(&built)?;
    let mut command = Command::new(&maturin);
    command
        .args([
            "build",
            "--release",
            "--locked",
            "--features",
            FEATURES,
            "--out",
        ])
        .arg(&built)
        .current_dir(root().join("deploy/wheel"));
    match is_static {
        true => command.args(["--target", STATIC]),
        // Without tools that look into the binary, the wheel is for machines like this one.
        false => command.args(["--compatibility", "linux"]),
    };
    shell::run(&mut command)?;
    let wheel = std::fs::read_dir(&built)
        .map_err(|e| format!("{}: {e}", built.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ending| ending == "whl"))
        .ok_or_else(|| format!("{} has no wheel", built.display()))?;
    let environment = folder().join("environment");
    empty_folder(&environment)?;
    shell::run(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    )?;
    let program = |name: &str| environment.join("bin").join(name);
    shell::run(
        Command::new(program("python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-index",
            ])
            .arg(&wheel),
    )?;
    let told = output(Command::new(program("millrace")).arg("version"))?;
    build::version_of(&String::from_utf8_lossy(&told))?;
    shell::run(Command::new(program("millrace")).args(["run", "Hello", "-n", "4"]))?;
    let name = wheel.file_name().unwrap_or_default();
    let published = release_folder()?.join(name);
    super::copy(&wheel, &published)?;
    println!("\n== dist: {}", published.display());
    Ok(())
}
