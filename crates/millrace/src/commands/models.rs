//! `millrace models`: which there are on this machine.

use crate::args::LibraryArgs;
use crate::failure::Failure;
use crate::library::Library;
use crate::loading::Place;
use crate::logging;
use server::Library as _;
use std::io::Write;

/// A line for each.
pub(crate) fn models(args: &LibraryArgs) -> Result<(), Failure> {
    let config = args.settings()?;
    logging::start(&config.settings)?;
    let library = Library::new(config.settings, Place::built_in());
    let mut out = std::io::stdout().lock();
    for local in library.all() {
        let facts = &local.facts;
        writeln!(
            out,
            "{:<48} {:>10.1} MiB  {:<8} {}",
            local.name,
            facts.file_bytes as f64 / f64::from(1 << 20),
            facts.quantization,
            facts.family
        )?;
    }
    Ok(())
}
