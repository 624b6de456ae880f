//! Running other programs, and where things are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Result of a task: nothing, or one line that says why not.
pub(crate) type Outcome = Result<(), String>;

/// The project's root, as the cargo that runs us sees it.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR");
    let manifest = manifest.map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The value of `CARGO_INCREMENTAL` where everything is compiled: off, if nobody asks for it. What would make the next time
/// faster took 8 GB beside the 6 of the rest.
pub(crate) fn incremental() -> String {
    std::env::var("CARGO_INCREMENTAL").unwrap_or_else(|_| "0".into())
}

/// The time, for the durations that are shown.
#[expect(
    clippy::disallowed_methods,
    reason = "a command line tool that shows how long programs took"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Runs a command with its output shown; an error names it.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let line = words.join(" ");
    println!("\n== {line}");
    let began = now();
    let status = command
        .status()
        .map_err(|e| format!("`{line}` did not start: {e}"))?;
    println!("== {} s", began.elapsed().as_secs());
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{line}` failed: {status}"))
    }
}

/// Standard output of a command.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let out = command
        .output()
        .map_err(|e| format!("{command:?} did not start: {e}"))?;
    if out.status.success() {
        Ok(out.stdout)
    } else {
        Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        ))
    }
}

/// A Python of our own with these packages, made once under `target/`.
pub(crate) fn python(
    name: &str,
    packages: &[&str],
    env: &[(&str, &str)],
) -> Result<PathBuf, String> {
    let venv = root().join("target").join("venv").join(name);
    let python = venv.join("bin").join("python");
    let stamp = venv.join("packages.txt");
    let variables = env.iter().map(|(name, value)| format!("{name}={value}"));
    let wanted: Vec<String> = packages
        .iter()
        .map(|package| (*package).to_owned())
        .chain(variables)
        .collect();
    let wanted = wanted.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    run(Command::new(&python)
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(packages)
        .envs(env.iter().copied()))?;
    std::fs::write(&stamp, wanted).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(python)
}

/// A program of crates.io, compiled once under `target/`. As in development, not for speed: compiling takes longer than
/// what it does.
pub(crate) fn cargo_program(name: &str, version: &str) -> Result<PathBuf, String> {
    let folder = root()
        .join("target/programs")
        .join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        run(cargo()
            .args(["install", "--locked", "--debug", "--root"])
            .arg(&folder)
            .arg(format!("{name}@{version}")))?;
    }
    Ok(program)
}

/// A folder of our own with these packages of npm, made once under `target/`; `None` without npm.
pub(crate) fn node_modules(name: &str, packages: &[&str]) -> Result<Option<PathBuf>, String> {
    let folder = root().join("target").join("node").join(name);
    let stamp = folder.join("packages.txt");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(Some(folder));
    }
    let probe = Command::new("npm").arg("--version").output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return Ok(None);
    }
    let failed = |why: std::io::Error| format!("{}: {why}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    std::fs::write(folder.join("package.json"), "{}").map_err(failed)?;
    run(Command::new("npm")
        .args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
        .args(packages)
        .current_dir(&folder))?;
    std::fs::write(&stamp, wanted).map_err(failed)?;
    Ok(Some(folder))
}

/// The binary that a suite starts: `--binary PATH` is one that is there already, `--debug` builds the debug binary, and
/// without either the release binary is built. The second value is the arguments without these flags.
pub(crate) fn binary(args: &[String]) -> Result<(PathBuf, Vec<String>), String> {
    let (mut binary, mut others) = (None, Vec::new());
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--debug" => binary = Some(debug_binary()?),
            "--binary" => {
                let path = rest.next().ok_or("--binary: a path must follow")?;
                binary = Some(absolute(path)?);
            }
            _ => others.push(arg.clone()),
        }
    }
    Ok((binary.map_or_else(release_binary, Ok)?, others))
}

/// Suites run in folders of their own.
fn absolute(path: &str) -> Result<PathBuf, String> {
    std::fs::canonicalize(path).map_err(|why| format!("--binary {path}: {why}"))
}

/// Builds the release binary and says where it is.
pub(crate) fn release_binary() -> Result<PathBuf, String> {
    run(cargo().args(["build", "--release", "-p", "millrace"]))?;
    Ok(target_dir()?.join("release").join("millrace"))
}

/// Builds the binary as packages have it, whose figures are published, and says where it is.
pub(crate) fn packaged_binary() -> Result<PathBuf, String> {
    run(cargo().args(["build", "--profile", "packaged", "-p", "millrace"]))?;
    Ok(target_dir()?.join("packaged").join("millrace"))
}

/// Builds the debug binary and says where it is.
fn debug_binary() -> Result<PathBuf, String> {
    run(cargo().args(["build", "-p", "millrace"]))?;
    Ok(target_dir()?.join("debug").join("millrace"))
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> Result<PathBuf, String> {
    let target = metadata()?["target_directory"].as_str().map(PathBuf::from);
    target.ok_or_else(|| "cargo metadata names no target directory".to_owned())
}

/// `cargo metadata`, without dependencies' own packages.
pub(crate) fn metadata() -> Result<serde_json::Value, String> {
    let json =
        output(cargo().args(["metadata", "--format-version", "1", "--no-deps", "--locked"]))?;
    serde_json::from_slice(&json).map_err(|e| format!("cargo metadata: {e}"))
}
