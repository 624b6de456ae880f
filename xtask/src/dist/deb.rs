//! The Debian package: built by cargo-deb, as `package.metadata.deb` of crate `millrace` says, and unpacked into a folder.

use super::build::{self, Built, STATIC};
use super::{empty_folder, folder, release_folder, unit, write};
use crate::shell::{self, Outcome, cargo_program, output, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that builds the package, from crates.io.
const CARGO_DEB: (&str, &str) = ("cargo-deb", "3.8.0");
/// The settings file, which is kept at upgrades.
const CONFFILE: &str = "etc/millrace/millrace.yaml";
/// Files that users, systemd or Debian's policy expect; cargo-deb refuses a package for which one of its sources is missing.
const EXPECTED: [&str; 9] = [
    CONFFILE,
    "etc/millrace/environment",
    "usr/bin/millrace",
    "usr/lib/systemd/system/millrace.service",
    "usr/lib/sysusers.d/millrace.conf",
    "usr/share/bash-completion/completions/millrace",
    "usr/share/doc/millrace/changelog.gz",
    "usr/share/doc/millrace/copyright",
    "usr/share/man/man1/millrace.1.gz",
];
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the package and unpacks it; returns its path.
pub(super) fn run(built: &Built, share: &Path) -> Result<PathBuf, String> {
    write_changelog(&built.version, share)?;
    let (version, architecture) = (&built.version, architecture(built));
    let package = release_folder()?.join(format!("millrace_{version}_{architecture}.deb"));
    let (name, tool_version) = CARGO_DEB;
    shell::run(
        Command::new(cargo_program(name, tool_version)?)
            .args(["--package", "millrace", "--no-build", "--no-strip"])
            .args(["--target", &built.target, "--output"])
            .arg(&package)
            .current_dir(root())
            .env("SOURCE_DATE_EPOCH", build::commit_time()?),
    )?;
    check(built, &package)?;
    super::write_sum(&package)?;
    println!("\n== dist: {}", package.display());
    Ok(package)
}

/// Writes Debian's changelog, compressed as its policy asks.
fn write_changelog(version: &str, share: &Path) -> Outcome {
    let changelog = share.join("changelog");
    let date = output(
        Command::new("date")
            .args(["--utc", "--rfc-email"])
            .arg(format!("--date=@{}", build::commit_time()?)),
    )?;
    let date = String::from_utf8_lossy(&date).trim().to_owned();
    write(&changelog, &debian_changelog(version, &date))?;
    shell::run(Command::new("gzip").arg("-9n").arg(&changelog))
}

/// Debian's changelog; what changed for users is in NEWS.md.
pub(super) fn debian_changelog(version: &str, date: &str) -> String {
    format!(
        "millrace ({version}) unstable; urgency=medium\n\n  \
         * New version; /usr/share/doc/millrace/NEWS.md says what changed.\n\n \
         -- The Millrace authors <millrace@localhost>  {date}\n"
    )
}

/// Debian's name of the processor.
fn architecture(built: &Built) -> &'static str {
    match built.processor() {
        "aarch64" => "arm64",
        _ => "amd64",
    }
}

fn check(built: &Built, package: &Path) -> Outcome {
    let field = |name: &str| -> Result<String, String> {
        let told = output(
            Command::new("dpkg-deb")
                .arg("--field")
                .arg(package)
                .arg(name),
        )?;
        Ok(String::from_utf8_lossy(&told).trim().to_owned())
    };
    let version = field("Version")?;
    if version != built.version {
        let (package, wanted) = (package.display(), &built.version);
        return Err(format!("{package} has version {version}, not {wanted}"));
    }
    // Without dpkg-shlibdeps, cargo-deb names no C library, and only warns.
    let depends = field("Depends")?;
    if built.target != STATIC && !depends.contains("libc6 (>= ") {
        return Err(format!(
            "{} depends on no version of the C library: {depends} (is dpkg-dev installed?)",
            package.display()
        ));
    }
    let installed = folder().join("debian-installed");
    empty_folder(&installed)?;
    let extract = ["--extract".as_ref(), package, installed.as_path()];
    shell::run(Command::new("dpkg-deb").args(extract))?;
    if let Some(missing) = EXPECTED.iter().find(|path| !installed.join(path).is_file()) {
        return Err(format!("{} has no {missing}", package.display()));
    }
    for script in SCRIPTS {
        let script = root().join("deploy/debian").join(script);
        shell::run(Command::new("sh").arg("-n").arg(script))?;
    }
    let binary = installed.join("usr/bin/millrace");
    shell::run(
        Command::new(&binary)
            .args(["config", "--config"])
            .arg(installed.join(CONFFILE)),
    )?;
    shell::run(Command::new(&binary).args(["run", "Hello", "-n", "4"]))?;
    create_user(&installed)?;
    unit::check()
}

/// Has systemd create the package's user in the folder.
fn create_user(installed: &Path) -> Outcome {
    let version = Command::new("systemd-sysusers").arg("--version").output();
    if !version.is_ok_and(|told| told.status.success()) {
        println!("\n== dist: the user is NOT CHECKED, systemd-sysusers is not installed");
        return Ok(());
    }
    shell::run(
        Command::new("systemd-sysusers")
            .arg(format!("--root={}", installed.display()))
            .arg("millrace.conf"),
    )?;
    let users = installed.join("etc/passwd");
    let users = std::fs::read_to_string(&users).map_err(|e| format!("{}: {e}", users.display()))?;
    if users.lines().any(|line| line.starts_with("millrace:")) {
        Ok(())
    } else {
        Err(format!(
            "systemd-sysusers created no user millrace: {users}"
        ))
    }
}
