//! GGUF keys of an encoder, derived from `config.json`.

use super::SafetensorsError;
use super::described::ModelDescription;
use super::encoder_classes::EncoderClass;
use super::family::Family;
use super::fields::Fields;
use super::gguf_keys::GgufKeys;
use super::modules::POOLING_KEY;
use super::separator;
use crate::config::encoder_kind::EncoderKind;
use crate::config::state_head::POOLING_RANK;
use crate::gguf::GgufWriter;
use std::path::Path;

/// Integers of BERT, with their keys after the family's name.
const BERT: &[(&str, &str)] = &[
    ("num_hidden_layers", "block_count"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("max_position_embeddings", "context_length"),
];
/// Those of Nomic's BERT, whose fields are GPT-2's.
const NOMIC: &[(&str, &str)] = &[
    ("n_layer", "block_count"),
    ("n_embd", "embedding_length"),
    ("n_inner", "feed_forward_length"),
    ("n_head", "attention.head_count"),
    ("n_positions", "context_length"),
];
/// Keys of experts, for errors.
const NOMIC_MOE: &[(&str, &str)] = &[
    (EXPERTS, "expert_count"),
    ("moe_top_k", "expert_used_count"),
    (EXPERTS_PERIOD, EXPERTS_PERIOD),
];
/// The key of the norms' epsilon.
const EPSILON: &str = "attention.layer_norm_epsilon";
/// Positions of Nomic's training: beyond them the rope would be stretched.
const NOMIC_TRAINED: u32 = 2048;
/// As [`NOMIC_TRAINED`], of the model with experts, whose file says more.
const NOMIC_MOE_TRAINED: u32 = 512;
/// Says which layers have experts.
const EXPERTS_PERIOD: &str = "moe_every_n_layers";
/// The number of experts of such a layer.
const EXPERTS: &str = "num_experts";
/// The id of RoBERTa's padding token where the file names none.
const PADDING: u32 = 1;

/// Reads the relevant fields of an encoder's `config.json`. `pooling`: the number that other files of the folder give.
pub(super) fn describe(
    class: &'static EncoderClass,
    fields: &Fields<'_>,
    (folder, pooling): (&Path, Option<u32>),
) -> Result<ModelDescription, SafetensorsError> {
    let name = class.kind.name();
    let mut keys = GgufKeys {
        name,
        out: GgufWriter::new(),
    };
    keys.out.str("general.architecture", name);
    keys.out.str("general.type", "model");
    keys.flag("attention.causal", false);
    for (field, key) in numbers(class.kind) {
        let number = fields.need_number(field)?;
        match *key {
            "context_length" => keys.number(key, positions(class, fields, field, number)?),
            _ => keys.number(key, number),
        }
    }
    let epsilon = match class.kind {
        EncoderKind::Bert => "layer_norm_eps",
        _ => "layer_norm_epsilon",
    };
    keys.float(EPSILON, fields.need_float(epsilon)?);
    match class.kind {
        EncoderKind::Bert => refuse_other_bert(fields)?,
        kind => read_nomic(kind, fields, &mut keys)?,
    }
    let experts = match class.kind {
        EncoderKind::NomicBertMoe => read_experts(fields, &mut keys)?,
        _ => 0,
    };
    match (class.ranks(), pooling) {
        (true, _) => keys.number(POOLING_KEY, POOLING_RANK),
        (false, Some(pooling)) => keys.number(POOLING_KEY, pooling),
        (false, None) => {}
    }
    if fields
        .number("type_vocab_size")?
        .is_some_and(|types| types > 1)
    {
        separator::put(folder, &mut keys)?;
    }
    Ok(ModelDescription {
        tied: true,
        is_embedding: true,
        vocab: fields.need_number("vocab_size")?,
        padded_positions: padded_positions(class, fields)?,
        stacked_experts: experts as usize,
        ..ModelDescription::new(Family::Encoder(class), keys.out)
    })
}

/// Whether the file says that some layers have experts.
pub(super) fn has_experts(fields: &Fields<'_>) -> Result<bool, SafetensorsError> {
    Ok(fields
        .number(EXPERTS_PERIOD)?
        .is_some_and(|period| period > 0))
}

/// The source field of a key.
pub(super) fn field_of(kind: EncoderKind, key: &str) -> Option<&'static str> {
    let (_, key) = key.split_once('.')?;
    let mut all = numbers(kind).iter().chain(NOMIC_MOE);
    all.find_map(|(field, known)| (*known == key).then_some(*field))
}

