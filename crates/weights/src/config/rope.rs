//! Rotary embedding: base, scaling, YaRN, longrope.

use super::keys::Keys;
use super::traits::{AxisRule, FactorRule, LocalRope, Traits};
use super::{ConfigError, limits};
use kernels::{Rope, RopePairs, RopeSpec, Yarn};

/// Fast and slow bounds of YaRN's ramp, in turns over the original context: the values of the paper (Peng et
/// al. 2023, section 3.2).
const YARN_TURNS: (f32, f32) = (32.0, 1.0);

/// The rope of some layers, without the frequency factors.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Number of rotated elements of a head.
    pub dims: usize,
    /// Base of the frequencies.
    pub theta: f32,
    /// Factor of positions (linear scaling).
    pub freq_scale: f32,
    /// Whether frequencies are scaled by their number of turns in the original context (YaRN) instead of
    /// uniformly.
    pub yarn: bool,
    /// Fast and slow bounds of YaRN's ramp, in turns over the original context.
    pub yarn_turns: (f32, f32),
    /// Whether the ramp of YaRN is between whole pairs.
    pub yarn_truncated: bool,
    /// Positions before the context was extended.
    pub context_original: usize,
    /// Factor of sine and cosine, in addition to YaRN's.
    pub attention_factor: f32,
    /// Pairing of the rotated elements.
    pub pairs: RopePairs,
    /// The tensor with divisors of the frequencies, if any.
    pub factors: Option<&'static str>,
    /// Which of three positions turns each pair: 0 time, 1 height, 2 width. Empty: a row has one position.
    pub axes: Vec<u8>,
}

impl RopeConfig {
    /// The kernel's description of the rope. `factors` is the content of the tensor named in
    /// [`Self::factors`].
    pub fn spec(&self, factors: Option<Vec<f32>>) -> RopeSpec {
        RopeSpec {
            dims: self.dims,
            theta: self.theta,
            freq_scale: self.freq_scale,
            factors,
            magnitude: self.attention_factor,
            pairs: self.pairs,
            yarn: self.yarn.then(|| self.yarn_spec()),
        }
    }

    /// The kernel multiplies sine and cosine by `1 + 0.1 ln(stretch)` for YaRN; for a context that was not
    /// stretched, the factor is divided out.
    fn yarn_spec(&self) -> Yarn {
        let stretch = 1.0 / self.freq_scale;
        Yarn {
            ext_factor: 1.0,
            attn_factor: if stretch > 1.0 {
                1.0
            } else {
                1.0 / (1.0 + 0.1 * stretch.ln())
            },
            beta_fast: self.yarn_turns.0,
            beta_slow: self.yarn_turns.1,
            truncated: self.yarn_truncated,
            original_context: self.context_original,
        }
    }
}

/// Writes the cosines and sines of a row at three positions; `axis_of[i]` is the one that turns pair `i`.
pub fn table_of_axes(rope: &Rope, axis_of: &[u8], axes: [u32; 3], table: &mut [f32]) {
    rope.table(axes[0] as usize, table);
    let mut other = [0.0; limits::HEAD_DIM];
    let other = &mut other[..table.len()];
    for axis in 1..3 {
        if axes[axis] == axes[0] {
            continue;
        }
        rope.table(axes[axis] as usize, other);
        let pairs = table.chunks_exact_mut(2).zip(other.chunks_exact(2));
        for ((turn, other), found) in pairs.zip(axis_of) {
            if usize::from(*found) == axis {
                turn.copy_from_slice(other);
            }
        }
    }
}

/// Sizes that ropes depend on.
pub(super) struct RopeSizes {
    /// Elements of a head of a layer without a window.
    pub(super) head_dim: usize,
    /// Elements of a head of a layer with a window.
    pub(super) local_head_dim: usize,
    pub(super) context_trained: usize,
    pub(super) context_max: usize,
}

