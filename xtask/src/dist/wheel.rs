//! The wheel for Python's package managers: the binary of the archive, packed, and installed into an environment of its own.

use super::build::{self, Built, Kind, STATIC};
use super::{copy, create, empty_folder, folder, release_folder, write};
use crate::shell::{self, Outcome, output, python};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The distribution's name on PyPI: `millrace` is an unrelated project there. The command is `millrace` all the same.
const NAME: &str = "millrace-server";
/// The name of the distribution with support of GPUs.
const GPU_NAME: &str = "millrace-server-gpu";

/// The tool that packs a folder as a wheel, from PyPI.
const PACKAGES: [&str; 1] = ["wheel>=0.45,<1"];
/// Machines that a static binary runs on: those with a C library of GNU and those with musl.
const STATIC_PLATFORMS: [&str; 3] = ["manylinux_2_17", "manylinux2014", "musllinux_1_1"];
const LICENSES: [&str; 3] = ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENSES.txt"];

/// Packs the wheel and runs the binary that it installs.
pub(super) fn run(built: &Built, share: &Path) -> Outcome {
    let name = match built.kind {
        Kind::Gpu => GPU_NAME,
        Kind::Static | Kind::Glibc => NAME,
    };
    // The name in files and folders of a wheel.
    let file_name = name.replace('-', "_");
    let tree = folder().join("wheel-tree");
    empty_folder(&tree)?;
    let scripts = tree.join(format!("{file_name}-{}.data/scripts", built.version));
    create(&scripts)?;
    copy(&built.binary, &scripts.join("millrace"))?;
    let info = tree.join(format!("{file_name}-{}.dist-info", built.version));
    create(&info.join("licenses"))?;
    // Where PEP 770 has the list of components.
    create(&info.join("sboms"))?;
    copy(
        &share.join("millrace.cdx.json"),
        &info.join("sboms/millrace.cdx.json"),
    )?;
    for name in LICENSES {
        copy(&share.join(name), &info.join("licenses").join(name))?;
    }
    let readme = share.join("README.md");
    let readme =
        std::fs::read_to_string(&readme).map_err(|e| format!("{}: {e}", readme.display()))?;
    write(
        &info.join("METADATA"),
        &metadata(name, &built.version, &readme),
    )?;
    write(&info.join("WHEEL"), &tags(&platforms(built)?))?;
    let packed = folder().join("wheel");
    empty_folder(&packed)?;
    shell::run(
        Command::new(python("wheel", &PACKAGES, &[])?)
            .args(["-m", "wheel", "pack"])
            .arg(&tree)
            .arg("--dest-dir")
            .arg(&packed)
            .env("SOURCE_DATE_EPOCH", build::commit_time()?),
    )?;
    let wheel = only_wheel(&packed)?;
    check(&wheel)?;
    let published = release_folder()?.join(wheel.file_name().unwrap_or_default());
    copy(&wheel, &published)?;
    super::write_sum(&published)?;
    println!("\n== dist: {}", published.display());
    Ok(())
}

/// Platforms as Python names them; of a binary that is not static, those with a C library that is new enough.
fn platforms(built: &Built) -> Result<Vec<String>, String> {
    let processor = built.processor();
    if built.target == STATIC {
        let names = STATIC_PLATFORMS.iter();
        return Ok(names.map(|name| format!("{name}_{processor}")).collect());
    }
    let (major, minor) = build::library_floor(&built.binary)?;
    Ok(vec![format!("manylinux_{major}_{minor}_{processor}")])
}

/// The file METADATA of a wheel. Links of the description that lead into the source tree are left out: they lead nowhere there.
pub(super) fn metadata(name: &str, version: &str, readme: &str) -> String {
    let description = description(readme);
    let licenses = LICENSES
        .map(|name| format!("License-File: {name}\n"))
        .concat();
    format!(
        "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\
         Summary: Language-model server: continuous batching on CPUs over the APIs of OpenAI, Anthropic and Ollama\n\
         License-Expression: MIT OR Apache-2.0\n{licenses}Requires-Python: >=3.8\n\
         Keywords: llm,inference,server,gguf,openai,anthropic,ollama\n\
         Classifier: Environment :: Console\nClassifier: Operating System :: POSIX :: Linux\n\
         Classifier: Programming Language :: Rust\n\
         Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence\n\
         Description-Content-Type: text/markdown\n\n{description}"
    )
}

/// The first section of the README, and where the rest is.
fn description(readme: &str) -> String {
    let end = readme.find("\n## ").unwrap_or(readme.len());
    format!(
        "{}\n\n`millrace serve` starts the server, `millrace --help` lists the commands. The license texts are in the wheel.\n",
        readme[..end].trim_end()
    )
}

/// The file WHEEL of a wheel.
pub(super) fn tags(platforms: &[String]) -> String {
    let tags: String = platforms
        .iter()
        .map(|platform| format!("Tag: py3-none-{platform}\n"))
        .collect();
    format!("Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\n{tags}")
}

/// Installs the wheel into a new environment, without an index, and runs the binary.
fn check(wheel: &Path) -> Outcome {
    let environment = folder().join("environment");
    empty_folder(&environment)?;
    let venv = ["-m", "venv"];
    shell::run(Command::new("python3").args(venv).arg(&environment))?;
    let program = |name: &str| environment.join("bin").join(name);
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
    ];
    shell::run(Command::new(program("python")).args(install).arg(wheel))?;
    let told = output(Command::new(program("millrace")).arg("version"))?;
    build::version_of(&String::from_utf8_lossy(&told))?;
    shell::run(Command::new(program("millrace")).args(["run", "Hello", "-n", "4"]))
}

/// The wheel in a folder.
fn only_wheel(folder: &Path) -> Result<PathBuf, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(|why| failed(&why))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "whl");
    paths.find(is_wheel).ok_or_else(|| failed(&"has no wheel"))
}
