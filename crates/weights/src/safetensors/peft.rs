//! Adapters as PEFT saves them: `adapter_config.json` and `adapter_model.safetensors`.

use super::classes::takes_adapters;
use super::conversion::Change;
use super::header::{Shard, StoredTensor};
use super::limits::CONFIG_BYTES_MAX;
use super::load::floats;
use super::names::{self, Named};
use super::shards::read_bounded;
use crate::Config;
use crate::adapters::{
    ADAPTER_RANK_MAX, AdapterError, HalfSide, ScaleRule, StoredAdapter, StoredHalf,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The file with the scale.
const CONFIG: &str = "adapter_config.json";
/// The file with the tensors.
const TENSORS: &str = "adapter_model.safetensors";
/// Prefix of PEFT before a module's name.
const PREFIX: &str = "base_model.model.";
/// Ends of a half's name; old versions of PEFT name the adapter.
const ENDS: [(&str, HalfSide); 4] = [
    (".lora_A.weight", HalfSide::A),
    (".lora_B.weight", HalfSide::B),
    (".lora_A.default.weight", HalfSide::A),
    (".lora_B.default.weight", HalfSide::B),
];

/// Fields of the configuration that change the result.
#[derive(Deserialize)]
struct PeftConfig {
    peft_type: Option<String>,
    lora_alpha: Option<f32>,
    use_rslora: Option<bool>,
    use_dora: Option<bool>,
    fan_in_fan_out: Option<bool>,
    bias: Option<String>,
    alpha_pattern: Option<Map<String, Value>>,
}

/// The folder of PEFT that a path names: the folder, or one of the two files.
pub(crate) fn folder_of(path: &Path) -> Option<PathBuf> {
    let is_file = path
        .file_name()
        .is_some_and(|name| name == CONFIG || name == TENSORS);
    if is_file {
        path.parent().map(Path::to_owned)
    } else {
        path.is_dir().then(|| path.to_owned())
    }
}

/// Reads the adapter in a folder.
pub(crate) fn read(folder: &Path, config: &Config) -> Result<StoredAdapter, AdapterError> {
    let file = folder.join(TENSORS);
    if !takes_adapters(config.architecture) {
        let why = format!(
            "adapters in safetensors are not supported for {}; a GGUF is (convert_lora_to_gguf.py)",
            config.architecture
        );
        return Err(AdapterError::new(folder, why));
    }
    let scale = read_scale(&folder.join(CONFIG))?;
    let shard = Shard::open(&file).map_err(|why| AdapterError::new(folder, why.to_string()))?;
    let halves = shard.entries.iter();
    let halves = halves.map(|entry| half(&file, &shard, entry, config));
    Ok(StoredAdapter {
        halves: halves.collect::<Result<_, _>>()?,
        file,
        scale,
    })
}

fn read_scale(path: &Path) -> Result<ScaleRule, AdapterError> {
    let failed = |why: String| AdapterError::new(path, why);
    let text = read_bounded(path, CONFIG_BYTES_MAX).map_err(|why| failed(why.to_string()))?;
    let config: PeftConfig =
        serde_json::from_slice(&text).map_err(|why| failed(why.to_string()))?;
    let patterns = config
        .alpha_pattern
        .is_none_or(|patterns| patterns.is_empty());
    let bias = config.bias.as_deref().unwrap_or("none");
    let checks = [
        (
            "peft_type",
            config.peft_type.as_deref() == Some("LORA"),
            "must be \"LORA\"",
        ),
        (
            "use_dora",
            config.use_dora != Some(true),
            "is true: DoRA is not supported",
        ),
        (
            "fan_in_fan_out",
            config.fan_in_fan_out != Some(true),
            "is true: transposed weights are not supported",
        ),
        ("bias", bias == "none", "must be \"none\""),
        ("alpha_pattern", patterns, "must be empty"),
    ];
    for (field, holds, why) in checks {
        if !holds {
            return Err(failed(format!("`{field}` {why}")));
        }
    }
    let alpha = config.lora_alpha;
    let alpha = alpha.filter(|alpha| alpha.is_finite() && *alpha != 0.0);
    let alpha = alpha.ok_or_else(|| failed("`lora_alpha` must be a number other than 0".into()))?;
    Ok(match config.use_rslora {
        Some(true) => ScaleRule::ByRoot(alpha),
        _ => ScaleRule::ByRank(alpha),
    })
}

fn half(
    file: &Path,
    shard: &Shard,
    entry: &StoredTensor,
    config: &Config,
) -> Result<StoredHalf, AdapterError> {
    let wrong = |why: String| AdapterError::tensor(file, &entry.name, why);
    let mut ends = ENDS.into_iter();
    let found = ends.find_map(|(end, side)| Some((entry.name.strip_suffix(end)?, side)));
    let (module, side) =
        found.ok_or_else(|| wrong("is no half of a low-rank pair (`lora_A`, `lora_B`)".into()))?;
    let module = module.strip_prefix(PREFIX).unwrap_or(module);
    let target = match names::named(config.architecture, false, &format!("{module}.weight")) {
        Named::Tensor(name) => name,
        Named::Two(_) | Named::Nothing | Named::Unknown => {
            return Err(wrong(format!("has no part in {}", config.architecture)));
        }
    };
    let &[rows, cols] = entry.shape.as_slice() else {
        let shape = entry.shape.as_slice();
        return Err(wrong(format!(
            "has shape {shape:?}, must have two dimensions"
        )));
    };
    let (rows, cols) = (rows as usize, cols as usize);
    let rank = match side {
        HalfSide::A => rows,
        HalfSide::B => cols,
    };
    if !(1..=ADAPTER_RANK_MAX).contains(&rank) {
        let why = format!("has rank {rank}, must have 1 to {ADAPTER_RANK_MAX}");
        return Err(wrong(why));
    }
    let format = entry.kind.format().ok_or_else(|| {
        let kind = entry.kind.name();
        wrong(format!("is stored as {kind}, must be F32, F16 or BF16"))
    })?;
    let mut numbers: Vec<f32> =
        floats(format, &shard.source.bytes()[entry.bytes.clone()]).collect();
    if side == HalfSide::B {
        let heads = [config.heads, config.kv_heads];
        let change = Change::turned(config.architecture, heads, &target, rows).map_err(wrong)?;
        let stored = |row| {
            let first = change.row_of(row) * cols;
            numbers[first..first + cols].iter().copied()
        };
        numbers = (0..rows).flat_map(stored).collect();
    }
    Ok(StoredHalf {
        name: entry.name.clone(),
        target,
        side,
        rows,
        cols,
        numbers,
    })
}
