//! The release archive.

use super::build::{self, Built, Kind, STATIC};
use super::{copy, create, empty_folder, folder, release_folder, unit, write, write_sum};
use crate::shell::{self, Outcome, output, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of an archive that a reader of the documentation expects, beside the binary.
const EXPECTED: [&str; 10] = [
    "README.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "THIRD-PARTY-LICENSES.txt",
    "millrace.cdx.json",
    "man/millrace.1",
    "man/millrace-serve.1",
    "completions/millrace.bash",
    "completions/_millrace",
];
/// Those of Linux.
const EXPECTED_LINUX: [&str; 3] = ["millrace", "install.sh", "systemd/millrace.service"];

/// Writes the archive and its checksum, and installs from it.
pub(super) fn run(built: &Built, share: &Path) -> Outcome {
    let name = built.package_name();
    let tree = write_tree(built, share)?;
    let release = release_folder()?;
    let archive = format!("{name}.tar.gz");
    pack(&tree, &name, &release.join(&archive))?;
    write_sum(&release.join(&archive))?;
    copy(
        &share.join("millrace.cdx.json"),
        &release.join(format!("{name}.cdx.json")),
    )?;
    write_sum(&release.join(format!("{name}.cdx.json")))?;
    check(built, &release, &archive)?;
    unit::check()?;
    println!("\n== dist: {}", release.join(&archive).display());
    Ok(())
}

/// Writes what an archive has and runs the binary from there: for systems whose archives are packed by other tools.
pub(super) fn folder_only(built: &Built, share: &Path) -> Outcome {
    let inner = write_tree(built, share)?.join(built.package_name());
    if let Some(missing) = EXPECTED.iter().find(|name| !inner.join(name).is_file()) {
        return Err(format!("{} has no {missing}", inner.display()));
    }
    let binary = inner.join(Built::file_name());
    shell::run(Command::new(binary).args(["run", "Hello", "-n", "4"]))?;
    println!("\n== dist: {}", inner.display());
    Ok(())
}

/// Writes the folder that an archive has, and returns the folder around it.
fn write_tree(built: &Built, share: &Path) -> Result<PathBuf, String> {
    let tree = folder().join("tree");
    empty_folder(&tree)?;
    let inner = tree.join(built.package_name());
    copy_folder(share, &inner)?;
    copy(&built.binary, &inner.join(Built::file_name()))?;
    if !cfg!(target_os = "linux") {
        return Ok(tree);
    }
    create(&inner.join("systemd"))?;
    for (from, to) in [
        ("systemd/millrace.service", "systemd/millrace.service"),
        ("systemd/millrace.sysusers", "systemd/millrace.sysusers"),
        ("millrace.yaml", "millrace.yaml"),
        ("install.sh", "install.sh"),
    ] {
        copy(&root().join("deploy").join(from), &inner.join(to))?;
    }
    Ok(tree)
}

fn copy_folder(from: &Path, to: &Path) -> Outcome {
    let failed = |why: std::io::Error| format!("{}: {why}", from.display());
    create(to)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let (from, to) = entry
            .map(|e| (e.path(), to.join(e.file_name())))
            .map_err(failed)?;
        if from.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            copy(&from, &to)?;
        }
    }
    Ok(())
}

/// Packs a folder so that the same files give the same bytes.
fn pack(tree: &Path, name: &str, archive: &Path) -> Outcome {
    let time = format!("--mtime=@{}", build::commit_time()?);
    shell::run(
        Command::new("tar")
            .args([
                "--sort=name",
                "--owner=0",
                "--group=0",
                "--numeric-owner",
                &time,
            ])
            .args([
                "--mode=u+rw,go+r,go-w",
                "--use-compress-program=gzip -9n",
                "-cf",
            ])
            .arg(archive)
            .arg("-C")
            .arg(tree)
            .arg(name),
    )
}

/// Installs from the archive as a user does, and from a damaged one, which must not be installed.
fn check(built: &Built, release: &Path, archive: &str) -> Outcome {
    build::check_sum(release, &format!("{archive}.sha256"))?;
    let list = output(Command::new("tar").arg("-tzf").arg(release.join(archive)))?;
    let list = String::from_utf8_lossy(&list).into_owned();
    let has = |wanted: &str| {
        list.lines()
            .any(|line| line.split_once('/').is_some_and(|(_, at)| at == wanted))
    };
    let mut expected = EXPECTED.iter().chain(&EXPECTED_LINUX);
    if let Some(missing) = expected.find(|wanted| !has(wanted)) {
        return Err(format!("{archive} has no {missing}"));
    }
    if built.target == STATIC && !build::is_static(&built.binary)? {
        return Err(format!("{} is not static", built.binary.display()));
    }
    let prefix = folder().join("installed");
    empty_folder(&prefix)?;
    install(built, release, archive, &prefix)?;
    shell::run(Command::new(prefix.join("bin/millrace")).args(["run", "Hello", "-n", "4"]))?;
    let damaged = folder().join("damaged");
    empty_folder(&damaged)?;
    copy(
        &release.join(format!("{archive}.sha256")),
        &damaged.join(format!("{archive}.sha256")),
    )?;
    write(&damaged.join(archive), "not the archive")?;
    let other = folder().join("not-installed");
    empty_folder(&other)?;
    match install(built, &damaged, archive, &other) {
        Ok(()) => Err("install.sh installed an archive with a wrong checksum".to_owned()),
        Err(_) if other.join("bin").exists() => {
            Err("install.sh left files of a damaged archive".to_owned())
        }
        Err(_) => Ok(()),
    }
}

/// Runs install.sh on the archives in a folder. Those that are published have names that the script knows.
fn install(built: &Built, from: &Path, archive: &str, prefix: &Path) -> Outcome {
    let mut install = Command::new("sh");
    install.arg(root().join("deploy/install.sh"));
    match built.kind {
        Kind::Gpu => install.env("MILLRACE_GPU", "1"),
        Kind::Static if built.target == STATIC => &mut install,
        Kind::Static | Kind::Glibc => install.arg(archive),
    };
    shell::run(
        install
            .env("MILLRACE_RELEASES", format!("file://{}", from.display()))
            .env("MILLRACE_PREFIX", prefix),
    )
}
