//! Experts in `config.json`.

use super::SafetensorsError;
use super::fields::Fields;
use super::gguf_keys::GgufKeys;
use crate::Architecture;

/// Writes the keys of experts, and rejects what they cannot do.
pub(super) fn read(
    fields: &Fields<'_>,
    architecture: Architecture,
    keys: &mut GgufKeys,
) -> Result<(), SafetensorsError> {
    let count = match architecture {
        Architecture::Llama => match fields.number("num_local_experts")? {
            Some(count) => count,
            None => return Ok(()),
        },
        Architecture::GraniteMoe => fields.need_number("num_local_experts")?,
        Architecture::GptOss => {
            let hidden = fields.need_number("intermediate_size")?;
            keys.number("expert_feed_forward_length", hidden);
            fields.need_number("num_local_experts")?
        }
        Architecture::Qwen3Moe | Architecture::Qwen3VlMoe => {
            keys.number(
                "expert_feed_forward_length",
                fields.need_number("moe_intermediate_size")?,
            );
            refuse_dense_layers(fields)?;
            // The name since transformers 5.
            match fields.number("num_local_experts")? {
                Some(count) => count,
                None => fields.need_number("num_experts")?,
            }
        }
        Architecture::Olmoe => {
            if fields.float("clip_qkv")?.is_some() {
                return Err(fields.wrong("clip_qkv", "is set, which is not supported"));
            }
            fields.need_number("num_experts")?
        }
        _ => return Ok(()),
    };
    keys.number("expert_count", count);
    keys.number(
        "expert_used_count",
        fields.need_number("num_experts_per_tok")?,
    );
    // In Qwen3-VL the shares always add up to 1.
    if matches!(architecture, Architecture::Qwen3Moe | Architecture::Olmoe) {
        let normalized = fields.flag("norm_topk_prob")?.unwrap_or(false);
        keys.flag("expert_weights_norm", normalized);
    }
    Ok(())
}

/// Every layer has experts.
pub(super) fn refuse_dense_layers(fields: &Fields<'_>) -> Result<(), SafetensorsError> {
    let dense = fields
        .get("mlp_only_layers")
        .and_then(|list| list.as_array());
    if dense.is_some_and(|list| !list.is_empty()) {
        return Err(fields.wrong("mlp_only_layers", "names layers, which is not supported"));
    }
    match fields.number("decoder_sparse_step")? {
        None | Some(1) => Ok(()),
        Some(step) => {
            let why = format!("is {step}, must be 1");
            Err(fields.wrong("decoder_sparse_step", why))
        }
    }
}
