//! What queries have of some positions before the division, and how two such are folded into one.

use super::reference;
use crate::Isa;
use crate::dispatch::by_isa;

/// A result of softmax before the division, per query.
pub(super) struct PartialSoftmax {
    /// The largest score.
    pub(super) max: Vec<f32>,
    /// The sum of weights.
    pub(super) sum: Vec<f32>,
    /// Weighted values, `(queries, elements)`.
    pub(super) values: Vec<f32>,
}

impl PartialSoftmax {
    pub(super) fn new(queries: usize, elements: usize) -> Self {
        Self {
            max: vec![0.0; queries],
            sum: vec![0.0; queries],
            values: vec![0.0; queries * elements],
        }
    }

    pub(super) fn clear(&mut self) {
        self.max.fill(f32::NEG_INFINITY);
        self.sum.fill(0.0);
        self.values.fill(0.0);
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        (self.max.len() + self.sum.len() + self.values.len()) * size_of::<f32>()
    }

    /// Folds one split into the whole of a query: both are brought to the larger of their maxima.
    pub(super) fn merge(&mut self, isa: Isa, query: usize, (max, sum, values): (f32, f32, &[f32])) {
        if max == f32::NEG_INFINITY && sum == 0.0 {
            return;
        }
        let most = self.max[query].max(max);
        let (old, new) = ((self.max[query] - most).exp(), (max - most).exp());
        self.max[query] = most;
        self.sum[query] = self.sum[query] * old + sum * new;
        let elements = values.len();
        rescale_add(
            isa,
            &mut self.values[query * elements..][..elements],
            old,
            values,
            new,
        );
    }
}

by_isa! {
    reference::rescale_add, crate::arch::attention::rescale_add;
    fn rescale_add(whole: &mut [f32], old: f32, part: &[f32], new: f32)
}
