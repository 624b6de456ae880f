//! Other people's suites, unmodified, against the release binary: what they say is written to
//! `docs/conformance.md`.

use crate::shell::{self, Outcome, node_modules, python, release_binary, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the suites need beside their own sources, pinned.
const PACKAGES: [&str; 27] = [
    "aiohttp==3.14.5",
    "anthropic==2.11.0",
    "dirty-equals==0.11",
    "filelock==4.2.11",
    "http-snapshot==0.1.9",
    "httpx2==2.16.2",
    "httpx-aiohttp==0.2.0",
    "inline-snapshot==0.36.1",
    "jsonschema==4.26.0",
    "langchain-anthropic==1.7.7",
    "langchain-ollama==1.1.0",
    "langchain-openai==1.7.3",
    "langchain-tests==1.1.9",
    "nest-asyncio==1.6.0",
    "numpy==2.4.6",
    "ollama==0.6.3",
    "openai==3.52.0",
    "prometheus-client==0.26.0",
    "pytest==9.2.0",
    "pytest-asyncio==1.5.0",
    "pytest-xdist==3.8.0",
    "requests==2.34.2",
    "respx==0.23.1",
    "schemathesis==4.32.5",
    "time-machine==3.6.0",
    "trio==0.35.0",
    "wget==3.2",
];

/// Runs the suites that are named, or all of them; only then is the table written anew.
pub(crate) fn run(names: &[String]) -> Outcome {
    let binary = release_binary()?;
    let place = place()?;
    // Where the clients' suites look for npm's packages.
    if let Some(packages) = node_modules("clients", &crate::clients::NODE_PACKAGES)? {
        let link = place.join("node");
        if !link.exists() {
            std::os::unix::fs::symlink(&packages, &link)
                .map_err(|e| format!("{}: {e}", link.display()))?;
        }
    }
    let table = root().join("docs/conformance.md");
    shell::run(
        suites(&binary, &place)?
            .args(names)
            .arg("--write")
            .arg(table),
    )
}

/// Those that take seconds.
pub(crate) fn fast(binary: &Path) -> Outcome {
    shell::run(suites(binary, &place()?)?.arg("--fast"))
}

/// Where sources, reports and logs stay from run to run.
fn place() -> Result<PathBuf, String> {
    let place = root().join("target").join("conformance");
    std::fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    Ok(place)
}

fn suites(binary: &Path, place: &Path) -> Result<Command, String> {
    let mut command = Command::new(python("conformance", &PACKAGES, &[])?);
    command
        .arg(root().join("tools/conformance/conformance.py"))
        .arg(binary)
        .arg(place);
    Ok(command)
}