fn numbers(kind: EncoderKind) -> &'static [(&'static str, &'static str)] {
    match kind {
        EncoderKind::Bert => BERT,
        EncoderKind::NomicBert | EncoderKind::NomicBertMoe => NOMIC,
    }
}

/// Rows at the beginning of the learned positions that no token has.
fn padded_positions(class: &EncoderClass, fields: &Fields<'_>) -> Result<usize, SafetensorsError> {
    if !class.pads_positions {
        return Ok(0);
    }
    let padding = fields.number("pad_token_id")?.unwrap_or(PADDING);
    Ok(padding as usize + 1)
}

/// Positions of a text.
fn positions(
    class: &EncoderClass,
    fields: &Fields<'_>,
    field: &str,
    number: u32,
) -> Result<u32, SafetensorsError> {
    if class.kind != EncoderKind::Bert {
        let trained = fields.number("max_trained_positions")?;
        let trained = trained.unwrap_or(NOMIC_TRAINED);
        let most = match class.kind {
            EncoderKind::NomicBertMoe => trained.min(NOMIC_MOE_TRAINED),
            _ => trained,
        };
        return Ok(number.min(most));
    }
    let padded = padded_positions(class, fields)?;
    match number.checked_sub(u32::try_from(padded).unwrap_or(u32::MAX)) {
        Some(positions) => Ok(positions),
        None => {
            let why = format!("is {number}, must be above `pad_token_id`, {}", padded - 1);
            Err(fields.wrong(field, why))
        }
    }
}

/// Rejects fields of BERT that request an unsupported computation.
fn refuse_other_bert(fields: &Fields<'_>) -> Result<(), SafetensorsError> {
    expect_text(fields, "hidden_act", "gelu")?;
    expect_text(fields, "position_embedding_type", "absolute")?;
    expect_flag(fields, "is_decoder", false)
}

/// Writes the rope of Nomic's BERT, and rejects fields that request an unsupported computation.
fn read_nomic(
    kind: EncoderKind,
    fields: &Fields<'_>,
    keys: &mut GgufKeys,
) -> Result<(), SafetensorsError> {
    let activation = match kind {
        EncoderKind::NomicBertMoe => "gelu",
        _ => "swiglu",
    };
    expect_text(fields, "activation_function", activation)?;
    for field in [
        "prenorm",
        "parallel_block",
        "rotary_emb_interleaved",
        "use_rms_norm",
        "causal",
    ] {
        expect_flag(fields, field, false)?;
    }
    let experts = fields.number(EXPERTS)?.unwrap_or(0);
    if kind == EncoderKind::NomicBert && experts > 1 {
        let why = format!("is {experts}, and `{EXPERTS_PERIOD}` names no layers with experts");
        return Err(fields.wrong(EXPERTS, why));
    }
    const PART: &str = "rotary_emb_fraction";
    let part = fields.need_float(PART)?;
    if part != 1.0 {
        return Err(fields.wrong(PART, format!("is {part}, must be 1")));
    }
    if fields.get("rotary_emb_scale_base").is_some() {
        return Err(fields.wrong("rotary_emb_scale_base", "is set, which is not supported"));
    }
    keys.float("rope.freq_base", fields.need_float("rotary_emb_base")?);
    Ok(())
}

/// Writes the keys of experts, and rejects what they cannot do. Returns their number.
fn read_experts(fields: &Fields<'_>, keys: &mut GgufKeys) -> Result<u32, SafetensorsError> {
    for field in ["moe_normalize_expert_weights", "expert_choice_router"] {
        expect_flag(fields, field, false)?;
    }
    if let Some(shared) = fields
        .number("num_shared_experts")?
        .filter(|shared| *shared > 0)
    {
        return Err(fields.wrong("num_shared_experts", format!("is {shared}, must be 0")));
    }
    let experts = fields.need_number(EXPERTS)?;
    keys.number("expert_count", experts);
    keys.number("expert_used_count", fields.need_number("moe_top_k")?);
    keys.number(EXPERTS_PERIOD, fields.need_number(EXPERTS_PERIOD)?);
    Ok(experts)
}

fn expect_text(fields: &Fields<'_>, field: &str, wanted: &str) -> Result<(), SafetensorsError> {
    match fields.text(field)?.filter(|found| *found != wanted) {
        None => Ok(()),
        Some(other) => Err(fields.wrong(field, format!("is {other:.64}, must be {wanted}"))),
    }
}

fn expect_flag(fields: &Fields<'_>, field: &str, wanted: bool) -> Result<(), SafetensorsError> {
    match fields.flag(field)?.filter(|found| *found != wanted) {
        None => Ok(()),
        Some(other) => Err(fields.wrong(field, format!("is {other}, must be {wanted}"))),
    }
}
