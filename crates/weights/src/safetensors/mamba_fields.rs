//! Fields of Granite 4 H, Mamba-2 and Nemotron H.
//!
//! Source: transformers' `GraniteMoeHybridConfig`, `Mamba2Config` and `NemotronHConfig`.

use super::SafetensorsError;
use super::fields::Fields;
use super::recurrent_fields::{ModelDraft, ScanSizes};
use super::{hyperparameters, rope};
use crate::Architecture;
use serde_json::Value;

/// The class of Granite 4, with recurrent layers or without.
pub(super) const GRANITE_HYBRID: &str = "GraniteMoeHybridForCausalLM";

const TYPES: &str = "layer_types";
/// Another name of [`TYPES`].
const BLOCK_TYPES: &str = "layers_block_type";
/// The layers of Nemotron H in old files: a letter for each.
const PATTERN: &str = "hybrid_override_pattern";
const EXPERTS: &str = "num_local_experts";
/// Experts where the field is not there.
const EXPERTS_DEFAULT: u32 = 8;
const SHARED: &str = "shared_intermediate_size";
const POSITIONS: &str = "position_embedding_type";
/// Positions of a model without attention, which has no bound: llama.cpp's number.
const CONTEXT: u32 = 1 << 20;

/// Keys of Granite for errors.
pub(super) const KEYS_GRANITE: &[(&str, &str)] = &[
    (
        "num_key_value_heads in the layers of layer_types",
        "attention.head_count_kv",
    ),
    ("mamba_d_conv", "ssm.conv_kernel"),
    ("mamba_d_state", "ssm.state_size"),
    ("mamba_expand", "ssm.inner_size"),
    ("mamba_n_groups", "ssm.group_count"),
    ("mamba_n_heads", "ssm.time_step_rank"),
    (EXPERTS, "expert_count"),
    (SHARED, "expert_shared_feed_forward_length"),
    (
        "shared_intermediate_size, or intermediate_size of experts",
        "feed_forward_length",
    ),
];
/// Keys of Mamba-2 for errors.
pub(super) const KEYS_MAMBA2: &[(&str, &str)] = &[
    ("layer_norm_epsilon", "attention.layer_norm_rms_epsilon"),
    ("conv_kernel", "ssm.conv_kernel"),
    ("state_size", "ssm.state_size"),
    ("head_dim", "ssm.inner_size"),
    ("n_groups", "ssm.group_count"),
    ("num_heads", "ssm.time_step_rank"),
];
/// Keys of Nemotron H for errors.
pub(super) const KEYS_NEMOTRON: &[(&str, &str)] = &[
    (
        "num_key_value_heads in the layers of layers_block_type",
        "attention.head_count_kv",
    ),
    ("layer_norm_epsilon", "attention.layer_norm_rms_epsilon"),
    ("conv_kernel", "ssm.conv_kernel"),
    ("ssm_state_size", "ssm.state_size"),
    ("mamba_head_dim", "ssm.inner_size"),
    ("n_groups", "ssm.group_count"),
    ("mamba_num_heads", "ssm.time_step_rank"),
];
const NUMBERS: &[(&str, &str)] = &[
    ("hidden_size", "embedding_length"),
    ("max_position_embeddings", "context_length"),
    ("vocab_size", "vocab_size"),
];
const LAYERS: (&str, &str) = ("num_hidden_layers", "block_count");

/// Whether the file is of Granite 4's class.
pub(super) fn is_granite_hybrid(fields: &Fields<'_>) -> Result<bool, SafetensorsError> {
    let classes = fields.texts("architectures")?;
    Ok(classes.is_some_and(|classes| classes.first() == Some(&GRANITE_HYBRID)))
}

/// The architecture of a model of that class: without recurrent layers it is another one's.
pub(super) fn granite(fields: &Fields<'_>) -> Result<Architecture, SafetensorsError> {
    let attends = granite_layers(fields)?;
    Ok(if attends.contains(&false) {
        Architecture::GraniteHybrid
    } else if has_experts(fields)? {
        Architecture::GraniteMoe
    } else {
        Architecture::Granite
    })
}

fn has_experts(fields: &Fields<'_>) -> Result<bool, SafetensorsError> {
    let count = fields.number(EXPERTS)?.unwrap_or(EXPERTS_DEFAULT);
    Ok(count > 0)
}

/// Whether each layer has attention.
fn granite_layers(fields: &Fields<'_>) -> Result<Vec<bool>, SafetensorsError> {
    let field = match fields.get(TYPES) {
        Some(_) => TYPES,
        None => BLOCK_TYPES,
    };
    let Some(types) = fields.texts(field)? else {
        return Err(fields.missing(TYPES));
    };
    let attends = |kind: &&str| match *kind {
        "attention" | "full_attention" => Ok(true),
        "mamba" | "linear_attention" => Ok(false),
        other => {
            let why = format!("has {other:.64}, must have mamba or attention");
            Err(fields.wrong(field, why))
        }
    };
    types.iter().map(attends).collect()
}

