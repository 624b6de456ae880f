//! The models of the configured directories: every `.gguf` under them, by a name made of its path, and every folder of
//! safetensors, by the folder's path.
//!
//! A client's name is never made into a path, only compared with the names of the files found. A file whose canonical
//! path is outside its model directory is ignored.

use crate::config::Quantize;
use crate::model_files::{ModelSource, has_safetensors, is_config, read_facts};
use model::gguf::SplitName;
use server::ModelFacts;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Entries examined in all directories together; files beyond them are not found.
pub(super) const ENTRIES_MAX: usize = 20_000;
/// Levels of subdirectories searched.
const DEPTH_MAX: usize = 6;
/// Files whose facts are cached; a full cache is emptied.
const FACTS_MAX: usize = 1024;

/// A model's first file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModelFile {
    /// Relative path in the model directory, without `.gguf` and without the number of a part; a folder's own path.
    pub(super) name: String,
    /// Canonical path; of safetensors, that of their `config.json`.
    pub(super) path: PathBuf,
    /// The file with Ollama's parameters of the model.
    pub(super) parameters: Option<PathBuf>,
}

/// The model directories, with a cache of the facts of their files.
pub(super) struct ModelDirectories {
    directories: Vec<PathBuf>,
    quantize: Option<Quantize>,
    facts: Mutex<HashMap<PathBuf, CachedFacts>>,
}

/// A file's facts, valid while size and modification time are these.
struct CachedFacts {
    bytes: u64,
    modified: SystemTime,
    facts: Option<Arc<ModelFacts>>,
}

impl ModelDirectories {
    pub(super) fn new(directories: Vec<PathBuf>, quantize: Option<Quantize>) -> Self {
        Self {
            directories,
            quantize,
            facts: Mutex::default(),
        }
    }

    /// The directory of new models.
    pub(super) fn first(&self) -> Option<&Path> {
        self.directories.first().map(PathBuf::as_path)
    }

    /// All files, by name.
    pub(super) fn files(&self) -> Vec<ModelFile> {
        let mut found = Vec::new();
        let mut left = ENTRIES_MAX;
        for directory in &self.directories {
            if let Ok(root) = directory.canonicalize() {
                find_files(&root, &root, DEPTH_MAX, &mut left, &mut found);
            }
        }
        found.sort();
        found.dedup_by(|b, a| a.name == b.name);
        found
    }

    /// The file that a record names by its path relative to a model directory, if it is inside of that directory.
    pub(super) fn file(&self, relative: &str) -> Option<PathBuf> {
        let is_plain =
            |part: std::path::Component<'_>| matches!(part, std::path::Component::Normal(_));
        if relative.is_empty() || !Path::new(relative).components().all(is_plain) {
            return None;
        }
        self.directories.iter().find_map(|directory| {
            let root = directory.canonicalize().ok()?;
            path_inside(&root, &root.join(relative))
        })
    }

    /// The path relative to the model directory, as records store it.
    pub(super) fn relative(&self, path: &Path) -> Option<String> {
        self.directories.iter().find_map(|directory| {
            let root = directory.canonicalize().ok()?;
            Some(path.strip_prefix(root).ok()?.to_str()?.to_owned())
        })
    }

    /// The facts of a model's file; `None` of a file that is no model.
    pub(super) fn facts(&self, path: &Path) -> Option<Arc<ModelFacts>> {
        let metadata = path.metadata().ok()?;
        let (bytes, modified) = (metadata.len(), metadata.modified().ok()?);
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = known.get(path)
            && (read.bytes, read.modified) == (bytes, modified)
        {
            return read.facts.clone();
        }
        let source = ModelSource::of_file(String::new(), path.to_owned());
        let facts = match read_facts(&source, self.quantize) {
            Ok(facts) => Some(Arc::new(facts)),
            Err(why) => {
                tracing::warn!("file skipped, not a usable model: {why}");
                None
            }
        };
        if known.len() >= FACTS_MAX {
            known.clear();
        }
        let read = CachedFacts {
            bytes,
            modified,
            facts: facts.clone(),
        };
        known.insert(path.to_owned(), read);
        facts
    }
}

/// Finds the models under `folder`. Links to directories are not followed, so the search ends.
fn find_files(
    root: &Path,
    folder: &Path,
    depth: usize,
    left: &mut usize,
    found: &mut Vec<ModelFile>,
) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let (path, kind) = (entry.path(), entry.file_type());
        match kind {
            Ok(kind) if kind.is_dir() && depth > 0 => {
                find_files(root, &path, depth - 1, left, found);
            }
            Ok(kind) if kind.is_dir() => {}
            Ok(_) => found.extend(model_file(root, &path)),
            Err(_) => {}
        }
    }
}

/// The model that a path is the first file of.
fn model_file(root: &Path, path: &Path) -> Option<ModelFile> {
    let name = find_model_file(root, path).filter(|name| !name.is_empty())?;
    Some(ModelFile {
        parameters: None,
        name,
        path: path_inside(root, path)?,
    })
}

/// The name of the model that a path is the first file of: the relative path, empty of safetensors in `root` itself.
pub(super) fn find_model_file(root: &Path, path: &Path) -> Option<String> {
    if is_config(path) {
        let folder = path.parent()?;
        let name = folder.strip_prefix(root).ok()?.to_str()?;
        return has_safetensors(folder).then(|| name.to_owned());
    }
    if path.extension()? != "gguf" {
        return None;
    }
    let relative = path.strip_prefix(root).ok()?.to_str()?;
    let name = match SplitName::parse(path) {
        None => relative.strip_suffix(".gguf")?,
        Some(split) if split.part == 0 => relative.rsplitn(4, '-').last()?,
        Some(_) => return None,
    };
    Some(name.to_owned())
}

/// The canonical path of a regular file, if it is under `root`. A `config.json` stands for its folder: every file in the
/// folder must be under `root`.
fn path_inside(root: &Path, path: &Path) -> Option<PathBuf> {
    let is_inside =
        |path: &Path| path.starts_with(root) && path.is_file() && path.to_str().is_some();
    if !is_config(path) {
        let path = path.canonicalize().ok()?;
        return is_inside(&path).then_some(path);
    }
    let folder = path.parent()?.canonicalize().ok()?;
    let stays = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.and_then(|entry| entry.path().canonicalize());
        path.is_ok_and(|path| path.starts_with(root))
    };
    let path = folder.join(path.file_name()?);
    let mut entries = std::fs::read_dir(&folder).ok()?.take(ENTRIES_MAX);
    (is_inside(&path) && entries.all(stays)).then_some(path)
}