/// The ropes of layers without and with a window.
pub(super) fn read(
    keys: &Keys<'_>,
    traits: &Traits,
    sizes: &RopeSizes,
) -> Result<(RopeConfig, RopeConfig), ConfigError> {
    let global = read_global(keys, traits, sizes)?;
    let mut local = global.clone();
    if let LocalRope::Unscaled { theta } = traits.local_rope {
        local.theta = theta.unwrap_or(local.theta);
        (local.freq_scale, local.yarn, local.factors) = (1.0, false, None);
        if theta.is_none() {
            local.attention_factor = 1.0;
        }
    }
    if let Some(theta) = keys.float("rope.freq_base_swa", limits::THETA)? {
        local.theta = theta;
    }
    local.dims = local.dims.min(sizes.local_head_dim);
    if traits.layers_differ {
        const DIMS: &str = "rope.dimension_count_swa";
        local.dims = read_dims(keys, DIMS, sizes.local_head_dim)?.unwrap_or(local.dims);
    }
    Ok((global, local))
}

/// The number of rotated elements of a head of `head_dim`; 0 for a model without attention.
fn read_dims(keys: &Keys<'_>, name: &str, head_dim: usize) -> Result<Option<usize>, ConfigError> {
    if head_dim == 0 {
        return Ok(None);
    }
    match keys.size(name, 2, head_dim)? {
        Some(dims) if !dims.is_multiple_of(2) => Err(keys.range(name, dims, "even")),
        dims => Ok(dims),
    }
}

fn read_global(
    keys: &Keys<'_>,
    traits: &Traits,
    sizes: &RopeSizes,
) -> Result<RopeConfig, ConfigError> {
    let dims = read_dims(keys, "rope.dimension_count", sizes.head_dim)?.unwrap_or(sizes.head_dim);
    let kind = keys.text("rope.scaling.type")?.unwrap_or("linear");
    if !["none", "linear", "yarn", "longrope"].contains(&kind) {
        return Err(keys.range("rope.scaling.type", kind, "none, linear, yarn or longrope"));
    }
    let stretch = match read_stretch(keys, "rope.scaling.factor")? {
        Some(stretch) => Some(stretch),
        None => read_stretch(keys, "rope.scale_linear")?,
    };
    let stretch = match stretch {
        Some(stretch) if stretch > 0.0 && kind != "none" => stretch,
        _ => 1.0,
    };
    let factor = keys
        .float("rope.scaling.attn_factor", limits::FACTOR)?
        .unwrap_or(1.0);
    refuse_fourth_section(keys)?;
    let context_original = keys
        .size("rope.scaling.original_context_length", 1, limits::CONTEXT)?
        .unwrap_or(sizes.context_trained);
    Ok(RopeConfig {
        dims,
        theta: read_theta(keys, traits, sizes.head_dim)?,
        freq_scale: 1.0 / stretch,
        yarn: kind == "yarn",
        yarn_turns: read_turns(keys)?,
        // Not a key of GGUF, but of `config.json`.
        yarn_truncated: keys.flag("rope.scaling.yarn_truncate")?.unwrap_or(true),
        context_original,
        attention_factor: match kind {
            "yarn" => factor / read_sharpening(keys, traits.latent, stretch)?,
            _ => factor,
        },
        pairs: if traits.sections_in_halves && has_sections(keys)? {
            RopePairs::Halves
        } else {
            traits.pairs
        },
        factors: factors_tensor(traits.factors, kind, sizes.context_max > context_original),
        axes: read_axes(keys, traits.axes, dims / 2)?,
    })
}

/// The position that turns each of `pairs` pairs.
fn read_axes(keys: &Keys<'_>, rule: AxisRule, pairs: usize) -> Result<Vec<u8>, ConfigError> {
    if rule == AxisRule::Never || !has_sections(keys)? {
        return Ok(Vec::new());
    }
    let sections = keys.numbers(SECTIONS, SECTIONS_LEN)?.unwrap_or_default();
    let section = |axis: usize| {
        let pairs = sections.get(axis).copied().unwrap_or_default();
        usize::try_from(pairs).unwrap_or_default()
    };
    let ends = [section(0), section(0).saturating_add(section(1))];
    let axis = |pair: usize| match rule {
        AxisRule::Interleaved => match pair % 3 {
            axis @ 1..=2 if pair < section(axis).saturating_mul(3) => axis as u8,
            _ => 0,
        },
        AxisRule::Sections | AxisRule::Never => {
            u8::from(pair >= ends[0]) + u8::from(pair >= ends[1])
        }
    };
    Ok((0..pairs).map(axis).collect())
}

