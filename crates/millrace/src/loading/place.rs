//! Where the model is: a file, a directory that holds exactly one, or the binary itself. A model of safetensors
//! is where its `config.json` is.

use super::{absent, built_in, facts};
use crate::config::{Quantize, Settings};
use crate::failure::Failure;
use crate::library::Library;
use model::ModelFiles;
use model::gguf::{Gguf, SplitName};
use model::safetensors::{self, Safetensors};
use server::ModelFacts;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Directory entries looked at; more is no directory of models.
const ENTRIES_MAX: usize = 10_000;

/// A model that was found and not opened, and the name it goes by.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    /// `None`: in the binary.
    file: Option<PathBuf>,
    /// The settings name this model.
    is_started: bool,
}

/// Finds what the settings name: a path, or else a local model. Nothing is read but directories' entries.
pub(crate) fn find(settings: &Settings) -> Result<Place, Failure> {
    let found = match &settings.model.path {
        None => Place::built_in(),
        Some(path) => match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => of_path(only_model(path)?),
            Ok(_) => of_path(config_beside(path).unwrap_or_else(|| path.clone())),
            // What is not there at all is said before anybody is told of a server.
            Err(why) => by_name(settings, path).ok_or_else(|| match why.kind() {
                ErrorKind::NotFound => absent::failure(settings, path),
                _ => cannot_open(path, &why),
            })?,
        },
    };
    if found.file.is_none() {
        tell_built_in();
    }
    Ok(Place {
        name: settings.model.name.clone().unwrap_or(found.name),
        is_started: true,
        ..found
    })
}

/// A local model by its name.
pub(super) fn by_name(settings: &Settings, path: &Path) -> Option<Place> {
    let name = path.to_str()?;
    let file = Library::file_of(settings, name)?;
    Some(Place {
        name: name.to_owned(),
        file,
        is_started: true,
    })
}

fn of_path(file: PathBuf) -> Place {
    let name = match is_config(&file) {
        true => folder_name(&file),
        false => stem(&file),
    };
    Place::of_file(name, file)
}

/// Whether a path is that of safetensors' `config.json`.
pub(crate) fn is_config(file: &Path) -> bool {
    file.file_name()
        .is_some_and(|name| name == safetensors::CONFIG)
}

/// Whether a folder has safetensors and what describes them.
pub(crate) fn has_safetensors(folder: &Path) -> bool {
    let is_there = |name: &str| folder.join(name).is_file();
    is_there(safetensors::CONFIG) && (is_there(safetensors::ONE) || is_there(safetensors::INDEX))
}

/// A file of safetensors stands for its whole folder.
fn config_beside(file: &Path) -> Option<PathBuf> {
    let is_part = file.extension()? == "safetensors";
    is_part.then(|| file.with_file_name(safetensors::CONFIG))
}

/// The name of the folder that a file is in, however that was written.
fn folder_name(file: &Path) -> String {
    let folder = file.canonicalize().ok();
    let name = folder
        .as_deref()
        .and_then(Path::parent)
        .and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[cfg(feature = "mini")]
fn tell_built_in() {
    tracing::info!(
        "no model was given: serving the built-in toy model millrace-mini (docs/built-in-model.md)"
    );
}

#[cfg(not(feature = "mini"))]
fn tell_built_in() {
    tracing::warn!(
        "no model was given: serving a toy model with random weights, whose output is random"
    );
}

impl Place {
    /// The model in the binary.
    pub(crate) fn built_in() -> Self {
        Self {
            name: built_in::NAME.to_owned(),
            file: None,
            is_started: false,
        }
    }

    /// A file.
    pub(crate) fn of_file(name: String, file: PathBuf) -> Self {
        Self {
            name,
            file: Some(file),
            is_started: false,
        }
    }

    /// Where it is; `None`: in the binary.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether it is what the settings name.
    pub(crate) fn is_started(&self) -> bool {
        self.is_started
    }

    /// Opens it. Safetensors will be quantised so as they are loaded.
    pub(crate) fn open(&self, quantize: Option<Quantize>) -> Result<ModelFiles, Failure> {
        match &self.file {
            Some(file) if is_config(file) => {
                let folder = file.parent().unwrap_or(Path::new("."));
                Safetensors::open(folder, quantize.map(Into::into))
                    .map(Into::into)
                    .map_err(Failure::user)
            }
            // The error names the file, or the part of it that is wrong.
            Some(file) => Gguf::open(file).map(Into::into).map_err(Failure::user),
            None => built_in::open().map(Into::into),
        }
    }

    /// What its files say of it; of safetensors, as they will be loaded.
    pub(crate) fn facts(&self, quantize: Option<Quantize>) -> Result<ModelFacts, Failure> {
        facts::facts(&self.open(quantize)?, self)
    }

    /// When its file was written; what is in no file is as old as time.
    pub(super) fn modified(&self) -> SystemTime {
        let file = self.file.as_ref().map(std::fs::metadata);
        let modified = file.and_then(|metadata| metadata.ok()?.modified().ok());
        modified.unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

fn cannot_open(file: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::user(format!("{}: {why}", file.display()))
}

/// The one model of a directory: one file, the first part of one split file, or safetensors.
pub(super) fn only_model(directory: &Path) -> Result<PathBuf, Failure> {
    let shown = directory.display();
    let mut models = Vec::new();
    for entry in std::fs::read_dir(directory)?.take(ENTRIES_MAX) {
        let path = entry?.path();
        let is_gguf = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
        let later_part = SplitName::parse(&path).is_some_and(|split| split.part != 0);
        if is_gguf && !later_part {
            models.push(path);
        }
    }
    models.sort();
    match models.as_slice() {
        [one] => Ok(one.clone()),
        [] if has_safetensors(directory) => Ok(directory.join(safetensors::CONFIG)),
        [] => Err(Failure::user(format!(
            "{shown}: no .gguf file in it, and not {} with {} or {}",
            safetensors::CONFIG,
            safetensors::ONE,
            safetensors::INDEX
        ))),
        many => {
            let names: Vec<_> = many.iter().map(|path| stem(path)).collect();
            Err(Failure::user(format!(
                "{shown}: which one? {}",
                names.join(", ")
            )))
        }
    }
}

/// The file's name without `.gguf` and without a split's `-00001-of-00003`.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let parts = if SplitName::parse(path).is_some() {
        4
    } else {
        1
    };
    stem.rsplitn(parts, '-')
        .last()
        .unwrap_or_default()
        .to_owned()
}
