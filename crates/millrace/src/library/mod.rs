//! The models of this machine: the one the server was started with, the built-in one, names that were given, and every
//! file under the operator's directories.
//!
//! ```text
//! name    what a name can be            shelf   files in directories, and what their headers say
//! record  names that were given         seat    the engines that run
//! change  copy, delete, make
//! ```

mod change;
mod name;
mod record;
mod seat;
mod shelf;
#[cfg(test)]
mod tests;

pub(crate) use change::Removed;
pub(crate) use name::ModelName;
pub(crate) use record::Record;

use crate::config::{Quantize, Settings};
use crate::failure::Failure;
use crate::loading::{self, Place};
use crate::pull;
use record::Records;
use seat::Seats;
use server::{LibraryError, LoadProgress, LoadedModel, LocalModel, Made, ModelFacts, PullNews};
use shelf::Shelf;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The tag that goes without saying.
const LATEST: &str = ":latest";
/// What the built-in model is loaded from.
const BUILT_IN: &str = ":built-in";

/// All models of this machine.
pub(crate) struct Library {
    shelf: Shelf,
    /// Of the first directory, if there is one.
    records: Option<Records>,
    /// What the server was started with.
    started: Place,
    /// Where that is, links followed; `None`: in the binary.
    started_path: Option<PathBuf>,
    started_facts: Mutex<Option<Arc<ModelFacts>>>,
    /// How safetensors are loaded.
    quantize: Option<Quantize>,
    seats: Seats,
}

impl Library {
    /// The library of a server that was started with this model.
    pub(crate) fn new(settings: Settings, started: Place) -> Self {
        let directories = settings.models.directories();
        Self {
            records: directories.first().map(|first| Records::of(first)),
            shelf: Shelf::new(directories, settings.model.quantize),
            quantize: settings.model.quantize,
            started_path: started.file().and_then(|file| file.canonicalize().ok()),
            started,
            started_facts: Mutex::default(),
            seats: Seats::new(settings),
        }
    }

    /// The file that a name stands for, for who asks without a server. `Ok(None)`: the built-in model.
    pub(crate) fn file_of(settings: &Settings, name: &str) -> Option<Option<PathBuf>> {
        let library = Self::new(settings.clone(), Place::built_in());
        let found = library.look(name)?;
        match found.weights.as_deref() {
            None | Some(BUILT_IN) => Some(None),
            Some(path) => Some(Some(PathBuf::from(path))),
        }
    }

    /// Names of the models of this machine, without a look into any file.
    pub(crate) fn names(settings: &Settings) -> Vec<String> {
        let library = Self::new(settings.clone(), Place::built_in());
        let records = library
            .records
            .as_ref()
            .map(Records::all)
            .unwrap_or_default();
        let has_name = |file: &shelf::File| {
            let file = library.shelf.relative(&file.path);
            file.is_some() && records.iter().any(|(_, record)| record.file == file)
        };
        let files = library.shelf.files();
        let files = files
            .into_iter()
            .filter(|file| !has_name(file))
            .map(|file| file.name);
        let named = records.iter().map(|(name, _)| name.to_string());
        let mut names: Vec<String> = named.chain(files).collect();
        names.insert(0, library.started.name);
        names
    }

