//! The Debian package in a new Debian: installed, run as its user, upgraded, removed and purged.

use super::build::Built;
use super::{copy, empty_folder, folder, write};
use crate::debian_root::DebianRoot;
use crate::shell::{self, Outcome, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for the root in place of `target/debian-root`, which is copied for each run.
const ROOT_VARIABLE: &str = "MILLRACE_DEBIAN_ROOT";

const ROOT: DebianRoot = DebianRoot {
    suite: "bookworm",
    architectures: &[],
    packages: &["systemd"],
};

/// What is done in the root; the first error ends it.
const STEPS: &str = include_str!("debian_install.sh");

/// Runs the script in a copy of the root, with a view of mounts of its own; services of the machine are not reached.
const ENTER: &str = r#"
set -eu
mount -t proc proc "$1/proc"
exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive sh /opt/steps.sh "$2"
"#;

/// Installs the package; says SKIPPED where no root can be made.
pub(super) fn run(built: &Built, package: &Path) -> Outcome {
    let base = std::env::var_os(ROOT_VARIABLE)
        .map_or_else(|| root().join("target/debian-root"), PathBuf::from);
    if let Err(why) = ROOT.make(&base) {
        println!("\n== dist: the package was NOT INSTALLED (SKIPPED): {why}");
        return Ok(());
    }
    let new = folder().join("debian-new");
    empty_folder(&new)?;
    let whole = base.join(".");
    shell::run(
        Command::new("cp")
            .args(["--archive", "--reflink=auto"])
            .args([&whole, &new]),
    )?;
    copy(package, &new.join("opt/millrace.deb"))?;
    write(&new.join("opt/steps.sh"), STEPS)?;
    let outcome = shell::run(
        Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "sh", "-c", ENTER, "sh"])
            .arg(&new)
            .arg(&built.version),
    );
    std::fs::remove_dir_all(&new).map_err(|why| format!("{}: {why}", new.display()))?;
    outcome
}
