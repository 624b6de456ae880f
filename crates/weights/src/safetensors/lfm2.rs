//! Fields of LFM2 that other families do not have.

use super::SafetensorsError;
use super::fields::Fields;
use super::gguf_keys::GgufKeys;

const TYPES: &str = "layer_types";

/// Rows of the feed-forward part, by the rule of the implementation.
pub(super) fn feed_forward(fields: &Fields<'_>) -> Result<u32, SafetensorsError> {
    const WIDTH: &str = "block_ff_dim";
    const MULTIPLIER: &str = "block_ffn_dim_multiplier";
    let width = match fields.number(WIDTH)? {
        Some(width) => width,
        None => fields.need_number("intermediate_size")?,
    };
    if !fields.flag("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        return Ok(width);
    }
    let factor = fields.float(MULTIPLIER)?.unwrap_or(1.0);
    let multiple = fields.number("block_multiple_of")?.unwrap_or(256).max(1);
    let gated = u64::from(width) * 2 / 3;
    let gated = u32::try_from(gated).unwrap_or(u32::MAX);
    let adjusted = (factor * f64::from(gated)).floor();
    let rounded = (adjusted / f64::from(multiple)).ceil() * f64::from(multiple);
    if !(1.0..=f64::from(u32::MAX)).contains(&rounded) {
        let why = format!("is {factor}, must lead to a width of 1 to {}", u32::MAX);
        return Err(fields.wrong(MULTIPLIER, why));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number of 32 bits, as was checked"
    )]
    let width = rounded as u32;
    Ok(width)
}

/// Writes the layers and the convolution: a layer without key and value heads has a convolution.
pub(super) fn put_layers(
    fields: &Fields<'_>,
    kv_heads: u32,
    keys: &mut GgufKeys,
) -> Result<(), SafetensorsError> {
    let Some(types) = fields.texts(TYPES)? else {
        return Err(fields.missing(TYPES));
    };
    let heads_of = |kind: &&str| match *kind {
        "full_attention" => Ok(i32::try_from(kv_heads).unwrap_or(i32::MAX)),
        "conv" => Ok(0),
        other => {
            let why = format!("has {other:.64}, must have conv or full_attention");
            Err(fields.wrong(TYPES, why))
        }
    };
    let heads = types
        .iter()
        .map(heads_of)
        .collect::<Result<Vec<i32>, _>>()?;
    let key = keys.full("attention.head_count_kv");
    keys.out.i32s(&key, &heads);
    if fields.flag("conv_bias")? == Some(true) {
        return Err(fields.wrong("conv_bias", "is true, which is not supported"));
    }
    keys.number("shortconv.l_cache", fields.need_number("conv_L_cache")?);
    Ok(())
}
