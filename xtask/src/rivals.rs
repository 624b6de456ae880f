//! Our speed beside llama.cpp's and candle's, on the same synthetic models in the same run.

use crate::oracle::{BUILD_ENV, PACKAGES};
use crate::shell::{self, Outcome, cargo, python, release_binary, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// llama.cpp's source, as its Python binding carries it.
const SOURCE: &str = "llama-cpp-python==0.3.36";
const SOURCE_NAME: &str = "llama_cpp_python-0.3.36";
/// What builds it.
const BUILDERS: [&str; 2] = ["cmake", "ninja"];
/// Regimes that need llama.cpp's server.
const SERVING: [&str; 4] = ["serve1", "serve8", "serve32", "layer"];

/// Builds what the wished-for rows need, then hands over to `tools/rivals/rivals.py` with the
/// caller's arguments. Ours are `--prepare` (build everything, write the models, measure nothing)
/// and `--no-candle`.
pub(crate) fn run(args: &[String]) -> Outcome {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let rest = args
        .iter()
        .filter(|arg| !["--prepare", "--no-candle"].contains(&arg.as_str()));
    let home = root().join("target").join("rivals");
    let models = home.join("models");
    std::fs::create_dir_all(&models).map_err(|e| format!("{}: {e}", models.display()))?;
    let mut script = Command::new(python("oracle", &PACKAGES, &BUILD_ENV)?);
    script.arg(root().join("tools/rivals/rivals.py")).args(rest);
    script
        .arg("--millrace")
        .arg(release_binary()?)
        .arg("--models")
        .arg(&models);
    if args
        .iter()
        .any(|arg| arg.split(',').any(|regime| SERVING.contains(&regime)))
    {
        script.arg("--llama-server").arg(llama_server(&home)?);
    }
    if !has("--no-candle") {
        script.arg("--candle").arg(candle(&home)?);
    }
    if has("--prepare") {
        script.arg("--models-only");
    }
    shell::run(&mut script)
}

/// Builds llama.cpp's server, once: minutes on two cores.
fn llama_server(home: &Path) -> Result<PathBuf, String> {
    let build = home.join("llama-server");
    let server = build.join("bin").join("llama-server");
    if server.exists() {
        return Ok(server);
    }
    let python = python("build", &BUILDERS, &[])?;
    let source = source(&python, home)?;
    let tool = |name: &str| python.with_file_name(name);
    let [c, cxx] = ["C", "CXX"].map(|language| {
        let (_, flags) = BUILD_ENV[0];
        format!("-DCMAKE_{language}_FLAGS={flags}")
    });
    shell::run(
        Command::new(tool("cmake"))
            .args([
                "-G",
                "Ninja",
                "-DCMAKE_BUILD_TYPE=Release",
                "-DBUILD_SHARED_LIBS=OFF",
            ])
            .args([
                "-DGGML_NATIVE=ON",
                "-DLLAMA_OPENSSL=OFF",
                "-DLLAMA_USE_PREBUILT_UI=OFF",
            ])
            .args([
                "-DLLAMA_BUILD_TESTS=OFF",
                "-DLLAMA_BUILD_EXAMPLES=OFF",
                "-DLLAMA_BUILD_APP=OFF",
            ])
            .args([c, cxx])
            .arg(format!("-DCMAKE_MAKE_PROGRAM={}", tool("ninja").display()))
            .arg("-S")
            .arg(source)
            .arg("-B")
            .arg(&build),
    )?;
    shell::run(
        Command::new(tool("cmake"))
            .arg("--build")
            .arg(&build)
            .args(["--target", "llama-server", "--parallel", "2"]),
    )?;
    Ok(server)
}

/// llama.cpp's source from the package index.
fn source(python: &Path, home: &Path) -> Result<PathBuf, String> {
    let source = home.join(SOURCE_NAME).join("vendor").join("llama.cpp");
    if !source.exists() {
        shell::run(
            Command::new(python)
                .args(["-m", "pip", "download", "--quiet", "--no-deps"])
                .args(["--no-binary", "llama-cpp-python", SOURCE, "--dest"])
                .arg(home),
        )?;
        let archive = home.join(format!("{SOURCE_NAME}.tar.gz"));
        shell::run(
            Command::new("tar")
                .arg("xzf")
                .arg(archive)
                .arg("-C")
                .arg(home),
        )?;
    }
    Ok(source)
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
