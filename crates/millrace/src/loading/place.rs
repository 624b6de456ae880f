//! Where the model is: a file, a directory that holds exactly one, or the binary itself.

use super::built_in;
use crate::config;
use crate::failure::Failure;
use model::gguf::{Gguf, SplitName};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Directory entries looked at; more is no directory of models.
const ENTRIES_MAX: usize = 10_000;

/// A model that was found and not opened, and the name it goes by.
pub(crate) struct Place {
    pub(crate) name: String,
    /// `None`: in the binary.
    file: Option<PathBuf>,
}

/// Finds what the settings name. Nothing is read but a directory's entries.
pub(crate) fn find(settings: &config::Model) -> Result<Place, Failure> {
    let Some(path) = &settings.path else {
        let name = || built_in::NAME.to_owned();
        return Ok(Place {
            name: settings.name.clone().unwrap_or_else(name),
            file: None,
        });
    };
    let file = if path.is_dir() {
        only_model(path)?
    } else {
        path.clone()
    };
    // What is not there at all is said before anybody is told of a server.
    std::fs::metadata(&file).map_err(|why| cannot_open(&file, &why))?;
    let name = settings.name.clone().unwrap_or_else(|| stem(&file));
    Ok(Place {
        name,
        file: Some(file),
    })
}

impl Place {
    /// Opens it.
    pub(super) fn open(&self) -> Result<Gguf, Failure> {
        match &self.file {
            Some(file) => Gguf::open(file).map_err(|why| cannot_open(file, &why)),
            None => built_in::open(),
        }
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

/// The one model of a directory: one file, or the first part of one split file.
fn only_model(directory: &Path) -> Result<PathBuf, Failure> {
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
        [] => Err(Failure::user(format!("{shown}: no .gguf file in it"))),
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
