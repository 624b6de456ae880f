//! `millrace pull`: downloads a model, with a progress bar.

use crate::args::PullArgs;
use crate::config::Settings;
use crate::failure::Failure;
use crate::model_lookup::{absent, can_be_pulled};
use crate::model_store::ModelStore;
use crate::progress_bar::PullBar;
use crate::{logging, pull};
use server::LibraryError;
use std::io::Write;

/// Downloads a model and prints the command that runs the model.
pub(crate) fn pull(args: &PullArgs) -> Result<(), Failure> {
    let config = args.library.settings()?;
    logging::start(&config.settings)?;
    logging::tell_ignored(&config);
    let name = args.name.trim();
    let store = ModelStore::local(&config.settings);
    if !(args.if_absent && pull::is_present(&store, name).map_err(Failure::user)?) {
        fetch(&store, name).map_err(Failure::user)?;
    }
    writeln!(
        std::io::stdout().lock(),
        "{name} is ready: millrace run --model {name} \"Hello\""
    )?;
    Ok(())
}

/// Downloads the model of the settings, if it is not on this machine and its name is one that `pull` certainly knows.
pub(super) fn pull_absent(settings: &Settings) -> Result<(), Failure> {
    let Some(path) = &settings.model.path else {
        return Ok(());
    };
    let name = path.to_str().filter(|_| can_be_pulled(path));
    let Some(name) = name.filter(|_| absent(settings, path).is_some()) else {
        return Ok(());
    };
    // A closed standard error fails no command.
    let _ = writeln!(
        std::io::stderr(),
        "{name} is not on this machine: pulling it"
    );
    fetch(&ModelStore::local(settings), name).map_err(|why| {
        Failure::user(format!(
            "{name} is not on this machine, and pulling it failed: {why}"
        ))
    })
}

/// Downloads a model with a progress bar.
fn fetch(store: &ModelStore, name: &str) -> Result<(), LibraryError> {
    let mut bar = PullBar::new();
    let pulled = pull::pull(store, name, &mut |news| bar.show(&news));
    bar.finish();
    pulled
}
