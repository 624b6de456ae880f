//! Models that other programs have downloaded: Ollama's store and Hugging Face's cache. Their files are read in place,
//! and never changed or removed.
//!
//! ```text
//! ollama         manifests/HOST/NAMESPACE/MODEL/TAG   names the file blobs/sha256-HEX
//! hugging face   models--OWNER--REPOSITORY/snapshots/COMMIT/FILE   is a link to a file of the repository's blobs/
//! ```

use super::directories::{ENTRIES_MAX, ModelFile, find_model_file};
use crate::config::{Cache, Settings};
use crate::model_files::ollama_sampling;
use serde::Deserialize;
use server::SamplingDefaults;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of a manifest or of a reference to a commit.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// Namespace of models without one, as in `qwen3:0.6b`.
const OLLAMA_OWN: &str = "registry.ollama.ai/library/";
/// The registry of models whose names have no host.
const OLLAMA_REGISTRY: &str = "registry.ollama.ai/";
/// Where Ollama's installer for Linux has its service keep models.
const OLLAMA_SERVICE: &str = "/usr/share/ollama/.ollama/models";
/// Kinds of a manifest's layers: the weights, and what changes them.
const OLLAMA_WEIGHTS: &str = "application/vnd.ollama.image.model";
const OLLAMA_ADAPTER: &str = "application/vnd.ollama.image.adapter";
const OLLAMA_PARAMETERS: &str = "application/vnd.ollama.image.params";
const OLLAMA_TOWER: &str = "application/vnd.ollama.image.projector";

/// The caches of the settings that exist on this machine.
#[derive(Debug, Default)]
pub(super) struct Caches {
    ollama: Vec<PathBuf>,
    hugging_face: Vec<PathBuf>,
}

/// A model's manifest; other fields are ignored.
#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    #[serde(rename = "mediaType")]
    kind: String,
    digest: String,
}

impl Caches {
    /// The caches of the settings, where the environment and the programs' defaults say that they are.
    pub(super) fn of(settings: &Settings) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let folder = |name: &str| set(name).map(PathBuf::from);
        let wants = |cache| settings.models.caches.contains(&cache);
        let home = folder("HOME");
        let mut caches = Self::default();
        if wants(Cache::Ollama) {
            caches.ollama = match folder("OLLAMA_MODELS") {
                Some(folder) => vec![folder],
                None => {
                    let own = home.as_ref().map(|home| home.join(".ollama/models"));
                    own.into_iter().chain([OLLAMA_SERVICE.into()]).collect()
                }
            };
        }
        if wants(Cache::HuggingFace) {
            let hub = folder("HF_HUB_CACHE").or_else(|| Some(folder("HF_HOME")?.join("hub")));
            let default = || {
                let cache = folder("XDG_CACHE_HOME").or_else(|| Some(home?.join(".cache")));
                Some(cache?.join("huggingface/hub"))
            };
            caches.hugging_face = hub.or_else(default).into_iter().collect();
        }
        caches
    }

    /// The tower that Ollama's store has for the model with this file.
    pub(super) fn tower_of(&self, model: &Path) -> Option<PathBuf> {
        let files = self.files().into_iter();
        files
            .filter(|file| file.path == model)
            .find_map(|file| file.tower)
    }

    /// All models, by name. A model that cannot be opened is among them.
    pub(super) fn files(&self) -> Vec<ModelFile> {
        let mut left = ENTRIES_MAX;
        let mut found = Vec::new();
        for root in &self.ollama {
            ollama_models(root, &mut left, &mut found);
        }
        for root in &self.hugging_face {
            hugging_face_models(root, &mut left, &mut found);
        }
        found.sort();
        found.dedup_by(|b, a| a.name == b.name);
        found
    }
}

/// Paths in a folder, as far as entries are left.
fn entries(folder: &Path, left: &mut usize) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths: Vec<PathBuf> = entries
        .take(*left)
        .flatten()
        .map(|entry| entry.path())
        .collect();
    *left -= paths.len().min(*left);
    paths
}

/// The models of Ollama's store. Those with an adapter are left out: without it they are other models.
fn ollama_models(root: &Path, left: &mut usize, found: &mut Vec<ModelFile>) {
    let Ok(root) = root.canonicalize() else {
        return;
    };
    let manifests = root.join("manifests");
    let mut folders = vec![manifests.clone()];
    for _ in 0..3 {
        let inner: Vec<_> = folders.iter().flat_map(|f| entries(f, left)).collect();
        folders = inner;
    }
    for manifest in folders.iter().flat_map(|folder| entries(folder, left)) {
        let relative = manifest.strip_prefix(&manifests).ok();
        let name = relative.and_then(Path::to_str).and_then(ollama_name);
        let files = ollama_files(&root, &manifest);
        found.extend(
            name.zip(files)
                .map(|(name, files)| ModelFile { name, ..files }),
        );
    }
}