/// The base of the frequencies. Hunyuan's `alpha` stretches the base so that the slowest pair turns slower by that
/// factor.
fn read_theta(keys: &Keys<'_>, traits: &Traits, head_dim: usize) -> Result<f32, ConfigError> {
    let theta = keys
        .float("rope.freq_base", limits::THETA)?
        .unwrap_or(10_000.0);
    let alpha = if traits.alpha {
        keys.float("rope.scaling.alpha", limits::STRETCH)?
    } else {
        None
    };
    let Some(alpha) = alpha.filter(|&alpha| alpha > 0.0) else {
        return Ok(theta);
    };
    let dims = head_dim as f32;
    let stretched = theta * alpha.powf(dims / (dims - 2.0));
    if limits::THETA.contains(&stretched) {
        Ok(stretched)
    } else {
        Err(keys.range(
            "rope.scaling.alpha",
            alpha,
            format!("a factor with which the base {theta} stays a base"),
        ))
    }
}

fn read_turns(keys: &Keys<'_>) -> Result<(f32, f32), ConfigError> {
    let turns = |name, default| Ok(keys.float(name, limits::TURNS)?.unwrap_or(default));
    Ok((
        turns("rope.scaling.yarn_beta_fast", YARN_TURNS.0)?,
        turns("rope.scaling.yarn_beta_slow", YARN_TURNS.1)?,
    ))
}

/// YaRN's factor of sine and cosine for all dimensions, by which the usual one is divided (`mscale_all_dim`). With latents,
/// any such factor takes the usual one's place, and is a factor of the scores.
fn read_sharpening(keys: &Keys<'_>, latent: bool, stretch: f32) -> Result<f32, ConfigError> {
    let weight = keys.float("rope.scaling.yarn_log_multiplier", limits::TEMPERATURE)?;
    Ok(match weight {
        Some(weight) if latent && stretch > 1.0 && weight > 0.0 => 1.0 + 0.1 * stretch.ln(),
        Some(_) if latent => 1.0,
        Some(weight) if stretch > 1.0 => 1.0 + 0.1 * weight * stretch.ln(),
        _ => 1.0,
    })
}

const SECTIONS: &str = "rope.dimension_sections";
const SECTIONS_LEN: usize = 4;

/// Whether pairs turn by several positions (M-RoPE). The positions of text are all equal, so that sections only
/// matter for the pairing.
fn has_sections(keys: &Keys<'_>) -> Result<bool, ConfigError> {
    let sections = keys.numbers(SECTIONS, SECTIONS_LEN)?.unwrap_or_default();
    Ok(sections.len() > 1 && sections[..2].iter().all(|&pairs| pairs > 0))
}

/// A fourth section turns by a position that is 0 in text.
fn refuse_fourth_section(keys: &Keys<'_>) -> Result<(), ConfigError> {
    let sections = keys.numbers(SECTIONS, SECTIONS_LEN)?.unwrap_or_default();
    match sections.get(3) {
        None | Some(0) => Ok(()),
        Some(_) => Err(keys.unsupported(SECTIONS, "a fourth position")),
    }
}

/// The stretch of the context; `None` for 0 and for an absent key.
fn read_stretch(keys: &Keys<'_>, name: &str) -> Result<Option<f32>, ConfigError> {
    match keys.float(name, limits::STRETCH)? {
        Some(stretch) if stretch > 0.0 && stretch < limits::STRETCH_LEAST => Err(keys.range(
            name,
            stretch,
            format!("0 or at least {}", limits::STRETCH_LEAST),
        )),
        stretch => Ok(stretch),
    }
}

fn factors_tensor(rule: FactorRule, kind: &str, long: bool) -> Option<&'static str> {
    let by_length = if long {
        "rope_factors_long.weight"
    } else {
        "rope_factors_short.weight"
    };
    match rule {
        FactorRule::Never => None,
        FactorRule::LongShort => Some(by_length),
        FactorRule::ByScaling if kind == "longrope" => Some(by_length),
        FactorRule::ByScaling => Some("rope_freqs.weight"),
    }
}
