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

    /// Writes the heads of one row: values divided by the sum of weights, those of the sinks included (or zeros, if the
    /// sum is zero).
    pub(super) fn write_heads(
        &self,
        first: usize,
        sinks: Option<&[f32]>,
        out: &mut [f32],
        head_dim: usize,
    ) {
        let elements = self.values.len() / self.max.len();
        for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
            let query = first + head;
            let sum = self.sum_with_sink(query, sinks.map(|sinks| sinks[head]));
            let factor = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            let values = &self.values[query * elements..];
            for (out, value) in out.iter_mut().zip(values) {
                *out = value * factor;
            }
        }
    }

    /// The sum of weights of a query, plus the weight of a score without a value. A sink that is far above all scores has
    /// an infinite weight, beside which the others count nothing.
    fn sum_with_sink(&self, query: usize, sink: Option<f32>) -> f32 {
        let (max, sum) = (self.max[query], self.sum[query]);
        sink.map_or(sum, |sink| sum + (sink - max).exp())
    }
}

by_isa! {
    reference::rescale_add, crate::arch::attention::rescale_add;
    fn rescale_add(merged: &mut [f32], old: f32, part: &[f32], new: f32)
}
