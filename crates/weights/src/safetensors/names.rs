//! Names of tensors in Hugging Face's implementations and in GGUF.

use crate::Architecture;

/// Meaning of a stored name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// The tensor with this GGUF name.
    Tensor(String),
    /// Two tensors with these GGUF names, which are made from one.
    Two([String; 2]),
    /// A tensor that is not needed.
    Nothing,
    /// A tensor that this decoder does not have.
    Unknown,
}

/// Tensors outside of layers.
const OUTER: &[(&str, &str)] = &[
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    (HEAD, "output.weight"),
    ("lm_head.bias", "output.bias"),
];
/// The vocabulary projection.
pub(super) const HEAD: &str = "lm_head.weight";

/// Parts of a layer, with weights and biases.
const LAYER: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];
/// All parts of a layer of LFM2.
const LFM2: &[(&str, &str)] = &[
    ("operator_norm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.out_proj", "attn_output"),
    ("self_attn.q_layernorm", "attn_q_norm"),
    ("self_attn.k_layernorm", "attn_k_norm"),
    ("conv.in_proj", "shortconv.in_proj"),
    ("conv.conv", "shortconv.conv"),
    ("conv.out_proj", "shortconv.out_proj"),
    ("ffn_norm", "ffn_norm"),
    ("feed_forward.w1", "ffn_gate"),
    ("feed_forward.w3", "ffn_up"),
    ("feed_forward.w2", "ffn_down"),
];
/// Further parts of a layer of Gemma 4.
const GEMMA4: &[(&str, &str)] = &[
    ("per_layer_input_gate", "inp_gate"),
    ("per_layer_projection", "proj"),
    ("post_per_layer_input_norm", "post_norm"),
    ("post_feedforward_layernorm_1", "post_ffw_norm_1"),
    ("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
    ("post_feedforward_layernorm_2", "post_ffw_norm_2"),
    ("router.proj", "ffn_gate_inp"),
];
/// Parts of a layer of Gemma 4 by their whole names.
const GEMMA4_BARE: &[(&str, &str)] = &[
    ("layer_scalar", "layer_output_scale.weight"),
    ("router.scale", "ffn_gate_inp.scale"),
    ("router.per_expert_scale", "ffn_down_exps.scale"),
    ("experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("experts.down_proj", "ffn_down_exps.weight"),
];
/// Experts of Qwen3-VL in one tensor each, gate first, by their whole names.
const QWEN3VL_MOE_BARE: &[(&str, &str)] = &[
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("mlp.experts.down_proj", "ffn_down_exps.weight"),
];
/// Tensors of Gemma 4 outside of layers.
const GEMMA4_OUTER: &[(&str, &str)] = &[
    (
        "model.embed_tokens_per_layer.weight",
        "per_layer_token_embd.weight",
    ),
    (
        "model.per_layer_model_projection.weight",
        "per_layer_model_proj.weight",
    ),
    (
        "model.per_layer_projection_norm.weight",
        "per_layer_proj_norm.weight",
    ),
];
/// The norm of LFM2 after the last layer, which GGUF names as one of embeddings.
const LFM2_OUTER: &[(&str, &str)] = &[("model.embedding_norm.weight", "token_embd_norm.weight")];
/// Norms of families with norms only before attention and feed-forward.
const BEFORE: &[(&str, &str)] = &[("post_attention_layernorm", "ffn_norm")];
/// As [`BEFORE`], in gpt-oss.
const BEFORE_GPT_OSS: &[(&str, &str)] = &[("post_attention_layernorm", "post_attention_norm")];
/// Norms of families with norms before and after attention and feed-forward.
const AROUND: &[(&str, &str)] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];
/// Norms of families with norms only after attention and feed-forward.
const AFTER: &[(&str, &str)] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];
/// Fused projections.
const FUSED: &[(&str, &str)] = &[
    ("self_attn.qkv_proj", "attn_qkv"),
    ("mlp.gate_up_proj", "ffn_up"),
];
/// Router and fused experts, one tensor for all.
const ROUTERS: &[(&str, &str)] = &[
    ("mlp.gate", "ffn_gate_inp"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("block_sparse_moe.router.layer", "ffn_gate_inp"),
    ("block_sparse_moe.input_linear", "ffn_gate_up_exps"),
    ("block_sparse_moe.output_linear", "ffn_down_exps"),
];
/// One tensor for each expert: what is before its number, what is after it, and GGUF's part.
const EXPERTS: &[(&str, &str, &str)] = &[
    ("mlp.experts.", ".gate_proj", "ffn_gate"),
    ("mlp.experts.", ".up_proj", "ffn_up"),
    ("mlp.experts.", ".down_proj", "ffn_down"),
];
/// As [`EXPERTS`], in Mixtral.
const MIXTRAL: &[(&str, &str, &str)] = &[
    ("block_sparse_moe.experts.", ".w1", "ffn_gate"),
    ("block_sparse_moe.experts.", ".w3", "ffn_up"),
    ("block_sparse_moe.experts.", ".w2", "ffn_down"),
];
/// Tables of old files.
const TABLES: &str = ".rotary_emb.inv_freq";

/// Beginnings of names in files of base models, without the `model.` of models with a projection.
const BASE: [&str; 3] = ["embed_tokens.", "layers.", "norm."];

/// GGUF's name for a stored tensor. `tied`: the embedding is also the projection.
pub(super) fn named(architecture: Architecture, tied: bool, stored: &str) -> Named {
    if BASE.iter().any(|base| stored.starts_with(base)) {
        return named(architecture, tied, &format!("model.{stored}"));
    }
    if stored.ends_with(TABLES) || (tied && stored == HEAD) {
        return Named::Nothing;
    }
    let mut outer = outer(architecture);
    if let Some((_, name)) = outer.find(|(theirs, _)| *theirs == stored) {
        return Named::Tensor((*name).to_owned());
    }
    let in_layer = || {
        let (layer, rest) = stored.strip_prefix("model.layers.")?.split_once('.')?;
        if let Some((_, name)) = bare(architecture)
            .iter()
            .find(|(theirs, _)| *theirs == rest)
        {
            return is_number(layer).then(|| format!("blk.{layer}.{name}"));
        }
        let (part, kind) = rest.rsplit_once('.')?;
        let kinds = ["weight", "bias"];
        let name = match parts(architecture).find(|(theirs, _)| *theirs == part) {
            Some((_, name)) => name.to_owned(),
            None => expert_name(architecture, part)?,
        };
        (is_number(layer) && kinds.contains(&kind)).then(|| format!("blk.{layer}.{name}.{kind}"))
    };
    in_layer().map_or(Named::Unknown, Named::Tensor)
}

/// The stored name of GGUF's tensor; `None` for derived tensors.
pub(super) fn stored(architecture: Architecture, name: &str) -> Option<String> {
    let mut outer = outer(architecture);
    if let Some((theirs, _)) = outer.find(|(_, ours)| *ours == name) {
        return Some((*theirs).to_owned());
    }
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    if let Some((theirs, _)) = bare(architecture).iter().find(|(_, ours)| *ours == rest) {
        return Some(format!("model.layers.{layer}.{theirs}"));
    }
    let (part, kind) = rest.rsplit_once('.')?;
    let theirs = match parts(architecture).find(|(_, ours)| *ours == part) {
        Some((theirs, _)) => theirs.to_owned(),
        None => {
            let (part, expert) = part.split_once('.')?;
            let all = experts(architecture).iter();
            let (before, after, _) = all.clone().find(|(_, _, ours)| *ours == part)?;
            format!("{before}{expert}{after}")
        }
    };
    Some(format!("model.layers.{layer}.{theirs}.{kind}"))
}

/// Tensors outside of layers.
fn outer(
    architecture: Architecture,
) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let further = match architecture {
        Architecture::Lfm2 => LFM2_OUTER,
        Architecture::Gemma4 => GEMMA4_OUTER,
        _ => &[],
    };
    OUTER.iter().chain(further)
}

