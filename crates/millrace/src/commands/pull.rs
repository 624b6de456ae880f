//! `millrace pull`: downloads a model, with a progress bar.

use crate::args::PullArgs;
use crate::failure::Failure;
use crate::model_store::ModelStore;
use crate::progress_bar::PullBar;
use crate::{logging, pull};
use std::io::Write;

/// Downloads a model and prints the command that runs the model.
pub(crate) fn pull(args: &PullArgs) -> Result<(), Failure> {
    let config = args.library.settings()?;
    logging::start(&config.settings)?;
    let store = ModelStore::local(&config.settings);
    let mut bar = PullBar::new();
    let pulled = pull::pull(&store, &args.name, &mut |news| bar.show(&news));
    bar.finish();
    pulled.map_err(Failure::user)?;
    let name = args.name.trim();
    writeln!(
        std::io::stdout().lock(),
        "{name} is ready: millrace run --model {name} \"Hello\""
    )?;
    Ok(())
}
