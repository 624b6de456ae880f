//! Settings of models that are loaded on demand.

use super::{NamedModels, PackedCacheUse, memory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::ModelLimits;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Models in addition to the one that the server is started with; each is loaded on demand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Models {
    /// Directories of models; `millrace pull` downloads to the first. Default: `millrace/models` in the user's
    /// data (`$XDG_DATA_HOME` or `~/.local/share`), and that of earlier versions in the user's cache, if it is there.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "`pull` works without configuration"))]
    pub(crate) directories: Vec<PathBuf>,
    /// Other programs' caches whose models are listed and read in place, never changed: `ollama` (`$OLLAMA_MODELS` or
    /// `~/.ollama/models`) and `huggingface` (`$HF_HUB_CACHE`, `$HF_HOME/hub` or `~/.cache/huggingface/hub`).
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a model that is on the machine already needs no second download"))]
    pub(crate) caches: Vec<Cache>,
    /// Use of the cache of packed weights, which spares a second load of a model the packing: `copy` into memory with huge pages, `map` the file, which processes share, or `off`. Models below 64 MiB are never cached.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "a second start takes a third of a second instead of seconds; a copy decodes as fast as packed weights do"))]
    pub(crate) packed_cache: PackedCacheUse,
    /// Maximum size of all files of the cache of packed weights; those that were not used for the longest time are removed.
    #[schemars(
        range(min = 1, max = 1_u64 << 20),
        extend("x-reload" = "restart", "x-reason" = "a dozen models of a gigabyte, or three of 8B in Q4_K_M")
    )]
    pub(crate) packed_cache_gib: u64,
    /// Directory of the cache of packed weights. Default: `millrace/packed` in the user's cache (`$XDG_CACHE_HOME` or `~/.cache`).
    #[schemars(extend("x-reload" = "restart", "x-reason" = "files that can be made again belong into the user's cache"))]
    pub(crate) packed_cache_directory: Option<PathBuf>,
    /// Memory budget of all loaded models, including KV caches; the least recently used idle model is evicted.
    /// Default: seven eighths of the machine's memory.
    #[schemars(
        range(min = 1, max = 1_u64 << 24),
        extend("x-reload" = "live", "x-reason" = "an eighth remains for the system, buffers and clients on the same machine")
    )]
    pub(crate) memory_budget_mib: Option<u64>,
    /// Idle time after which a model loaded on demand is unloaded, unless a request sets `keep_alive`; 0 = never. The
    /// model that the server was started with stays loaded.
    #[schemars(
        range(min = 0, max = 31_536_000),
        extend("x-reload" = "live", "x-reason" = "as Ollama: a pause in a conversation does not cost a second load")
    )]
    pub(crate) idle_unload_s: u64,
    /// Maximum time that a request waits for its model.
    #[schemars(
        range(min = 1, max = 86_400),
        extend("x-reload" = "live", "x-reason" = "the time that official clients wait for a byte")
    )]
    pub(crate) load_timeout_s: u64,
    /// Settings of single models, by name: `system`, `parameters` (defaults of requests), `from` (a new name for another model); and for loading `context`, `kv_mib`, `kv_type`, `device`, `adapters`, `chat_template`, which take precedence over `model.*`.
    #[schemars(extend("x-reload" = "restart", "x-reason" = "models are served as their files are"))]
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
            load_timeout_s: limits.patience.as_secs(),
            named: NamedModels::new(),
        }
    }
}

impl Models {
    /// The model directories; empty if neither a setting nor the environment names one.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        if self.directories.is_empty() {
            default_directories(|name| std::env::var_os(name), Path::is_dir)
        } else {
            self.directories.clone()
        }
    }

    /// The first directory of the settings that is not there.
    pub(crate) fn absent_directory(&self) -> Option<&Path> {
        let mut named = self.directories.iter().map(PathBuf::as_path);
        named.find(|directory| !directory.is_dir())
    }

    /// The directory in the user's cache that an earlier version downloaded to, where it is still the first one: programs
    /// that clean caches remove its models.
    pub(crate) fn directory_in_cache(&self) -> Option<PathBuf> {
        let first = self.directories().into_iter().next();
        let in_cache = own_cache()?.join(MODELS);
        (self.directories.is_empty() && first.as_ref() == Some(&in_cache)).then_some(in_cache)
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
            patience: Duration::from_secs(self.load_timeout_s),
            ..ModelLimits::default()
        }
    }
}

/// Name of the model directory in the user's data.
const MODELS: &str = "models";
/// Name of the folder in the user's data with the names of models in other directories.
const NAMES: &str = "names";
/// The variable that names the folder of the user's data, and the folder in the user's home without it.
const DATA: (&str, &str) = ("XDG_DATA_HOME", ".local/share");

