//! Rotary embedding: base, scaling, YaRN, longrope.

use super::architecture::{FactorRule, LocalRope, Traits};
use super::keys::Keys;
use super::{ConfigError, limits};
use kernels::{RopePairs, RopeSpec, Yarn};

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
    /// Positions before the context was extended.
    pub context_original: usize,
    /// Factor of sine and cosine, in addition to YaRN's.
    pub attention_factor: f32,
    /// Pairing of the rotated elements.
    pub pairs: RopePairs,
    /// The tensor with divisors of the frequencies, if any.
    pub factors: Option<&'static str>,
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
            beta_fast: YARN_TURNS.0,
            beta_slow: YARN_TURNS.1,
            original_context: self.context_original,
        }
    }
}

/// Sizes that ropes depend on.
pub(super) struct RopeSizes {
    pub(super) head_dim: usize,
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
        (local.theta, local.freq_scale, local.yarn) = (theta, 1.0, false);
    }
    if let Some(theta) = keys.float("rope.freq_base_swa", limits::THETA)? {
        local.theta = theta;
    }
    Ok((global, local))
}

fn read_global(
    keys: &Keys<'_>,
    traits: &Traits,
    sizes: &RopeSizes,
) -> Result<RopeConfig, ConfigError> {
    let dims = keys
        .size("rope.dimension_count", 2, sizes.head_dim)?
        .unwrap_or(sizes.head_dim);
    if !dims.is_multiple_of(2) {
        return Err(keys.range("rope.dimension_count", dims, "even"));
    }
    let kind = keys.text("rope.scaling.type")?.unwrap_or("linear");
    if !["none", "linear", "yarn", "longrope"].contains(&kind) {
        return Err(keys.range("rope.scaling.type", kind, "none, linear, yarn or longrope"));
    }
    let stretch = match read_stretch(keys, "rope.scaling.factor")? {
        Some(stretch) => Some(stretch),
        None => read_stretch(keys, "rope.scale_linear")?,
    };
    let context_original = keys
        .size("rope.scaling.original_context_length", 1, limits::CONTEXT)?
        .unwrap_or(sizes.context_trained);
    Ok(RopeConfig {
        dims,
        theta: keys
            .float("rope.freq_base", limits::THETA)?
            .unwrap_or(10_000.0),
        freq_scale: match stretch {
            Some(stretch) if stretch > 0.0 && kind != "none" => 1.0 / stretch,
            _ => 1.0,
        },
        yarn: kind == "yarn",
        context_original,
        attention_factor: keys
            .float("rope.scaling.attn_factor", limits::FACTOR)?
            .unwrap_or(1.0),
        pairs: traits.pairs,
        factors: factors_tensor(traits.factors, kind, sizes.context_max > context_original),
    })
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
