//! The candidate tokens, and the filters that reduce them.
//!
//! Candidates are always in id order. A filter finds the cut by partial selection in a scratch copy (expected
//! linear time, never a full sort), then keeps the candidates before the cut. "Before" is: smaller key first,
//! and the lower id where keys are equal.

use super::row::RowWeights;
use kernels::Isa;
use kernels::logits::{self, MAXIMA_BLOCK};

#[derive(Clone, Copy)]
struct CandidateToken {
    id: u32,
    logit: f32,
    /// Proportional to the probability; the most likely candidate has 1.
    weight: f32,
    /// Sort key of the current filter.
    key: f32,
}

impl CandidateToken {
    fn compare_keys(&self, other: &Self) -> std::cmp::Ordering {
        self.key.total_cmp(&other.key).then(self.id.cmp(&other.id))
    }
}

/// Scratch for the filters; sized by the vocabulary, once.
pub(super) struct Candidates {
    isa: Isa,
    kept: Vec<CandidateToken>,
    order: Vec<CandidateToken>,
    /// Maxima of blocks of logits.
    maxima: Vec<f32>,
    /// The same, partly ordered.
    ordered_maxima: Vec<f32>,
    /// Weights of all tokens, where candidates are gathered by weight.
    row: RowWeights,
}

/// The total weight that a filter keeps a part of.
pub(super) struct CandidateMass {
    pub(super) mass: f64,
    /// Upper bound of the number of tokens in `mass`.
    count: usize,
}

impl CandidateMass {
    /// A weight below which `top_p` keeps no token: all tokens below an even share of the rest have together
    /// less weight than the rest.
    pub(super) fn least_weight(&self, p: f32) -> f32 {
        if p >= 1.0 {
            return 0.0;
        }
        (f64::from(1.0 - p) * self.mass / self.count as f64) as f32
    }
}

impl Candidates {
    pub(super) fn new(vocab: usize, isa: Isa) -> Self {
        Self {
            isa,
            kept: Vec::with_capacity(vocab),
            order: Vec::with_capacity(vocab),
            maxima: Vec::with_capacity(vocab.div_ceil(MAXIMA_BLOCK)),
            ordered_maxima: Vec::with_capacity(vocab.div_ceil(MAXIMA_BLOCK)),
            row: RowWeights::new(vocab, isa),
        }
    }

    /// The most likely token, the lowest id where equal; `None` if none is possible.
    pub(super) fn most_likely(&self, logits: &[f32]) -> Option<u32> {
        logits::most_likely(self.isa, logits)
    }

    /// The largest logit of each [`MAXIMA_BLOCK`].
    pub(super) fn block_maxima(&mut self, logits: &[f32]) -> &[f32] {
        self.maxima.resize(logits.len().div_ceil(MAXIMA_BLOCK), 0.0);
        logits::block_maxima(logits, &mut self.maxima);
        &self.maxima
    }

    /// Computes the weights of a whole row, without gathering candidates.
    pub(super) fn weigh_row(&mut self, logits: &[f32], temperature: f32) -> CandidateMass {
        self.kept.clear();
        CandidateMass {
            mass: self.row.weigh(logits, temperature),
            count: logits.len(),
        }
    }

    /// Gathers the tokens of at least this weight, after [`Candidates::weigh_row`].
    pub(super) fn gather_weighed(&mut self, logits: &[f32], least: f32) {
        self.kept.clear();
        self.kept
            .extend(self.row.from(least).map(|(id, weight)| CandidateToken {
                id,
                logit: logits[id as usize],
                weight,
                key: -weight,
            }));
    }

    /// The token at `left` of the mass, after [`Candidates::weigh_row`].
    pub(super) fn draw_of_row(&self, left: f64) -> Option<u32> {
        self.row.at(left)
    }

    /// The mass of all candidates.
    pub(super) fn total_mass(&self) -> CandidateMass {
        CandidateMass {
            mass: mass(&self.kept),
            count: self.kept.len(),
        }
    }

    /// Gathers the `k` most likely tokens (0: all) that are possible; the lower ids where equal.
    pub(super) fn gather(&mut self, logits: &[f32], k: u32) {
        let k = k as usize;
        self.block_maxima(logits);
        let floor = self.floor(k);
        let possible = |logit: f32| logit > f32::NEG_INFINITY && logit >= floor;
        self.kept.clear();
        for (block, (logits, max)) in logits.chunks(MAXIMA_BLOCK).zip(&self.maxima).enumerate() {
            if !possible(*max) {
                continue;
            }
            let entries = (block as u32 * MAXIMA_BLOCK as u32..).zip(logits);
            self.kept.extend(
                entries
                    .filter(|(_, logit)| possible(**logit))
                    .map(|(id, &logit)| CandidateToken {
                        id,
                        logit,
                        weight: 0.0,
                        key: -logit,
                    }),
            );
        }
        if k > 0 && k < self.kept.len() {
            self.order.clone_from(&self.kept);
            let (_, cut, _) = self
                .order
                .select_nth_unstable_by(k - 1, CandidateToken::compare_keys);
            let cut = *cut;
            self.keep_to(cut);
        }
    }

