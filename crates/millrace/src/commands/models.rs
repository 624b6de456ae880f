//! `millrace models`: the models of this machine.

use super::columns::{self, Align};
use crate::args::LibraryArgs;
use crate::clock::now_unix_s;
use crate::failure::Failure;
use crate::logging;
use crate::model_lookup::expect_directories;
use crate::model_store::ModelStore;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Prints a line for each model.
pub(crate) fn models(args: &LibraryArgs) -> Result<(), Failure> {
    let config = args.settings()?;
    logging::start(&config.settings)?;
    expect_directories(&config)?;
    let store = ModelStore::local(&config.settings);
    let rows = store.all().into_iter().map(|local| {
        let facts = &local.facts;
        [
            local.name,
            columns::bytes(facts.file_bytes),
            facts.quantization.clone(),
            facts.family.clone(),
            modified_ago(facts.modified),
        ]
    });
    let head = ["NAME", "SIZE", "QUANTIZATION", "FAMILY", "MODIFIED"];
    let mut align = [Align::Left; 5];
    align[1] = Align::Right;
    let table = columns::table(head, align, rows);
    write!(std::io::stdout().lock(), "{table}")?;
    for skipped in store.skipped_links() {
        writeln!(std::io::stderr(), "{skipped}")?;
    }
    Ok(())
}

/// Age of a model's file.
fn modified_ago(at: SystemTime) -> String {
    match at.duration_since(UNIX_EPOCH).map(|since| since.as_secs()) {
        Ok(0) | Err(_) => "built in".to_owned(),
        Ok(at) => {
            let now = u64::try_from(now_unix_s()).unwrap_or(0);
            format!("{} ago", columns::span(now.saturating_sub(at)))
        }
    }
}
