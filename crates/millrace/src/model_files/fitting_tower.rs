//! The tower of a model that sees images: that of its own files, or of several files the one that fits the model.

use super::facts::quantization_name;
use super::source::{ModelSource, is_config};
use crate::config::{TowerFormat, Vision};
use crate::failure::Failure;
use kernels::Format;
use server::TowerFacts;
use std::path::{Path, PathBuf};
use weights::gguf::Gguf;
use weights::safetensors::{self, Safetensors};
use weights::vision::{EmbeddedTower, VisionConfig, is_tower};
use weights::{ConfigError, ModelFiles};

/// Tensor formats of towers, the preferred one first: the usual one, and others by their distance from it.
const FORMATS: [&str; 4] = ["F16", "BF16", "Q8_0", "F32"];

/// A tower that fits a model.
pub(crate) struct FittingTower {
    /// The file; of safetensors, their `config.json`.
    pub(crate) path: PathBuf,
    /// Whether that is the model's own file.
    pub(crate) is_own: bool,
    /// The file, open.
    pub(crate) files: ModelFiles,
    /// Content of its keys.
    pub(crate) config: VisionConfig,
}

/// The result of a search.
#[derive(Default)]
pub(crate) struct TowerSearch {
    /// The best file that fits.
    pub(crate) found: Option<FittingTower>,
    /// Other files, and why each is not used.
    pub(crate) refused: Vec<(PathBuf, String)>,
}

impl TowerSearch {
    /// Looks in the files of a model that writes text, and next to them.
    pub(crate) fn of_model(source: &ModelSource, model: &ModelFiles) -> Self {
        let mut search = Self::default();
        match FittingTower::own(source, model) {
            None => {}
            Some(Ok(tower)) => {
                search.found = Some(tower);
                return search;
            }
            Some(Err(why)) => {
                let path = source.file().unwrap_or(Path::new("")).to_owned();
                search.refused.push((path, why.to_string()));
            }
        }
        let mut fitting = Vec::new();
        for path in source.towers() {
            match FittingTower::open(&path, (&source.name, model)) {
                Ok(tower) => fitting.push(tower),
                Err(why) => search.refused.push((path, why.to_string())),
            }
        }
        search.found = fitting.into_iter().min_by_key(FittingTower::rank);
        search
    }
}

impl FittingTower {
    /// Opens the tower of a file or of a folder of safetensors, and checks that it fits the model.
    ///
    /// # Errors
    /// There is no tower, or one of another model: both numbers are named.
    pub(crate) fn open(path: &Path, model: (&str, &ModelFiles)) -> Result<Self, Failure> {
        let named =
            |why: &dyn std::fmt::Display| Failure::user(format!("{}: {why}", path.display()));
        let (path, files) = if path.is_dir() || is_config(path) {
            let config = if path.is_dir() {
                path.join(safetensors::CONFIG)
            } else {
                path.to_owned()
            };
            (config, tower_of_folder(path)?)
        } else {
            (path.to_owned(), Some(tower_of_file(path)?))
        };
        let files = files.ok_or_else(|| named(&"the model has no tower"))?;
        Self::of_files((path, false), files, model)
    }

    /// The tower in the model's own files; `None`: they have none, or another one is known for the model.
    fn own(source: &ModelSource, model: &ModelFiles) -> Option<Result<Self, Failure>> {
        let path = source.file().filter(|_| !source.has_tower())?;
        let files = match model {
            ModelFiles::Safetensors(_) => tower_of_folder(path).transpose()?,
            _ if model.has_tower_tensors() => tower_of_file(path),
            _ => return None,
        };
        let place = (path.to_owned(), true);
        Some(files.and_then(|files| Self::of_files(place, files, (&source.name, model))))
    }

    fn of_files(
        (path, is_own): (PathBuf, bool),
        files: ModelFiles,
        (name, model): (&str, &ModelFiles),
    ) -> Result<Self, Failure> {
        let named = |why: ConfigError| Failure::user(format!("{}: {why}", path.display()));
        let config = files.tower_config().map_err(named)?;
        let text = model.config(None).map_err(Failure::user)?;
        let fits = config.check_text(name, text.dim, text.deepstack);
        fits.map_err(|why| Failure::user(format!("{}: {why}", path.display())))?;
        Ok(Self {
            path,
            is_own,
            files,
            config,
        })
    }

    /// This tower with the settings' format of matrices and rows of images.
    pub(crate) fn with_settings(mut self, settings: &Vision) -> Self {
        self.config.recipe.rows = settings.detail_rows();
        self.config.quantize = match settings.quantize {
            TowerFormat::AsStored => None,
            TowerFormat::Q8 => Some(Format::Q8_0),
        };
        self
    }

    /// Bytes of its weights.
    pub(crate) fn bytes(&self) -> u64 {
        let tensors = self.files.tensors();
        tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// Facts that lists of models show.
    pub(crate) fn facts(&self) -> TowerFacts {
        let folder = self.path.parent().filter(|_| is_config(&self.path));
        let file = folder.unwrap_or(&self.path).file_name().unwrap_or_default();
        TowerFacts {
            projector: self.config.projector.name().to_owned(),
            file: file.to_string_lossy().into_owned(),
            file_bytes: self.bytes(),
        }
    }

    /// Smaller is better.
    fn rank(&self) -> usize {
        let format = quantization_name(&self.files);
        let known = FORMATS.iter().position(|known| *known == format);
        known.unwrap_or(FORMATS.len())
    }
}

/// The tower in a GGUF: of its own, or inside of a model's.
fn tower_of_file(path: &Path) -> Result<ModelFiles, Failure> {
    let named = |why: &dyn std::fmt::Display| Failure::user(format!("{}: {why}", path.display()));
    let gguf = Gguf::open(path).map_err(Failure::user)?;
    if is_tower(&gguf) {
        return Ok(gguf.into());
    }
    let tower = EmbeddedTower::of(gguf).map_err(|why| named(&why))?;
    let tower = tower.ok_or_else(|| named(&"is no tower (mmproj), and has none inside"))?;
    Ok(tower.into())
}

/// The tower in a folder of safetensors, by the folder or a file in it; `None`: the model has none.
fn tower_of_folder(path: &Path) -> Result<Option<ModelFiles>, Failure> {
    let folder = match path.parent() {
        _ if path.is_dir() => path,
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let tower = Safetensors::open_tower(folder).map_err(Failure::user)?;
    Ok(tower.map(Into::into))
}
