//! The Debian package, built by dpkg-deb and unpacked into a folder.

use super::build::{Built, STATIC};
use super::{copy, create, empty_folder, folder, release_folder, unit, write};
use crate::shell::{self, Outcome, output, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The settings file, which is kept at upgrades.
const CONFFILE: &str = "etc/millrace/millrace.yaml";
/// The file with secrets, which only root reads; kept, too.
const ENVIRONMENT: &str = "etc/millrace/environment";
const COPYRIGHT: &str = "usr/share/doc/millrace/copyright";
const CHANGELOG: &str = "usr/share/doc/millrace/changelog.gz";
/// Files of the package, by where they are in the project's folder `deploy`.
const DEPLOYED: [(&str, &str); 3] = [
    ("millrace.yaml", CONFFILE),
    (
        "systemd/millrace.service",
        "usr/lib/systemd/system/millrace.service",
    ),
    (
        "systemd/millrace.sysusers",
        "usr/lib/sysusers.d/millrace.conf",
    ),
];
/// Files of the package, by where they are beside the binary.
const SHARED: [(&str, &str); 6] = [
    (
        "completions/millrace.bash",
        "usr/share/bash-completion/completions/millrace",
    ),
    (
        "completions/_millrace",
        "usr/share/zsh/vendor-completions/_millrace",
    ),
    (
        "completions/millrace.fish",
        "usr/share/fish/vendor_completions.d/millrace.fish",
    ),
    (
        "THIRD-PARTY-LICENSES.txt",
        "usr/share/doc/millrace/THIRD-PARTY-LICENSES.txt",
    ),
    ("README.md", "usr/share/doc/millrace/README.md"),
    ("CHANGELOG.md", "usr/share/doc/millrace/NEWS.md"),
];
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the package and unpacks it; returns its path.
pub(super) fn run(built: &Built, share: &Path) -> Result<PathBuf, String> {
    let tree = folder().join("debian-tree");
    empty_folder(&tree)?;
    put(&built.binary, &tree.join("usr/bin/millrace"), 0o755)?;
    for (from, to) in DEPLOYED {
        put(&root().join("deploy").join(from), &tree.join(to), 0o644)?;
    }
    for (from, to) in SHARED {
        put(&share.join(from), &tree.join(to), 0o644)?;
    }
    put(
        &root().join("deploy/debian/environment"),
        &tree.join(ENVIRONMENT),
        0o600,
    )?;
    write_documents(built, share, &tree)?;
    let man = tree.join("usr/share/man/man1");
    create(&man)?;
    let pages = "cp \"$0\"/*.1 \"$1\" && chmod 644 \"$1\"/*.1 && gzip -9n \"$1\"/*.1";
    shell::run(
        Command::new("sh")
            .args(["-c", pages])
            .arg(share.join("man"))
            .arg(&man),
    )?;
    let control = tree.join("DEBIAN");
    create(&control)?;
    for script in SCRIPTS {
        put(
            &root().join("deploy/debian").join(script),
            &control.join(script),
            0o755,
        )?;
    }
    write(
        &control.join("conffiles"),
        &format!("/{CONFFILE}\n/{ENVIRONMENT}\n"),
    )?;
    write(
        &control.join("control"),
        &control_file(&built.version, architecture(built), &depends(built)?),
    )?;
    let (version, architecture) = (&built.version, architecture(built));
    let package = release_folder()?.join(format!("millrace_{version}_{architecture}.deb"));
    let time = super::build::commit_time()?;
    shell::run(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .args([&tree, &package])
            .env("SOURCE_DATE_EPOCH", time),
    )?;
    check(built, &package)?;
    super::write_sum(&package)?;
    println!("\n== dist: {}", package.display());
    Ok(package)
}

/// Writes what Debian's policy asks of each package: its copyright (in the format of DEP-5) and its changelog.
fn write_documents(built: &Built, share: &Path, tree: &Path) -> Outcome {
    let mit = share.join("LICENSE-MIT");
    let mit = std::fs::read_to_string(&mit).map_err(|e| format!("{}: {e}", mit.display()))?;
    write(&tree.join(COPYRIGHT), &copyright(&mit))?;
    let changelog = tree.join(CHANGELOG.trim_end_matches(".gz"));
    let date = output(
        Command::new("date")
            .args(["--utc", "--rfc-email"])
            .arg(format!("--date=@{}", super::build::commit_time()?)),
    )?;
    let date = String::from_utf8_lossy(&date).trim().to_owned();
    write(&changelog, &debian_changelog(&built.version, &date))?;
    shell::run(Command::new("gzip").arg("-9n").arg(&changelog))?;
    for path in [COPYRIGHT, CHANGELOG] {
        shell::run(Command::new("chmod").arg("644").arg(tree.join(path)))?;
    }
    Ok(())
}

/// The file `copyright`. The license of what others wrote is in THIRD-PARTY-LICENSES.txt: crates are not files here.
pub(super) fn copyright(mit: &str) -> String {
    // The title and the holder are said in the fields.
    let terms = mit.split_once("Permission is hereby").map(|(_, rest)| rest);
    let terms: String = format!("Permission is hereby{}", terms.unwrap_or_default())
        .lines()
        .map(|line| match line.trim() {
            "" => " .\n".to_owned(),
            line => format!(" {line}\n"),
        })
        .collect();
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: millrace\n\
         Comment: The program is statically linked with crates of others, with the Rust standard library and with\n \
         mimalloc; /usr/share/doc/millrace/THIRD-PARTY-LICENSES.txt names each with its license and its text.\n\n\
         Files: *\nCopyright: 2026 The Millrace contributors\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{terms}\n\
         License: Apache-2.0\n On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n"
    )
}

