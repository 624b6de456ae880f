//! What changes which names there are: copy, delete, make, and the naming of what was pulled.

use super::record::{MadeRecord, Record, Records};
use super::{BUILT_IN, LATEST, Library, ModelName};
use crate::loading::is_config;
use server::{LibraryError, LocalModel, Made};
use std::io;
use std::path::{Path, PathBuf};

/// What was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// The name and its file.
    File,
    /// The name; this one has the same file.
    Shared(ModelName),
    /// The name; `pull` did not fetch the file, which stays, if there is one.
    Name(Option<PathBuf>),
}

impl Library {
    pub(super) fn copy_name(&self, from: &str, to: &str) -> Result<(), LibraryError> {
        let from = self.expect(from)?;
        let record = self.record_of(&from)?;
        self.put(&expect_name(to)?, &record)
    }

    pub(super) fn make_model(&self, name: &str, made: Made) -> Result<(), LibraryError> {
        let parent = self.expect(&made.parent)?;
        let mut record = self.record_of(&parent)?;
        record.made = Some(MadeRecord::from(over(parent, made)));
        self.put(&expect_name(name)?, &record)
    }

    /// Takes a name away that was given, and with its last name a file that `pull` fetched. What somebody put there
    /// by hand stays.
    ///
    /// # Errors
    /// There is no such name, nobody gave it, or the disk failed.
    pub(crate) fn remove_pulled(&self, typed: &str) -> Result<Removed, LibraryError> {
        let Some((name, record)) = self.given(typed) else {
            let model = self.expect(typed)?;
            return Err(LibraryError::Invalid(match self.file(&model) {
                None => format!("{typed} is built in and cannot be removed"),
                Some(file) => format!("{typed} was not pulled: remove its file yourself: {file}"),
            }));
        };
        let records = self.records.as_ref().ok_or_else(nowhere)?;
        records.remove(&name).map_err(|why| failed(&why))?;
        let Some(file) = record
            .file
            .as_deref()
            .and_then(|file| self.shelf.file(file))
        else {
            return Ok(Removed::Name(None));
        };
        let others = records.all();
        if let Some((other, _)) = others.iter().find(|(_, other)| other.file == record.file) {
            return Ok(Removed::Shared(other.clone()));
        }
        if !record.is_pulled() {
            return Ok(Removed::Name(Some(file)));
        }
        self.remove_parts(&file)?;
        self.remove_empty_folders(&file);
        Ok(Removed::File)
    }

    /// The name that was given, with the tag that goes without saying or without.
    fn given(&self, typed: &str) -> Option<(ModelName, Record)> {
        let records = self.records.as_ref()?;
        let bare = typed.strip_suffix(LATEST).unwrap_or(typed);
        let tagged = format!("{bare}{LATEST}");
        [typed, bare, &tagged].iter().find_map(|name| {
            let name = ModelName::parse(name)?;
            records.get(&name).map(|record| (name, record))
        })
    }

