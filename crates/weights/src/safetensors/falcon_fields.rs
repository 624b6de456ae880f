//! Fields of Falcon H1, whose factors are within the weights of a GGUF.
//!
//! Source: transformers' `FalconH1Config` and `FalconH1Mixer`; the weights that a factor goes into are those of llama.cpp's
//! `convert_hf_to_gguf.py`.

use super::SafetensorsError;
use super::fields::Fields;
use super::mamba_fields::read_granite_scan;
use super::recurrent::RowFactors;
use super::recurrent_fields::{ModelDraft, ScanSizes};
use super::{hyperparameters, rope};

const INNER: &str = "mamba_d_ssm";
const EMBEDDING: &str = "embedding_multiplier";
/// All factors, which decide the weights and have no key in GGUF: for the identity of the model.
const FACTORS: &str = "weight_factors";
/// The largest factor.
const FACTOR_MAX: f32 = 1e6;

/// Keys for errors.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("mamba_d_conv", "ssm.conv_kernel"),
    ("mamba_d_state", "ssm.state_size"),
    (INNER, "ssm.inner_size"),
    ("mamba_n_groups", "ssm.group_count"),
    ("mamba_n_heads", "ssm.time_step_rank"),
];
const NUMBERS: &[(&str, &str)] = &[
    ("num_hidden_layers", "block_count"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("max_position_embeddings", "context_length"),
    ("vocab_size", "vocab_size"),
];

/// Writes the keys, and notes the factors.
pub(super) fn read(draft: &mut ModelDraft<'_>) -> Result<(), SafetensorsError> {
    let (fields, architecture) = (draft.fields, draft.architecture);
    draft.numbers(NUMBERS)?;
    let head_dim = draft.heads()?;
    draft.keys.number("attention.head_count_kv", draft.kv_heads);
    draft.epsilon("rms_norm_eps", 1e-5)?;
    hyperparameters::refuse(fields, architecture, draft.heads, head_dim)?;
    draft.refuse_true(&["attention_bias", "mlp_bias", "projectors_bias"])?;
    let inner = match fields.number(INNER)? {
        Some(inner) => inner,
        None => {
            let hidden = fields.need_number("hidden_size")?;
            let expand = fields.number("mamba_expand")?.unwrap_or(2);
            hidden.saturating_mul(expand)
        }
    };
    let sizes = read_granite_scan(draft, (INNER, inner))?;
    read_norm(draft)?;
    draft.saved.factors = read_factors(draft, &sizes)?;
    draft.made = rope::read(fields, architecture, head_dim, &mut draft.keys)?;
    Ok(())
}

/// A norm of the output of Mamba-2 stands behind its gate.
fn read_norm(draft: &mut ModelDraft<'_>) -> Result<(), SafetensorsError> {
    const BEFORE: &str = "mamba_norm_before_gate";
    let fields = draft.fields;
    let needs_norm = fields.flag("mamba_rms_norm")?.unwrap_or(false);
    if needs_norm && fields.flag(BEFORE)?.unwrap_or(true) {
        let why = "is not false, which is not supported where `mamba_rms_norm` is true";
        return Err(fields.wrong(BEFORE, why));
    }
    draft.saved.needs_norm = needs_norm;
    Ok(())
}

/// Factors of the rows of each part that has some.
fn read_factors(
    draft: &mut ModelDraft<'_>,
    sizes: &ScanSizes,
) -> Result<Vec<(&'static str, RowFactors)>, SafetensorsError> {
    let fields = draft.fields;
    let one = |field: &str| -> Result<f32, SafetensorsError> {
        let factor = fields.float(field)?.unwrap_or(1.0) as f32;
        check(fields, field, factor)
    };
    let [gate, down] = list(fields, "mlp_multipliers")?;
    let attention_in = one("attention_in_multiplier")?;
    let rows = [
        ("token_embd.weight", one(EMBEDDING)?),
        ("output.weight", one("lm_head_multiplier")?),
        ("attn_q.weight", attention_in),
        ("attn_k.weight", attention_in * one("key_multiplier")?),
        ("attn_v.weight", attention_in),
        ("attn_output.weight", one("attention_out_multiplier")?),
        ("ssm_out.weight", one("ssm_out_multiplier")?),
        ("ffn_gate.weight", gate),
        ("ffn_down.weight", down),
    ];
    let mut all: Vec<(&'static str, RowFactors)> = rows
        .into_iter()
        .filter(|(_, factor)| *factor != 1.0)
        .map(|(part, factor)| (part, RowFactors::all(factor)))
        .collect();
    // Rows of the gate, the values, the keys, the queries and the steps.
    let [gate, values, keys, queries, steps] = list(fields, "ssm_multipliers")?;
    let input = one("ssm_in_multiplier")?;
    let (inner, state) = (
        sizes.inner as usize,
        sizes.groups.saturating_mul(sizes.state) as usize,
    );
    let ends = [
        (inner, gate * input),
        (2 * inner, values * input),
        (2 * inner + state, keys * input),
        (2 * inner + 2 * state, queries * input),
        (usize::MAX, steps * input),
    ];
    let numbers = rows.iter().map(|(_, factor)| *factor);
    let numbers = numbers.chain(ends.iter().map(|(_, factor)| *factor));
    let key = draft.keys.full(FACTORS);
    draft.keys.out.f32s(&key, &numbers.collect::<Vec<f32>>());
    if ends.iter().any(|(_, factor)| *factor != 1.0) {
        all.push(("ssm_in.weight", RowFactors(ends.to_vec())));
    }
    Ok(all)
}

/// A list of `N` factors, all 1 where the field is not there.
fn list<const N: usize>(fields: &Fields<'_>, field: &str) -> Result<[f32; N], SafetensorsError> {
    if fields.get(field).is_none() {
        return Ok([1.0; N]);
    }
    let found = fields.need_floats(field)?;
    for factor in &found {
        check(fields, field, *factor)?;
    }
    <[f32; N]>::try_from(found).map_err(|found| {
        let why = format!("has {} numbers, must have {N}", found.len());
        fields.wrong(field, why)
    })
}

fn check(fields: &Fields<'_>, field: &str, factor: f32) -> Result<f32, SafetensorsError> {
    if factor.abs() <= FACTOR_MAX {
        Ok(factor)
    } else {
        let why = format!("has {factor}, must be -{FACTOR_MAX} to {FACTOR_MAX}");
        Err(fields.wrong(field, why))
    }
}
