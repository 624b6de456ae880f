//! Where a model's files are: a GGUF file, a folder of safetensors or the binary itself. A model of safetensors is
//! known by the path of its `config.json`.
//!
//! The default model is Millrace's own, in the binary, or, in a build without the feature `mini`, a model of random weights.

use super::tower_files::{is_tower, towers_beside};
use crate::config::{NamedModel, Quantize, Settings, Speculation};
use crate::failure::Failure;
use server::SamplingDefaults;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use weights::gguf::{Gguf, SplitName};
use weights::safetensors::Safetensors;
use weights::{ModelFiles, safetensors};

/// Directory entries examined; a directory with more is not a model's.
const ENTRIES_MAX: usize = 10_000;

/// A model that was found and not opened, and the name that clients use.
#[derive(Clone, Debug)]
pub(crate) struct ModelSource {
    pub(crate) name: String,
    /// `None`: in the binary.
    file: Option<PathBuf>,
    /// The settings name this model.
    is_started: bool,
    /// Settings of this model alone.
    named: Option<Box<NamedModel>>,
    /// Sampling parameters that are recommended under this name, before those of the files.
    sampling: SamplingDefaults,
    /// The tower that another program keeps apart from the model.
    tower: Option<PathBuf>,
}

impl ModelSource {
    /// The model in the binary.
    pub(crate) fn built_in() -> Self {
        Self {
            name: NAME.to_owned(),
            file: None,
            is_started: false,
            named: None,
            sampling: SamplingDefaults::default(),
            tower: None,
        }
    }

    /// A GGUF file, or the `config.json` of safetensors.
    pub(crate) fn of_file(name: String, file: PathBuf) -> Self {
        Self {
            name,
            file: Some(file),
            is_started: false,
            named: None,
            sampling: SamplingDefaults::default(),
            tower: None,
        }
    }

    /// This source as the one that the settings name, under the settings' name for the model if there is one.
    pub(crate) fn with_start_name(self, name: Option<String>) -> Self {
        Self {
            name: name.unwrap_or(self.name),
            is_started: true,
            ..self
        }
    }

    /// This source with settings of its own.
    pub(crate) fn with_named(self, named: Option<&NamedModel>) -> Self {
        Self {
            named: named.cloned().map(Box::new),
            ..self
        }
    }

    /// This source with sampling parameters that are recommended under its name.
    pub(crate) fn with_sampling(self, sampling: SamplingDefaults) -> Self {
        Self { sampling, ..self }
    }

    /// This source with a tower that is in another place than the model.
    pub(crate) fn with_tower(self, tower: Option<PathBuf>) -> Self {
        Self { tower, ..self }
    }

    /// Files that may be the model's tower.
    pub(crate) fn towers(&self) -> Vec<PathBuf> {
        match (&self.tower, &self.file) {
            (Some(tower), _) => vec![tower.clone()],
            (None, Some(file)) => towers_beside(file),
            (None, None) => Vec::new(),
        }
    }

    /// Whether another program keeps the tower apart from the model.
    pub(super) fn has_tower(&self) -> bool {
        self.tower.is_some()
    }

    /// Sampling parameters that are recommended under this name, before those of the files.
    pub(super) fn sampling(&self) -> SamplingDefaults {
        self.sampling
    }

    /// The settings for this model: a draft model, an MTP head, adapters, a chat template, a context and the prompt cache on disk apply only to the
    /// model that the settings name; settings of this model alone take precedence.
    pub(crate) fn settings(&self, all: &Settings) -> Settings {
        let mut settings = all.clone();
        if !self.is_started {
            settings.model.context = None;
            settings.model.adapters.clear();
            settings.model.chat_template = None;
            settings.cache.disk_gib = 0;
            if let Speculation::Draft | Speculation::Mtp = settings.engine.speculation {
                settings.engine.speculation = Speculation::Off;
                settings.engine.draft_model = None;
            }
        }
        if let Some(named) = &self.named {
            named.apply_to(&mut settings);
        }
        settings
    }

