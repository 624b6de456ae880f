//! The models there are: every `.gguf` under the operator's directories, by a name made of its path, and every
//! folder of safetensors there, by its own path.
//!
//! A name that somebody types is never made into a path: it is compared with those that were found. A file that is
//! found but is, links followed, outside its directory is left alone.

use crate::config::Quantize;
use crate::loading::{Place, has_safetensors, is_config};
use model::gguf::SplitName;
use server::ModelFacts;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Entries of all directories that are looked at; what is beyond them is not found.
pub(super) const ENTRIES_MAX: usize = 20_000;
/// How deep directories are looked into.
const DEPTH_MAX: usize = 6;
/// Files whose headers are remembered; they are all read again when there are more.
const FACTS_MAX: usize = 1024;

/// A model's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct File {
    /// Relative path in the model directory, without `.gguf` and without the number of a part; a folder's own path.
    pub(super) name: String,
    /// Where it is, links followed; of safetensors, their `config.json`.
    pub(super) path: PathBuf,
}

/// All directories, and what is known of the files in them.
pub(super) struct Shelf {
    directories: Vec<PathBuf>,
    quantize: Option<Quantize>,
    facts: Mutex<HashMap<PathBuf, Read>>,
}

/// What a file's header said, when it was so large and so old.
struct Read {
    bytes: u64,
    modified: SystemTime,
    facts: Option<Arc<ModelFacts>>,
}

impl Shelf {
    pub(super) fn new(directories: Vec<PathBuf>, quantize: Option<Quantize>) -> Self {
        Self {
            directories,
            quantize,
            facts: Mutex::default(),
        }
    }

    /// Where new models go.
    pub(super) fn first(&self) -> Option<&Path> {
        self.directories.first().map(PathBuf::as_path)
    }

    /// All files, by name.
    pub(super) fn files(&self) -> Vec<File> {
        let mut found = Vec::new();
        let mut left = ENTRIES_MAX;
        for directory in &self.directories {
            if let Ok(root) = directory.canonicalize() {
                walk(&root, &root, DEPTH_MAX, &mut left, &mut found);
            }
        }
        found.sort();
        found.dedup_by(|b, a| a.name == b.name);
        found
    }

    /// The file that a record names by its path under a directory, if it is one of ours.
    pub(super) fn file(&self, relative: &str) -> Option<PathBuf> {
        let is_plain =
            |part: std::path::Component<'_>| matches!(part, std::path::Component::Normal(_));
        if relative.is_empty() || !Path::new(relative).components().all(is_plain) {
            return None;
        }
        self.directories.iter().find_map(|directory| {
            let root = directory.canonicalize().ok()?;
            inside(&root, &root.join(relative))
        })
    }

    /// The path relative to the model directory, as records have it.
    pub(super) fn relative(&self, path: &Path) -> Option<String> {
        self.directories.iter().find_map(|directory| {
            let root = directory.canonicalize().ok()?;
            Some(path.strip_prefix(root).ok()?.to_str()?.to_owned())
        })
    }

    /// What its header says; `None` of a file that is no model.
    pub(super) fn facts(&self, path: &Path) -> Option<Arc<ModelFacts>> {
        let metadata = path.metadata().ok()?;
        let (bytes, modified) = (metadata.len(), metadata.modified().ok()?);
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = known.get(path)
            && (read.bytes, read.modified) == (bytes, modified)
        {
            return read.facts.clone();
        }
        let facts = Place::of_file(String::new(), path.to_owned()).facts(self.quantize);
        let facts = match facts {
            Ok(facts) => Some(Arc::new(facts)),
            Err(why) => {
                tracing::warn!("file skipped, not a usable model: {why}");
                None
            }
        };
        if known.len() >= FACTS_MAX {
            known.clear();
        }
        let read = Read {
            bytes,
            modified,
            facts: facts.clone(),
        };
        known.insert(path.to_owned(), read);
        facts
    }
}

/// Finds files; directories that are links are not followed, so there is an end.
fn walk(root: &Path, folder: &Path, depth: usize, left: &mut usize, found: &mut Vec<File>) {
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
            Ok(kind) if kind.is_dir() && depth > 0 => walk(root, &path, depth - 1, left, found),
            Ok(kind) if kind.is_dir() => {}
            Ok(_) => found.extend(file(root, &path)),
            Err(_) => {}
        }
    }
}

fn file(root: &Path, path: &Path) -> Option<File> {
    if is_config(path) {
        let folder = path.parent()?;
        let name = folder.strip_prefix(root).ok()?.to_str()?;
        return (!name.is_empty() && has_safetensors(folder)).then_some(File {
            name: name.to_owned(),
            path: inside(root, path)?,
        });
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
    Some(File {
        name: name.to_owned(),
        path: inside(root, path)?,
    })
}

/// Where a regular file is, if that is under `root`. A `config.json` stands for its folder: the folder's own
/// path is followed, and every file in it must be under `root`.
fn inside(root: &Path, path: &Path) -> Option<PathBuf> {
    let is_ours = |path: &Path| path.starts_with(root) && path.is_file() && path.to_str().is_some();
    if !is_config(path) {
        let path = path.canonicalize().ok()?;
        return is_ours(&path).then_some(path);
    }
    let folder = path.parent()?.canonicalize().ok()?;
    let stays = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.and_then(|entry| entry.path().canonicalize());
        path.is_ok_and(|path| path.starts_with(root))
    };
    let path = folder.join(path.file_name()?);
    let mut entries = std::fs::read_dir(&folder).ok()?.take(ENTRIES_MAX);
    (is_ours(&path) && entries.all(stays)).then_some(path)
}
