//! Operations on a whole row of logits, for samples that need no list of candidates.
//!
//! Plain loops over lanes, without fused additions: the compiler vectorizes them, and every
//! machine gets the same bits.

/// Entries per partial sum of the mass.
const BLOCK: usize = 256;
/// Independent accumulators.
const LANES: usize = 16;

/// The weights of a row: in proportion to the probabilities, and 1 for the most likely entry.
pub(super) struct RowWeights {
    /// By token.
    each: Vec<f32>,
    /// Mass of each [`BLOCK`] tokens.
    masses: Vec<f64>,
}

impl RowWeights {
    /// With capacity for a vocabulary.
    pub(super) fn new(vocab: usize) -> Self {
        Self {
            each: Vec::with_capacity(vocab),
            masses: Vec::with_capacity(vocab.div_ceil(BLOCK)),
        }
    }

    /// Computes the weights of all entries. Returns their mass: 0 if none is possible. `temperature` is not 0.
    pub(super) fn weigh(&mut self, logits: &[f32], temperature: f32) -> f64 {
        self.each.clear();
        self.masses.clear();
        let max = max(logits);
        if max == f32::NEG_INFINITY {
            return 0.0;
        }
        self.each
            .extend(logits.iter().map(|logit| exp((logit - max) / temperature)));
        self.masses.extend(self.each.chunks(BLOCK).map(mass));
        self.masses.iter().sum()
    }

    /// The entries of at least this weight, in order of ids.
    pub(super) fn from(&self, least: f32) -> impl Iterator<Item = (u32, f32)> {
        (0..)
            .zip(&self.each)
            .filter(move |(_, weight)| **weight >= least && **weight > 0.0)
            .map(|(id, weight)| (id, *weight))
    }

    /// The entry at `left` of the mass, in order of ids.
    pub(super) fn at(&self, mut left: f64) -> Option<u32> {
        for (block, (weights, mass)) in self.each.chunks(BLOCK).zip(&self.masses).enumerate() {
            if left >= *mass {
                left -= mass;
                continue;
            }
            for (i, weight) in weights.iter().enumerate() {
                left -= f64::from(*weight);
                if left < 0.0 {
                    return Some((block * BLOCK + i) as u32);
                }
            }
        }
        // Rounding used up the mass: the last entry with a weight.
        self.each.iter().rposition(|w| *w > 0.0).map(|id| id as u32)
    }
}

/// The largest entry's id, the lowest where equal; none if no entry is possible.
pub(super) fn most_likely(logits: &[f32]) -> Option<u32> {
    let mut best = (f32::NEG_INFINITY, 0);
    for (block, logits) in logits.chunks(BLOCK).enumerate() {
        let max = max(logits);
        if max > best.0 {
            best = (max, block);
        }
    }
    let first = best.1 * BLOCK;
    let within = logits.get(first..)?.iter().position(|l| *l == best.0)?;
    (best.0 > f32::NEG_INFINITY).then_some((first + within) as u32)
}

/// The largest of some logits.
pub(super) fn max(logits: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = logits.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, logit) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *logit);
        }
    }
    let most = lanes.into_iter().fold(f32::NEG_INFINITY, larger);
    rest.iter().copied().fold(most, larger)
}

/// `ln(sum(e^logit))`; minus infinity if no entry is possible.
pub(super) fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = max(logits);
    if most == f32::NEG_INFINITY {
        return f64::from(most);
    }
    let mut lanes = [0.0f64; LANES];
    let (whole, rest) = logits.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, logit) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(exp(logit - most));
        }
    }
    let rest = rest.iter().map(|logit| f64::from(exp(logit - most)));
    f64::from(most) + (lanes.iter().sum::<f64>() + rest.sum::<f64>()).ln()
}

fn mass(weights: &[f32]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let (whole, rest) = weights.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, weight) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(*weight);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().copied().map(f64::from).sum::<f64>()
}

/// `e^x` for `x <= 0`, within three units in the last place; 0 where the result would not be a normal number.
fn exp(x: f32) -> f32 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_error_is_bounded() {
        for i in 0..200_000 {
            let x = -(i as f32) * 4.5e-4;
            let (found, wanted) = (f64::from(exp(x)), f64::from(x).exp());
            let off = (found / wanted - 1.0).abs();
            assert!(off < 3e-7 || (x <= -87.0 && found == 0.0), "{x}: {found}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    }

    #[test]
    fn log_sum_exp_error_is_bounded_at_any_length() {
        for len in [1, 15, 16, 17, 300, 5000] {
            let logits: Vec<f32> = (0..len)
                .map(|i| (i * 37 % 101) as f32 * 0.3 - 9.0)
                .collect();
            let wanted = logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln();
            assert!((log_sum_exp(&logits) - wanted).abs() < 1e-6, "{len}");
        }
        let never = f32::NEG_INFINITY;
        assert_eq!(log_sum_exp(&[never, 3.5, never]), 3.5);
        assert_eq!(log_sum_exp(&[never; 3]), f64::NEG_INFINITY);
        let far = log_sum_exp(&[88.0, -88.0, 3e38]);
        assert_eq!(far, f64::from(3e38f32), "no overflow on the way");
    }

    #[test]
    fn most_likely_is_the_lowest_id_of_equals_at_any_length() {
        for len in [1, 15, 16, 17, 255, 256, 257, 1000] {
            for at in [0, len / 3, len - 1] {
                let mut logits = vec![-2.0; len];
                logits[at..].fill(1.5);
                assert_eq!(most_likely(&logits), Some(at as u32), "{at} of {len}");
            }
            assert_eq!(most_likely(&vec![f32::NEG_INFINITY; len]), None);
        }
        assert_eq!(most_likely(&[]), None);
    }

    #[test]
    fn entry_is_found_at_its_share_of_the_mass() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 37 % 101) as f32).ln()).collect();
        let mut weights = RowWeights::new(logits.len());
        let total = weights.weigh(&logits, 1.0);
        let mut before = 0.0;
        for (id, weight) in weights.from(0.0) {
            let middle = before + f64::from(weight) / 2.0;
            assert_eq!(weights.at(middle), Some(id));
            before += f64::from(weight);
        }
        assert!((before - total).abs() < 1e-9 * total);
        // ln 0 is impossible.
        assert_eq!(weights.from(0.0).count(), 990);
        assert_eq!(weights.at(total * 2.0), Some(999));
        assert_eq!(weights.weigh(&[f32::NEG_INFINITY; 3], 1.0), 0.0);
        assert_eq!(weights.at(0.0), None);
    }
}
