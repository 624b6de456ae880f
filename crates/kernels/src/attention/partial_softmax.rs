//! Partial softmax results and their merge (log-sum-exp merge of flash-decoding).

use super::reference;
use crate::Isa;
use crate::dispatch::by_isa;

/// Softmax results before the division by the sum, per query.
pub(super) struct PartialSoftmax {
    /// Row maximum of the scores.
    pub(super) max: Vec<f32>,
    /// Row sum of the weights.
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

    /// Merges the partial result of one KV split into a query's result: both are rescaled to the larger
    /// maximum.
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
    fn rescale_add(merged: &mut [f32], old: f32, part: &[f32], new: f32)
}
