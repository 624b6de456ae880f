//! Other people's clients, and those of `clients/`, against our server: each suite starts the release binary on a synthetic
//! model and talks to it over loopback.

use crate::conformance;
use crate::lavapipe;
use crate::shell::{self, Outcome, node_modules, python, root};
use std::path::Path;
use std::process::Command;

/// The packages of the suites, pinned: a suite tests us, not the registry's mood.
pub(crate) const PACKAGES: [&str; 7] = [
    "anthropic==2.12.0",
    "llm==0.36",
    "ollama==0.6.3",
    "openai==3.54.0",
    "pydantic-ai-slim[openai,anthropic]==2.68.0",
    "standardwebhooks==1.1.0",
    "websockets==17.4",
];
/// The suites, in `tools/clients`.
const SUITES: [&str; 7] = [
    "anthropic_suite.py",
    "ollama_suite.py",
    "openai_responses_suite.py",
    "openai_suite.py",
    "pydantic_ai_suite.py",
    "resuming_suite.py",
    "websockets_suite.py",
];
/// Behind nginx and Caddy, with the packages of those; minutes on a busy machine.
const PROXY_SUITES: [&str; 1] = ["proxies_suite.py"];
/// Packages that need an older `openai` or `websockets` than those, and their suites.
pub(crate) const AGENT_PACKAGES: [&str; 2] = ["instructor==1.17.0", "openai-agents==0.24.0"];
const AGENT_SUITES: [&str; 1] = ["agents_suite.py"];
/// The clients of the suite for embeddings and reranking, which bring much with them.
const EMBEDDING_PACKAGES: [&str; 4] = [
    "langchain-cohere==0.6.0",
    "langchain-openai==1.7.4",
    "llama-index-embeddings-openai-like==0.4.0",
    "llama-index-postprocessor-jinaai-rerank==0.6.0",
];
const EMBEDDING_SUITES: [&str; 1] = ["embeddings_suite.py"];
/// The npm packages of the suites for Node: the newest that run on Node 20.
pub(crate) const NODE_PACKAGES: [&str; 11] = [
    "@ai-sdk/anthropic@3.0.139",
    "@ai-sdk/openai-compatible@2.0.91",
    "@ai-sdk/react@3.0.327",
    "@anthropic-ai/sdk@1.12.0",
    "@durable-streams/client@0.2.7",
    "ai@6.0.326",
    "ollama@0.6.4",
    "openai@6.49.0",
    "react@19.2.1",
    "react-test-renderer@19.2.1",
    "zod@4.6.7",
];
const NODE_SUITES: [&str; 5] = [
    "ai_sdk_ui_suite.mjs",
    "durable_streams_suite.mjs",
    "ollama_suite.mjs",
    "resuming_suite.mjs",
    "sdks_suite.mjs",
];

/// Runs every suite in `tools/clients`, but for the one of `conformance`; `--all`: also those behind proxies, and those whose packages
/// take a minute to install. Names such as `proxies` choose the suites whose files begin so. `--debug` and `--binary PATH` choose another
/// binary than the release's, `--device NAME` where it computes models (it needs the feature `gpu`).
pub(crate) fn run(args: &[String]) -> Outcome {
    let (binary, args) = shell::binary(args)?;
    let (device, args) = device(&args)?;
    let (flags, names): (Vec<_>, Vec<_>) = args.iter().partition(|arg| arg.starts_with("--"));
    if let Some(unknown) = flags.iter().find(|flag| **flag != "--all") {
        return Err(format!("clients: unknown flag {unknown}"));
    }
    if let Some(unknown) = names
        .iter()
        .find(|name| !all_suites().any(|suite| suite.starts_with(name.as_str())))
    {
        let there: Vec<_> = all_suites().collect();
        return Err(format!(
            "clients: no suite {unknown:?}; there are {}",
            there.join(", ")
        ));
    }
    let is_wanted = |suite: &&&str| {
        names.is_empty() || names.iter().any(|name| suite.starts_with(name.as_str()))
    };
    let folder = root().join("tools/clients");
    // Programs of Debian that a suite needs are unpacked here.
    let programs = root().join("target/clients");
    let mut environments = vec![
        ("clients", &PACKAGES[..], &SUITES[..]),
        ("agents", &AGENT_PACKAGES, &AGENT_SUITES),
    ];
    if !flags.is_empty() || !names.is_empty() {
        environments.push(("clients", &PACKAGES, &PROXY_SUITES));
        environments.push(("embeddings", &EMBEDDING_PACKAGES, &EMBEDDING_SUITES));
    }
    for (name, packages, suites) in environments {
        let mut suites = suites.iter().filter(is_wanted).peekable();
        if suites.peek().is_none() {
            continue;
        }
        let python = python(name, packages, &[])?;
        suites.try_for_each(|suite| {
            let suite = folder.join(suite);
            let mut command = Command::new(&python);
            device.choose(&mut command);
            shell::run(command.arg(suite).arg(&binary).arg(&programs))
        })?;
    }
    let of_node: Vec<_> = NODE_SUITES.iter().filter(is_wanted).collect();
    if !of_node.is_empty() {
        run_node(&of_node, &binary, &device)?;
    }
    if names.is_empty() {
        conformance::fast(&binary, &device)
    } else {
        Ok(())
    }
}

/// Where the servers of the suites compute their models; `None`: where the server's default is.
pub(crate) struct DeviceOfSuites(pub(crate) Option<String>);

impl DeviceOfSuites {
    /// Sets a suite's variables.
    pub(crate) fn choose(&self, command: &mut Command) {
        let Some(device) = &self.0 else { return };
        command.env("MILLRACE_MODEL_DEVICE", device);
        command.envs(lavapipe::variables());
    }
}

/// Takes `--device NAME` out of the arguments.
pub(crate) fn device(args: &[String]) -> Result<(DeviceOfSuites, Vec<String>), String> {
    let (mut device, mut others) = (None, Vec::new());
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--device" => device = Some(rest.next().ok_or("--device: a name must follow")?.clone()),
            _ => others.push(arg.clone()),
        }
    }
    Ok((DeviceOfSuites(device), others))
}

/// The files of all suites here.
fn all_suites() -> impl Iterator<Item = &'static str> {
    let python = SUITES.iter().chain(&AGENT_SUITES).chain(&PROXY_SUITES);
    python.chain(&EMBEDDING_SUITES).chain(&NODE_SUITES).copied()
}

fn run_node(suites: &[&&str], binary: &Path, device: &DeviceOfSuites) -> Outcome {
    let Some(packages) = node_modules("clients", &NODE_PACKAGES)? else {
        println!("\n== {suites:?}: skipped, npm is not installed");
        return Ok(());
    };
    suites.iter().try_for_each(|suite| {
        let suite = root().join("tools/clients").join(suite);
        let mut command = Command::new("node");
        device.choose(&mut command);
        shell::run(command.arg(suite).arg(binary).arg(&packages))
    })
}