    /// A lower bound of the `k` largest logits that is cheap to find: the
    /// `k`-th largest of the blocks' maxima, since `k` logits are at least that large.
    fn floor(&mut self, k: usize) -> f32 {
        if k == 0 || k > self.maxima.len() {
            return f32::NEG_INFINITY;
        }
        self.ordered_maxima.clone_from(&self.maxima);
        let (_, floor, _) = self
            .ordered_maxima
            .select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
        *floor
    }

    /// Turns logits into weights. `temperature` is not 0.
    pub(super) fn weigh(&mut self, temperature: f32) {
        let max = self
            .kept
            .iter()
            .fold(f32::NEG_INFINITY, |max, c| max.max(c.logit));
        for c in &mut self.kept {
            c.weight = ((c.logit - max) / temperature).exp();
        }
    }

    /// Keeps the candidates whose surprise is nearest to the expected one, up to a mass of `p`
    /// (Meister et al. 2022, "Locally Typical Sampling").
    pub(super) fn typical_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let total = mass(&self.kept);
        let surprise = |c: &CandidateToken| -(f64::from(c.weight) / total).ln();
        let expected: f64 = self
            .kept
            .iter()
            .filter(|c| c.weight > 0.0)
            .map(|c| f64::from(c.weight) / total * surprise(c))
            .sum();
        for c in &mut self.kept {
            c.key = (surprise(c) - expected).abs() as f32;
        }
        self.order.clone_from(&self.kept);
        self.keep_mass(f64::from(p) * total);
    }

    /// Keeps the most likely candidates up to a mass of `p` (Holtzman et al. 2020, nucleus sampling).
    /// `whole` is the mass before unlikely tokens were left out.
    pub(super) fn top_p(&mut self, p: f32, whole: &CandidateMass) {
        if p >= 1.0 {
            return;
        }
        let least = whole.least_weight(p);
        self.kept.iter_mut().for_each(|c| c.key = -c.weight);
        self.order.clear();
        self.order
            .extend(self.kept.iter().filter(|c| c.weight >= least));
        self.keep_mass(f64::from(p) * whole.mass);
    }

    /// Keeps the candidates at least `p` times as likely as the most likely one (Nguyen et al. 2024).
    pub(super) fn min_p(&mut self, p: f32) {
        if p <= 0.0 {
            return;
        }
        let max = self.kept.iter().fold(0.0, |max: f32, c| max.max(c.weight));
        self.kept.retain(|c| c.weight >= max * p);
    }

    /// Excludes the candidates of at least this probability, except for the least likely of them (XTC, "exclude top
    /// choices"; P. E. Weidmann 2024). Of equal ones the highest id counts as the least likely.
    pub(super) fn exclude_top(&mut self, threshold: f32) {
        let least = f64::from(threshold) * mass(&self.kept);
        let is_top = |c: &CandidateToken| f64::from(c.weight) >= least && c.weight > 0.0;
        let tops = self.kept.iter().filter(|&c| is_top(c));
        let last = tops.reduce(|last, c| if c.weight <= last.weight { c } else { last });
        if let Some(last) = last.map(|last| last.id) {
            self.kept.retain(|c| c.id == last || !is_top(c));
        }
    }

    /// Draws a candidate in proportion to the weights: the one at `quantile`, from 0 to 1, of the mass.
    pub(super) fn draw(&self, quantile: f64) -> Option<u32> {
        let mut left = quantile * mass(&self.kept);
        for c in &self.kept {
            left -= f64::from(c.weight);
            if left < 0.0 {
                return Some(c.id);
            }
        }
        // Rounding used up the mass: the last candidate with a weight.
        self.kept.iter().rfind(|c| c.weight > 0.0).map(|c| c.id)
    }

    #[cfg(test)]
    pub(super) fn ids(&self) -> Vec<u32> {
        if self.kept.is_empty() {
            return self.row.from(0.0).map(|(id, _)| id).collect();
        }
        self.kept.iter().map(|c| c.id).collect()
    }

    /// Keeps the fewest candidates, in key order, that reach this mass; at least one. `order` holds all
    /// that may be among them.
    fn keep_mass(&mut self, wanted: f64) {
        if self.order.is_empty() {
            return;
        }
        let cut = cut_at_mass(&mut self.order, wanted);
        self.keep_to(cut);
    }

    fn keep_to(&mut self, cut: CandidateToken) {
        self.kept.retain(|c| c.compare_keys(&cut).is_le());
    }
}

fn mass(candidates: &[CandidateToken]) -> f64 {
    candidates.iter().map(|c| f64::from(c.weight)).sum()
}

/// The last of the fewest candidates, in key order, whose mass reaches `wanted`. A quickselect that halves
/// by count and decides by mass: the work is n + n/2 + n/4 + ...
fn cut_at_mass(candidates: &mut [CandidateToken], wanted: f64) -> CandidateToken {
    let mut rest = candidates;
    let mut reached = 0.0;
    while rest.len() > 1 {
        let half = rest.len() / 2;
        rest.select_nth_unstable_by(half, CandidateToken::compare_keys);
        let (lower, upper) = rest.split_at_mut(half);
        let with_lower = reached + mass(lower);
        if with_lower >= wanted {
            rest = lower;
        } else {
            (reached, rest) = (with_lower, upper);
        }
    }
    rest[0]
}
