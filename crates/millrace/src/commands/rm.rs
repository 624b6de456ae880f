//! `millrace rm`: removes models that `pull` downloaded.

use crate::args::RmArgs;
use crate::failure::Failure;
use crate::logging;
use crate::model_lookup::{expect_directories, unknown_name};
use crate::model_store::{ModelStore, Removed};
use std::io::Write;

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
