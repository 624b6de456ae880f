//! The binary of a release, and the files that it writes about itself.

use super::components::Components;
use super::{copy, create, empty_folder, folder, licenses, sbom, write};
use crate::shell::{self, Outcome, cargo, output, python, root, target_dir};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target whose binaries are static, so that they run on every Linux on this kind of processor.
pub(super) const STATIC: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-musl"
} else {
    "x86_64-unknown-linux-musl"
};

/// The oldest C library that a binary with support of GPUs runs on: Debian 10, RHEL 8, Ubuntu 18.10.
const GPU_LIBRARY: (u32, u32) = (2, 28);
/// The linker that takes an old C library on any system, from PyPI.
const ZIG: [&str; 2] = ["cargo-zigbuild==0.24.1", "ziglang==0.17.1"];

/// The kind of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Static where this machine can build that, else as `Glibc`.
    Static,
    /// For the C library of this machine.
    Glibc,
    /// With support of GPUs. A static binary cannot open a driver, so this one needs a C library, an old one.
    Gpu,
}

/// A binary to package.
pub(super) struct Built {
    pub(super) binary: PathBuf,
    /// The target as Rust names it.
    pub(super) target: String,
    pub(super) version: String,
    pub(super) kind: Kind,
}

impl Built {
    /// The kind of processor, as Rust names it.
    pub(super) fn processor(&self) -> &str {
        self.target.split('-').next().unwrap_or_default()
    }

    /// The binary's name among other files.
    pub(super) fn file_name() -> String {
        format!("millrace{}", std::env::consts::EXE_SUFFIX)
    }

    /// The name of packages without their ending.
    pub(super) fn package_name(&self) -> String {
        let gpu = if self.kind == Kind::Gpu { "-gpu" } else { "" };
        format!("millrace-{}-{}{gpu}", self.version, self.target)
    }

    /// Builds the binary.
    pub(super) fn build(kind: Kind) -> Result<Self, String> {
        if kind == Kind::Gpu {
            return Self::build_for_gpus();
        }
        let is_static = kind == Kind::Static && cfg!(target_os = "linux") && can_be_static();
        let target = if is_static {
            STATIC.to_owned()
        } else {
            host()?
        };
        let mut build = cargo();
        build.args(["build", "--profile", "packaged", "--locked"]);
        build.args(["--package", "millrace"]);
        let mut binary = target_dir()?;
        if target == STATIC {
            build.args(["--target", STATIC]);
            binary.push(STATIC);
        }
        shell::run(&mut build)?;
        let binary = binary.join("packaged").join(Self::file_name());
        Self::stripped(&binary, target, kind)
    }

    /// Builds the binary with support of GPUs for this machine's kind of processor.
    fn build_for_gpus() -> Result<Self, String> {
        let target = host()?;
        let python = python("zigbuild", &ZIG, &[])?;
        let mut path = vec![python.parent().unwrap_or(&python).to_owned()];
        path.extend(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        ));
        let path = std::env::join_paths(path).map_err(|why| why.to_string())?;
        let mut build = cargo();
        build.arg("zigbuild").env("PATH", path);
        build.args(["--profile", "packaged", "--locked", "--package", "millrace"]);
        build.args(["--features", "gpu", "--target"]);
        let (major, minor) = GPU_LIBRARY;
        shell::run(build.arg(format!("{target}.{major}.{minor}")))?;
        let binary = target_dir()?.join(&target).join("packaged");
        let built = Self::stripped(&binary.join(Self::file_name()), target, Kind::Gpu)?;
        let floor = library_floor(&built.binary)?;
        if floor > GPU_LIBRARY {
            return Err(format!(
                "the binary needs glibc {}.{}, newer than {major}.{minor}",
                floor.0, floor.1
            ));
        }
        Ok(built)
    }

    /// A binary that was built before.
    pub(super) fn existing(binary: &Path, kind: Kind) -> Result<Self, String> {
        let target = if is_static(binary)? {
            STATIC.to_owned()
        } else {
            host()?
        };
        Self::stripped(binary, target, kind)
    }

    fn stripped(binary: &Path, target: String, kind: Kind) -> Result<Self, String> {
        create(&folder())?;
        let stripped = folder().join(Self::file_name());
        if cfg!(windows) {
            // What could be stripped is in a file of its own there.
            copy(binary, &stripped)?;
        } else {
            shell::run(Command::new("strip").arg("-o").arg(&stripped).arg(binary))?;
        }
        let told = output(Command::new(&stripped).arg("version"))?;
        let version = version_of(&String::from_utf8_lossy(&told))?;
        Ok(Self {
            binary: stripped,
            target,
            version,
            kind,
        })
    }

    /// Writes everything that is packaged beside the binary into a folder: manual pages, completions, licenses, the
    /// list of components.
    pub(super) fn write_share(&self) -> Result<PathBuf, String> {
        let share = folder().join("share");
        empty_folder(&share)?;
        let (man, completions) = (share.join("man"), share.join("completions"));
        create(&man)?;
        create(&completions)?;
        shell::run(Command::new(&self.binary).arg("man").arg(&man))?;
        for (shell, file) in [
            ("bash", "millrace.bash"),
            ("zsh", "_millrace"),
            ("fish", "millrace.fish"),
        ] {
            let script = output(Command::new(&self.binary).args(["completions", shell]))?;
            write(&completions.join(file), &String::from_utf8_lossy(&script))?;
        }
        let components = Components::of(&self.target, self.kind == Kind::Gpu)?;
        write(
            &share.join("THIRD-PARTY-LICENSES.txt"),
            &licenses::complete(&components, &self.target)?,
        )?;
        write(
            &share.join("millrace.cdx.json"),
            &sbom::document(&components, &self.version),
        )?;
        for name in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
            copy(&root().join(name), &share.join(name))?;
        }
        Ok(share)
    }
}

