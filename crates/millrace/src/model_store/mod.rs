//! The model store: the model that the server was started with, the built-in one, names with a record, every model
//! file under the configured directories, and the models in other programs' caches.
//!
//! ```text
//! name     valid names of models        directories   files in the model directories, and their facts
//! records  names and their models       caches        models that Ollama and Hugging Face's libraries downloaded
//! change   copy, delete, derive         named         models with settings of their own
//! ```

mod caches;
mod change;
mod directories;
mod name;
mod named;
mod records;

pub(crate) use change::Removed;
pub(crate) use name::ModelName;
pub(crate) use records::Record;

use crate::config::{MmprojChoice, NamedModels, Quantize, Settings, names_directory};
use crate::model_files::{BUILT_IN, ModelSource, read_facts};
use crate::packed_cache::PackedCache;
use caches::{Caches, ollama_parameters};
pub(crate) use directories::SkippedLink;
use directories::{ModelDirectories, ModelFile};
use records::Records;
use server::{DerivedModel, LibraryError, LocalModel, ModelFacts, ModelTask};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The tag that a name without a tag stands for.
const LATEST: &str = ":latest";
/// `LocalModel::weights` of the built-in model.
const BUILT_IN_WEIGHTS: &str = ":built-in";

/// The names of this machine's models, and where each model's files are.
pub(crate) struct ModelStore {
    directories: ModelDirectories,
    caches: Caches,
    /// Records of the first directory, if there is one.
    records: Option<Records>,
    /// The model that the server was started with; a gateway without one gets it from its engines.
    started: OnceLock<StartedModel>,
    /// Tensor format that safetensors are loaded in.
    quantize: Option<Quantize>,
    /// Models with settings of their own.
    named: NamedModels,
    /// Packed weights, which are removed with their model.
    packed_cache: Option<PackedCache>,
    /// Whether `pull` takes towers along.
    takes_towers: bool,
    /// Whether another model describes images for models without settings of their own.
    has_vision_proxy: bool,
}

/// The model that the server was started with.
struct StartedModel {
    source: ModelSource,
    /// Canonical path of the source; `None`: in the binary.
    path: Option<PathBuf>,
    facts: Mutex<Option<Arc<ModelFacts>>>,
    /// Names of adapters, which are names of models, too.
    adapters: Vec<String>,
}

impl StartedModel {
    fn new(settings: &Settings, source: ModelSource) -> Self {
        Self {
            path: source.file().and_then(|file| file.canonicalize().ok()),
            facts: Mutex::default(),
            adapters: adapter_names(&settings.of_model(&source.name)),
            source,
        }
    }
}

impl ModelStore {
    /// The store of a server that was started with this model.
    pub(crate) fn new(settings: &Settings, started: ModelSource) -> Self {
        let store = Self::without_start(settings);
        store.start(settings, started);
        store
    }

    /// The store of a server whose start model is not known yet.
    pub(crate) fn without_start(settings: &Settings) -> Self {
        let directories = settings.models.directories();
        Self {
            records: directories
                .first()
                .map(|first| Records::of(first, names_directory(first))),
            directories: ModelDirectories::new(directories, settings.model.quantize),
            caches: Caches::of(settings),
            quantize: settings.model.quantize,
            named: settings.models.named.clone(),
            packed_cache: PackedCache::of(settings),
            takes_towers: settings.model.mmproj != MmprojChoice::Off,
            has_vision_proxy: settings.vision.proxy.model().is_some(),
            started: OnceLock::new(),
        }
    }

    /// From now on, this is the model that the server was started with. Only the first call counts.
    pub(crate) fn start(&self, settings: &Settings, source: ModelSource) {
        let _ = self.started.set(StartedModel::new(settings, source));
    }

    /// Name of the model that the server was started with, once it is known.
    pub(crate) fn started_name(&self) -> Option<&str> {
        self.started
            .get()
            .map(|started| started.source.name.as_str())
    }

    /// Whether the start model has a file, so that the built-in model is another one.
    fn is_built_in_another(&self) -> bool {
        let started = self.started.get();
        started.is_none_or(|started| started.path.is_some())
    }

    /// The store of a command that runs without a server.
    pub(crate) fn local(settings: &Settings) -> Self {
        Self::new(settings, ModelSource::built_in())
    }

    /// The source of the model of a name.
    pub(crate) fn source_of_name(settings: &Settings, name: &str) -> Option<ModelSource> {
        let store = Self::local(settings);
        let found = store.find(name)?;
        Some(match found.weights.as_deref() {
            None | Some(BUILT_IN_WEIGHTS) => {
                ModelSource::built_in().with_start_name(Some(name.to_owned()))
            }
            Some(path) => ModelSource::of_file(name.to_owned(), PathBuf::from(path))
                .with_sampling(found.facts.sampling)
                .with_tower(store.caches.tower_of(Path::new(path))),
        })
    }

