//! The Debian package, by cargo-deb, installed into a folder.

use super::build::Built;
use super::{empty_folder, folder, release_folder, unit};
use crate::shell::{self, Outcome, cargo, output};
use std::path::Path;
use std::process::Command;

/// Files of the package, from its root.
const EXPECTED: [&str; 9] = [
    "usr/bin/millrace",
    "etc/millrace/millrace.yaml",
    "usr/lib/systemd/system/millrace.service",
    "usr/lib/sysusers.d/millrace.conf",
    "usr/share/man/man1/millrace.1.gz",
    "usr/share/bash-completion/completions/millrace",
    "usr/share/zsh/vendor-completions/_millrace",
    "usr/share/doc/millrace/copyright",
    "usr/share/doc/millrace/THIRD-PARTY-LICENSES.txt",
];

/// Builds the package and installs it into a folder.
pub(super) fn run(built: &Built) -> Outcome {
    let told = cargo().args(["deb", "--version"]).output();
    if !told.is_ok_and(|told| told.status.success()) {
        return Err("cargo-deb is not installed: `cargo install --locked cargo-deb`".to_owned());
    }
    let release = release_folder()?;
    let package = release.join(format!("millrace_{}_amd64.deb", built.version));
    shell::run(
        cargo()
            .args([
                "deb",
                "--package",
                "millrace",
                "--no-build",
                "--locked",
                "--output",
            ])
            .arg(&package),
    )?;
    check(built, &package)?;
    println!("\n== dist: {}", package.display());
    Ok(())
}

fn check(built: &Built, package: &Path) -> Outcome {
    let fields = output(Command::new("dpkg-deb").arg("--field").arg(package))?;
    let fields = String::from_utf8_lossy(&fields).into_owned();
    let version = format!("Version: {}", built.version);
    if !fields.lines().any(|line| line.starts_with(&version)) {
        return Err(format!(
            "{} has not the version {}: {fields}",
            package.display(),
            built.version
        ));
    }
    let installed = folder().join("debian");
    empty_folder(&installed)?;
    shell::run(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(package)
            .arg(&installed),
    )?;
    let control = installed.join("DEBIAN");
    shell::run(
        Command::new("dpkg-deb")
            .arg("--control")
            .arg(package)
            .arg(&control),
    )?;
    if let Some(missing) = EXPECTED.iter().find(|path| !installed.join(path).is_file()) {
        return Err(format!("{} has no {missing}", package.display()));
    }
    let text = |name: &str| std::fs::read_to_string(control.join(name)).unwrap_or_default();
    if text("conffiles").trim() != "/etc/millrace/millrace.yaml" {
        return Err(format!("the conffiles are {:?}", text("conffiles")));
    }
    if text("postinst").contains("#DEBHELPER#") || !text("postinst").contains("deb-systemd-helper")
    {
        return Err("postinst does not set the unit up".to_owned());
    }
    for script in ["postinst", "postrm", "prerm"] {
        shell::run(Command::new("sh").arg("-n").arg(control.join(script)))?;
    }
    let binary = installed.join("usr/bin/millrace");
    let settings = installed.join("etc/millrace/millrace.yaml");
    shell::run(
        Command::new(&binary)
            .arg("config")
            .arg("--config")
            .arg(settings),
    )?;
    shell::run(Command::new(&binary).args(["run", "Hello", "-n", "4"]))?;
    unit::check()
}
