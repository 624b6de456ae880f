//! Measurements on a machine with a GPU, packed to be taken there: a machine that is lent for minutes, where nothing can be fetched.

use crate::dist::library_floor;
use crate::lavapipe;
use crate::shell::{self, Outcome, node_modules, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most that is taken to such a machine at a time.
const PACK_BYTES_MAX: u64 = 64 << 20;

/// Vulkan's loader: drivers come with the machine, the loader often does not.
const LOADER: &str = "libvulkan.so.1";
const LOADER_FOLDERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// llama.cpp with its Vulkan backend, for the second command.
const RIVAL: &str = "@node-llama-cpp/linux-x64-vulkan@3.22.1";

/// Stages of the first command, and of the second.
const STAGES: [&str; 6] = ["facts", "report", "models", "decode", "prompts", "served"];
const RIVAL_STAGES: [&str; 1] = ["rivals"];

/// Makes `target/device-run`: the program (`--binary PATH`, else that of the release profile; it needs the feature `gpu`), Vulkan's
/// loader, and the script of the first command. `--rivals` adds llama.cpp for the second. `--try` runs them on this machine with small
/// shapes.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (binary, rest) = shell::binary(args)?;
    let known = ["--pack", "--rivals", "--try"];
    if let Some(unknown) = rest.iter().find(|arg| !known.contains(&arg.as_str())) {
        return Err(format!(
            "device-run: unknown argument {unknown:?}: {}",
            known.join(", ")
        ));
    }
    let has = |flag: &str| rest.iter().any(|arg| arg == flag);
    let folder = root().join("target/device-run");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    }
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    copy(&binary, &folder.join("millrace"))?;
    // Symbols would be most of the bytes.
    shell::run(Command::new("strip").arg(folder.join("millrace")))?;
    let (major, minor) = library_floor(&folder.join("millrace"))?;
    println!("the program needs glibc {major}.{minor} or later");
    copy(&loader()?, &folder.join(LOADER))?;
    let scripts = root().join("tools/device_run");
    copy(&scripts.join("run.sh"), &folder.join("run.sh"))?;
    if has("--rivals") {
        copy(&scripts.join("rivals.py"), &folder.join("rivals.py"))?;
        copy_rival(&folder.join("llama.cpp"))?;
    }
    let bytes = packed(&folder)?;
    println!("{}: {} MiB packed", folder.display(), bytes >> 20);
    if bytes > PACK_BYTES_MAX {
        return Err(format!(
            "the pack has {} MiB, {} are taken",
            bytes >> 20,
            PACK_BYTES_MAX >> 20
        ));
    }
    if !has("--try") {
        return Ok(());
    }
    let out = folder.join("out");
    try_script(&folder, &out, &["small"], &STAGES)?;
    if has("--rivals") {
        try_script(&folder, &out, &["small", "rivals"], &RIVAL_STAGES)?;
    }
    Ok(())
}

/// Runs the script of the pack here.
fn try_script(folder: &Path, out: &Path, words: &[&str], stages: &[&str]) -> Outcome {
    let mut script = Command::new(folder.join("run.sh"));
    script.envs(lavapipe::variables());
    shell::run(script.arg(out).args(words))?;
    for stage in stages {
        expect_result(&out.join(format!("{stage}.txt")))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Outcome {
    fs::copy(from, to)
        .map(|_| ())
        .map_err(|why| format!("{} to {}: {why}", from.display(), to.display()))
}

fn loader() -> Result<PathBuf, String> {
    let places = LOADER_FOLDERS.map(|folder| Path::new(folder).join(LOADER));
    let found = places.into_iter().find(|path| path.exists());
    found.ok_or_else(|| format!("no {LOADER} in {}", LOADER_FOLDERS.join(", ")))
}

/// The libraries of llama.cpp, without those of Node.
fn copy_rival(to: &Path) -> Outcome {
    let modules = node_modules("device-run", &[RIVAL])?.ok_or("npm is not installed")?;
    let from = modules.join("node_modules/@node-llama-cpp/linux-x64-vulkan/bins/linux-x64-vulkan");
    shell::run(Command::new("cp").arg("-r").arg(from).arg(to))
}

/// Bytes of the folder as an archive, which is written next to it.
fn packed(folder: &Path) -> Result<u64, String> {
    let archive = folder.with_extension("tar.gz");
    let parent = folder.parent().unwrap_or(folder);
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(&archive).arg("-C").arg(parent);
    shell::run(tar.arg("device-run"))?;
    let bytes = fs::metadata(&archive).map(|found| found.len());
    bytes.map_err(|why| format!("{}: {why}", archive.display()))
}

/// A stage left a file that says it succeeded.
fn expect_result(path: &Path) -> Outcome {
    let text = fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?;
    if text.contains("exit status 0 after") {
        return Ok(());
    }
    Err(format!("a stage failed: {}", path.display()))
}
