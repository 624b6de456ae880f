//! `millrace stop`: unloads models of a running server, as Ollama's clients do: a request without a prompt whose
//! `keep_alive` is 0.

use super::running_server::RunningServer;
use crate::args::StopArgs;
use crate::failure::Failure;
use serde::Deserialize;
use serde_json::json;
use std::io::Write;

/// Response of `/api/generate` without a prompt.
#[derive(Deserialize)]
struct Unloaded {
    model: String,
}

/// Unloads each model; the first error ends the command.
pub(crate) fn stop(args: &StopArgs) -> Result<(), Failure> {
    let server = RunningServer::new(&args.server)?;
    for name in &args.names {
        let request = json!({"model": name, "keep_alive": 0});
        let unloaded: Unloaded = server.post("/api/generate", &request)?;
        writeln!(
            std::io::stdout(),
            "{} is unloaded, or will be when its last generation has ended",
            unloaded.model
        )?;
    }
    Ok(())
}