/// A name with an address, as the format of the files demands; there is no real one yet.
const MAINTAINER: &str = "The Millrace authors <millrace@localhost>";

/// Debian's changelog; what changed for users is in NEWS.md.
pub(super) fn debian_changelog(version: &str, date: &str) -> String {
    format!(
        "millrace ({version}) unstable; urgency=medium\n\n  \
         * New version; /usr/share/doc/millrace/NEWS.md says what changed.\n\n \
         -- {MAINTAINER}  {date}\n"
    )
}

/// Debian's name of the processor.
fn architecture(built: &Built) -> &'static str {
    match built.processor() {
        "aarch64" => "arm64",
        _ => "amd64",
    }
}

/// Copies a file with its folders and this mode.
fn put(from: &Path, to: &Path, mode: u32) -> Outcome {
    create(to.parent().unwrap_or(to))?;
    copy(from, to)?;
    shell::run(Command::new("chmod").arg(format!("{mode:o}")).arg(to))
}

/// The packages that are needed: the `kill` of the unit's reload, and, unless the binary is static, the C library of at least
/// the newest symbol's version.
fn depends(built: &Built) -> Result<String, String> {
    if built.target == STATIC {
        return Ok("Depends: procps\n".to_owned());
    }
    let (major, minor) = library_floor(built)?;
    Ok(format!(
        "Depends: libc6 (>= {major}.{minor}), libgcc-s1, procps\n"
    ))
}

/// The oldest version of glibc that has all symbols of the binary.
pub(super) fn library_floor(built: &Built) -> Result<(u32, u32), String> {
    let symbols = output(
        Command::new("readelf")
            .args(["--dyn-syms", "--wide"])
            .arg(&built.binary),
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

/// The control file.
pub(super) fn control_file(version: &str, architecture: &str, depends: &str) -> String {
    format!(
        "Package: millrace\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
         Section: net\nPriority: optional\n{depends}Recommends: systemd\n\
         Description: language-model server on CPUs\n \
         Serves GGUF and safetensors models to many clients at once, over the APIs of OpenAI,\n \
         Anthropic and Ollama. Answers are streams with an id, a log and flow control: a client\n \
         can lose its connection, and the server its process, and the answer goes on.\n"
    )
}

fn check(built: &Built, package: &Path) -> Outcome {
    let version = output(
        Command::new("dpkg-deb")
            .arg("--field")
            .arg(package)
            .arg("Version"),
    )?;
    if String::from_utf8_lossy(&version).trim() != built.version {
        return Err(format!(
            "{} has not the version {}",
            package.display(),
            built.version
        ));
    }
    let installed = folder().join("debian-installed");
    empty_folder(&installed)?;
    shell::run(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(package)
            .arg(&installed),
    )?;
    let paths = DEPLOYED.iter().chain(&SHARED).map(|(_, to)| *to);
    let mut paths = paths.chain([
        ENVIRONMENT,
        COPYRIGHT,
        CHANGELOG,
        "usr/bin/millrace",
        "usr/share/man/man1/millrace.1.gz",
    ]);
    if let Some(missing) = paths.find(|path| !installed.join(path).is_file()) {
        return Err(format!("{} has no {missing}", package.display()));
    }
    for script in SCRIPTS {
        shell::run(
            Command::new("sh")
                .arg("-n")
                .arg(root().join("deploy/debian").join(script)),
        )?;
    }
    let binary = installed.join("usr/bin/millrace");
    shell::run(
        Command::new(&binary)
            .arg("config")
            .arg("--config")
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
    match users.lines().any(|line| line.starts_with("millrace:")) {
        true => Ok(()),
        false => Err(format!(
            "systemd-sysusers created no user millrace: {users}"
        )),
    }
}