/// The directories without a setting: the one in the user's data, and the one of earlier versions in the user's cache. While
/// only the latter is there, downloads go on there, so that no model loses its name.
fn default_directories(
    variable: impl Fn(&str) -> Option<OsString>,
    is_there: impl Fn(&Path) -> bool,
) -> Vec<PathBuf> {
    let folder = |name, inner| own_folder(&variable, name, inner).map(|own| own.join(MODELS));
    let data = folder(DATA.0, DATA.1);
    let cache = folder("XDG_CACHE_HOME", ".cache").filter(|cache| is_there(cache));
    match &cache {
        Some(_) => data
            .filter(|data| is_there(data))
            .into_iter()
            .chain(cache)
            .collect(),
        None => data.into_iter().collect(),
    }
}

/// The folder in the user's data for names of the models in this directory; `None` of a directory that is in the user's data itself,
/// and if the environment names no such folder.
pub(crate) fn names_directory(models: &Path) -> Option<PathBuf> {
    let data = own_folder(|name| std::env::var_os(name), DATA.0, DATA.1)?;
    names_within(&data, models)
}

/// The folder has the path of the model directory, so that names of one directory stand for nothing in another.
fn names_within(data: &Path, models: &Path) -> Option<PathBuf> {
    let models = models.canonicalize().ok()?;
    let is_own = data
        .canonicalize()
        .is_ok_and(|data| models.starts_with(data));
    let path = models.strip_prefix("/").ok().filter(|_| !is_own)?;
    Some(data.join(NAMES).join(path))
}

/// This program's directory in the user's cache.
fn own_cache() -> Option<PathBuf> {
    own_folder(|name| std::env::var_os(name), "XDG_CACHE_HOME", ".cache")
}

/// This program's directory in the folder that a variable names, or else in a folder of the user's home.
fn own_folder(
    variable: impl Fn(&str) -> Option<OsString>,
    name: &str,
    inner: &str,
) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let base = set(name).map(PathBuf::from);
    let base = base.or_else(|| Some(Path::new(&set("HOME")?).join(inner)));
    base.map(|base| base.join("millrace"))
}

#[cfg(test)]
mod tests {
    use super::{default_directories, names_within};
    use std::ffi::OsString;
    use std::path::Path;
    use testing::folder::Folder;

    /// A label, variables, the directories that are there, and those that are used.
    type Row<'a> = (
        &'a str,
        &'a [(&'a str, &'a str)],
        &'a [&'a str],
        &'a [&'a str],
    );

    #[test]
    fn models_are_in_the_data_folder_unless_an_earlier_version_has_put_some_in_the_cache() {
        let (data, cache) = (
            "/h/.local/share/millrace/models",
            "/h/.cache/millrace/models",
        );
        let home: &[(&str, &str)] = &[("HOME", "/h"), ("XDG_DATA_HOME", "")];
        let own: &[(&str, &str)] = &[
            ("HOME", "/h"),
            ("XDG_DATA_HOME", "/d"),
            ("XDG_CACHE_HOME", "/c"),
        ];
        let rows: [Row<'_>; 6] = [
            ("nothing there", home, &[], &[data]),
            ("data", home, &[data], &[data]),
            ("cache", home, &[cache], &[cache]),
            ("both", home, &[cache, data], &[data, cache]),
            (
                "variables",
                own,
                &["/c/millrace/models", "/d/millrace/models"],
                &["/d/millrace/models", "/c/millrace/models"],
            ),
            ("no home", &[], &[], &[]),
        ];
        for (case, set, there, want) in rows {
            let variable = |name: &str| {
                let found = set.iter().find(|row| row.0 == name)?;
                Some(OsString::from(found.1))
            };
            let found =
                default_directories(variable, |path| there.iter().any(|t| Path::new(t) == path));
            assert_eq!(
                found,
                want.iter().map(Path::new).collect::<Vec<_>>(),
                "{case}"
            );
        }
    }
    #[test]
    fn names_have_a_folder_for_each_directory_outside_the_users_data() {
        let folder = Folder::new("names");
        let root = folder.0.canonicalize().unwrap();
        let (data, own) = (root.join("data"), root.join("data/models"));
        let other = root.join("checkout");
        for directory in [&own, &other] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let names = data.join("names").join(other.strip_prefix("/").unwrap());
        assert_eq!(names_within(&data, &other), Some(names));
        assert_eq!(names_within(&data, &own), None);
        assert_eq!(names_within(&data, &root.join("absent")), None);
    }
}
