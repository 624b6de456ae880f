//! `millrace models`: the models of this machine; `millrace cp`: a second name for a local model; `millrace rm`:
//! removes models that `pull` downloaded.

use crate::args::{CpArgs, LibraryArgs, RmArgs};
use crate::clock::now_unix_s;
use crate::failure::Failure;
use crate::model_lookup::{expect_directories, unknown_name};
use crate::model_store::{ModelStore, Removed};
use crate::terminal_text::Align;
use crate::{logging, terminal_text};
use server::ModelFacts;
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
            terminal_text::bytes(facts.file_bytes),
            facts.quantization.clone(),
            family(facts),
            modified_ago(facts.modified),
        ]
    });
    let head = ["NAME", "SIZE", "QUANTIZATION", "FAMILY", "MODIFIED"];
    let mut align = [Align::Left; 5];
    align[1] = Align::Right;
    let table = terminal_text::table(head, align, rows);
    write!(std::io::stdout().lock(), "{table}")?;
    for skipped in store.skipped_links() {
        writeln!(std::io::stderr(), "{skipped}")?;
    }
    Ok(())
}

/// The architecture, and whether the model sees images.
fn family(facts: &ModelFacts) -> String {
    match facts.tower {
        Some(_) => format!("{}, vision", facts.family),
        None => facts.family.clone(),
    }
}

/// Age of a model's file.
fn modified_ago(at: SystemTime) -> String {
    match at.duration_since(UNIX_EPOCH).map(|since| since.as_secs()) {
        Ok(0) | Err(_) => "built in".to_owned(),
        Ok(at) => {
            let now = u64::try_from(now_unix_s()).unwrap_or(0);
            format!("{} ago", terminal_text::span(now.saturating_sub(at)))
        }
    }
}

/// Stores the second name; the file is not copied.
pub(crate) fn cp(args: &CpArgs) -> Result<(), Failure> {
    let config = args.library.settings()?;
    logging::start(&config.settings)?;
    expect_directories(&config)?;
    let (from, to) = (&args.from, &args.to);
    ModelStore::local(&config.settings)
        .copy_name(from, to)
        .map_err(|why| unknown_name(&config.settings, from, why))?;
    writeln!(std::io::stdout(), "{to} is {from}")?;
    Ok(())
}

/// Removes each name; the first error ends the command.
pub(crate) fn rm(args: &RmArgs) -> Result<(), Failure> {
    let config = args.library.settings()?;
    logging::start(&config.settings)?;
    expect_directories(&config)?;
    let store = ModelStore::local(&config.settings);
    for name in &args.names {
        let removed = store
            .remove_pulled(name)
            .map_err(|why| unknown_name(&config.settings, name, why))?;
        let what = match removed {
            Removed::File => format!("removed {name}"),
            Removed::Shared(other) => format!("removed the name {name}; {other} has the same file"),
            Removed::Name(None) => format!("removed the name {name}"),
            Removed::Name(Some(file)) => {
                format!(
                    "removed the name {name}; `pull` did not fetch its file, which stays: {}",
                    file.display()
                )
            }
        };
        writeln!(std::io::stdout(), "{what}")?;
    }
    Ok(())
}
