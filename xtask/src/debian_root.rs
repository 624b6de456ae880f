//! A root of another release of Debian, for programs that this machine's release does not have.

use crate::shell::{self, Outcome};
use std::path::Path;
use std::process::{Command, Stdio};

/// Where Debian's packages come from. A mirror may be a snapshot with an old release file.
const MIRROR: &str = "http://deb.debian.org/debian";

/// What a root has.
pub(crate) struct DebianRoot {
    pub(crate) suite: &'static str,
    /// Architectures beside this machine's own.
    pub(crate) architectures: &'static [&'static str],
    /// Packages beside the base system.
    pub(crate) packages: &'static [&'static str],
}

impl DebianRoot {
    /// Makes the root, unless the folder has it already; an error says why there can be none.
    pub(crate) fn make(&self, folder: &Path) -> Outcome {
        let stamp = folder.join("millrace-packages.txt");
        let wanted = self.packages.join("\n");
        if !is_root() {
            return Err("debootstrap, chroot and mounts need root".to_owned());
        }
        if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
            return Ok(());
        }
        if !starts("debootstrap") {
            // Without a network there is no root either.
            shell::run(Command::new("apt-get").args(["install", "-y", "-q", "debootstrap"]))?;
        }
        if !folder.join("etc/debian_version").exists() {
            shell::run(
                Command::new("debootstrap")
                    .args(["--variant=minbase", self.suite])
                    .arg(folder)
                    .arg(MIRROR)
                    .stdout(Stdio::null()),
            )?;
        }
        let settings = folder.join("etc/apt/apt.conf.d/90millrace");
        let text = "Acquire::Check-Valid-Until \"false\";\nAPT::Install-Recommends \"false\";\n";
        std::fs::write(&settings, text).map_err(|e| format!("{}: {e}", settings.display()))?;
        for architecture in self.architectures {
            chroot(folder, &["dpkg", "--add-architecture", architecture])?;
        }
        chroot(folder, &["apt-get", "update", "-q"])?;
        chroot(
            folder,
            &[&["apt-get", "install", "-y", "-q"], self.packages].concat(),
        )?;
        std::fs::write(&stamp, wanted).map_err(|e| format!("{}: {e}", stamp.display()))
    }
}

/// Runs a command in a root.
pub(crate) fn chroot(folder: &Path, command: &[&str]) -> Outcome {
    shell::run(
        Command::new("chroot")
            .arg(folder)
            .args(command)
            .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null()),
    )
}

fn is_root() -> bool {
    let user = shell::output(Command::new("id").arg("-u"));
    user.is_ok_and(|user| user.trim_ascii() == b"0")
}

fn starts(program: &str) -> bool {
    let mut probe = Command::new(program);
    probe.arg("--version");
    probe.stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok()
}
