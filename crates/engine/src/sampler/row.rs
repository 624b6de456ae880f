//! The weights of a whole row of logits, for samples that need no list of candidates.

use crate::TopLogprob;
use kernels::Isa;
use kernels::logits::{MASSES_BLOCK, MAXIMA_BLOCK, block_masses, exp_sum, max, softmax_weights};

/// The weights of a row: in proportion to the probabilities, and 1 for the most likely entry.
pub(super) struct RowWeights {
    isa: Isa,
    /// By token.
    each: Vec<f32>,
    /// Mass of each [`MASSES_BLOCK`] tokens.
    masses: Vec<f64>,
}

impl RowWeights {
    /// With capacity for a vocabulary.
    pub(super) fn new(vocab: usize, isa: Isa) -> Self {
        Self {
            isa,
            each: Vec::with_capacity(vocab),
            masses: Vec::with_capacity(vocab.div_ceil(MASSES_BLOCK)),
        }
    }

    /// Computes the weights of all entries. Returns their mass: 0 if none is possible. `temperature` is not 0.
    pub(super) fn weigh(&mut self, logits: &[f32], temperature: f32) -> f64 {
        let max = max(self.isa, logits);
        if max == f32::NEG_INFINITY {
            self.each.clear();
            self.masses.clear();
            return 0.0;
        }
        self.each.resize(logits.len(), 0.0);
        self.masses.resize(logits.len().div_ceil(MASSES_BLOCK), 0.0);
        softmax_weights(self.isa, logits, max, temperature, &mut self.each);
        block_masses(self.isa, &self.each, &mut self.masses);
        self.masses.iter().sum()
    }

    /// The entries of at least this weight, in order of ids.
    pub(super) fn from(&self, least: f32) -> impl Iterator<Item = (u32, f32)> {
        let blocks = self.each.chunks(MASSES_BLOCK).zip(&self.masses);
        // No weight is larger than the mass of its block.
        let blocks = (0..)
            .step_by(MASSES_BLOCK)
            .zip(blocks)
            .filter(move |(_, (_, mass))| **mass >= f64::from(least));
        blocks
            .flat_map(|(first, (weights, _))| (first..).zip(weights))
            .filter(move |(_, weight)| **weight >= least && **weight > 0.0)
            .map(|(id, weight)| (id, *weight))
    }

    /// The entry at `left` of the mass, in order of ids.
    pub(super) fn at(&self, mut left: f64) -> Option<u32> {
        let blocks = self.each.chunks(MASSES_BLOCK).zip(&self.masses);
        for (block, (weights, mass)) in blocks.enumerate() {
            if left >= *mass {
                left -= mass;
                continue;
            }
            for (i, weight) in weights.iter().enumerate() {
                left -= f64::from(*weight);
                if left < 0.0 {
                    return Some((block * MASSES_BLOCK + i) as u32);
                }
            }
        }
        // Rounding used up the mass: the last entry with a weight.
        self.each.iter().rposition(|w| *w > 0.0).map(|id| id as u32)
    }
}

/// `ln(sum(e^logit))`; minus infinity if no entry is possible.
pub(super) fn log_sum_exp(isa: Isa, logits: &[f32]) -> f64 {
    let most = max(isa, logits);
    if most == f32::NEG_INFINITY {
        return f64::from(most);
    }
    f64::from(most) + exp_sum(isa, logits, most).ln()
}

/// The `count` most likely tokens, most likely first, the lower id first where equal; `norm` is
/// [`log_sum_exp`] of the logits, `maxima` their [`kernels::logits::block_maxima`]. One pass: nearly every
/// block is skipped by comparing the block's largest logit with the last kept token's.
pub(super) fn top_logprobs(
    logits: &[f32],
    maxima: &[f32],
    norm: f64,
    count: usize,
    out: &mut Vec<TopLogprob>,
) {
    out.clear();
    for (block, (logits, max)) in logits.chunks(MAXIMA_BLOCK).zip(maxima).enumerate() {
        let full = out.len() == count;
        if full && out.last().is_some_and(|last| *max <= last.logprob) {
            continue;
        }
        for (i, &logit) in logits.iter().enumerate() {
            keep(out, count, (block * MAXIMA_BLOCK + i) as u32, logit);
        }
    }
    for kept in out {
        kept.logprob = (f64::from(kept.logprob) - norm) as f32;
    }
}

/// Inserts a token among the `count` most likely so far, if `logit` is large enough.
fn keep(out: &mut Vec<TopLogprob>, count: usize, id: u32, logit: f32) {
    if out.len() == count {
        match out.last() {
            Some(last) if logit > last.logprob => out.pop(),
            _ => return,
        };
    }
    let at = out.partition_point(|kept| kept.logprob >= logit);
    let logprob = logit;
    out.insert(at, TopLogprob { id, logprob });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_sum_exp_error_is_bounded_at_any_length() {
        for len in [1, 15, 16, 17, 300, 5000] {
            let logits: Vec<f32> = (0..len)
                .map(|i| (i * 37 % 101) as f32 * 0.3 - 9.0)
                .collect();
            let wanted = logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln();
            assert!(
                (log_sum_exp(Isa::detect(), &logits) - wanted).abs() < 1e-6,
                "{len}"
            );
        }
        let never = f32::NEG_INFINITY;
        assert_eq!(log_sum_exp(Isa::detect(), &[never, 3.5, never]), 3.5);
        assert_eq!(log_sum_exp(Isa::detect(), &[never; 3]), f64::NEG_INFINITY);
        let far = log_sum_exp(Isa::detect(), &[88.0, -88.0, 3e38]);
        assert_eq!(far, f64::from(3e38f32), "no overflow on the way");
    }

    #[test]
    fn entry_is_found_at_its_share_of_the_mass() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 37 % 101) as f32).ln()).collect();
        let mut weights = RowWeights::new(logits.len(), Isa::detect());
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
