//! Keys that files of Ollama's converter lack: those with another name, and those that its engine has as constants
//! (<https://github.com/ollama/ollama>, `llama/compat`).

use crate::gguf::{Array, Gguf, Value};

/// The family, the key after its name, and the key of Ollama's converter.
const RENAMED: [(&str, &str, &str); 6] = [
    ("gemma3", "rope.freq_base", "rope.global.freq_base"),
    ("gemma3", "rope.freq_base_swa", "rope.local.freq_base"),
    (
        "mistral3",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.beta_fast",
    ),
    (
        "mistral3",
        "rope.scaling.yarn_beta_slow",
        "rope.scaling.beta_slow",
    ),
    (
        "mistral3",
        "rope.scaling.yarn_log_multiplier",
        "rope.scaling.mscale_all_dim",
    ),
    (
        "mistral3",
        "attention.temperature_scale",
        "rope.scaling_beta",
    ),
];
/// The family, the key after its name, and the value.
const CONSTANT: [(&str, &str, Value<'static>); 2] = [
    (
        "gemma3",
        "attention.layer_norm_rms_epsilon",
        Value::F32(1e-6),
    ),
    ("gemma3", "rope.freq_base", Value::F32(1e6)),
];
/// As [`CONSTANT`], in a file with a tower. Positions of Gemma 3 were stretched in the models that see images.
const CONSTANT_WITH_TOWER: [(&str, &str, Value<'static>); 3] = [
    ("gemma3", "rope.scaling.factor", Value::F32(8.0)),
    ("qwen3vl", "rope.dimension_sections", QWEN3VL_SECTIONS),
    ("qwen3vlmoe", "rope.dimension_sections", QWEN3VL_SECTIONS),
];
const QWEN3VL_SECTIONS: Value<'static> = Value::Array(Array::of_u8(&[24, 20, 20, 0]));
/// Positions of a model of Gemma 3 that sees images.
const STRETCHED_CONTEXT: u32 = 131_072;

/// The value of a key that the file does not have.
pub(super) fn value<'a>(gguf: &'a Gguf, family: &str, name: &str) -> Option<Value<'a>> {
    let is_this = |(of, key): (&str, &str)| of == family && key == name;
    let mut renamed = RENAMED.iter();
    if let Some((.., theirs)) = renamed.find(|row| is_this((row.0, row.1)))
        && let Some(value) = gguf.get(&format!("{family}.{theirs}"))
    {
        return Some(value);
    }
    let of_tower = CONSTANT_WITH_TOWER.iter().filter(|(of, ..)| {
        let is_stretched = || {
            let context = gguf.need::<u32>(&format!("{family}.context_length"));
            context.is_ok_and(|context| context >= STRETCHED_CONTEXT)
        };
        has_tower(gguf, family) && (*of != "gemma3" || is_stretched())
    });
    let mut constants = CONSTANT.iter().chain(of_tower);
    let found = constants.find(|row| is_this((row.0, row.1)));
    found.map(|(.., value)| *value)
}

/// The value of a key that the file has. Files of Qwen 3.5 list the key and value heads of each layer, 0 in recurrent ones,
/// where llama.cpp's have one number.
pub(super) fn of_all_layers<'a>(family: &str, name: &str, value: Value<'a>) -> Value<'a> {
    let is_qwen35 = ["qwen35", "qwen35moe"].contains(&family);
    match &value {
        Value::Array(each) if is_qwen35 && name == "attention.head_count_kv" => {
            let most = each.values().filter_map(|value| value.integer()).max();
            let most = most.and_then(|heads| u32::try_from(heads).ok());
            most.map_or(value, Value::U32)
        }
        _ => value,
    }
}

/// Whether the file has a tower, by its keys.
pub(super) fn has_tower(gguf: &Gguf, family: &str) -> bool {
    gguf.get(&format!("{family}.vision.block_count")).is_some()
}