/// `MODEL:TAG` of `HOST/NAMESPACE/MODEL/TAG`, behind the namespace and the host where these are not Ollama's own.
fn ollama_name(relative: &str) -> Option<String> {
    let (path, tag) = relative.rsplit_once('/')?;
    let own = path.strip_prefix(OLLAMA_OWN);
    let path = own
        .or_else(|| path.strip_prefix(OLLAMA_REGISTRY))
        .unwrap_or(path);
    Some(format!("{path}:{tag}"))
}

/// The file of a manifest's weights, if it is inside of the store, with those of its parameters and of its tower. The name is
/// empty.
fn ollama_files(root: &Path, manifest: &Path) -> Option<ModelFile> {
    let manifest: Manifest = serde_json::from_str(&short_text(manifest)?).ok()?;
    let of_kind = |kind: &str| manifest.layers.iter().find(|layer| layer.kind == kind);
    if of_kind(OLLAMA_ADAPTER).is_some() {
        return None;
    }
    let file_of = |kind: &str| {
        let hex = of_kind(kind)?.digest.strip_prefix("sha256:")?;
        if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let path = root.join("blobs").join(format!("sha256-{hex}"));
        path_under(root, &path).map(|_| path)
    };
    Some(ModelFile {
        name: String::new(),
        path: file_of(OLLAMA_WEIGHTS)?,
        parameters: file_of(OLLAMA_PARAMETERS),
        tower: file_of(OLLAMA_TOWER),
    })
}

/// The sampling parameters among Ollama's parameters of a model.
pub(super) fn ollama_parameters(path: &Path) -> Option<SamplingDefaults> {
    let parameters = serde_json::from_str(&short_text(path)?).ok()?;
    Some(ollama_sampling(path, &parameters))
}

/// The models of Hugging Face's cache: of each repository the commit of `main`, or the only one.
fn hugging_face_models(root: &Path, left: &mut usize, found: &mut Vec<ModelFile>) {
    let Ok(root) = root.canonicalize() else {
        return;
    };
    for repository in entries(&root, left) {
        let folder = repository.file_name().and_then(|name| name.to_str());
        let name = folder.and_then(|folder| folder.strip_prefix("models--"));
        let Some(name) = name.map(|name| name.replacen("--", "/", 1)) else {
            continue;
        };
        if let Some(snapshot) = snapshot_of(&repository, left) {
            snapshot_models(&repository, (&snapshot, &name), left, found);
        }
    }
}

/// The folder of the commit of `main`; without that reference, the folder of the only commit.
fn snapshot_of(repository: &Path, left: &mut usize) -> Option<PathBuf> {
    let snapshots = repository.join("snapshots");
    match short_text(&repository.join("refs/main")) {
        Some(commit) => {
            let commit = commit.trim();
            let is_plain = !commit.is_empty() && commit.bytes().all(|b| b.is_ascii_alphanumeric());
            is_plain.then(|| snapshots.join(commit))
        }
        None => match entries(&snapshots, left).as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        },
    }
}

/// The models in a snapshot and in its folders, whose files are links to files of the repository.
fn snapshot_models(
    repository: &Path,
    (snapshot, name): (&Path, &str),
    left: &mut usize,
    found: &mut Vec<ModelFile>,
) {
    let top = entries(snapshot, left);
    let folders = top.iter().filter(|path| path.is_dir());
    let inner: Vec<_> = folders.flat_map(|folder| entries(folder, left)).collect();
    for path in top.iter().chain(&inner) {
        let Some(file) = find_model_file(snapshot, path) else {
            continue;
        };
        if path_under(repository, path).is_none() {
            continue;
        }
        found.push(ModelFile {
            name: match file.as_str() {
                "" => name.to_owned(),
                file => format!("{name}/{file}"),
            },
            path: path.clone(),
            parameters: None,
            tower: None,
        });
    }
}

/// The canonical path of a file, if it is under `root`.
fn path_under(root: &Path, path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    (path.starts_with(root) && path.is_file()).then_some(path)
}

/// The text of a small file.
fn short_text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}
