//! Commands about the models and the state of a running server, by its API: `millrace ps`, the loaded models.
//!
//! `millrace health`: whether a running server accepts requests, as an exit status for containers and scripts.
//!
//! `millrace stop`: unloads models of a running server, as Ollama's clients do: a request without a prompt whose
//! `keep_alive` is 0.

use super::running_server::RunningServer;
use crate::args::{HealthArgs, ServerArgs, StopArgs};
use crate::clock::now_unix_s;
use crate::failure::Failure;
use crate::terminal_text;
use crate::terminal_text::Align;
use serde::Deserialize;
use serde_json::json;
use std::io::Write;

/// An expiry later than this is printed as never.
const FOR_EVER_S: i64 = 1 << 32;

/// Response of `/api/ps`.
#[derive(Deserialize)]
struct List {
    models: Vec<Running>,
}

#[derive(Deserialize)]
struct Running {
    name: String,
    size: u64,
    context_length: u64,
    expires_at: String,
}

/// Prints a line for each loaded model.
pub(crate) fn ps(args: &ServerArgs) -> Result<(), Failure> {
    let list: List = RunningServer::new(args)?.get("/api/ps")?;
    let rows = list.models.iter().map(|model| {
        [
            model.name.clone(),
            terminal_text::bytes(model.size),
            model.context_length.to_string(),
            shown_expiry(&model.expires_at),
        ]
    });
    let head = ["NAME", "MEMORY", "CONTEXT", "UNLOADED"];
    let align = [Align::Left, Align::Right, Align::Right, Align::Left];
    let table = terminal_text::table(head, align, rows);
    write!(std::io::stdout().lock(), "{table}")?;
    Ok(())
}

/// Time until an idle model is unloaded.
fn shown_expiry(expires_at: &str) -> String {
    let Ok(expires) = expires_at.parse::<jiff::Timestamp>() else {
        return expires_at.to_owned();
    };
    match expires.as_second() - now_unix_s() {
        FOR_EVER_S.. => "never".to_owned(),
        left => match u64::try_from(left) {
            Ok(left) => format!("in {}", terminal_text::span(left)),
            Err(_) => "now".to_owned(),
        },
    }
}

/// Response of `/health/readiness` and `/health/liveness`.
#[derive(Deserialize)]
struct Health {
    status: String,
}

/// Prints the status of the server.
///
/// # Errors
/// There is no server, or it does not accept requests.
pub(crate) fn health(args: &HealthArgs) -> Result<(), Failure> {
    let server = RunningServer::new(&args.server)?;
    if !args.quiet {
        server.tell_ignored();
    }
    let path = if args.live {
        "/health/liveness"
    } else {
        "/health/readiness"
    };
    let health: Health = server.get(path)?;
    if !args.quiet {
        writeln!(std::io::stdout(), "{}: {}", server.url(), health.status)?;
    }
    Ok(())
}

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
