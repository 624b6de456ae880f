//! Changes to the names of models: copy, delete, derive, and the removal of a pulled model.

use super::name::ModelName;
use super::records::{MadeRecord, Record, Records};
use super::{BUILT_IN_WEIGHTS, LATEST, ModelStore};
use crate::model_files::{BUILT_IN, ModelSource, is_config, pulled_tower};
use server::{DerivedModel, LibraryError, LocalModel};
use std::io;
use std::path::{Path, PathBuf};

/// Result of removing a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// The name and the file.
    File,
    /// The name; another name, given here, has the same file.
    Shared(ModelName),
    /// The name; a file that `pull` did not download stays.
    Name(Option<PathBuf>),
}

impl ModelStore {
    /// Gives the model `from` a second name.
    pub(crate) fn copy_name(&self, from: &str, to: &str) -> Result<(), LibraryError> {
        let from = self.expect_model(from)?;
        expect_no_adapter(&from)?;
        let record = self.record_of(&from)?;
        self.put_record(&expect_name(to)?, &record)
    }

    /// Stores a derived model under `name`.
    pub(crate) fn make_model(&self, name: &str, made: DerivedModel) -> Result<(), LibraryError> {
        let parent = self.expect_model(&made.parent)?;
        expect_no_adapter(&parent)?;
        let mut record = self.record_of(&parent)?;
        record.made = Some(MadeRecord::from(derive_from(parent, made)));
        self.put_record(&expect_name(name)?, &record)
    }

    /// Removes a name that has a record, and a file that `pull` downloaded with its last name. Files that `pull` did not
    /// download stay.
    ///
    /// # Errors
    /// There is no such name, the name has no record, or the disk failed.
    pub(crate) fn remove_pulled(&self, typed: &str) -> Result<Removed, LibraryError> {
        self.expect_no_setting(typed)?;
        let Some((name, record)) = self.find_record(typed) else {
            let model = self.expect_model(typed)?;
            let is_foreign = |file: &String| self.directories.relative(Path::new(file)).is_none();
            return Err(LibraryError::Invalid(match self.model_file(&model) {
                None => format!("{typed} is built in and cannot be removed"),
                Some(file) if is_foreign(&file) => foreign(typed),
                Some(file) => format!("{typed} was not pulled: remove its file yourself: {file}"),
            }));
        };
        let records = self.records.as_ref().ok_or_else(no_directory)?;
        records.remove(&name).map_err(|why| disk_error(&why))?;
        let Some(file) = record
            .file
            .as_deref()
            .and_then(|file| self.directories.file(file))
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

    /// The record of a name, with or without the tag `:latest`.
    fn find_record(&self, typed: &str) -> Option<(ModelName, Record)> {
        let records = self.records.as_ref()?;
        let bare = typed.strip_suffix(LATEST).unwrap_or(typed);
        let tagged = format!("{bare}{LATEST}");
        [typed, bare, &tagged].iter().find_map(|name| {
            let name = ModelName::parse(name)?;
            records.get(&name).map(|record| (name, record))
        })
    }

    /// Removes the folders of a repository, as far as they are empty.
    fn remove_empty_folders(&self, file: &Path) {
        let root = self
            .directories
            .first()
            .and_then(|root| root.canonicalize().ok());
        let inner = file.ancestors().skip(1);
        for folder in inner.take_while(|folder| root.as_deref().is_some_and(|root| *folder != root))
        {
            match std::fs::remove_dir(folder) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return, // not empty
                _ => {}
            }
        }
    }

