//! `millrace ps`: the loaded models of a running server, from the server's API.

use super::columns::{self, Align};
use super::running_server::RunningServer;
use crate::args::ServerArgs;
use crate::clock::now_unix_s;
use crate::failure::Failure;
use serde::Deserialize;
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
            columns::bytes(model.size),
            model.context_length.to_string(),
            shown_expiry(&model.expires_at),
        ]
    });
    let head = ["NAME", "MEMORY", "CONTEXT", "UNLOADED"];
    let align = [Align::Left, Align::Right, Align::Right, Align::Left];
    let table = columns::table(head, align, rows);
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
            Ok(left) => format!("in {}", columns::span(left)),
            Err(_) => "now".to_owned(),
        },
    }
}
