//! Settings of models that are loaded on demand.

use super::{NamedModels, PackedCacheUse, memory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::ModelLimits;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Models in addition to the one that the server is started with; each is loaded on demand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Models {
    /// Directories of models; `millrace pull` downloads to the first. Default: `millrace/models` in the user's
    /// cache (`$XDG_CACHE_HOME` or `~/.cache`).
    pub(crate) directories: Vec<PathBuf>,
    /// Other programs' caches whose models are listed and read in place, never changed: `ollama` (`$OLLAMA_MODELS` or
    /// `~/.ollama/models`) and `huggingface` (`$HF_HUB_CACHE`, `$HF_HOME/hub` or `~/.cache/huggingface/hub`).
    pub(crate) caches: Vec<Cache>,
    /// Use of the cache of packed weights, which spares a second load of a model the packing: `copy` into memory with huge pages, `map` the file, which processes share, or `off`. Models below 64 MiB are never cached.
    pub(crate) packed_cache: PackedCacheUse,
    /// Maximum size of all files of the cache of packed weights; those that were not used for the longest time are removed.
    pub(crate) packed_cache_gib: u64,
    /// Directory of the cache of packed weights. Default: `millrace/packed` in the user's cache (`$XDG_CACHE_HOME` or `~/.cache`).
    pub(crate) packed_cache_directory: Option<PathBuf>,
    /// Memory budget of all loaded models, including KV caches; the least recently used idle model is evicted.
    /// Default: seven eighths of the machine's memory.
    pub(crate) memory_budget_mib: Option<u64>,
    /// Idle time after which a model loaded on demand is unloaded, unless a request sets `keep_alive`; 0 = never. The
    /// model that the server was started with stays loaded.
    pub(crate) idle_unload_s: u64,
    /// Maximum number of requests waiting for models to be loaded.
    pub(crate) waiting_max: usize,
    /// Maximum time that a request waits for its model.
    pub(crate) load_timeout_s: u64,
    /// Settings of single models, by name: `system`, `parameters` (defaults of requests), `from` (a new name for another model); and for loading `context`, `kv_mib`, `kv_type`, `adapters`, `chat_template`, which take precedence over `model.*`.
    pub(crate) named: NamedModels,
}

/// A program whose downloads are models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cache {
    /// Ollama's store.
    Ollama,
    /// The cache of Hugging Face's libraries.
    HuggingFace,
}

impl Default for Models {
    fn default() -> Self {
        let limits = ModelLimits::default();
        Self {
            directories: Vec::new(),
            caches: vec![Cache::Ollama, Cache::HuggingFace],
            packed_cache: PackedCacheUse::Copy,
            packed_cache_gib: 16,
            packed_cache_directory: None,
            memory_budget_mib: None,
            idle_unload_s: limits.idle.map_or(0, |idle| idle.as_secs()),
            waiting_max: limits.waiting_max,
            load_timeout_s: limits.patience.as_secs(),
            named: NamedModels::new(),
        }
    }
}

impl Models {
    /// The model directories; empty if neither a setting nor the environment names one.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        if !self.directories.is_empty() {
            return self.directories.clone();
        }
        let own = own_cache();
        own.map(|own| own.join("models")).into_iter().collect()
    }

    /// The directory of packed weights; `None` if neither a setting nor the environment names one.
    pub(crate) fn packed_cache_directory(&self) -> Option<PathBuf> {
        match &self.packed_cache_directory {
            Some(directory) => Some(directory.clone()),
            None => Some(own_cache()?.join("packed")),
        }
    }

    /// The server's limits for loaded models.
    pub(crate) fn limits(&self) -> ModelLimits {
        let budget = self.memory_budget_mib.map(|mib| mib << 20);
        ModelLimits {
            memory_bytes: budget.or_else(memory::models_bytes),
            idle: (self.idle_unload_s > 0).then(|| Duration::from_secs(self.idle_unload_s)),
            waiting_max: self.waiting_max,
            patience: Duration::from_secs(self.load_timeout_s),
        }
    }
}

/// This program's directory in the user's cache.
fn own_cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&set("HOME")?).join(".cache")));
    cache.map(|cache| cache.join("millrace"))
}