/// Parts of a layer by their whole names.
fn bare(architecture: Architecture) -> &'static [(&'static str, &'static str)] {
    match architecture {
        Architecture::Gemma4 => GEMMA4_BARE,
        Architecture::Qwen3VlMoe => QWEN3VL_MOE_BARE,
        _ => &[],
    }
}

/// GGUF's name for a part of one expert: `ffn_up.7`.
fn expert_name(architecture: Architecture, part: &str) -> Option<String> {
    let mut all = experts(architecture).iter();
    all.find_map(|(before, after, ours)| {
        let expert = part.strip_prefix(before)?.strip_suffix(after)?;
        is_number(expert).then(|| format!("{ours}.{expert}"))
    })
}

pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Names of experts that have tensors of their own.
fn experts(architecture: Architecture) -> &'static [(&'static str, &'static str, &'static str)] {
    match architecture {
        Architecture::Llama => MIXTRAL,
        Architecture::Qwen3Moe | Architecture::Olmoe => EXPERTS,
        _ => &[],
    }
}

/// Names of router and fused experts, and of what else a layer of a family has.
fn routers(architecture: Architecture) -> &'static [(&'static str, &'static str)] {
    match architecture {
        Architecture::Qwen3Moe | Architecture::Qwen3VlMoe | Architecture::Olmoe => &ROUTERS[..1],
        Architecture::GptOss => &[("mlp.router", "ffn_gate_inp")],
        Architecture::Llama => &ROUTERS[1..2],
        Architecture::GraniteMoe => &ROUTERS[2..],
        Architecture::Gemma4 => GEMMA4,
        _ => &[],
    }
}

