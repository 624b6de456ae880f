//! `millrace health`: whether a running server accepts requests, as an exit status for containers and scripts.

use super::running_server::RunningServer;
use crate::args::HealthArgs;
use crate::failure::Failure;
use serde::Deserialize;
use std::io::Write;

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