    /// The folders of a repository, if nothing else is in them.
    fn remove_empty_folders(&self, file: &Path) {
        let root = self.shelf.first().and_then(|root| root.canonicalize().ok());
        let inner = file.ancestors().skip(1);
        for folder in inner.take_while(|folder| root.as_deref().is_some_and(|root| *folder != root))
        {
            match std::fs::remove_dir(folder) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return, // with something in it
                _ => {}
            }
        }
    }

    /// A file goes with its last name, if it is in our directories.
    pub(super) fn delete_name(&self, name: &str) -> Result<(), LibraryError> {
        let model = self.expect(name)?;
        let given = ModelName::parse(&model.name)
            .zip(self.records.as_ref())
            .filter(|(name, records)| records.get(name).is_some());
        let is_bound = model.weights.is_none() || model.name == crate::loading::BUILT_IN;
        if given.is_none() && is_bound {
            let words = "the server was started with this model, or the model is built in";
            return Err(LibraryError::Invalid(format!("{}: {words}", model.name)));
        }
        let is_given = given.is_some();
        if let Some((name, records)) = given {
            records.remove(&name).map_err(|why| failed(&why))?;
        }
        let Some(file) = self.file(&model).filter(|_| !is_bound) else {
            return Ok(());
        };
        let relative = self.shelf.relative(Path::new(&file));
        let others = self.records.as_ref().map(Records::all).unwrap_or_default();
        match others.iter().find(|(_, record)| record.file == relative) {
            Some(_) if is_given => Ok(()),
            Some((other, _)) => Err(LibraryError::Invalid(format!(
                "{} is also called {other}: delete that first",
                model.name
            ))),
            None => self.remove_parts(Path::new(&file)),
        }
    }

    /// Has a name stand for something, if no other model goes by it that is not ours to rename.
    pub(super) fn put(&self, name: &ModelName, record: &Record) -> Result<(), LibraryError> {
        let taken = [self.started.name.as_str(), crate::loading::BUILT_IN];
        if taken.contains(&name.as_str()) {
            return Err(LibraryError::Invalid(format!(
                "{name} is the model that the server was started with, or is built in"
            )));
        }
        let records = self.records.as_ref().ok_or_else(nowhere)?;
        records.put(name, record).map_err(|why| failed(&why))
    }

    /// Where new models go.
    ///
    /// # Errors
    /// There is no such place.
    pub(crate) fn directory(&self) -> Result<&Path, LibraryError> {
        self.shelf.first().ok_or_else(nowhere)
    }

    fn expect(&self, name: &str) -> Result<LocalModel, LibraryError> {
        let unknown = || LibraryError::Unknown(name.chars().take(64).collect());
        self.look(name).ok_or_else(unknown)
    }

    /// The file of a model, if it is no built-in one.
    fn file(&self, model: &LocalModel) -> Option<String> {
        match &model.weights {
            Some(weights) if weights == BUILT_IN => None,
            Some(path) => Some(path.clone()),
            None => Some(self.started_path.as_ref()?.to_str()?.to_owned()),
        }
    }

    fn record_of(&self, model: &LocalModel) -> Result<Record, LibraryError> {
        let file = match self.file(model) {
            None => None,
            Some(path) => {
                let words = "its file is in no model directory (models.directories)";
                let outside = || LibraryError::Invalid(format!("{}: {words}", model.name));
                Some(self.shelf.relative(Path::new(&path)).ok_or_else(outside)?)
            }
        };
        Ok(Record {
            file,
            sha256: model.facts.sha256.clone(),
            made: model.made.as_deref().cloned().map(MadeRecord::from),
            pulled: self
                .given(&model.name)
                .is_some_and(|(_, record)| record.is_pulled()),
        })
    }

    /// All parts of a split file; of safetensors, all files of their folder that have to do with them.
    fn remove_parts(&self, first: &Path) -> Result<(), LibraryError> {
        if is_config(first) {
            return remove_folder(first.parent().unwrap_or(first)).map_err(|why| failed(&why));
        }
        match model::gguf::SplitName::parse(first) {
            None => std::fs::remove_file(first).map_err(|why| failed(&why)),
            Some(split) => (0..split.count)
                .map(|part| split.path(part))
                .filter(|path| path.exists())
                .try_for_each(|path| std::fs::remove_file(path).map_err(|why| failed(&why))),
        }
    }
}

/// Removes what a model of safetensors is made of, and its folder if that is empty then.
fn remove_folder(folder: &Path) -> io::Result<()> {
    let is_part = |path: &Path| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        matches!(ending, Some("safetensors" | "json" | "jinja")) && path.is_file()
    };
    for entry in std::fs::read_dir(folder)?.take(super::shelf::ENTRIES_MAX) {
        let path = entry?.path();
        if is_part(&path) {
            std::fs::remove_file(path)?;
        }
    }
    match std::fs::remove_dir(folder) {
        Err(why) if why.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

/// What a made model says, over what the model says that it was made of.
fn over(parent: LocalModel, made: Made) -> Made {
    let below = parent.made.as_deref().cloned().unwrap_or_default();
    let mut options = below.options;
    options.extend(made.options);
    Made {
        parent: parent.name,
        system: made.system.or(below.system),
        template: made.template.or(below.template),
        options,
    }
}

fn expect_name(name: &str) -> Result<ModelName, LibraryError> {
    ModelName::parse(name).ok_or_else(|| LibraryError::Invalid(ModelName::words()))
}

fn nowhere() -> LibraryError {
    LibraryError::Invalid("there is no model directory: set models.directories".to_owned())
}

/// The log has the paths.
fn failed(why: &io::Error) -> LibraryError {
    tracing::error!("model directory: {why}");
    match why.kind() {
        io::ErrorKind::InvalidInput => LibraryError::Invalid(why.to_string()),
        kind => LibraryError::Failed(format!("model directory: {kind}")),
    }
}