/// Writes the keys of Granite 4.
pub(super) fn read_granite(draft: &mut ModelDraft<'_>) -> Result<(), SafetensorsError> {
    let (fields, architecture) = (draft.fields, draft.architecture);
    draft.numbers(NUMBERS)?;
    draft.numbers(&[LAYERS])?;
    let head_dim = draft.heads()?;
    draft.epsilon("rms_norm_eps", 1e-6)?;
    hyperparameters::refuse(fields, architecture, draft.heads, head_dim)?;
    hyperparameters::multipliers(fields, architecture, &mut draft.keys)?;
    let attends = granite_layers(fields)?;
    let layers = fields.need_number(LAYERS.0)?;
    if attends.len() as u64 != u64::from(layers) {
        let why = format!("has {} layers, must have {layers}", attends.len());
        return Err(fields.wrong(TYPES, why));
    }
    match architecture {
        Architecture::GraniteHybrid => {
            draft.kv_heads_of(&attends);
            let hidden = fields.need_number("hidden_size")?;
            let expand = fields.number("mamba_expand")?.unwrap_or(2);
            let inner = ("mamba_expand", expand.saturating_mul(hidden));
            read_granite_scan(draft, inner)?;
        }
        _ => draft.keys.number("attention.head_count_kv", draft.kv_heads),
    }
    draft.saved.fused_feed = true;
    draft.saved.has_experts = has_experts(fields)?;
    if draft.saved.has_experts {
        draft.numbers(&[
            (EXPERTS, "expert_count"),
            ("num_experts_per_tok", "expert_used_count"),
            ("intermediate_size", "feed_forward_length"),
            (SHARED, "expert_shared_feed_forward_length"),
        ])?;
    } else {
        draft.numbers(&[(SHARED, "feed_forward_length")])?;
    }
    read_granite_rope(draft, head_dim)
}

/// Queries and keys are rotated only if a field says so.
fn read_granite_rope(draft: &mut ModelDraft<'_>, head_dim: u32) -> Result<(), SafetensorsError> {
    let (fields, architecture) = (draft.fields, draft.architecture);
    let roped = match fields.text(POSITIONS)? {
        Some("rope") => true,
        None | Some("nope") => false,
        Some(other) => {
            let why = format!("is {other:.64}, must be rope or nope");
            return Err(fields.wrong(POSITIONS, why));
        }
    };
    if !roped && architecture == Architecture::GraniteMoe {
        let why = "is not rope, which is not supported without recurrent layers";
        return Err(fields.wrong(POSITIONS, why));
    }
    draft.keys.flag("rope.scaling.finetuned", roped);
    draft.made = rope::read(fields, architecture, head_dim, &mut draft.keys)?;
    Ok(())
}

/// Writes the scan of Granite 4 H and Falcon H1. `inner`: elements of all heads, and the field that gives them.
pub(super) fn read_granite_scan(
    draft: &mut ModelDraft<'_>,
    (inner_field, inner): (&str, u32),
) -> Result<ScanSizes, SafetensorsError> {
    const HEADS: &str = "mamba_n_heads";
    const DIM: &str = "mamba_d_head";
    let fields = draft.fields;
    draft.refuse_true(&["mamba_proj_bias"])?;
    refuse_step_limits(fields)?;
    let heads = fields.need_number(HEADS)?;
    let is_chosen = fields.get(DIM).and_then(Value::as_str) == Some("auto");
    let dim = if is_chosen { None } else { fields.number(DIM)? };
    if let Some(dim) = dim
        && u64::from(dim) * u64::from(heads) != u64::from(inner)
    {
        let why = format!(
            "is {dim}, must give {inner} elements, as `{inner_field}` says, in {heads} heads"
        );
        return Err(fields.wrong(DIM, why));
    }
    let sizes = ScanSizes {
        taps: fields.number("mamba_d_conv")?.unwrap_or(4),
        state: fields.need_number("mamba_d_state")?,
        inner,
        groups: fields.number("mamba_n_groups")?.unwrap_or(1),
        heads,
    };
    draft.saved.groups = sizes.groups;
    draft.scan(&sizes);
    Ok(sizes)
}

/// Writes the keys of Mamba-2.
pub(super) fn read_mamba2(draft: &mut ModelDraft<'_>) -> Result<(), SafetensorsError> {
    let fields = draft.fields;
    draft.numbers(&[NUMBERS[0], NUMBERS[2], LAYERS])?;
    draft.keys.number("context_length", CONTEXT);
    draft.keys.number("feed_forward_length", 0);
    draft.keys.number("attention.head_count", 0);
    draft.epsilon("layer_norm_epsilon", 1e-5)?;
    hyperparameters::refuse(fields, draft.architecture, 0, 0)?;
    draft.refuse_true(&["use_bias"])?;
    let (heads, dim) = (
        fields.need_number("num_heads")?,
        fields.need_number("head_dim")?,
    );
    let hidden = fields.need_number("hidden_size")?;
    let expand = fields.number("expand")?.unwrap_or(2);
    let inner = heads.saturating_mul(dim);
    if inner != hidden.saturating_mul(expand) {
        let why = format!("is {expand}, must give {inner} elements, those of {heads} heads");
        return Err(fields.wrong("expand", why));
    }
    refuse_step_limits(fields)?;
    let groups = fields.number("n_groups")?.unwrap_or(8);
    draft.saved.groups = groups;
    draft.scan(&ScanSizes {
        taps: fields.number("conv_kernel")?.unwrap_or(4),
        state: fields.need_number("state_size")?,
        inner,
        groups,
        heads,
    });
    Ok(())
}

