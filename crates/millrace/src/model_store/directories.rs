//! The models of the configured directories: every `.gguf` under them, by a name made of its path, and every folder of
//! safetensors, by the folder's path.
//!
//! A client's name is never made into a path, only compared with the names of the files found. A link to a folder or out
//! of its model directory is not followed: a user who can add a link would choose what is read. It is named as skipped.

use crate::config::Quantize;
use crate::model_files::{ModelSource, has_safetensors, is_config, is_tower, read_facts};
use crate::terminal_text::printable;
use server::ModelFacts;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use weights::gguf::SplitName;

/// Entries examined in all directories together; files beyond them are not found.
pub(super) const ENTRIES_MAX: usize = 20_000;
/// Levels of subdirectories searched.
const DEPTH_MAX: usize = 6;
/// Files whose facts are cached; a full cache is emptied.
const FACTS_MAX: usize = 1024;

/// Skipped links that are named.
const SKIPPED_MAX: usize = 20;

/// A link in a model directory that is not followed, or a folder with one among the model's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SkippedLink {
    path: PathBuf,
    why: &'static str,
}

impl fmt::Display for SkippedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display().to_string();
        write!(f, "{} is skipped: {}", printable(&path), self.why)
    }
}

/// A model's first file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModelFile {
    /// Relative path in the model directory, without `.gguf` and without the number of a part; a folder's own path.
    pub(super) name: String,
    /// Canonical path; of safetensors, that of their `config.json`.
    pub(super) path: PathBuf,
    /// The file with Ollama's parameters of the model.
    pub(super) parameters: Option<PathBuf>,
    /// The file with the model's tower in Ollama's store.
    pub(super) tower: Option<PathBuf>,
}

/// The model directories, with a cache of the facts of their files.
pub(super) struct ModelDirectories {
    directories: Vec<PathBuf>,
    quantize: Option<Quantize>,
    facts: Mutex<HashMap<(PathBuf, Option<PathBuf>), CachedFacts>>,
}

/// A file's facts, valid while size and modification times are these.
struct CachedFacts {
    bytes: u64,
    modified: SystemTime,
    /// Of the folder, which changes when a tower comes or goes.
    folder_modified: Option<SystemTime>,
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
        let mut found = self.search().found;
        found.sort();
        found.dedup_by(|b, a| a.name == b.name);
        found
    }

    /// Links that are not followed.
    pub(super) fn skipped(&self) -> Vec<SkippedLink> {
        self.search().skipped
    }

    fn search(&self) -> Search {
        let mut search = Search {
            left: ENTRIES_MAX,
            found: Vec::new(),
            skipped: Vec::new(),
        };
        for directory in &self.directories {
            if let Ok(root) = directory.canonicalize() {
                search.visit(&root, &root, DEPTH_MAX);
            }
        }
        search
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

    /// The facts of a model's file; `None` of a file that is no model. `tower`: where another program keeps the model's tower.
    pub(super) fn facts(&self, path: &Path, tower: Option<&Path>) -> Option<Arc<ModelFacts>> {
        let metadata = path.metadata().ok()?;
        let (bytes, modified) = (metadata.len(), metadata.modified().ok()?);
        let folder = path.parent().and_then(|folder| folder.metadata().ok());
        let folder_modified = folder.and_then(|folder| folder.modified().ok());
        // Two names of Ollama's may share a model's file, and have different projectors.
        let key = (path.to_owned(), tower.map(Path::to_owned));
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = known.get(&key)
            && (read.bytes, read.modified, read.folder_modified)
                == (bytes, modified, folder_modified)
        {
            return read.facts.clone();
        }
        let source = ModelSource::of_file(String::new(), path.to_owned());
        let source = source.with_tower(key.1.clone());
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
            folder_modified,
            facts: facts.clone(),
        };
        known.insert(key, read);
        facts
    }
}

/// A search through the model directories.
struct Search {
    /// Entries that may still be examined.
    left: usize,
    found: Vec<ModelFile>,
    skipped: Vec<SkippedLink>,
}

impl Search {
    /// Finds the models under `folder`. Links to directories are not followed, so the search ends.
    fn visit(&mut self, root: &Path, folder: &Path, depth: usize) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        for entry in entries.flatten() {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let (path, kind) = (entry.path(), entry.file_type());
            match kind {
                Ok(kind) if kind.is_dir() && depth > 0 => self.visit(root, &path, depth - 1),
                Ok(kind) if kind.is_dir() => {}
                Ok(kind) => match model_file(root, &path) {
                    Some(file) => self.found.push(file),
                    None => self.skip(root, path, kind.is_symlink()),
                },
                Err(_) => {}
            }
        }
    }

    /// Notes a link that is not followed, and a model of safetensors with such a link among its files.
    fn skip(&mut self, root: &Path, path: PathBuf, is_link: bool) {
        let is_model = || find_model_file(root, &path).is_some_and(|name| !name.is_empty());
        let why = match std::fs::metadata(&path) {
            Ok(found) if is_link && found.is_dir() => {
                "a link to a folder is not followed; name that folder in models.directories (--models-dir)"
            }
            Ok(_) if is_link && is_model() => {
                "a link out of the directory is not followed; name its folder in models.directories (--models-dir)"
            }
            Ok(_) if is_config(&path) && is_model() => {
                "a file of this model is a link out of the directory, which is not followed"
            }
            Err(_) if is_link && is_model() => "the link's file does not exist",
            _ => return,
        };
        if self.skipped.len() < SKIPPED_MAX {
            self.skipped.push(SkippedLink { path, why });
        }
    }
}

/// The model that a path is the first file of.
fn model_file(root: &Path, path: &Path) -> Option<ModelFile> {
    let name = find_model_file(root, path).filter(|name| !name.is_empty())?;
    Some(ModelFile {
        parameters: None,
        tower: None,
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
    if path.extension()? != "gguf" || is_tower(path) {
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
