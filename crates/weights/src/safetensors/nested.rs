//! Models that see images: their text's part of `config.json`, and of the tensors' names.

use super::SafetensorsError;
use super::fields::{ConfigFile, Fields};
use super::llava_towers;
use super::minicpm_towers;
use super::vision_classes;
use crate::Architecture;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Texts of models that see images: `model_type`, the family, and fields that transformers leaves out of files where they have
/// these values.
const TEXTS: &[(&str, Architecture, &str)] = &[
    ("llama", Architecture::Llama, LLAMA),
    ("mistral", Architecture::Llama, MISTRAL),
    ("granite", Architecture::Granite, GRANITE),
    ("qwen2", Architecture::Qwen2, QWEN),
    ("qwen3", Architecture::Qwen3, QWEN3),
    ("ministral3", Architecture::Mistral3, MINISTRAL3),
    ("gemma3_text", Architecture::Gemma3, GEMMA3),
    ("gemma4_text", Architecture::Gemma4, GEMMA4),
    ("gemma4_unified_text", Architecture::Gemma4, GEMMA4_UNIFIED),
    ("lfm2", Architecture::Lfm2, LFM2),
    ("qwen3_vl_text", Architecture::Qwen3Vl, QWEN3VL),
    ("qwen3_vl_moe_text", Architecture::Qwen3VlMoe, QWEN3VL_MOE),
    ("qwen2_vl_text", Architecture::Qwen2Vl, QWEN2VL),
    ("qwen2_5_vl_text", Architecture::Qwen2Vl, QWEN2VL),
    // Old files have the fields of both in one object.
    ("qwen2_vl", Architecture::Qwen2Vl, QWEN2VL),
    ("qwen2_5_vl", Architecture::Qwen2Vl, QWEN2VL),
];
const LLAMA: &str = r#"{"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
    "max_position_embeddings": 2048, "vocab_size": 32000, "rms_norm_eps": 1e-6}"#;
const GRANITE: &str = r#"{"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
    "max_position_embeddings": 2048, "vocab_size": 32000, "rms_norm_eps": 1e-6}"#;
const MISTRAL: &str = r#"{"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 131072, "vocab_size": 32000, "rms_norm_eps": 1e-6,
    "sliding_window": 4096}"#;
const MINISTRAL3: &str = r#"{"num_hidden_layers": 34, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144, "vocab_size": 131072, "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16384,
    "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}}"#;
const QWEN: &str = r#"{"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 22016, "num_attention_heads": 32,
    "num_key_value_heads": 32, "max_position_embeddings": 32768, "vocab_size": 151936, "rms_norm_eps": 1e-6}"#;
const QWEN3: &str = r#"{"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 22016, "num_attention_heads": 32,
    "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 32768, "vocab_size": 151936, "rms_norm_eps": 1e-6}"#;
const QWEN3VL: &str = r#"{"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 22016, "num_attention_heads": 32,
    "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 128000, "vocab_size": 151936, "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0}"#;
const QWEN3VL_MOE: &str = r#"{"num_hidden_layers": 24, "hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16,
    "num_key_value_heads": 16, "max_position_embeddings": 128000, "vocab_size": 151936, "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0, "moe_intermediate_size": 1408, "num_experts_per_tok": 4, "tie_word_embeddings": true}"#;
const QWEN2VL: &str = r#"{"num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 29568, "num_attention_heads": 64,
    "num_key_value_heads": 8, "max_position_embeddings": 32768, "vocab_size": 152064, "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0}"#;
const GEMMA3: &str = r#"{"num_hidden_layers": 26, "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072, "vocab_size": 262208, "rms_norm_eps": 1e-6,
    "sliding_window": 4096, "sliding_window_pattern": 6, "query_pre_attn_scalar": 256, "tie_word_embeddings": true,
    "rope_local_base_freq": 10000.0}"#;
const GEMMA4: &str = r#"{"num_hidden_layers": 30, "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072, "vocab_size": 262144, "rms_norm_eps": 1e-6,
    "sliding_window": 512, "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
    "tie_word_embeddings": true}"#;
const GEMMA4_UNIFIED: &str = r#"{"num_hidden_layers": 30, "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 262144, "vocab_size": 262144, "rms_norm_eps": 1e-6,
    "sliding_window": 1024, "use_bidirectional_attention": "vision", "tie_word_embeddings": true}"#;
const LFM2: &str = r#"{"num_hidden_layers": 32, "hidden_size": 2560, "intermediate_size": 12288, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 128000, "vocab_size": 65536, "norm_eps": 1e-5, "conv_L_cache": 3}"#;

/// Classes whose text another reader knows, also where the file does not name it.
const OTHER_TEXTS: [&str; 2] = [
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
];
/// The text of a file that names none.
const USUAL: &str = "llama";
/// The object of the text's fields.
const TEXT: &str = "text_config";
/// Prefixes that versions of transformers put before the text's names, and the plain ones.
const STARTS: &[(&str, &str)] = &[
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.text_model.", "model."),
    ("text_model.", "model."),
    ("llm.model.", "model."),
    ("llm.lm_head.", "lm_head."),
];

/// The family of the text of a class that sees images; `None` for other classes, and those whose fields another reader knows.
pub(super) fn architecture(
    class: &str,
    fields: &Fields<'_>,
) -> Result<Option<Architecture>, SafetensorsError> {
    if !has_text(class) {
        return Ok(None);
    }
    let model_type = fields.text("model_type")?.unwrap_or(USUAL);
    let found = TEXTS.iter().find(|(name, ..)| *name == model_type);
    Ok(found.map(|(_, architecture, _)| *architecture))
}

