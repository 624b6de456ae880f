//! Pooling of sentence-transformers: `modules.json`, and the `config.json` of the module that pools.

use super::SafetensorsError;
use super::error::bounded;
use super::fields::Fields;
use super::limits::{CONFIG_BYTES_MAX, MODULES_MAX};
use super::shards::read_bounded;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;

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
/// What a module does, by the last part of its type. All but `Pooling` are computed anyway.
const KNOWN: [&str; 3] = ["Transformer", "Normalize", "Pooling"];

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

/// llama.cpp's number of the pooling that a folder's files name; `None`: the folder has no list of modules, or none that
/// pools.
///
/// # Errors
/// A file with another shape, or a module or mode that is not supported.
pub(super) fn read(folder: &Path) -> Result<Option<u32>, SafetensorsError> {
    let path = folder.join(MODULES);
    if !path.exists() {
        return Ok(None);
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
    let mut pooling = None;
    for module in &modules {
        let kind = module.kind.rsplit('.').next().unwrap_or_default();
        if !KNOWN.contains(&kind) {
            let why = format!(
                "has a module {kind:.64}, which is not supported with safetensors; take a GGUF"
            );
            return Err(SafetensorsError::file(&path, why));
        }
        if kind == "Pooling" {
            pooling = Some(read_mode(folder, &path, &module.path)?);
        }
    }
    Ok(pooling)
}

fn read_mode(folder: &Path, list: &Path, module: &str) -> Result<u32, SafetensorsError> {
    let is_plain = |symbol: char| symbol.is_ascii_alphanumeric() || "_-".contains(symbol);
    if module.is_empty() || !module.chars().all(is_plain) {
        let why =
            format!("names the folder {module:?}, must be a name of letters, digits, _ and -");
        return Err(SafetensorsError::file(list, why));
    }
    let path = folder.join(module).join(super::CONFIG);
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
