//! What a release has: an archive with its checksum, a Debian package, a wheel. Each is unpacked and tried after it was
//! built.
//!
//! ```text
//! build      the binary, and what it says of itself    components  crates in the binary
//! archive    the archive and its check                 licenses    their license texts
//! deb        the Debian package                        sbom        the list of them, as CycloneDX
//! wheel      the Python package                        unit        the systemd unit, checked
//! debian_install  the Debian package in a new Debian
//! ```

mod archive;
mod build;
mod components;
mod deb;
mod debian_install;
mod licenses;
mod sbom;
#[cfg(test)]
mod tests;
mod unit;
mod wheel;

use crate::shell::{Outcome, output, root};
pub(crate) use build::library_floor;
use build::{Built, Kind};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages the binary: `--deb` as a Debian package, which `--install` installs into a new Debian 12, `--wheel` for Python,
/// `--folder` as what an archive has, else as an archive. `--licenses FILE` writes the texts alone, for an image.
/// `--binary PATH` takes a binary that is there already, `--glibc` builds for the host although a static binary could be
/// built, `--gpu` with support of GPUs, for an old C library (needs PyPI).
pub(crate) fn run(args: &[String]) -> Outcome {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let value = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.get(at + 1).map(PathBuf::from)
    };
    let known = [
        "--deb",
        "--install",
        "--wheel",
        "--folder",
        "--glibc",
        "--gpu",
        "--binary",
        "--licenses",
    ];
    let is_value =
        |at: usize| at > 0 && ["--binary", "--licenses"].contains(&args[at - 1].as_str());
    let mut places = 0..args.len();
    if let Some(at) = places.find(|&at| !known.contains(&args[at].as_str()) && !is_value(at)) {
        let (unknown, known) = (&args[at], known.join(", "));
        return Err(format!("dist: unknown argument {unknown:?}: {known}"));
    }
    let kind = match (has("--gpu"), has("--glibc")) {
        (true, _) => Kind::Gpu,
        (false, true) => Kind::Glibc,
        (false, false) => Kind::Static,
    };
    if let Some(file) = value("--licenses") {
        return write_licenses(&file, kind);
    }
    let built = match value("--binary") {
        Some(path) => Built::existing(&path, kind)?,
        None => Built::build(kind)?,
    };
    let share = built.write_share()?;
    if has("--deb") && kind == Kind::Gpu {
        Err("dist: with support of GPUs there are an archive and a wheel".to_owned())
    } else if has("--deb") {
        let package = deb::run(&built, &share)?;
        if has("--install") {
            debian_install::run(&built, &package)
        } else {
            Ok(())
        }
    } else if has("--wheel") {
        wheel::run(&built, &share)
    } else if has("--folder") {
        archive::folder_only(&built, &share)
    } else {
        archive::run(&built, &share)
    }
}

/// Writes the license texts of a binary for this machine's kind of processor: a static one, or one with support of GPUs.
fn write_licenses(file: &Path, kind: Kind) -> Outcome {
    let target = match kind {
        Kind::Gpu => build::host()?,
        Kind::Static | Kind::Glibc => build::STATIC.to_owned(),
    };
    let components = components::Components::of(&target, kind == Kind::Gpu)?;
    create(file.parent().unwrap_or(file))?;
    write(file, &licenses::complete(&components, &target)?)
}

/// The folder of all that is built here.
fn folder() -> PathBuf {
    root().join("target/dist")
}

/// The folder of what is published.
fn release_folder() -> Result<PathBuf, String> {
    let folder = folder().join("release");
    create(&folder)?;
    Ok(folder)
}

/// Writes the checksum of a published file beside it.
fn write_sum(published: &Path) -> Outcome {
    let name = published.file_name().unwrap_or_default();
    let folder = published.parent().unwrap_or(published);
    let sum = output(Command::new("sha256sum").arg(name).current_dir(folder))?;
    let beside = format!("{}.sha256", published.display());
    write(Path::new(&beside), &String::from_utf8_lossy(&sum))
}

/// A new empty folder.
fn empty_folder(path: &Path) -> Outcome {
    if path.exists() {
        std::fs::remove_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    create(path)
}

fn create(path: &Path) -> Outcome {
    std::fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Outcome {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Outcome {
    let copied = std::fs::copy(from, to);
    copied
        .map(drop)
        .map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}
