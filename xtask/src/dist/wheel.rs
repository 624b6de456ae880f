//! The wheel for Python's package managers, installed into an environment of its own.

use super::build::{self, FEATURES, STATIC};
use super::{copy, empty_folder, folder, release_folder};
use crate::shell::{self, Outcome, output, python, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The builder of wheels, and the tool that names what they run on, from PyPI.
const PACKAGES: [&str; 2] = ["maturin>=1.9,<2", "wheel>=0.45"];
/// Machines that a static binary runs on: those with a C library of GNU and those with musl.
const STATIC_PLATFORMS: &str = "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64";

/// Builds the wheel and runs the binary that it installs.
pub(super) fn run(is_glibc: bool) -> Outcome {
    let is_static = !is_glibc && build::can_be_static();
    let python = python("wheel", &PACKAGES, &[])?;
    let built = folder().join("wheel");
    empty_folder(&built)?;
    let mut command = Command::new(python.with_file_name("maturin"));
    // Without a look into the binary, which may need a newer C library than others have.
    command
        .args(["build", "--release", "--locked", "--compatibility", "linux"])
        .args(["--features", FEATURES, "--out"])
        .arg(&built)
        .current_dir(root().join("deploy/wheel"));
    if is_static {
        command.args(["--target", STATIC]);
    }
    shell::run(&mut command)?;
    if is_static {
        shell::run(
            Command::new(&python)
                .args([
                    "-m",
                    "wheel",
                    "tags",
                    "--remove",
                    "--platform-tag",
                    STATIC_PLATFORMS,
                ])
                .arg(only_wheel(&built)?),
        )?;
    }
    let wheel = only_wheel(&built)?;
    check(&wheel)?;
    let published = release_folder()?.join(wheel.file_name().unwrap_or_default());
    copy(&wheel, &published)?;
    println!("\n== dist: {}", published.display());
    Ok(())
}

/// Installs the wheel into a new environment, without an index, and runs the binary.
fn check(wheel: &Path) -> Outcome {
    let environment = folder().join("environment");
    empty_folder(&environment)?;
    let venv = ["-m", "venv"];
    shell::run(Command::new("python3").args(venv).arg(&environment))?;
    let program = |name: &str| environment.join("bin").join(name);
    shell::run(
        Command::new(program("python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .arg("--no-index")
            .arg(wheel),
    )?;
    let told = output(Command::new(program("millrace")).arg("version"))?;
    build::version_of(&String::from_utf8_lossy(&told))?;
    shell::run(Command::new(program("millrace")).args(["run", "Hello", "-n", "4"]))
}

/// The wheel in a folder.
fn only_wheel(folder: &Path) -> Result<PathBuf, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(|why| failed(&why))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "whl");
    paths.find(is_wheel).ok_or_else(|| failed(&"has no wheel"))
}
