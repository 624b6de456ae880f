//! The tokens that may be drawn, and the filters that make them fewer.
//!
//! Candidates stand in id order always. A filter finds where its cut is by partial selection in
//! a scratch copy (expected linear time, never a full sort), then keeps those before the cut.
//! "Before" is: smaller key first, and the lower id where keys are equal.

use super::row::{Weights, max};

#[derive(Clone, Copy)]
struct Candidate {
    id: u32,
    logit: f32,
    /// In proportion to its probability; the most likely candidate has 1.
    weight: f32,
    /// What the filter at work sorts by.
    key: f32,
}

impl Candidate {
    fn before(&self, other: &Self) -> std::cmp::Ordering {
        self.key.total_cmp(&other.key).then(self.id.cmp(&other.id))
    }
}

/// Scratch for the filters; sized by the vocabulary, once.
pub(super) struct Candidates {
    kept: Vec<Candidate>,
    order: Vec<Candidate>,
    /// Of blocks of logits.
    maxima: Vec<f32>,
    /// Of all tokens, where candidates are gathered by weight.
    row: Weights,
}

/// What a filter keeps a part of.
pub(super) struct Whole {
    pub(super) mass: f64,
    /// Tokens that make it up, at most.
    count: usize,
}

impl Whole {
    /// A weight below which `top_p` keeps nothing: all those below an even share of the rest make up
    /// less than the rest.
    pub(super) fn least(&self, p: f32) -> f32 {
        if p >= 1.0 {
            return 0.0;
        }
        (f64::from(1.0 - p) * self.mass / self.count as f64) as f32
    }
}

/// Logits in a block, when the `k` most likely are looked for.
const BLOCK: usize = 64;

impl Candidates {
    pub(super) fn new(vocab: usize) -> Self {
        Self {
            kept: Vec::with_capacity(vocab),
            order: Vec::with_capacity(vocab),
            maxima: Vec::with_capacity(vocab.div_ceil(BLOCK)),
            row: Weights::new(vocab),
        }
    }

    /// Weighs a whole row, without gathering candidates.
    pub(super) fn weigh_row(&mut self, logits: &[f32], temperature: f32) -> Whole {
        self.kept.clear();
        Whole {
            mass: self.row.weigh(logits, temperature),
            count: logits.len(),
        }
    }

    /// The tokens of at least this weight in the row that was weighed.
    pub(super) fn gather_weighed(&mut self, logits: &[f32], least: f32) {
        self.kept.clear();
        self.kept
            .extend(self.row.from(least).map(|(id, weight)| Candidate {
                id,
                logit: logits[id as usize],
                weight,
                key: -weight,
            }));
    }

    /// The token at `left` of the mass of the row that was weighed.
    pub(super) fn draw_of_row(&self, left: f64) -> Option<u32> {
        self.row.at(left)
    }

    /// All candidates.
    pub(super) fn whole(&self) -> Whole {
        Whole {
            mass: mass(&self.kept),
            count: self.kept.len(),
        }
    }

    /// The tokens that are possible at all; when only the `k` most likely are wanted (0: all),
    /// those, and the lower ids where equal.
    pub(super) fn gather(&mut self, logits: &[f32], k: u32) {
        let k = k as usize;
        let floor = self.floor(logits, k);
        let possible = |logit: f32| logit > f32::NEG_INFINITY && logit >= floor;
        self.kept.clear();
        for (block, logits) in logits.chunks(BLOCK).enumerate() {
            if !possible(max(logits)) {
                continue;
            }
            let entries = (block as u32 * BLOCK as u32..).zip(logits);
            self.kept.extend(
                entries
                    .filter(|(_, logit)| possible(**logit))
                    .map(|(id, &logit)| Candidate {
                        id,
                        logit,
                        weight: 0.0,
                        key: -logit,
                    }),
            );
        }
        if k > 0 && k < self.kept.len() {
            self.order.clone_from(&self.kept);
            let (_, cut, _) = self.order.select_nth_unstable_by(k - 1, Candidate::before);
            let cut = *cut;
            self.keep_to(cut);
        }
    }

    /// A logit that the `k` most likely reach, found without looking at all of them closely: the
    /// `k`-th largest of the maxima of blocks, since so many logits are at least that large.
    fn floor(&mut self, logits: &[f32], k: usize) -> f32 {
        self.maxima.clear();
        let blocks = logits.chunks(BLOCK);
        if k == 0 || k > blocks.len() {
            return f32::NEG_INFINITY;
        }
        self.maxima.extend(blocks.map(max));
        let (_, floor, _) = self
            .maxima
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

    /// Keeps those whose surprise is nearest to the expected one, up to a mass of `p`
    /// (Meister et al. 2022, "Locally Typical Sampling").
    pub(super) fn typical_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let total = mass(&self.kept);
        let surprise = |c: &Candidate| -(f64::from(c.weight) / total).ln();
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

    /// Keeps the most likely ones up to a mass of `p` (Holtzman et al. 2020, nucleus sampling).
    /// `whole` is what there was before any was left out for being too unlikely.
    pub(super) fn top_p(&mut self, p: f32, whole: &Whole) {
        if p >= 1.0 {
            return;
        }
        let least = whole.least(p);
        self.kept.iter_mut().for_each(|c| c.key = -c.weight);
        self.order.clear();
        self.order
            .extend(self.kept.iter().filter(|c| c.weight >= least));
        self.keep_mass(f64::from(p) * whole.mass);
    }

    /// Keeps those at least `p` times as likely as the most likely one (Nguyen et al. 2024).
    pub(super) fn min_p(&mut self, p: f32) {
        if p <= 0.0 {
            return;
        }
        let max = self.kept.iter().fold(0.0, |max: f32, c| max.max(c.weight));
        self.kept.retain(|c| c.weight >= max * p);
    }

    /// Draws one in proportion to the weights: the one at `place`, from 0 to 1, of the mass.
    pub(super) fn draw(&self, place: f64) -> Option<u32> {
        let mut left = place * mass(&self.kept);
        for c in &self.kept {
            left -= f64::from(c.weight);
            if left < 0.0 {
                return Some(c.id);
            }
        }
        // Rounding used up the mass: the last one that has any.
        self.kept.iter().rfind(|c| c.weight > 0.0).map(|c| c.id)
    }

    #[cfg(test)]
    pub(super) fn ids(&self) -> Vec<u32> {
        if self.kept.is_empty() {
            return self.row.from(0.0).map(|(id, _)| id).collect();
        }
        self.kept.iter().map(|c| c.id).collect()
    }

    /// Keeps the fewest, in key order, that make up this mass; at least one. `order` holds all
    /// who may be among them.
    fn keep_mass(&mut self, wanted: f64) {
        if self.order.is_empty() {
            return;
        }
        let cut = cut_at_mass(&mut self.order, wanted);
        self.keep_to(cut);
    }

    fn keep_to(&mut self, cut: Candidate) {
        self.kept.retain(|c| c.before(&cut).is_le());
    }
}

fn mass(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|c| f64::from(c.weight)).sum()
}

/// The last of the fewest, in key order, whose mass reaches `wanted`. A quickselect that halves
/// by count and decides by mass: the work is n + n/2 + n/4 + ...
fn cut_at_mass(candidates: &mut [Candidate], wanted: f64) -> Candidate {
    let mut rest = candidates;
    let mut reached = 0.0;
    while rest.len() > 1 {
        let half = rest.len() / 2;
        rest.select_nth_unstable_by(half, Candidate::before);
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
