//! Fields of Qwen 3 Next and Qwen 3.5, with gated DeltaNet.
//!
//! Source: transformers' `Qwen3NextConfig`, `Qwen3_5TextConfig` and `Qwen3_5MoeTextConfig`.

use super::SafetensorsError;
use super::recurrent::ValueHeads;
use super::recurrent_fields::{ModelDraft, ScanSizes};
use super::{experts, hyperparameters, rope};
use crate::Architecture;
use crate::config::limits;

const TYPES: &str = "layer_types";
const PERIOD: &str = "full_attention_interval";
const MTP: &str = "mtp_num_hidden_layers";
const KEY_DIM: &str = "linear_key_head_dim";
const VALUE_DIM: &str = "linear_value_head_dim";
const KEY_HEADS: &str = "linear_num_key_heads";
const VALUE_HEADS: &str = "linear_num_value_heads";
const TAPS: &str = "linear_conv_kernel_dim";

/// Keys for errors.
pub(super) const KEYS: &[(&str, &str)] = &[
    (TYPES, "attention.recurrent_layers"),
    (PERIOD, PERIOD),
    (MTP, "nextn_predict_layers"),
    (TAPS, "ssm.conv_kernel"),
    (KEY_DIM, "ssm.state_size"),
    (VALUE_DIM, "ssm.inner_size"),
    (KEY_HEADS, "ssm.group_count"),
    (VALUE_HEADS, "ssm.time_step_rank"),
    (
        "shared_expert_intermediate_size",
        "expert_shared_feed_forward_length",
    ),
];
const NUMBERS: &[(&str, &str)] = &[
    ("hidden_size", "embedding_length"),
    ("max_position_embeddings", "context_length"),
    ("vocab_size", "vocab_size"),
];

/// Writes the keys of these families.
pub(super) fn read(draft: &mut ModelDraft<'_>) -> Result<(), SafetensorsError> {
    let (fields, architecture) = (draft.fields, draft.architecture);
    draft.numbers(NUMBERS)?;
    let head_dim = draft.heads()?;
    let kv_heads = fields.need_number("num_key_value_heads")?;
    draft.keys.number("attention.head_count_kv", kv_heads);
    draft.epsilon("rms_norm_eps", 1e-6)?;
    hyperparameters::refuse(fields, architecture, draft.heads, head_dim)?;
    draft.refuse_true(&["attention_bias"])?;
    if fields.flag("attn_output_gate")? == Some(false) {
        return Err(fields.wrong("attn_output_gate", "is false, which is not supported"));
    }
    let layers = fields.need_number("num_hidden_layers")?;
    let mtp = read_mtp(draft, layers)?;
    draft.keys.number("block_count", layers.saturating_add(mtp));
    read_layers(draft, mtp)?;
    read_scan(draft)?;
    read_feed_forward(draft)?;
    draft.made = rope::read(fields, architecture, head_dim, &mut draft.keys)?;
    Ok(())
}

/// Layers of the MTP head, which follow the others.
fn read_mtp(draft: &mut ModelDraft<'_>, layers: u32) -> Result<u32, SafetensorsError> {
    let fields = draft.fields;
    let count = match draft.architecture {
        // Converters leave the head out.
        Architecture::Qwen3Next => 0,
        _ => fields.number(MTP)?.unwrap_or(0),
    };
    if count as usize >= limits::LAYERS {
        let why = format!("is {count}, must be less than {}", limits::LAYERS);
        return Err(fields.wrong(MTP, why));
    }
    if count > 0 {
        draft.keys.number("nextn_predict_layers", count);
        draft.saved.mtp_layer = Some(layers);
    }
    Ok(count)
}

/// Which layers are recurrent: none of the MTP head's `mtp` layers.
fn read_layers(draft: &mut ModelDraft<'_>, mtp: u32) -> Result<(), SafetensorsError> {
    let fields = draft.fields;
    let Some(types) = fields.texts(TYPES)? else {
        let period = fields.number(PERIOD)?.unwrap_or(4);
        draft.keys.number(PERIOD, period);
        return Ok(());
    };
    let is_recurrent = |kind: &&str| match *kind {
        "linear_attention" => Ok(1),
        "full_attention" => Ok(0),
        other => {
            let why = format!("has {other:.64}, must have linear_attention or full_attention");
            Err(fields.wrong(TYPES, why))
        }
    };
    let mut each = types
        .iter()
        .map(is_recurrent)
        .collect::<Result<Vec<i32>, _>>()?;
    each.resize(each.len() + mtp as usize, 0);
    let key = draft.keys.full("attention.recurrent_layers");
    draft.keys.out.i32s(&key, &each);
    Ok(())
}

fn read_scan(draft: &mut ModelDraft<'_>) -> Result<(), SafetensorsError> {
    let fields = draft.fields;
    let (dim, value_dim) = (fields.need_number(KEY_DIM)?, fields.need_number(VALUE_DIM)?);
    if dim != value_dim {
        let why = format!("is {value_dim}, must be {dim}, as `{KEY_DIM}`");
        return Err(fields.wrong(VALUE_DIM, why));
    }
    let key_heads = fields.need_number(KEY_HEADS)?;
    let value_heads = fields.need_number(VALUE_HEADS)?;
    draft.scan(&ScanSizes {
        taps: fields.need_number(TAPS)?,
        state: dim,
        inner: dim.saturating_mul(value_heads),
        groups: key_heads,
        heads: value_heads,
    });
    // GGUF of Qwen 3 Next has the order of the file.
    let is_ordered = draft.architecture != Architecture::Qwen3Next;
    draft.saved.order = (is_ordered && value_heads != key_heads).then_some(ValueHeads {
        key_heads,
        value_heads,
        dim,
    });
    Ok(())
}

/// The feed-forward part, or experts beside one that every row uses.
fn read_feed_forward(draft: &mut ModelDraft<'_>) -> Result<(), SafetensorsError> {
    const NORMALIZED: &str = "norm_topk_prob";
    if draft.architecture == Architecture::Qwen35 {
        return draft.numbers(&[("intermediate_size", "feed_forward_length")]);
    }
    experts::refuse_dense_layers(draft.fields)?;
    draft.numbers(&[
        ("num_experts", "expert_count"),
        ("num_experts_per_tok", "expert_used_count"),
        ("moe_intermediate_size", "expert_feed_forward_length"),
        (
            "shared_expert_intermediate_size",
            "expert_shared_feed_forward_length",
        ),
    ])?;
    let normalized = draft.fields.flag(NORMALIZED)?.unwrap_or(true);
    draft.keys.flag("expert_weights_norm", normalized);
    Ok(())
}
