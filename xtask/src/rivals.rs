//! Our speed beside llama.cpp's and candle's, on the same synthetic models in the same run.

use crate::oracle::{BUILD_ENV, PACKAGES};
use crate::shell::{self, Outcome, cargo, packaged_binary, python, root, target_dir};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Regimes that need llama.cpp's server, a program of its own.
const SERVING: [&str; 4] = ["serve1", "serve8", "serve32", "layer"];

/// Builds what the wished-for rows need, then hands over to `tools/rivals/rivals.py` with the
/// caller's arguments. Ours are `--prepare` (build everything, write the models, measure nothing),
/// `--no-candle`, `--vision` (towers of images instead, by `tools/rivals/vision.py`), and `--image-streams` (running streams next
/// to an image instead, without other projects, by `tools/rivals/image_streams.py`).
pub(crate) fn run(args: &[String]) -> Outcome {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let rest = args
        .iter()
        .filter(|arg| !["--prepare", "--no-candle"].contains(&arg.as_str()));
    let home = root().join("target").join("rivals");
    let models = home.join("models");
    std::fs::create_dir_all(&models).map_err(|e| format!("{}: {e}", models.display()))?;
    if has("--image-streams") {
        let mut script = Command::new("python3");
        script.arg(root().join("tools/rivals/image_streams.py"));
        script.arg("--millrace").arg(packaged_binary()?);
        return images(script, &models, args);
    }
    let python = python("oracle", &PACKAGES, &BUILD_ENV)?;
    if has("--vision") {
        let mut script = Command::new(&python);
        script.arg(root().join("tools/rivals/vision.py"));
        return images(script, &models, args);
    }
    let mut script = Command::new(&python);
    script.arg(root().join("tools/rivals/rivals.py")).args(rest);
    script
        .arg("--millrace")
        .arg(packaged_binary()?)
        .arg("--models")
        .arg(&models);
    let serves = |arg: &String| arg.split(',').any(|regime| SERVING.contains(&regime));
    if args.iter().any(serves) {
        script
            .arg("--llama-server")
            .arg(llama_server(&python, &home)?);
    }
    if !has("--no-candle") {
        script.arg("--candle").arg(candle(&home)?);
    }
    if has("--prepare") {
        script.arg("--models-only");
    }
    shell::run(&mut script)
}

/// A script about images, with the example that writes and computes a tower alone.
fn images(mut script: Command, models: &Path, args: &[String]) -> Outcome {
    let example = ["-p", "cpu", "--example", "tower_speed"];
    shell::run(
        cargo()
            .args(["build", "--release", "--locked"])
            .args(example),
    )?;
    let rest = args
        .iter()
        .filter(|arg| !["--vision", "--image-streams"].contains(&arg.as_str()));
    script
        .arg("--examples")
        .arg(target_dir()?.join("release").join("examples"))
        .arg("--models")
        .arg(models)
        .args(rest);
    shell::run(&mut script)
}

/// Builds llama.cpp's server from the sources of the library that is measured, with the same flags; minutes.
fn llama_server(python: &Path, home: &Path) -> Result<PathBuf, String> {
    let folder = home.join("llama-server");
    let script = root().join("tools/rivals/llama_server.py");
    let mut build = Command::new(python);
    build.arg(script).arg("--folder").arg(&folder);
    shell::run(build.envs(BUILD_ENV))?;
    Ok(folder.join("build/bin/llama-server"))
}

/// Builds candle's bench, for this very processor as candle asks for.
fn candle(home: &Path) -> Result<PathBuf, String> {
    let target = home.join("candle");
    shell::run(
        cargo()
            .args(["build", "--release", "--locked", "--manifest-path"])
            .arg(root().join("tools/candle-bench/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .env("RUSTFLAGS", "-C target-cpu=native"),
    )?;
    Ok(target.join("release").join("candle-bench"))
}
