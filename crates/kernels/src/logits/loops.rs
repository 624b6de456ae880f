//! The loops, which the compiler vectorizes for the level of the function that they are inlined into.

use super::MASSES_BLOCK;
use crate::packing::LANES;

/// Entries that are compared before the next branch.
const SEARCHED: usize = 64;

#[inline(always)]
pub(super) fn is_sound(logits: &[f32]) -> bool {
    let (whole, rest) = logits.as_chunks::<SEARCHED>();
    for chunk in whole {
        if any_broken(chunk) {
            return false;
        }
    }
    !any_broken(rest) && logits.iter().any(|logit| *logit > f32::NEG_INFINITY)
}

#[inline(always)]
pub(super) fn all_finite(logits: &[f32]) -> bool {
    let (whole, rest) = logits.as_chunks::<SEARCHED>();
    for chunk in whole {
        if any_not_finite(chunk) {
            return false;
        }
    }
    !any_not_finite(rest)
}

#[inline(always)]
fn any_not_finite(logits: &[f32]) -> bool {
    let mut found = 0;
    for logit in logits {
        found |= u32::from(!logit.is_finite());
    }
    found != 0
}

/// Whether there is NaN or plus infinity.
#[inline(always)]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "NaN is not less, too")]
fn any_broken(logits: &[f32]) -> bool {
    let mut broken = 0;
    for logit in logits {
        broken |= u32::from(!(*logit < f32::INFINITY));
    }
    broken != 0
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

#[inline(always)]
pub(super) fn max(logits: &[f32]) -> f32 {
    // Enough lanes to hide the latency of a comparison.
    let mut lanes = [f32::NEG_INFINITY; 4 * LANES];
    let (whole, rest) = logits.as_chunks::<{ 4 * LANES }>();
    for chunk in whole {
        for i in 0..4 * LANES {
            lanes[i] = larger(lanes[i], chunk[i]);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, *value);
    }
    let mut half = 2 * LANES;
    while half > 0 {
        for i in 0..half {
            lanes[i] = larger(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
pub(super) fn first_equal(logits: &[f32], value: f32) -> Option<usize> {
    let (whole, _) = logits.as_chunks::<SEARCHED>();
    let mut first = 0;
    for chunk in whole {
        let mut found = 0;
        for logit in chunk {
            found |= u32::from(*logit == value);
        }
        if found != 0 {
            break;
        }
        first += SEARCHED;
    }
    let within = logits[first..].iter().position(|logit| *logit == value)?;
    Some(first + within)
}

#[inline(always)]
pub(super) fn softmax_weights(logits: &[f32], max: f32, temperature: f32, weights: &mut [f32]) {
    for (weight, logit) in weights.iter_mut().zip(logits) {
        *weight = exp((logit - max) / temperature);
    }
}

#[inline(always)]
pub(super) fn block_masses(weights: &[f32], masses: &mut [f64]) {
    for (mass, weights) in masses.iter_mut().zip(weights.chunks(MASSES_BLOCK)) {
        let mut lanes = [0.0f64; LANES];
        let (whole, rest) = weights.as_chunks::<LANES>();
        for chunk in whole {
            for i in 0..LANES {
                lanes[i] += f64::from(chunk[i]);
            }
        }
        *mass = lanes.iter().sum::<f64>() + rest.iter().copied().map(f64::from).sum::<f64>();
    }
}

#[inline(always)]
pub(super) fn exp_sum(logits: &[f32], max: f32) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let (whole, rest) = logits.as_chunks::<LANES>();
    for chunk in whole {
        for i in 0..LANES {
            lanes[i] += f64::from(exp(chunk[i] - max));
        }
    }
    let rest = rest.iter().map(|logit| f64::from(exp(logit - max)));
    lanes.iter().sum::<f64>() + rest.sum::<f64>()
}

/// `e^x` for `x <= 0`, within three units in the last place; 0 where the result would not be a normal number.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Below this the result is not normal.
    const LEAST: f32 = -87.0;
    /// 1.5 * 2^23: adding this value rounds to a whole number.
    const MAGIC: f32 = 12_582_912.0;
    /// ln 2 in two parts, of which the first has few bits.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let kept = if x > LEAST { x } else { LEAST };
    let shifted = kept * std::f32::consts::LOG2_E + MAGIC;
    let whole = shifted - MAGIC;
    let r = kept - whole * LN_2[0] - whole * LN_2[1];
    let mut p = 1.987_569_1e-4;
    for factor in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ] {
        p = p * r + factor;
    }
    let fraction = p * r * r + r + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(MAGIC.to_bits()) << 23;
    let value = f32::from_bits(fraction.to_bits().wrapping_add(exponent));
    if x > LEAST { value } else { 0.0 }
}
