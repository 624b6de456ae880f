//! Other people's suites, unmodified, against the release binary: what they say is written to
//! `docs/conformance.md`.

use crate::autobahn;
use crate::clients::{self, DeviceOfSuites};
use crate::shell::{self, Outcome, cargo, node_modules, python, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages that the suites need beside their own sources, pinned.
pub(crate) const PACKAGES: [&str; 29] = [
    "aiohttp==3.14.5",
    "anthropic==2.11.0",
    "dirty-equals==0.11",
    "filelock==4.2.11",
    "http-snapshot==0.1.9",
    "httpx2==2.16.2",
    "httplint==2026.10.4",
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
    "openresponses-types==2.4.0",
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

/// The clients of `recipes_suite.py`, pinned, but for those with dependencies of their own.
const RECIPES: [&str; 9] = [
    "langchain==1.4.7",
    "langchain-anthropic==1.7.7",
    "langchain-ollama==1.1.0",
    "langchain-openai==1.7.3",
    "litellm==1.106.2",
    "llama-index-core==0.14.25",
    "llama-index-embeddings-openai-like==0.4.0",
    "llama-index-llms-ollama==0.11.0",
    "llama-index-llms-openai-like==0.8.1",
];
/// Packages that LiteLLM's calls of tools need and its own package does not ask for.
const RECIPES_BESIDE: [&str; 1] = ["mcp==2.3.0"];
/// Depends on an old `openai` and an old `litellm`.
const AIDER: [&str; 1] = ["aider-chat==0.86.2"];
/// Clients on the command line.
const RECIPES_NODE: [&str; 3] = [
    "@anthropic-ai/claude-code@2.1.197",
    "@continuedev/cli@1.5.47",
    "@openai/codex@0.171.0",
];
/// The suite that needs those.
const RECIPES_SUITE: &str = "recipes";

/// Schemas with instances, checked in process: no server.
const SCHEMAS_SUITE: &str = "jsonschemabench";
/// The program that checks them.
const SCHEMAS_BENCH: &str = "schemas";
/// Names a checkout of that suite.
const SCHEMAS_CHECKOUT: &str = "MILLRACE_JSONSCHEMABENCH";
/// Tests of workflows on the command line, which run with a device.
const WORKFLOWS_SUITE: &str = "workflows";
/// Cases for WebSockets, from a root with Python 2.7.
const AUTOBAHN_SUITE: &str = "autobahn";

/// Runs the suites that are named, or all of them; only then is the table written anew. JSONSchemaBench, which needs
/// a checkout, and Autobahn's, which needs a root of Debian, run where they are named, and have pages of their own.
/// `--debug` and `--binary PATH` choose another binary than the release's. With `--device NAME` the servers compute their models there
/// (the binary needs the feature `gpu`), the tests of workflows run, too, and no page is written.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (device, names) = clients::device(args)?;
    let own_page = [SCHEMAS_SUITE, AUTOBAHN_SUITE];
    let alone = own_page
        .into_iter()
        .find(|suite| names.iter().any(|name| name == suite));
    match alone {
        Some(suite) if names.len() > 1 => {
            return Err(format!("`{suite}` runs alone, not with other suites"));
        }
        Some(SCHEMAS_SUITE) => return schemas(),
        Some(_) => return autobahn::run(&place()?),
        None => {}
    }
    let (binary, names) = shell::binary(&names)?;
    let place = place()?;
    if names == [WORKFLOWS_SUITE] {
        return workflows(&device);
    }
    // Where the clients' suites look for npm's packages.
    if let Some(packages) = node_modules("clients", &crate::clients::NODE_PACKAGES)? {
        link(&packages, &place.join("node"))?;
    }
    if names.is_empty() || names.iter().any(|name| name == RECIPES_SUITE) {
        recipes(&place)?;
    }
    let mut suites = suites(&binary, &place, &device)?;
    suites.args(&names);
    if device.0.is_none() {
        suites
            .arg("--write")
            .arg(root().join("docs/conformance.md"));
    }
    shell::run(&mut suites)?;
    if device.0.is_some() && names.is_empty() {
        return workflows(&device);
    }
    Ok(())
}

/// Runs the tests of workflows on the command line, with their models on the device.
fn workflows(device: &DeviceOfSuites) -> Outcome {
    let mut tests = cargo();
    device.choose(&mut tests);
    let wanted = "test --locked -p millrace --features millrace/gpu,stream/futures-core --test it -- workflows:: device::";
    shell::run(tests.args(wanted.split(' ')))
}

/// Runs JSONSchemaBench and writes its page.
fn schemas() -> Outcome {
    let checkout = std::env::var_os(SCHEMAS_CHECKOUT).ok_or_else(|| {
        format!(
            "{SCHEMAS_CHECKOUT} is not set: `git clone https://github.com/guidance-ai/jsonschemabench`, and set it to \
             that folder's absolute path"
        )
    })?;
    let bench = ["bench", "--locked", "-p", "text", "--bench", SCHEMAS_BENCH];
    let page = shell::output(cargo().args(bench).arg("--").arg(checkout))?;
    let path = root().join("measurements/jsonschemabench.md");
    std::fs::write(&path, page).map_err(|e| format!("{}: {e}", path.display()))
}

/// Installs the clients of the recipes, where their suite looks for them.
fn recipes(place: &Path) -> Outcome {
    let all: Vec<_> = RECIPES.iter().chain(&RECIPES_BESIDE).copied().collect();
    for (name, packages) in [(RECIPES_SUITE, &all[..]), ("aider", &AIDER)] {
        let python = python(name, packages, &[])?;
        // PLACE/bin/python
        let venv = python.ancestors().nth(2).unwrap_or(&python);
        link(venv, &place.join(name))?;
    }
    match node_modules(RECIPES_SUITE, &RECIPES_NODE)? {
        Some(packages) => link(&packages, &place.join("recipes-node")),
        None => Err("the suite `recipes` needs npm".to_owned()),
    }
}

fn link(to: &Path, from: &Path) -> Outcome {
    if from.exists() {
        return Ok(());
    }
    shell::run(Command::new("ln").arg("-s").args([to, from]))
}

/// Those that take seconds.
pub(crate) fn fast(binary: &Path, device: &DeviceOfSuites) -> Outcome {
    shell::run(suites(binary, &place()?, device)?.arg("--fast"))
}

/// Where sources, reports and logs stay from run to run.
fn place() -> Result<PathBuf, String> {
    let place = root().join("target").join("conformance");
    std::fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    Ok(place)
}

fn suites(binary: &Path, place: &Path, device: &DeviceOfSuites) -> Result<Command, String> {
    let mut command = Command::new(python("conformance", &PACKAGES, &[])?);
    device.choose(&mut command);
    command
        .arg(root().join("tools/conformance/conformance.py"))
        .arg(binary)
        .arg(place);
    Ok(command)
}
