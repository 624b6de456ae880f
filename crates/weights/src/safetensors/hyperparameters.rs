//! Derivation of GGUF keys from `config.json`.
//!
//! The meaning of the keys and their source fields follow llama.cpp's `convert_hf_to_gguf.py`; defaults of
//! absent fields follow the configuration classes of Hugging Face's transformers. Fields that request an
//! unsupported computation are rejected.

use super::SafetensorsError;
use super::described::ModelDescription;
use super::family::{Family, is_gemma};
use super::fields::Fields;
use super::gguf_keys::GgufKeys;
use super::modules::{Modules, POOLING_KEY};
use super::nested::DEEPSTACK;
use super::{answers, dense, experts, gpt_oss, lfm2, rope};
use crate::Architecture;
use crate::config::traits::RopeLayers;
use crate::gguf::GgufWriter;
use std::path::Path;

/// Integers that every model has, with their keys after the architecture's name.
const NUMBERS: &[(&str, &str)] = &[
    ("num_hidden_layers", "block_count"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("max_position_embeddings", "context_length"),
    ("vocab_size", "vocab_size"),
];
/// Further keys, for errors.
const OTHERS: &[(&str, &str)] = &[
    ("num_key_value_heads", "attention.head_count_kv"),
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("norm_topk_prob", "expert_weights_norm"),
    ("head_dim", "attention.key_length"),
    ("head_dim", "attention.value_length"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("sliding_window", "attention.sliding_window"),
    ("layer_types", "attention.sliding_window_pattern"),
    ("embedding_multiplier", "embedding_scale"),
    ("residual_multiplier", "residual_scale"),
    ("attention_multiplier", "attention.scale"),
    ("logits_scaling", "logit_scale"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("rope_theta", "rope.freq_base"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
    ("partial_rotary_factor", "rope.dimension_count"),
    ("in_features of 2_Dense", "dense_2_feat_in"),
    ("out_features of 2_Dense", "dense_2_feat_out"),
    ("in_features of 3_Dense", "dense_3_feat_in"),
    ("out_features of 3_Dense", "dense_3_feat_out"),
    ("rope_scaling.factor", "rope.scaling.factor"),
    ("rope_scaling.attention_factor", "rope.scaling.attn_factor"),
    (
        "original_max_position_embeddings",
        "rope.scaling.original_context_length",
    ),
];

/// Numbers of the same meaning in both forms; gives the heads, and those of keys and values.
fn sizes(
    fields: &Fields<'_>,
    architecture: Architecture,
    keys: &mut GgufKeys,
) -> Result<(u32, u32), SafetensorsError> {
    let is_lfm2 = architecture == Architecture::Lfm2;
    for (field, key) in NUMBERS {
        let number = match *field {
            "intermediate_size" if is_lfm2 => lfm2::feed_forward(fields)?,
            field => fields.need_number(field)?,
        };
        keys.number(key, number);
    }
    let heads = fields.need_number("num_attention_heads")?;
    let kv_heads = match fields.number("num_key_value_heads")? {
        Some(kv_heads) => kv_heads,
        // The first Llama version has one KV head for each query head.
        None if architecture == Architecture::Llama => heads,
        None => return Err(fields.missing("num_key_value_heads")),
    };
    if is_lfm2 {
        lfm2::put_layers(fields, kv_heads, keys)?;
    } else {
        keys.number("attention.head_count_kv", kv_heads);
    }
    Ok((heads, kv_heads))
}

/// Reads the relevant fields of a decoder's `config.json`. `modules`: what other files of the folder say.
pub(super) fn describe(
    architecture: Architecture,
    fields: &Fields<'_>,
    (folder, modules): (&Path, &Modules),
) -> Result<ModelDescription, SafetensorsError> {
    let mut keys = GgufKeys {
        name: architecture.name(),
        out: GgufWriter::new(),
    };
    keys.out.str("general.architecture", architecture.name());
    keys.out.str("general.type", "model");
    let is_lfm2 = architecture == Architecture::Lfm2;
    let (heads, kv_heads) = sizes(fields, architecture, &mut keys)?;
    let head_dim = head_dim(fields, architecture, heads)?;
    keys.number("attention.key_length", head_dim);
    keys.number("attention.value_length", head_dim);
    let epsilon = if is_lfm2 { "norm_eps" } else { "rms_norm_eps" };
    keys.float(
        "attention.layer_norm_rms_epsilon",
        fields.need_float(epsilon)?,
    );
    refuse(fields, architecture, heads, head_dim)?;
    windows(fields, architecture, &mut keys)?;
    caps(fields, architecture, &mut keys)?;
    multipliers(fields, architecture, &mut keys)?;
    experts::read(fields, architecture, &mut keys)?;
    if [Architecture::Qwen3Vl, Architecture::Qwen3VlMoe].contains(&architecture) {
        let layers = fields.numbers(DEEPSTACK)?.unwrap_or_default();
        keys.number("n_deepstack_layers", layers.len() as u32);
    }
    let answers = answers::read(architecture, folder, fields, &mut keys)?;
    if let Some(pooling) = modules.pooling.filter(|_| answers.is_none()) {
        keys.number(POOLING_KEY, pooling);
    }
    dense::put(&modules.dense, &mut keys);
    let made = rope::read(fields, architecture, head_dim, &mut keys)?;
    Ok(ModelDescription {
        is_embedding: modules.pooling.is_some() || answers.is_some(),
        answers,
        tied: is_tied(fields, architecture)?,
        vocab: fields.need_number("vocab_size")?,
        heads,
        kv_heads,
        width: fields.need_number("hidden_size")?,
        made,
        ..ModelDescription::new(Family::Decoder(architecture), keys.out)
    })
}

/// The source field of a key.
pub(super) fn field_of(key: &str) -> Option<&'static str> {
    let (_, key) = key.split_once('.')?;
    let all = NUMBERS.iter().chain(OTHERS);
    all.clone()
        .find(|(_, known)| *known == key)
        .map(|row| row.0)
}

/// Whether the embedding is also the projection.
fn is_tied(fields: &Fields<'_>, architecture: Architecture) -> Result<bool, SafetensorsError> {
    let is_lfm2 = architecture == Architecture::Lfm2;
    let named = match fields.flag("tie_embedding")?.filter(|_| is_lfm2) {
        Some(tied) => Some(tied),
        None => fields.flag("tie_word_embeddings")?,
    };
    Ok(named.unwrap_or(is_lfm2 || is_gemma(architecture)))
}

pub(super) fn head_dim(
    fields: &Fields<'_>,
    architecture: Architecture,
    heads: u32,
) -> Result<u32, SafetensorsError> {
    let width = fields.need_number("hidden_size")?;
    // These families choose the head size independently of the width.
    let chosen = is_gemma(architecture)
        || matches!(
            architecture,
            Architecture::Qwen3
                | Architecture::Qwen3Moe
                | Architecture::Qwen3Vl
                | Architecture::GptOss
                | Architecture::Qwen3Next
                | Architecture::Qwen35
                | Architecture::Qwen35Moe
        );
    match fields.number("head_dim")? {
        Some(head_dim) => Ok(head_dim),
        None if chosen => Err(fields.missing("head_dim")),
        None if heads > 0 && width.is_multiple_of(heads) => Ok(width / heads),
        None => Err(fields.wrong(
            "num_attention_heads",
            format!("is {heads}, must divide `hidden_size` {width} where there is no `head_dim`"),
        )),
    }
}

/// Rejects fields that request an unsupported computation.
pub(super) fn refuse(
    fields: &Fields<'_>,
    architecture: Architecture,
    heads: u32,
    head_dim: u32,
) -> Result<(), SafetensorsError> {
    if !gpt_oss::is_native_mxfp4(fields, architecture)? {
        refuse_quantized(fields)?;
    }
    let (field, gates): (_, &[&str]) = if !is_gemma(architecture) {
        ("hidden_act", &["silu", "swish"])
    } else if fields.get("hidden_activation").is_some() {
        ("hidden_activation", &["gelu_pytorch_tanh"])
    } else if architecture == Architecture::Gemma {
        // Early files of Gemma 1 say gelu, and mean the approximation.
        ("hidden_act", &["gelu_pytorch_tanh", "gelu"])
    } else {
        ("hidden_act", &["gelu_pytorch_tanh"])
    };
    if let Some(gate) = fields.text(field)?.filter(|gate| !gates.contains(gate)) {
        let why = format!("is {gate}, must be {}", gates.join(" or "));
        return Err(fields.wrong(field, why));
    }
    const BOTH_WAYS: &str = "use_bidirectional_attention";
    let is_bidirectional = architecture.traits().bidirectional;
    if fields.flag(BOTH_WAYS)?.unwrap_or(false) != is_bidirectional {
        let why = format!("must be {is_bidirectional} in {architecture}");
        return Err(fields.wrong(BOTH_WAYS, why));
    }
    refuse_other_ropes(fields, architecture)?;
    if !is_gemma(architecture) {
        return Ok(());
    }
    let Some(scalar) = fields.float("query_pre_attn_scalar")? else {
        return Ok(());
    };
    let layers = fields.need_number("num_hidden_layers")? as usize;
    let by_dim = architecture.traits().layers_scaled_by_dim == Some(layers);
    let divisor = if by_dim {
        fields.need_number("hidden_size")? / heads.max(1)
    } else {
        head_dim
    };
    if scalar == f64::from(divisor) {
        return Ok(());
    }
    let why =
        format!("is {scalar}, must be {divisor} in a model of {layers} layers and this width");
    Err(fields.wrong("query_pre_attn_scalar", why))
}

/// Rejects weights that are quantized already.
pub(super) fn refuse_quantized(fields: &Fields<'_>) -> Result<(), SafetensorsError> {
    const FIELD: &str = "quantization_config";
    const WHY: &str = "says that the weights are quantized already, which is not supported; take the original model";
    match fields.get(FIELD) {
        Some(_) => Err(fields.wrong(FIELD, WHY)),
        None => Ok(()),
    }
}

/// Rejects a list of layers without rope that does not follow the family's rule.
fn refuse_other_ropes(
    fields: &Fields<'_>,
    architecture: Architecture,
) -> Result<(), SafetensorsError> {
    const FIELD: &str = "no_rope_layers";
    let RopeLayers::AllBut { period } = architecture.traits().roped else {
        return Ok(());
    };
    let Some(flags) = fields.numbers(FIELD)? else {
        return Ok(());
    };
    let rule = |(layer, &flag): (usize, &u32)| (flag != 0) == ((layer + 1) % period != 0);
    if flags.iter().enumerate().all(rule) {
        Ok(())
    } else {
        Err(fields.wrong(
            FIELD,
            format!("must be 0 for each {period}th layer, and 1 for all others"),
        ))
    }
}

/// Writes factors of embeddings, updates, scores and logits.
pub(super) fn multipliers(
    fields: &Fields<'_>,
    architecture: Architecture,
    keys: &mut GgufKeys,
) -> Result<(), SafetensorsError> {
    if !architecture.traits().multipliers {
        return Ok(());
    }
    for (field, key) in [
        ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"),
        ("attention_multiplier", "attention.scale"),
        ("logits_scaling", "logit_scale"),
    ] {
        keys.float(key, fields.float(field)?.unwrap_or(1.0));
    }
    Ok(())
}

/// Writes the sliding windows of the layers.
fn windows(
    fields: &Fields<'_>,
    architecture: Architecture,
    keys: &mut GgufKeys,
) -> Result<(), SafetensorsError> {
    const WINDOW: &str = "attention.sliding_window";
    const PATTERN: &str = "attention.sliding_window_pattern";
    let window = fields.number("sliding_window")?;
    let types = fields.texts("layer_types")?;
    let alternate = matches!(
        architecture,
        Architecture::Gemma2
            | Architecture::Gemma3
            | Architecture::GemmaEmbedding
            | Architecture::GptOss
    );
    if !alternate {
        let qwen = matches!(
            architecture,
            Architecture::Qwen2
                | Architecture::Qwen3
                | Architecture::Qwen3Moe
                | Architecture::Qwen2Vl
                | Architecture::Qwen3Vl
                | Architecture::Qwen3VlMoe
        );
        if qwen && fields.flag("use_sliding_window")? == Some(true) {
            return Err(fields.wrong("use_sliding_window", "is true, which is not supported"));
        }
        // Qwen's files name a window that the models do not use.
        if let Some(window) = window.filter(|_| !qwen) {
            keys.number(WINDOW, window);
        }
        return Ok(());
    }
    keys.number(WINDOW, window.unwrap_or(0));
    if let Some(types) = types {
        let flag = |kind: &&str| match *kind {
            "sliding_attention" => Ok(1),
            "full_attention" => Ok(0),
            other => {
                let other: String = other.chars().take(64).collect();
                let why = format!("has {other}, must have sliding_attention or full_attention");
                Err(fields.wrong("layer_types", why))
            }
        };
        let flags = types.iter().map(flag).collect::<Result<Vec<i32>, _>>()?;
        let key = keys.full(PATTERN);
        keys.out.i32s(&key, &flags);
    } else if let Some(period) = fields.number("sliding_window_pattern")? {
        keys.number(PATTERN, period);
    }
    Ok(())
}

/// Soft caps. Without the field a family has a default; null disables the cap.
fn caps(
    fields: &Fields<'_>,
    architecture: Architecture,
    keys: &mut GgufKeys,
) -> Result<(), SafetensorsError> {
    let traits = architecture.traits();
    let rows = [
        ("attn_logit_softcapping", traits.attention_cap),
        ("final_logit_softcapping", traits.logit_cap),
    ];
    for (field, default) in rows {
        match (default, fields.float(field)?) {
            (None, None) => {}
            (None, Some(_)) => {
                return Err(
                    fields.wrong(field, "is set, which is not supported in this architecture")
                );
            }
            (Some(_), Some(cap)) => keys.float(field, cap),
            (Some(_), None) if fields.is_null(field) => keys.float(field, 0.0),
            (Some(_), None) => {}
        }
    }
    Ok(())
}