    /// Loads what the server was started with.
    pub(crate) fn load_started(
        &self,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, Failure> {
        self.seats.load(&self.started, tell)
    }

    /// From now on these settings hold, as far as they can change.
    pub(crate) fn follow(&self, settings: Settings) {
        self.seats.follow(settings);
    }

    /// Has a name stand for a pulled file of the first directory.
    pub(crate) fn name_file(
        &self,
        name: &ModelName,
        file: &str,
        sha256: Option<&str>,
    ) -> Result<(), LibraryError> {
        let record = Record {
            file: Some(file.to_owned()),
            sha256: sha256.map(str::to_owned),
            made: None,
            pulled: true,
        };
        self.put(name, &record)
    }

    /// The model of this name, with the tag that goes without saying or without.
    fn look(&self, name: &str) -> Option<LocalModel> {
        let bare = name.strip_suffix(LATEST).unwrap_or(name);
        let tagged = format!("{bare}{LATEST}");
        let exact = [name, bare, &tagged];
        let found = exact.iter().find_map(|name| self.named(name));
        found.or_else(|| self.filed(bare))
    }

    /// What the server was started with, the built-in model, or a name that was given.
    fn named(&self, name: &str) -> Option<LocalModel> {
        if name == self.started.name {
            return Some(self.started_model());
        }
        if name == loading::BUILT_IN && self.started_path.is_some() {
            return Some(built_in());
        }
        let name = ModelName::parse(name)?;
        let record = self.records.as_ref()?.get(&name)?;
        self.recorded(&name, &record)
    }

    /// A file, by its path under its directory, or by its own name where only one has that.
    fn filed(&self, name: &str) -> Option<LocalModel> {
        let files = self.shelf.files();
        let last = |file: &&shelf::File| file.name.rsplit('/').next() == Some(name);
        let exact = files.iter().find(|file| file.name == name);
        let mut alike = files.iter().filter(last);
        let found = exact.or_else(|| match (alike.next(), alike.next()) {
            (Some(one), None) => Some(one),
            _ => None,
        })?;
        self.model(&found.name, Some(&found.path), None, None)
    }

    fn recorded(&self, name: &ModelName, record: &Record) -> Option<LocalModel> {
        let path = match &record.file {
            None => None,
            Some(file) => Some(self.shelf.file(file)?),
        };
        let made = record.made.clone().map(Made::from);
        self.model(name.as_str(), path.as_deref(), record.sha256.clone(), made)
    }

    /// A model that is loaded from this file; `None`: the built-in one.
    fn model(
        &self,
        name: &str,
        path: Option<&Path>,
        sha256: Option<String>,
        made: Option<Made>,
    ) -> Option<LocalModel> {
        let is_started = path == self.started_path.as_deref();
        let (weights, facts) = match path {
            None => (BUILT_IN.to_owned(), built_in_facts()),
            Some(path) => (path.to_str()?.to_owned(), self.shelf.facts(path)?),
        };
        let facts = match sha256 {
            None => facts,
            sha256 => Arc::new(ModelFacts {
                sha256,
                ..(*facts).clone()
            }),
        };
        Some(LocalModel {
            name: name.to_owned(),
            weights: (!is_started).then_some(weights),
            facts,
            made: made.map(Arc::new),
        })
    }

    fn started_model(&self) -> LocalModel {
        let mut known = self
            .started_facts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // What cannot be read now fails when it is loaded, in words.
        let read = || {
            self.started
                .facts(self.quantize)
                .map_or_else(|_| Arc::default(), Arc::new)
        };
        let facts = Arc::clone(known.get_or_insert_with(read));
        LocalModel {
            name: self.started.name.clone(),
            weights: None,
            facts,
            made: None,
        }
    }

    /// Where something is loaded from.
    fn place(&self, weights: Option<&str>) -> Place {
        match weights {
            None => self.started.clone(),
            Some(BUILT_IN) => Place::built_in(),
            Some(path) => {
                let name = self.shelf.relative(Path::new(path)).unwrap_or_default();
                Place::of_file(name, PathBuf::from(path))
            }
        }
    }
}

fn built_in() -> LocalModel {
    LocalModel {
        name: loading::BUILT_IN.to_owned(),
        weights: Some(BUILT_IN.to_owned()),
        facts: built_in_facts(),
        made: None,
    }
}

fn built_in_facts() -> Arc<ModelFacts> {
    Place::built_in()
        .facts(None)
        .map_or_else(|_| Arc::default(), Arc::new)
}

impl server::Library for Library {
    fn all(&self) -> Vec<LocalModel> {
        let mut all = vec![self.started_model()];
        if self.started_path.is_some() {
            all.push(built_in());
        }
        let records = self.records.as_ref().map(Records::all).unwrap_or_default();
        let named = records
            .iter()
            .filter_map(|(name, record)| self.recorded(name, record));
        all.extend(named.filter(|local| local.name != self.started.name));
        let has = |all: &[LocalModel], path: &Path| {
            all.iter().any(|local| match &local.weights {
                None => self.started_path.as_deref() == Some(path),
                Some(weights) => local.made.is_none() && Path::new(weights) == path,
            })
        };
        for file in self.shelf.files() {
            if !has(&all, &file.path) {
                all.extend(self.model(&file.name, Some(&file.path), None, None));
            }
        }
        all
    }

    fn find(&self, name: &str) -> Option<LocalModel> {
        self.look(name)
    }

    fn bytes_needed(&self, weights: Option<&str>) -> Result<u64, String> {
        let place = self.place(weights);
        self.seats.needed(&place).map_err(|why| why.to_string())
    }

    fn load(
        &self,
        weights: Option<&str>,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, String> {
        let place = self.place(weights);
        self.seats.load(&place, tell).map_err(|why| why.to_string())
    }

    fn pull(
        &self,
        name: &str,
        tell: &mut dyn FnMut(PullNews<'_>) -> ControlFlow<()>,
    ) -> Result<(), LibraryError> {
        pull::pull(self, name, tell)
    }

    fn copy(&self, from: &str, to: &str) -> Result<(), LibraryError> {
        self.copy_name(from, to)
    }

    fn delete(&self, name: &str) -> Result<(), LibraryError> {
        self.delete_name(name)
    }

    fn make(&self, name: &str, made: Made) -> Result<(), LibraryError> {
        self.make_model(name, made)
    }
}
