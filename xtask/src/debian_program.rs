//! Programs from Debian that are used where they are installed, and unpacked under `target/` where not.

use crate::shell::{self, root};
use std::path::PathBuf;
use std::process::Command;

/// For a cluster.
pub(crate) const NATS_SERVER: &str = "nats-server";
/// In front of gateways.
pub(crate) const NGINX: &str = "nginx";

/// A program that is installed, or else unpacked from Debian's package of the same name, which starts no service.
pub(crate) fn debian_program(name: &str) -> Result<Option<PathBuf>, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = root().join("target/cluster/debian");
    let mut places: Vec<_> = std::env::split_paths(&path).collect();
    places.extend(["/usr/sbin".into(), unpacked.join("usr/sbin")]);
    // An unpacked program may lack its libraries.
    let runs = |program: &PathBuf| {
        let told = Command::new(program).arg("-v").output();
        told.is_ok_and(|told| told.status.success())
    };
    let find = || {
        let programs = places.iter().map(|place| place.join(name));
        programs.into_iter().find(runs)
    };
    if let Some(program) = find() {
        return Ok(Some(program));
    }
    std::fs::create_dir_all(&unpacked).map_err(|e| format!("{}: {e}", unpacked.display()))?;
    // Fresh machines have no lists of packages.
    let script = "apt-get download \"$0\" || { apt-get update && apt-get download \"$0\"; } && dpkg -x \"$0\"_*.deb .";
    let fetched = shell::run(
        Command::new("bash")
            .args(["-c", script, name])
            .current_dir(&unpacked),
    );
    if let Err(why) = fetched {
        println!("{why}");
    }
    Ok(find())
}