    /// Names of the models of this machine, without opening any model file.
    pub(crate) fn names(settings: &Settings) -> Vec<String> {
        let store = Self::local(settings);
        let records = store.records.as_ref().map(Records::all).unwrap_or_default();
        let has_name = |file: &ModelFile| {
            let file = store.directories.relative(&file.path);
            file.is_some() && records.iter().any(|(_, record)| record.file == file)
        };
        let files = store.directories.files();
        let files = files
            .into_iter()
            .filter(|file| !has_name(file))
            .map(|file| file.name);
        let named = records.iter().map(|(name, _)| name.to_string());
        let mut names: Vec<String> = named.chain(files).collect();
        names.insert(0, BUILT_IN.to_owned());
        for file in store.caches.files() {
            if !names.contains(&file.name) {
                names.push(file.name);
            }
        }
        names
    }

    /// The models that `serve` may start with where none is named, one name for each: those for text, or else all others.
    /// The built-in model is none of them.
    pub(crate) fn start_candidates(settings: &Settings) -> Vec<String> {
        let mut seen = HashSet::new();
        let mut models: Vec<LocalModel> = Self::local(settings).all_local();
        models.retain(|local| {
            let path = local.weights.as_deref().map(Path::new);
            let file = path.and_then(|path| path.canonicalize().ok());
            local.made.is_none() && file.is_some_and(|file| seen.insert(file))
        });
        let is_for_text = |local: &LocalModel| local.facts.task == ModelTask::Generation;
        if models.iter().any(is_for_text) {
            models.retain(is_for_text);
        }
        models.into_iter().map(|local| local.name).collect()
    }

    /// Whether `pull` takes a model's tower along.
    pub(crate) fn takes_towers(&self) -> bool {
        self.takes_towers
    }

    /// Links in the model directories that are not followed.
    pub(crate) fn skipped_links(&self) -> Vec<SkippedLink> {
        self.directories.skipped()
    }

