//! Tests of the kernels for AArch64, compiled here and run under qemu.
//!
//! Rust's own archives are not needed: a root of Debian sid has a compiler, the standard library for AArch64, a linker
//! and qemu. The root is made once (3 GB, two to three minutes) and seen by nothing else: mounts are in a name space of
//! their own, and what is compiled goes to `target/arm`.

use crate::debian_root::DebianRoot;
use crate::shell::{self, Outcome, cargo, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for the root in place of `target/arm-root`.
const ROOT_VARIABLE: &str = "MILLRACE_ARM_ROOT";

/// The root: Debian sid, with packages for AArch64.
const ROOT: DebianRoot = DebianRoot {
    suite: "sid",
    architectures: &["arm64"],
    packages: &[
        "rustc",
        "cargo",
        "libstd-rust-dev:arm64",
        "gcc",
        "libc6-dev",
        "gcc-aarch64-linux-gnu",
        "libc6-dev-arm64-cross",
        "qemu-user",
    ],
};

/// Tests that fail under qemu: one starts its own program, which only qemu can run, and one counts the resident pages of
/// a mapped file, which are always 0 in qemu's `/proc/self/smaps`.
const SKIPPED: [&str; 2] = [
    "forward_pass_does_not_allocate",
    "released_tensors_are_not_resident",
];

/// Tests of `--short`, by parts of their names: of every kernel that has code for NEON, in about a minute.
const SHORT: [&str; 9] = [
    "matmul::tests::largest_quants_and_activations",
    "matmul::tests::groups::groups_equal_products",
    "attention::tests::oracle::eight_bits_are_near_f16",
    "attention::int4::tests",
    "ops::tests::vector_levels_give_equal_bits",
    "recurrent::tests",
    "rope::tests",
    "kv::tests",
    "activations::tests",
];

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Runs a command (`$@`) in the root, with the workspace as `/millrace`, the crates as `/cargo/registry` and `target/arm` as
/// `/target`.
const ENTER: &str = r#"
set -eu
mount --bind "$WORKSPACE" "$ROOT/millrace"
mount --bind "$REGISTRY" "$ROOT/cargo/registry"
mount --bind "$BUILT" "$ROOT/target"
mount -t proc proc "$ROOT/proc"
exec chroot "$ROOT" sh -c 'cd /millrace && exec "$@"' sh "$@"
"#;

/// Makes the root if it is missing, and runs the tests of `kernels`, with `--all` also those of `model` and `engine`, with
/// `--short` those of [`SHORT`] alone; `--check`: compiles the whole binary's code instead, and runs nothing. Further
/// arguments are the test programs' own.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (own, rest): (Vec<_>, Vec<_>) = args
        .iter()
        .partition(|arg| ["--all", "--short", "--check"].contains(&arg.as_str()));
    let has = |flag: &str| own.iter().any(|arg| *arg == flag);
    if let Err(why) = prepare() {
        println!("\n== SKIPPED, nothing was tested for AArch64: {why}");
        return Ok(());
    }
    shell::run(cargo().args(["fetch", "--locked", "--quiet"]))?;
    if has("--check") {
        let mut check = inside(&folder()?)?;
        check.args([
            "cargo",
            "check",
            "--locked",
            "--offline",
            "--target",
            TARGET,
        ]);
        check.args(["-p", "millrace"]);
        return shell::run(&mut check);
    }
    let mut test = inside(&folder()?)?;
    test.args(["cargo", "test", "--locked", "--offline", "--quiet"])
        .args(["--target", TARGET, "-p", "kernels", "--lib"]);
    if has("--all") {
        test.args(["-p", "weights", "-p", "cpu", "-p", "engine"])
            .args(["--tests", "--no-fail-fast"]);
    }
    test.arg("--");
    for name in SKIPPED {
        test.args(["--skip", name]);
    }
    if has("--short") {
        test.args(SHORT);
    }
    shell::run(test.args(rest))
}

/// Makes the root if it is missing; an error says why there can be none.
pub(crate) fn prepare() -> Outcome {
    ROOT.make(&folder()?)
}

/// The folder of the root.
fn folder() -> Result<PathBuf, String> {
    let folder = std::env::var_os(ROOT_VARIABLE)
        .map_or_else(|| root().join("target").join("arm-root"), PathBuf::from);
    std::path::absolute(&folder).map_err(|why| format!("{folder:?}: {why}"))
}

/// The command that runs its further arguments in the root.
fn inside(folder: &Path) -> Result<Command, String> {
    let failed = |what: &Path, why: std::io::Error| format!("{}: {why}", what.display());
    let built = root().join("target").join("arm");
    let folders = ["millrace", "cargo/registry", "target"].map(|name| folder.join(name));
    for made in folders.iter().chain([&built]) {
        std::fs::create_dir_all(made).map_err(|why| failed(made, why))?;
    }
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", ENTER, "sh"])
        .env("WORKSPACE", root())
        .env("ROOT", folder)
        .env("REGISTRY", registry()?)
        .env("BUILT", built)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root")
        .env("CARGO_HOME", "/cargo")
        .env("CARGO_TARGET_DIR", "/target")
        .env("CARGO_INCREMENTAL", "0")
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
            "aarch64-linux-gnu-gcc",
        )
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            "qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu",
        );
    // Of the cargo that runs us; they name files outside of the root.
    for name in [
        "CARGO",
        "RUSTC",
        "RUSTUP_HOME",
        "RUSTUP_TOOLCHAIN",
        "RUSTFLAGS",
    ] {
        command.env_remove(name);
    }
    Ok(command)
}

/// The folder of downloaded crates.
fn registry() -> Result<PathBuf, String> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => {
            let home = std::env::var_os("HOME").ok_or("HOME is not set")?;
            PathBuf::from(home).join(".cargo")
        }
    };
    Ok(home.join("registry"))
}