    /// Deletes a name, and with the last name of a file also the file, if that is in a model directory.
    pub(crate) fn delete_name(&self, name: &str) -> Result<(), LibraryError> {
        self.expect_no_setting(name)?;
        let model = self.expect_model(name)?;
        let given = ModelName::parse(&model.name)
            .zip(self.records.as_ref())
            .filter(|(name, records)| records.get(name).is_some());
        let is_bound = model.weights.is_none() || model.name == BUILT_IN;
        if given.is_none() && is_bound {
            let words = "the server was started with this model, or the model is built in";
            return Err(LibraryError::Invalid(format!("{}: {words}", model.name)));
        }
        let is_given = given.is_some();
        if let Some((name, records)) = given {
            records.remove(&name).map_err(|why| disk_error(&why))?;
        }
        let Some(file) = self.model_file(&model).filter(|_| !is_bound) else {
            return Ok(());
        };
        let relative = self.directories.relative(Path::new(&file));
        if relative.is_none() && !is_given {
            return Err(LibraryError::Invalid(foreign(&model.name)));
        }
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

    /// Stores a record under a name that is not the started or the built-in model's.
    pub(super) fn put_record(&self, name: &ModelName, record: &Record) -> Result<(), LibraryError> {
        let taken = [self.started_name(), Some(BUILT_IN)];
        if taken.contains(&Some(name.as_str())) {
            return Err(LibraryError::Invalid(format!(
                "{name} is the model that the server was started with, or is built in"
            )));
        }
        let records = self.records.as_ref().ok_or_else(no_directory)?;
        records.put(name, record).map_err(|why| disk_error(&why))
    }

    /// The directory of new models.
    ///
    /// # Errors
    /// No model directory is configured.
    pub(crate) fn download_directory(&self) -> Result<&Path, LibraryError> {
        self.directories.first().ok_or_else(no_directory)
    }

    /// An error for a further name that the settings give to a model.
    fn expect_no_setting(&self, name: &str) -> Result<(), LibraryError> {
        match self.named_model(name) {
            Some((name, named)) if named.from.is_some() => Err(LibraryError::Invalid(format!(
                "{name} is a name in the settings (models.named): remove it there"
            ))),
            _ => Ok(()),
        }
    }

    fn expect_model(&self, name: &str) -> Result<LocalModel, LibraryError> {
        let unknown = || LibraryError::Unknown(name.chars().take(64).collect());
        self.find(name).ok_or_else(unknown)
    }

    /// The first file of a model; `None` of the built-in model.
    fn model_file(&self, model: &LocalModel) -> Option<String> {
        match &model.weights {
            Some(weights) if weights == BUILT_IN_WEIGHTS => None,
            Some(path) => Some(path.clone()),
            None => Some(self.started.get()?.path.as_ref()?.to_str()?.to_owned()),
        }
    }

    fn record_of(&self, model: &LocalModel) -> Result<Record, LibraryError> {
        let file = match self.model_file(model) {
            None => None,
            Some(path) => {
                let words = "its file is in no model directory (models.directories)";
                let outside = || LibraryError::Invalid(format!("{}: {words}", model.name));
                Some(
                    self.directories
                        .relative(Path::new(&path))
                        .ok_or_else(outside)?,
                )
            }
        };
        Ok(Record {
            file,
            sha256: model.facts.sha256.clone(),
            made: model.made.as_deref().cloned().map(MadeRecord::from),
            pulled: self
                .find_record(&model.name)
                .is_some_and(|(_, record)| record.is_pulled()),
        })
    }

    /// Removes the cached packed weights of a model, which are found by its files.
    fn remove_packed(&self, first: &Path) {
        let source = ModelSource::of_file(String::new(), first.to_owned());
        if let (Some(cache), Ok(files)) = (&self.packed_cache, source.open(self.quantize)) {
            cache.remove(&files);
        }
    }

    /// Removes all parts of a split file, and the tower that was pulled with them; of safetensors, all their files in the folder.
    /// Packed weights go with them.
    fn remove_parts(&self, first: &Path) -> Result<(), LibraryError> {
        self.remove_packed(first);
        if is_config(first) {
            return remove_folder(first.parent().unwrap_or(first)).map_err(|why| disk_error(&why));
        }
        let tower = pulled_tower(first);
        if tower.is_file() {
            std::fs::remove_file(&tower).map_err(|why| disk_error(&why))?;
        }
        match weights::gguf::SplitName::parse(first) {
            None => std::fs::remove_file(first).map_err(|why| disk_error(&why)),
            Some(split) => (0..split.count)
                .map(|part| split.path(part))
                .filter(|path| path.exists())
                .try_for_each(|path| std::fs::remove_file(path).map_err(|why| disk_error(&why))),
        }
    }
}

/// The folders of sentence-transformers' modules, beside safetensors.
const MODULES: [&str; 3] = ["1_Pooling", "2_Dense", "3_Dense"];

/// Removes the files of a model of safetensors, and the folder, if then empty.
fn remove_folder(folder: &Path) -> io::Result<()> {
    for module in MODULES.map(|name| folder.join(name)) {
        if std::fs::symlink_metadata(&module).is_ok_and(|found| found.is_dir()) {
            remove_folder(&module)?;
        }
    }
    let is_part = |path: &Path| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        matches!(ending, Some("safetensors" | "json" | "jinja")) && path.is_file()
    };
    for entry in std::fs::read_dir(folder)?.take(super::directories::ENTRIES_MAX) {
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

/// A derived model's settings, with the base model's for all that is left open.
pub(super) fn derive_from(parent: LocalModel, made: DerivedModel) -> DerivedModel {
    let below = parent.made.as_deref().cloned().unwrap_or_default();
    let mut options = below.options;
    options.extend(made.options);
    DerivedModel {
        parent: parent.name,
        system: made.system.or(below.system),
        template: made.template.or(below.template),
        adapter: None,
        options,
    }
}

/// The message about a model in another program's cache.
fn foreign(name: &str) -> String {
    format!("{name} is in the cache of another program, which can remove it")
}

fn expect_name(name: &str) -> Result<ModelName, LibraryError> {
    ModelName::parse(name).ok_or_else(|| LibraryError::Invalid(ModelName::rule()))
}

fn no_directory() -> LibraryError {
    LibraryError::Invalid("there is no model directory: set models.directories".to_owned())
}

/// The error for clients, without the paths, which only the log has.
fn disk_error(why: &io::Error) -> LibraryError {
    tracing::error!("model directory: {why}");
    match why.kind() {
        io::ErrorKind::InvalidInput => LibraryError::Invalid(why.to_string()),
        kind => LibraryError::Failed(format!("model directory: {kind}")),
    }
}

/// A record has a file and no adapter.
fn expect_no_adapter(model: &LocalModel) -> Result<(), LibraryError> {
    match model.made.as_ref().and_then(|made| made.adapter.as_ref()) {
        None => Ok(()),
        Some(_) => Err(LibraryError::Invalid(format!(
            "{}: is an adapter, which cannot be copied, nor be the base of a model",
            model.name
        ))),
    }
}