/// Whether the text of a class is one of [`TEXTS`].
fn has_text(class: &str) -> bool {
    vision_classes::has_tower(class) && !OTHER_TEXTS.contains(&class)
}

/// The error of a class whose text is of a family that is not read.
pub(super) fn unknown_text(fields: &Fields<'_>) -> SafetensorsError {
    let names: Vec<&str> = TEXTS.iter().map(|(name, ..)| *name).collect();
    let why = format!(
        "is not supported in a model that sees images, must be one of {}",
        names.join(", ")
    );
    fields.wrong(&format!("{TEXT}.model_type"), why)
}

/// The file with the fields of the text in place of those of the whole model, of a class that sees images.
pub(super) fn text_file(file: ConfigFile) -> Result<ConfigFile, SafetensorsError> {
    let root = file.fields();
    let class = root.texts("architectures")?.unwrap_or_default();
    let is_nested = class.first().is_some_and(|class| has_text(class));
    let Some(merged) = merged(&root)?.filter(|_| is_nested) else {
        return Ok(file);
    };
    let place = if root.object(TEXT)?.is_some() {
        "text_config."
    } else {
        ""
    };
    Ok(file.inside(place, merged))
}

/// The width of the text's stream.
pub(super) fn text_width(root: &Fields<'_>) -> Result<u32, SafetensorsError> {
    const WIDTH: &str = "hidden_size";
    let (merged, inner) = (merged(root)?, root.object(TEXT)?);
    let width = match &merged {
        Some(fields) => fields.get(WIDTH),
        // A text that another reader knows.
        None => inner.as_ref().and_then(|text| text.get(WIDTH)),
    };
    let width = width
        .and_then(Value::as_u64)
        .and_then(|width| u32::try_from(width).ok());
    width.ok_or_else(|| root.wrong(&format!("{TEXT}.{WIDTH}"), "is missing, or no width"))
}

/// A number of the text, or its class's default.
pub(super) fn text_float(root: &Fields<'_>, field: &str) -> Result<Option<f64>, SafetensorsError> {
    let merged = merged(root)?;
    Ok(merged.and_then(|fields| fields.get(field)?.as_f64()))
}

/// The fields of the text: its class's defaults, the root's, its own. `None`: no class that is read.
fn merged(root: &Fields<'_>) -> Result<Option<Map<String, Value>>, SafetensorsError> {
    const TIED: &str = "tie_word_embeddings";
    let inner = root.object(TEXT)?;
    let text = inner.as_ref().unwrap_or(root);
    let model_type = match minicpm_towers::version(root)? {
        Some((_, text)) => text,
        None => text.text("model_type")?.unwrap_or(USUAL),
    };
    let Some((.., defaults)) = TEXTS.iter().find(|(name, ..)| *name == model_type) else {
        return Ok(None);
    };
    let mut merged: Map<String, Value> = serde_json::from_str(defaults).unwrap_or_default();
    for (field, value) in text.entries() {
        merged.insert(field.clone(), value.clone());
    }
    merged.insert("model_type".to_owned(), model_type.into());
    // The class of LLaVA has a default of its own, next to which that of the text counts.
    let is_tied = llava_towers::takes_tie_of_text(root)? && text.flag(TIED)? == Some(true);
    for field in ["architectures", "quantization_config", TIED] {
        if let Some(value) = root.get(field).filter(|_| field != TIED || !is_tied) {
            merged.insert(field.to_owned(), value.clone());
        }
    }
    let layers = root.object(super::vision_fields::VISION)?;
    let layers = layers.and_then(|vision| vision.get("deepstack_visual_indexes"));
    if let Some(layers) = layers {
        merged.insert(DEEPSTACK.to_owned(), layers.clone());
    }
    Ok(Some(merged))
}

/// The tower's layers after which there are rows for further text layers, among the text's fields.
pub(super) const DEEPSTACK: &str = "deepstack_visual_indexes";

/// The name that the tensor would have in a model without a tower; `None`: a tensor of the tower.
pub(super) fn text_name(stored: &str) -> Option<Cow<'_, str>> {
    for (start, plain) in STARTS {
        if let Some(rest) = stored.strip_prefix(start) {
            return Some(format!("{plain}{rest}").into());
        }
    }
    (!vision_classes::is_of_tower(stored)).then_some(Cow::Borrowed(stored))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_objects() {
        for (name, _, defaults) in TEXTS {
            let fields: Map<String, Value> = serde_json::from_str(defaults).unwrap();
            assert!(fields.contains_key("hidden_size"), "{name}");
        }
    }

    #[test]
    fn names_of_the_text_are_those_of_a_model_without_a_tower() {
        for (stored, wanted) in [
            (
                "model.language_model.layers.0.mlp.up_proj.weight",
                Some("model.layers.0.mlp.up_proj.weight"),
            ),
            (
                "language_model.model.norm.weight",
                Some("model.norm.weight"),
            ),
            ("language_model.lm_head.weight", Some("lm_head.weight")),
            (
                "model.text_model.embed_tokens.weight",
                Some("model.embed_tokens.weight"),
            ),
            ("lm_head.weight", Some("lm_head.weight")),
            (
                "model.layers.0.mlp.up_proj.weight",
                Some("model.layers.0.mlp.up_proj.weight"),
            ),
            ("model.visual.pos_embed.weight", None),
            ("vision_tower.vision_model.post_layernorm.weight", None),
            ("model.connector.modality_projection.proj.weight", None),
        ] {
            assert_eq!(text_name(stored).as_deref(), wanted, "{stored}");
        }
    }
}
