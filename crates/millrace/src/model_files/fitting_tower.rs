//! The tower of a model that sees images: of several files, the one that fits the model.

use super::facts::quantization_name;
use super::source::ModelSource;
use crate::failure::Failure;
use server::TowerFacts;
use std::path::{Path, PathBuf};
use weights::gguf::Gguf;
use weights::vision::VisionConfig;
use weights::{ConfigError, ModelFiles};

/// Tensor formats of towers, the preferred one first: the usual one, and others by their distance from it.
const FORMATS: [&str; 4] = ["F16", "BF16", "Q8_0", "F32"];

/// A tower's file that fits a model.
pub(crate) struct FittingTower {
    /// The file.
    pub(crate) path: PathBuf,
    /// The file, open.
    pub(crate) files: ModelFiles,
    /// The contents of its header.
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
    /// Looks next to a model that writes text.
    pub(crate) fn beside(source: &ModelSource, model: &ModelFiles) -> Self {
        let mut search = Self::default();
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
    /// Opens a tower, and checks that it fits the model.
    ///
    /// # Errors
    /// The file is no tower, or one of another model: both numbers are named.
    pub(crate) fn open(path: &Path, (name, model): (&str, &ModelFiles)) -> Result<Self, Failure> {
        let gguf = Gguf::open(path).map_err(Failure::user)?;
        let named = |why: ConfigError| Failure::user(format!("{}: {why}", path.display()));
        let config = VisionConfig::from_gguf(&gguf).map_err(named)?;
        let text = model.config(None).map_err(Failure::user)?;
        let fits = config.check_text(name, text.dim, text.deepstack);
        fits.map_err(|why| Failure::user(format!("{}: {why}", path.display())))?;
        Ok(Self {
            path: path.to_owned(),
            files: gguf.into(),
            config,
        })
    }

    /// Bytes of its weights.
    pub(crate) fn bytes(&self) -> u64 {
        let tensors = self.files.tensors();
        tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// Facts that lists of models show.
    pub(crate) fn facts(&self) -> TowerFacts {
        let file = self.path.file_name().unwrap_or_default();
        TowerFacts {
            projector: self.config.projector.name().to_owned(),
            file: file.to_string_lossy().into_owned(),
            file_bytes: self.files.file_bytes(),
        }
    }

    /// Smaller is better.
    fn rank(&self) -> usize {
        let format = quantization_name(&self.files);
        let known = FORMATS.iter().position(|known| *known == format);
        known.unwrap_or(FORMATS.len())
    }
}
