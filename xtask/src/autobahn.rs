//! Autobahn's suite of WebSocket cases, unmodified, against the server's session with a handler that sends messages back.
//!
//! The suite needs Python 2.7, which a root of Debian bullseye has (a minute to make, 500 MB); PyPI still has the packages.

use crate::debian_root::{self, DebianRoot};
use crate::shell::{self, Outcome, cargo, python, root, target_dir};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for the root in place of `target/autobahn-root`.
const ROOT_VARIABLE: &str = "MILLRACE_AUTOBAHN_ROOT";

const ROOT: DebianRoot = DebianRoot {
    suite: "bullseye",
    architectures: &[],
    packages: &[
        "python2.7",
        "python2.7-dev",
        "python-pip-whl",
        "gcc",
        "libc6-dev",
        "libffi-dev",
        "libssl-dev",
    ],
};

/// The pip that Debian packed, which installs the last pip for Python 2.7.
const PACKED_PIP: &str = "/usr/share/python-wheels/pip-20.3.4-py2.py3-none-any.whl/pip";
const INSTALLERS: [&str; 3] = ["pip==20.3.4", "setuptools==44.1.1", "wheel==0.37.1"];
/// The suite; it pins most of what it needs itself.
const SUITE: &str = "autobahntestsuite==25.10.1";
/// Certificate authorities, for pip.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// The server that sends messages back, an example of the crate `server`.
const ECHO: &str = "websocket_echo";

/// Runs the suite and writes its page; says SKIPPED where its root cannot be made.
pub(crate) fn run(place: &Path) -> Outcome {
    let folder = std::env::var_os(ROOT_VARIABLE).map_or_else(
        || root().join("target").join("autobahn-root"),
        PathBuf::from,
    );
    let folder = std::path::absolute(&folder).map_err(|why| format!("{folder:?}: {why}"))?;
    if let Err(why) = ROOT.make(&folder).and_then(|()| install(&folder)) {
        println!("\n== SKIPPED, Autobahn's suite did not run: {why}");
        return Ok(());
    }
    shell::run(cargo().args(["build", "--locked", "-p", "server", "--example", ECHO]))?;
    let echo = target_dir()?.join("debug/examples").join(ECHO);
    let python = python("conformance", &crate::conformance::PACKAGES, &[])?;
    shell::run(
        Command::new(python)
            .arg(root().join("tools/conformance/autobahn.py"))
            .args([&echo, &folder])
            .arg(place)
            .arg(root().join("measurements/autobahn.md")),
    )
}

/// Installs the suite into the root, once.
fn install(folder: &Path) -> Outcome {
    let stamp = folder.join("millrace-suite.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == SUITE) {
        return Ok(());
    }
    let failed = |path: &Path, why: std::io::Error| format!("{}: {why}", path.display());
    // Those of this machine, which may have more than Debian's.
    let (theirs, ours) = (Path::new("/").join(AUTHORITIES), folder.join(AUTHORITIES));
    if theirs.exists() {
        let parent = ours.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|why| failed(parent, why))?;
        std::fs::copy(&theirs, &ours).map_err(|why| failed(&ours, why))?;
    }
    let pip = |program: &[&str], packages: &[&str]| {
        let install = ["install", "--quiet", "--no-cache-dir"];
        debian_root::chroot(folder, &[program, &install, packages].concat())
    };
    pip(&["python2.7", PACKED_PIP], &INSTALLERS)?;
    pip(&["python2.7", "-m", "pip"], &[SUITE])?;
    std::fs::write(&stamp, SUITE).map_err(|why| failed(&stamp, why))
}
