//! `millrace cp`: a second name for a local model.

use crate::args::CpArgs;
use crate::failure::Failure;
use crate::logging;
use crate::model_lookup::{expect_directories, unknown_name};
use crate::model_store::ModelStore;
use std::io::Write;

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