/// Parts of a layer of Nemotron H.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NemotronLayer {
    Mamba,
    Attention,
    Feed,
}

/// The layers, by a list or by a text with a letter for each.
fn nemotron_layers(fields: &Fields<'_>) -> Result<Vec<NemotronLayer>, SafetensorsError> {
    let mut found = None;
    for field in [BLOCK_TYPES, TYPES] {
        if found.is_none() {
            found = fields.texts(field)?.map(|types| (field, types));
        }
    }
    if found.is_none() {
        let pattern = fields.text(PATTERN)?;
        let letters = pattern.map(|text| text.split("").filter(|part| !part.is_empty()));
        found = letters.map(|letters| (PATTERN, letters.collect()));
    }
    let Some((field, kinds)) = found else {
        return Err(fields.missing(BLOCK_TYPES));
    };
    let layer = |kind: &&str| match *kind {
        "M" | "mamba" | "linear_attention" => Ok(NemotronLayer::Mamba),
        "*" | "attention" | "full_attention" => Ok(NemotronLayer::Attention),
        "-" | "mlp" => Ok(NemotronLayer::Feed),
        other => {
            let why = format!(
                "has {other:.64}, must have linear_attention (M), full_attention (*) or mlp (-)"
            );
            Err(fields.wrong(field, why))
        }
    };
    kinds.iter().map(layer).collect()
}

/// Writes the keys of Nemotron H.
pub(super) fn read_nemotron(draft: &mut ModelDraft<'_>) -> Result<(), SafetensorsError> {
    let fields = draft.fields;
    draft.numbers(NUMBERS)?;
    let layers = nemotron_layers(fields)?;
    let count = u32::try_from(layers.len()).unwrap_or(u32::MAX);
    let count = fields.number(LAYERS.0)?.unwrap_or(count);
    draft.keys.number(LAYERS.1, count);
    draft.heads()?;
    draft.epsilon("layer_norm_epsilon", 1e-5)?;
    hyperparameters::refuse_quantized(fields)?;
    draft.refuse_true(&["use_bias", "mamba_proj_bias"])?;
    for (field, only) in [("mlp_hidden_act", "relu2"), ("mamba_hidden_act", "silu")] {
        if let Some(other) = fields.text(field)?.filter(|name| *name != only) {
            return Err(fields.wrong(field, format!("is {other:.64}, must be {only}")));
        }
    }
    refuse_step_limits(fields)?;
    read_nemotron_parts(draft, &layers)?;
    let (heads, dim) = (
        fields.need_number("mamba_num_heads")?,
        fields.need_number("mamba_head_dim")?,
    );
    let groups = match fields.number("n_groups")? {
        Some(groups) => groups,
        None => fields.number("mamba_n_groups")?.unwrap_or(8),
    };
    draft.saved.groups = groups;
    draft.scan(&ScanSizes {
        taps: fields.number("conv_kernel")?.unwrap_or(4),
        state: fields.need_number("ssm_state_size")?,
        inner: heads.saturating_mul(dim),
        groups,
        heads,
    });
    Ok(())
}

/// Writes which layers have attention, and which a feed-forward part.
fn read_nemotron_parts(
    draft: &mut ModelDraft<'_>,
    layers: &[NemotronLayer],
) -> Result<(), SafetensorsError> {
    let attends = layers
        .iter()
        .map(|layer| *layer == NemotronLayer::Attention);
    draft.kv_heads_of(&attends.collect::<Vec<bool>>());
    let width = draft.fields.need_number("intermediate_size")?;
    let width = i32::try_from(width).unwrap_or(i32::MAX);
    let widths = layers.iter().map(|layer| match layer {
        NemotronLayer::Feed => width,
        _ => 0,
    });
    let key = draft.keys.full("feed_forward_length");
    let widths: Vec<i32> = widths.collect();
    draft.keys.out.i32s(&key, &widths);
    Ok(())
}

/// Rejects bounds of a token's step: steps are positive and have no other bound.
fn refuse_step_limits(fields: &Fields<'_>) -> Result<(), SafetensorsError> {
    const LIMITS: &str = "time_step_limit";
    let Some(limits) = fields.get(LIMITS) else {
        return Ok(());
    };
    // Written by Python's JSON, and by transformers from version 5 on.
    let is_infinite = |limit: &Value| {
        let tagged = limit.get("__float__").unwrap_or(limit);
        tagged.as_str() == Some("Infinity")
    };
    let is_open = match limits.as_array().map(Vec::as_slice) {
        Some([least, most]) => least.as_f64() == Some(0.0) && is_infinite(most),
        _ => false,
    };
    if is_open {
        Ok(())
    } else {
        Err(fields.wrong(LIMITS, "must be 0 to Infinity"))
    }
}