/// Whether the standard library and the C compiler of the static target are installed; says what is missing.
pub(super) fn can_be_static() -> bool {
    let installed = Command::new("rustup")
        .args(["target", "list", "--installed"])
        .output();
    let has_target = installed.is_ok_and(|told| {
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        told.lines().any(|line| line == STATIC)
    });
    let compiler = Command::new("musl-gcc").arg("--version").output();
    let has_compiler = compiler.is_ok_and(|told| told.status.success());
    if !has_target || !has_compiler {
        println!(
            "\n== dist: NOT STATIC, a binary that needs this machine's C library or a newer one. For a static one: \
             `rustup target add {STATIC}`, and Debian's musl-tools"
        );
    }
    has_target && has_compiler
}

/// Whether a binary needs no dynamic linker.
pub(super) fn is_static(binary: &Path) -> Result<bool, String> {
    let headers = output(Command::new("readelf").arg("--program-headers").arg(binary))?;
    Ok(!String::from_utf8_lossy(&headers).contains("INTERP"))
}

/// The oldest version of glibc that has all symbols of the binary.
pub(crate) fn library_floor(binary: &Path) -> Result<(u32, u32), String> {
    let symbols = output(
        Command::new("readelf")
            .args(["--dyn-syms", "--wide"])
            .arg(binary),
    )?;
    let floor = glibc_floor(&String::from_utf8_lossy(&symbols));
    floor.ok_or_else(|| "the binary names no version of the C library".to_owned())
}

/// The newest version of glibc among symbols such as `memcpy@GLIBC_2.14`.
pub(super) fn glibc_floor(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("@GLIBC_").skip(1).filter_map(|rest| {
        let version = rest
            .split(|c: char| c != '.' && !c.is_ascii_digit())
            .next()?;
        let mut numbers = version.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

/// The compiler's own target.
pub(super) fn host() -> Result<String, String> {
    let told = output(Command::new("rustc").arg("-vV"))?;
    let told = String::from_utf8_lossy(&told).into_owned();
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// The version in what `millrace version` prints.
pub(super) fn version_of(told: &str) -> Result<String, String> {
    let version = told.trim().strip_prefix("millrace ");
    version
        .map(str::to_owned)
        .ok_or_else(|| format!("`millrace version` printed {told:?}"))
}

/// The time of the last commit, so that an archive of the same commit has the same bytes.
pub(super) fn commit_time() -> Result<String, String> {
    let told = output(
        Command::new("git")
            .current_dir(root())
            .args(["log", "-1", "--format=%ct"]),
    )?;
    Ok(String::from_utf8_lossy(&told).trim().to_owned())
}

/// Compares a file with a checksum beside it.
pub(super) fn check_sum(folder: &Path, sum: &str) -> Outcome {
    shell::run(
        Command::new("sha256sum")
            .args(["--check", sum])
            .current_dir(folder),
    )
}