    /// The path of the first file; `None`: in the binary.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Opens the files. Safetensors will be quantized to `quantize` while they are loaded.
    pub(crate) fn open(&self, quantize: Option<Quantize>) -> Result<ModelFiles, Failure> {
        match &self.file {
            Some(file) if is_config(file) => {
                let folder = file.parent().unwrap_or(Path::new("."));
                Safetensors::open(folder, quantize.map(Into::into))
                    .map(Into::into)
                    .map_err(Failure::user)
            }
            // The error names the file, or the part of the file that is wrong.
            Some(file) => Gguf::open(file).map(Into::into).map_err(Failure::user),
            None => open().map(Into::into),
        }
    }

    /// Modification time of the file; the epoch for a model that is in no file.
    pub(super) fn modified(&self) -> SystemTime {
        let file = self.file.as_ref().map(std::fs::metadata);
        let modified = file.and_then(|metadata| metadata.ok()?.modified().ok());
        modified.unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// The source of an existing path: a file, or a directory with one model.
///
/// # Errors
/// The directory has no model, or more than one.
pub(crate) fn source_of_path(path: &Path, is_directory: bool) -> Result<ModelSource, Failure> {
    let file = if is_directory {
        only_model(path)?
    } else {
        config_beside(path).unwrap_or_else(|| path.to_owned())
    };
    let name = if is_config(&file) {
        folder_name(&file)
    } else {
        model_stem(&file)
    };
    Ok(ModelSource::of_file(name, file))
}

/// Whether a path is that of safetensors' `config.json`.
pub(crate) fn is_config(file: &Path) -> bool {
    file.file_name()
        .is_some_and(|name| name == safetensors::CONFIG)
}

/// Whether a folder has safetensors and their `config.json`.
pub(crate) fn has_safetensors(folder: &Path) -> bool {
    let exists = |name: &str| folder.join(name).is_file();
    exists(safetensors::CONFIG) && (exists(safetensors::ONE) || exists(safetensors::INDEX))
}

/// The `config.json` beside a file of safetensors, which names the whole folder's model.
fn config_beside(file: &Path) -> Option<PathBuf> {
    let is_part = file.extension()? == "safetensors";
    is_part.then(|| file.with_file_name(safetensors::CONFIG))
}

/// The name of a file's folder, also where the path is relative or has `..` in it.
fn folder_name(file: &Path) -> String {
    let folder = file.canonicalize().ok();
    let name = folder
        .as_deref()
        .and_then(Path::parent)
        .and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The one model of a directory: one file, the first part of one split file, or safetensors.
pub(crate) fn only_model(directory: &Path) -> Result<PathBuf, Failure> {
    let shown = directory.display();
    let mut models = Vec::new();
    for entry in std::fs::read_dir(directory)?.take(ENTRIES_MAX) {
        let path = entry?.path();
        let is_gguf = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"));
        let later_part = SplitName::parse(&path).is_some_and(|split| split.part != 0);
        if is_gguf && !later_part && !is_tower(&path) {
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
            let names: Vec<_> = many.iter().map(|path| model_stem(path)).collect();
            Err(Failure::user(format!(
                "{shown}: which one? {}",
                names.join(", ")
            )))
        }
    }
}

/// A file's name without `.gguf` and without a split's `-00001-of-00003`.
pub(super) fn model_stem(path: &Path) -> String {
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

/// The name of the built-in model in the API.
pub(crate) const NAME: &str = if cfg!(feature = "mini") {
    "millrace-mini"
} else {
    "synthetic"
};

/// Opens the model in place, in the binary's own memory.
#[cfg(feature = "mini")]
pub(super) fn open() -> Result<Gguf, Failure> {
    static MINI: &[u8] = include_bytes!("../../mini/millrace-mini.gguf");
    Gguf::from_bytes(MINI).map_err(Failure::bug)
}

/// Makes a model of random weights, so that a new user sees a stream at once.
#[cfg(not(feature = "mini"))]
pub(super) fn open() -> Result<Gguf, Failure> {
    let bytes = crate::commands::synth::in_memory("tiny-llama", "Q8_0")?;
    Gguf::from_bytes(bytes).map_err(Failure::bug)
}
