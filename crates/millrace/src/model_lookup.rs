//! The model that a user means by a path or a name, and the error for a model that is not on this machine: which models
//! are, and how to download the missing one.

use crate::config::{Config, Origin, Settings};
use crate::failure::Failure;
use crate::model_files::{ModelSource, only_model, source_of_path};
use crate::model_store::ModelStore;
use crate::pull;
use server::LibraryError;
use std::io::ErrorKind;
use std::path::Path;

/// Names of models that the error lists.
const LISTED_MAX: usize = 20;

/// Looks for the model directories that were named. The models of one that is not there would be missing without a word: an
/// error after `--models-dir`, as of llama.cpp's server, and a warning where the settings name it, since a volume may be empty
/// at first. `millrace pull` creates the first one.
///
/// # Errors
/// A directory of the command line is not there.
pub(crate) fn expect_directories(config: &Config) -> Result<(), Failure> {
    let Some(absent) = config.settings.models.absent_directory() else {
        return Ok(());
    };
    let absent = absent.display();
    match &config.origins["models.directories"] {
        Origin::Flag => Err(Failure::user(format!(
            "--models-dir {absent}: there is no such directory; create it, or name the one with the models"
        ))),
        origin => {
            tracing::warn!(
                "models.directories ({origin}): there is no directory {absent}; `millrace pull` creates the first one"
            );
            Ok(())
        }
    }
}

/// Finds the model of the settings: a path, or else a local model's name. Reads directories, and no model file.
pub(crate) fn find_model(settings: &Settings) -> Result<ModelSource, Failure> {
    let found = match &settings.model.path {
        None => ModelSource::built_in(),
        Some(path) => match std::fs::metadata(path) {
            Ok(metadata) => source_of_path(path, metadata.is_dir())?,
            // A missing model is an error before the server's address is logged.
            Err(why) => find_by_name(settings, path).ok_or_else(|| match why.kind() {
                ErrorKind::NotFound => absent_failure(settings, path),
                _ => Failure::user(format!("{}: {why}", path.display())),
            })?,
        },
    };
    if found.file().is_none() {
        log_built_in();
    }
    Ok(found.with_start_name(settings.model.name.clone()))
}

/// The model that `serve` starts with.
pub(crate) struct StartModel {
    pub(crate) source: ModelSource,
    /// Why a request has to name its model; `None`: it may be for this one without a name.
    pub(crate) unnamed: Option<String>,
}

impl From<ModelSource> for StartModel {
    fn from(source: ModelSource) -> Self {
        let unnamed = None;
        Self { source, unnamed }
    }
}

/// Finds the model that `serve` starts with: that of the settings; else the only model of this machine, or the built-in one
/// where there is none. Of several the names are logged, and requests name one: a server that stopped here would not come
/// back from a restart after the second model was pulled.
///
/// # Errors
/// The model of the settings is not there.
pub(crate) fn find_start_model(settings: &Settings) -> Result<StartModel, Failure> {
    if settings.model.path.is_some() {
        return Ok(find_model(settings)?.into());
    }
    let names = ModelStore::start_candidates(settings);
    match names.as_slice() {
        [] => Ok(find_model(settings)?.into()),
        [only] => {
            let source = ModelStore::source_of_name(settings, only);
            let source = source.ok_or_else(|| Failure::user(format!("{only}: was removed")))?;
            tracing::info!("no model was given: {only} is the only one of this machine");
            Ok(source.with_start_name(settings.model.name.clone()).into())
        }
        _ => {
            let names = listed_names(names);
            tracing::warn!(
                "no model was given, and this machine has several: {names}. A request loads the one that it names; \
                 `millrace serve NAME` starts with one of them, for requests that name none"
            );
            let toy = ModelSource::built_in().with_start_name(settings.model.name.clone());
            let unnamed = format!(
                "a request must name its model, since the server was started without one; there are {names}"
            );
            Ok(StartModel {
                source: toy,
                unnamed: Some(unnamed),
            })
        }
    }
}

/// Whether this is a model's file, a directory with one, or the name of a model of this machine.
pub(crate) fn is_model(settings: &Settings, typed: &Path) -> bool {
    let ends = |ending: &str| {
        let extension = typed.extension();
        extension.is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
    };
    match std::fs::metadata(typed) {
        Ok(found) if found.is_dir() => only_model(typed).is_ok(),
        Ok(_) => ends("gguf") || ends("safetensors"),
        Err(_) => find_by_name(settings, typed).is_some(),
    }
}

/// Whether this is certainly the name of a model that `millrace pull` knows: a short name, or one with a hub's address.
pub(crate) fn can_be_pulled(typed: &Path) -> bool {
    typed.to_str().is_some_and(pull::is_known)
}

/// The error, if this is neither an existing path nor the name of a model of this machine.
pub(crate) fn absent(settings: &Settings, typed: &Path) -> Option<Failure> {
    let why = std::fs::metadata(typed).err()?;
    (why.kind() == ErrorKind::NotFound && find_by_name(settings, typed).is_none())
        .then(|| absent_failure(settings, typed))
}

/// The error of a command about a name: an unknown one gets the list of the local models.
pub(crate) fn unknown_name(settings: &Settings, name: &str, why: LibraryError) -> Failure {
    match why {
        LibraryError::Unknown(_) => absent(settings, Path::new(name)).unwrap_or_else(|| {
            Failure::user(format!("{name} is a path, and not the name of a model"))
        }),
        why => Failure::user(why),
    }
}

/// A local model by name.
fn find_by_name(settings: &Settings, path: &Path) -> Option<ModelSource> {
    ModelStore::source_of_name(settings, path.to_str()?)
}

#[cfg(feature = "mini")]
fn log_built_in() {
    tracing::info!(
        "no model was given: serving the built-in toy model millrace-mini (docs/built-in-model.md)"
    );
}

#[cfg(not(feature = "mini"))]
fn log_built_in() {
    tracing::warn!(
        "no model was given: serving a toy model with random weights, whose output is random"
    );
}

/// The error for a path that does not exist and is no model's name.
fn absent_failure(settings: &Settings, typed: &Path) -> Failure {
    let (typed, names) = (typed.display(), listed_names(ModelStore::names(settings)));
    let fetch = if can_be_pulled(Path::new(&typed.to_string())) {
        format!("`millrace pull {typed}` fetches it")
    } else {
        "`millrace pull NAME` fetches one: a short name such as qwen3:0.6b, or hf.co/OWNER/REPOSITORY"
            .to_owned()
    };
    Failure::user(format!(
        "{typed}: no such file, and no model of this machine has that name\n  \
         models of this machine: {names}\n  {fetch}"
    ))
}

/// Names for an error, as many as a person reads.
fn listed_names(mut names: Vec<String>) -> String {
    let more = match names.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more (`millrace list`)"),
    };
    names.truncate(LISTED_MAX);
    names.join(", ") + &more
}
