//! Modules of sentence-transformers: `modules.json`, and the `config.json` of the modules that pool and project.

use super::SafetensorsError;
use super::dense::DenseModule;
use super::error::bounded;
use super::fields::Fields;
use super::limits::{CONFIG_BYTES_MAX, MODULES_MAX};
use super::shards::read_bounded;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The list of a model's modules.
const MODULES: &str = "modules.json";
/// The key with the number of a pooling, after the family's name.
pub(super) const POOLING_KEY: &str = "pooling_type";
/// Modes with llama.cpp's numbers.
const MODES: [(&str, u32); 3] = [
    ("pooling_mode_mean_tokens", 1),
    ("pooling_mode_cls_token", 2),
    ("pooling_mode_lasttoken", 3),
];
/// Modes that are not supported.
const OTHER_MODES: [&str; 3] = [
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
];
/// Modules by the last part of their type: those that are computed anyway.
const KNOWN: [&str; 2] = ["Transformer", "Normalize"];
/// A module that pools, and one that projects.
const POOLING: &str = "Pooling";
const DENSE: &str = "Dense";
/// Projections of a model that has them.
const DENSE_MODULES: usize = 2;

/// A folder's list of modules; empty where there is no list.
#[derive(Default)]
pub(super) struct Modules {
    /// llama.cpp's number of the pooling.
    pub(super) pooling: Option<u32>,
    /// Two dense projections of pooled states, or none.
    pub(super) dense: Vec<DenseModule>,
}

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

/// Reads the list of a folder. `takes_dense`: whether the model may have dense projections.
///
/// # Errors
/// A file with another shape, or a module or mode that is not supported.
pub(super) fn read(folder: &Path, takes_dense: bool) -> Result<Modules, SafetensorsError> {
    let path = folder.join(MODULES);
    if !path.exists() {
        return Ok(Modules::default());
    }
    let text = read_bounded(&path, CONFIG_BYTES_MAX)?;
    let modules: Vec<Module> =
        serde_json::from_slice(&text).map_err(SafetensorsError::json(&path))?;
    bounded(
        &path,
        "its number of modules",
        modules.len() as u64,
        MODULES_MAX,
    )?;
    let mut found = Modules::default();
    for module in &modules {
        let folder = || folder_of(folder, &path, &module.path);
        match module.kind.rsplit('.').next().unwrap_or_default() {
            POOLING => found.pooling = Some(read_mode(&folder()?)?),
            DENSE if takes_dense => found.dense.push(DenseModule::read(folder()?)?),
            kind if KNOWN.contains(&kind) => {}
            kind => {
                let why = format!(
                    "has a module {kind:.64}, which is not supported with safetensors; take a GGUF"
                );
                return Err(SafetensorsError::file(&path, why));
            }
        }
    }
    match found.dense.len() {
        0 | DENSE_MODULES => Ok(found),
        count => {
            let why = format!("has {count} modules {DENSE}, must have {DENSE_MODULES} or none");
            Err(SafetensorsError::file(&path, why))
        }
    }
}

/// The folder of a module; `list` is the file that names the module.
fn folder_of(folder: &Path, list: &Path, module: &str) -> Result<PathBuf, SafetensorsError> {
    let is_plain = |symbol: char| symbol.is_ascii_alphanumeric() || "_-".contains(symbol);
    if !module.is_empty() && module.chars().all(is_plain) {
        Ok(folder.join(module))
    } else {
        let why =
            format!("names the folder {module:?}, must be a name of letters, digits, _ and -");
        Err(SafetensorsError::file(list, why))
    }
}

fn read_mode(module: &Path) -> Result<u32, SafetensorsError> {
    let path = module.join(super::CONFIG);
    let text = read_bounded(&path, CONFIG_BYTES_MAX)?;
    let object: Map<String, Value> =
        serde_json::from_slice(&text).map_err(SafetensorsError::json(&path))?;
    let fields = Fields::new(&path, &object);
    for mode in OTHER_MODES {
        if fields.flag(mode)? == Some(true) {
            return Err(fields.wrong(mode, "is true, which is not supported"));
        }
    }
    let mut found = Vec::new();
    for (mode, number) in MODES {
        if fields.flag(mode)? == Some(true) {
            found.push(number);
        }
    }
    match found[..] {
        [one] => Ok(one),
        _ => {
            let names = MODES.map(|(mode, _)| mode).join(", ");
            let why = format!("{} of {names} are true, must be one", found.len());
            Err(SafetensorsError::file(&path, why))
        }
    }
}