    /// Stores a record for a pulled file of the first directory.
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
        self.put_record(name, &record)
    }

    /// All models without regard to settings of their own: the started one, that one with each adapter, the built-in one,
    /// those with a record, all other files, and those of other programs' caches.
    fn all_local(&self) -> Vec<LocalModel> {
        let mut all = Vec::new();
        if let Some(started) = self.started.get() {
            all.push(self.started_model(started));
            let adapters = started.adapters.iter();
            all.extend(adapters.map(|name| self.adapted_model(started, name)));
        }
        if self.is_built_in_another() {
            all.push(built_in_model());
        }
        let records = self.records.as_ref().map(Records::all).unwrap_or_default();
        let named = records
            .iter()
            .filter_map(|(name, record)| self.recorded_model(name, record));
        all.extend(named.filter(|local| Some(local.name.as_str()) != self.started_name()));
        let has = |all: &[LocalModel], path: &Path| {
            all.iter().any(|local| match &local.weights {
                None => self.is_started(Some(path)),
                Some(weights) => local.made.is_none() && Path::new(weights) == path,
            })
        };
        for file in self.directories.files() {
            if !has(&all, &file.path) {
                all.extend(self.local_model(&file.name, (Some(&file.path), None), None, None));
            }
        }
        for file in self.caches.files() {
            let local = self.cached_model(&file);
            let is_new = |local: &LocalModel| {
                local.weights.is_some() && !all.iter().any(|other| other.name == local.name)
            };
            let local = local.filter(is_new);
            all.extend(local);
        }
        all
    }

    /// The model of this name, with or without the tag `:latest`, without regard to settings of its own.
    pub(crate) fn find_local(&self, name: &str) -> Option<LocalModel> {
        let bare = name.strip_suffix(LATEST).unwrap_or(name);
        let tagged = format!("{bare}{LATEST}");
        let exact = [name, bare, &tagged];
        let found = exact.iter().find_map(|name| self.find_named(name));
        let found = found.or_else(|| self.find_file(bare));
        found.or_else(|| {
            let files = self.caches.files();
            let is_named = |file: &&ModelFile| exact.contains(&file.name.as_str());
            let file = files
                .iter()
                .find(is_named)
                .or_else(|| only_named(&files, bare))?;
            self.cached_model(file)
        })
    }

    /// The started model, the built-in model, or a model with a record.
    fn find_named(&self, name: &str) -> Option<LocalModel> {
        if let Some(started) = self.started.get() {
            if name == started.source.name {
                return Some(self.started_model(started));
            }
            if started.adapters.iter().any(|adapter| adapter == name) {
                return Some(self.adapted_model(started, name));
            }
        }
        if name == BUILT_IN && self.is_built_in_another() {
            return Some(built_in_model());
        }
        let name = ModelName::parse(name)?;
        let record = self.records.as_ref()?.get(&name)?;
        self.recorded_model(&name, &record)
    }

    /// A file by its path under its directory, or by its file name if that is unique.
    fn find_file(&self, name: &str) -> Option<LocalModel> {
        let files = self.directories.files();
        let exact = files.iter().find(|file| file.name == name);
        let found = exact.or_else(|| only_named(&files, name))?;
        self.local_model(&found.name, (Some(&found.path), None), None, None)
    }

    fn recorded_model(&self, name: &ModelName, record: &Record) -> Option<LocalModel> {
        let path = match &record.file {
            None => None,
            Some(file) => Some(self.directories.file(file)?),
        };
        let made = record.made.clone().map(DerivedModel::from);
        let place = (path.as_deref(), None);
        self.local_model(name.as_str(), place, record.sha256.clone(), made)
    }

    /// A model of another program's cache, with the sampling parameters that the program has for the model's name.
    fn cached_model(&self, file: &ModelFile) -> Option<LocalModel> {
        let place = (Some(&*file.path), file.tower.as_deref());
        let local = self.local_model(&file.name, place, None, None)?;
        let Some(sampling) = file.parameters.as_deref().and_then(ollama_parameters) else {
            return Some(local);
        };
        let facts = ModelFacts {
            sampling: sampling.or(local.facts.sampling),
            ..(*local.facts).clone()
        };
        Some(LocalModel {
            facts: Arc::new(facts),
            ..local
        })
    }

    /// The model of this file, with its tower if another program keeps it apart; `None`: the built-in one.
    fn local_model(
        &self,
        name: &str,
        (path, tower): (Option<&Path>, Option<&Path>),
        sha256: Option<String>,
        made: Option<DerivedModel>,
    ) -> Option<LocalModel> {
        // A file of a cache is a link.
        let canonical = path.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        let is_started = self.is_started(canonical.as_deref());
        let (weights, facts) = match path {
            None => (BUILT_IN_WEIGHTS.to_owned(), built_in_facts()),
            Some(path) => (
                path.to_str()?.to_owned(),
                self.directories.facts(path, tower)?,
            ),
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
            engines: None,
        })
    }

    /// Whether the start model has this canonical path; `None`: is in the binary.
    fn is_started(&self, path: Option<&Path>) -> bool {
        let started = self.started.get();
        started.is_some_and(|started| started.path.as_deref() == path)
    }

    fn started_model(&self, started: &StartedModel) -> LocalModel {
        let mut known = started.facts.lock().unwrap_or_else(PoisonError::into_inner);
        // A model that cannot be read has empty facts here; loading it gives the error.
        let read =
            || read_facts(&started.source, self.quantize).map_or_else(|_| Arc::default(), Arc::new);
        let facts = Arc::clone(known.get_or_insert_with(read));
        LocalModel {
            name: started.source.name.clone(),
            weights: None,
            facts,
            made: None,
            engines: None,
        }
    }

    /// The started model with one of its adapters.
    fn adapted_model(&self, started: &StartedModel, name: &str) -> LocalModel {
        let started = self.started_model(started);
        LocalModel {
            name: name.to_owned(),
            made: Some(Arc::new(DerivedModel {
                parent: started.name.clone(),
                adapter: Some(name.to_owned()),
                ..DerivedModel::default()
            })),
            ..started
        }
    }

    /// The source of a `LocalModel`'s weights; `None`: the started model.
    pub(crate) fn source_of(&self, weights: Option<&str>) -> ModelSource {
        let source = match weights {
            None => match self.started.get() {
                Some(started) => started.source.clone(),
                None => ModelSource::built_in(),
            },
            Some(BUILT_IN_WEIGHTS) => ModelSource::built_in(),
            Some(path) => {
                let name = self
                    .directories
                    .relative(Path::new(path))
                    .unwrap_or_else(|| path.to_owned());
                ModelSource::of_file(name, PathBuf::from(path))
                    .with_tower(self.caches.tower_of(Path::new(path)))
            }
        };
        source.with_named(self.named_for_load(weights))
    }
}

/// The only file whose path ends with this name.
fn only_named<'a>(files: &'a [ModelFile], name: &str) -> Option<&'a ModelFile> {
    let mut alike = files
        .iter()
        .filter(|file| file.name.rsplit('/').next() == Some(name));
    match (alike.next(), alike.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

/// Names of the adapters of the settings, which were checked at the start.
fn adapter_names(settings: &Settings) -> Vec<String> {
    let adapters = settings.adapters().unwrap_or_default();
    adapters.into_iter().map(|adapter| adapter.name).collect()
}

fn built_in_model() -> LocalModel {
    LocalModel {
        name: BUILT_IN.to_owned(),
        weights: Some(BUILT_IN_WEIGHTS.to_owned()),
        facts: built_in_facts(),
        made: None,
        engines: None,
    }
}

fn built_in_facts() -> Arc<ModelFacts> {
    read_facts(&ModelSource::built_in(), None).map_or_else(|_| Arc::default(), Arc::new)
}