/// Fused parts first: GGUF has one name for fused and separate parts.
fn parts(architecture: Architecture) -> impl Iterator<Item = (&'static str, &'static str)> {
    let traits = architecture.traits();
    let fused = if traits.fused_gate_up { FUSED } else { &[] };
    let norms = match (traits.pre_norms, traits.post_norms) {
        (false, _) => AFTER,
        (true, true) => AROUND,
        (true, false) if architecture == Architecture::GptOss => BEFORE_GPT_OSS,
        (true, false) => BEFORE,
    };
    let routers = routers(architecture);
    let (layer, norms, routers): (&[_], &[_], &[_]) = match architecture {
        Architecture::Lfm2 => (LFM2, &[], &[]),
        _ => (LAYER, norms, routers),
    };
    let all = fused.iter().chain(layer).chain(norms);
    all.chain(routers).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Architecture::{Gemma3, Gemma4, GraniteMoe, Lfm2, Llama, Olmoe, Phi3, Qwen3, Qwen3Moe};

    #[test]
    fn names_round_trip() {
        let rows = [
            (Llama, "model.embed_tokens.weight", "token_embd.weight"),
            (Llama, "lm_head.weight", "output.weight"),
            (
                Llama,
                "model.layers.0.self_attn.q_proj.bias",
                "blk.0.attn_q.bias",
            ),
            (
                Llama,
                "model.layers.11.post_attention_layernorm.weight",
                "blk.11.ffn_norm.weight",
            ),
            (
                Gemma3,
                "model.layers.2.post_attention_layernorm.weight",
                "blk.2.post_attention_norm.weight",
            ),
            (
                Gemma3,
                "model.layers.2.pre_feedforward_layernorm.weight",
                "blk.2.ffn_norm.weight",
            ),
            (
                Gemma3,
                "model.layers.2.post_feedforward_layernorm.weight",
                "blk.2.post_ffw_norm.weight",
            ),
            (
                Qwen3,
                "model.layers.2.self_attn.k_norm.weight",
                "blk.2.attn_k_norm.weight",
            ),
            (
                Phi3,
                "model.layers.2.self_attn.qkv_proj.weight",
                "blk.2.attn_qkv.weight",
            ),
            (
                Phi3,
                "model.layers.2.mlp.gate_up_proj.weight",
                "blk.2.ffn_up.weight",
            ),
            (
                Lfm2,
                "model.layers.2.conv.conv.weight",
                "blk.2.shortconv.conv.weight",
            ),
            (
                Lfm2,
                "model.embedding_norm.weight",
                "token_embd_norm.weight",
            ),
        ];
        check(&rows);
    }

    #[test]
    fn names_of_gemma4_round_trip() {
        let rows = [
            ("layers.3.layer_scalar", "blk.3.layer_output_scale.weight"),
            ("layers.3.router.scale", "blk.3.ffn_gate_inp.scale"),
            ("layers.3.router.proj.weight", "blk.3.ffn_gate_inp.weight"),
            ("layers.3.experts.down_proj", "blk.3.ffn_down_exps.weight"),
            (
                "layers.3.per_layer_input_gate.weight",
                "blk.3.inp_gate.weight",
            ),
            (
                "layers.3.post_attention_layernorm.weight",
                "blk.3.post_attention_norm.weight",
            ),
            (
                "embed_tokens_per_layer.weight",
                "per_layer_token_embd.weight",
            ),
        ];
        for (theirs, ours) in rows {
            check(&[(Gemma4, &format!("model.{theirs}"), ours)]);
        }
        let unknown = named(Gemma4, true, "model.layers.x.layer_scalar");
        assert_eq!(unknown, Named::Unknown);
    }

    #[test]
    fn names_of_experts_round_trip() {
        check(&[
            (
                Qwen3Moe,
                "model.layers.2.mlp.experts.127.down_proj.weight",
                "blk.2.ffn_down.127.weight",
            ),
            (
                Olmoe,
                "model.layers.0.mlp.gate.weight",
                "blk.0.ffn_gate_inp.weight",
            ),
            (
                Llama,
                "model.layers.3.block_sparse_moe.experts.0.w3.weight",
                "blk.3.ffn_up.0.weight",
            ),
            (
                GraniteMoe,
                "model.layers.3.block_sparse_moe.input_linear.weight",
                "blk.3.ffn_gate_up_exps.weight",
            ),
        ]);
    }

    fn check(rows: &[(Architecture, &str, &str)]) {
        for &(architecture, theirs, ours) in rows {
            let found = named(architecture, false, theirs);
            assert_eq!(found, Named::Tensor(ours.to_owned()), "{theirs}");
            assert_eq!(
                stored(architecture, ours).as_deref(),
                Some(theirs),
                "{ours}"
            );
        }
    }

    #[test]
    fn unknown_tensors_have_no_name() {
        for name in [
            "",
            "model",
            "model.layers.x.mlp.up_proj.weight",
            "model.layers..mlp.up_proj.weight",
            "model.layers.0.mlp.up_proj.scale",
            "model.layers.0.mlp.experts.0.up_proj.weight",
            "model.layers.0.block_sparse_moe.experts.x.w1.weight",
            "model.layers.0.block_sparse_moe.experts..w1.weight",
            "model.layers.0.self_attn.qkv_proj.weight",
            "model.layers.0.pre_feedforward_layernorm.weight",
            "model.embedding_norm.weight",
            "vision_tower.weight",
        ] {
            assert_eq!(named(Llama, false, name), Named::Unknown, "{name}");
        }
        let tables = "model.layers.0.self_attn.rotary_emb.inv_freq";
        assert_eq!(named(Llama, false, tables), Named::Nothing);
        assert_eq!(named(Llama, true, HEAD), Named::Nothing);
        let base = named(Qwen3, true, "layers.0.mlp.up_proj.weight");
        assert_eq!(base, Named::Tensor("blk.0.ffn_up.weight".to_owned()));
    }
}
