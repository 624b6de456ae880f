//! Adapters in scalar code.

use super::{Twin, dot};
use crate::operation::{Operation, RowSet, UNIT, VectorId};
use crate::record::ADAPTER_WORDS;

impl Twin<'_> {
    pub(super) fn adapt(&mut self, set: RowSet, row: usize, operation: &Operation) {
        match *operation {
            Operation::AdaptDown {
                stack,
                numbers,
                input,
                low,
            } => {
                let shape = self.program.matrices[stack.0 as usize];
                let x = self.read(input, row, shape.cols);
                let stride = shape.unit_rows.next_multiple_of(UNIT);
                for (at, pair, factor) in self.pairs_of(set, row, numbers) {
                    let weights = self.matrices[stack.0 as usize].chunks_exact(x.len());
                    let rows = weights.skip(pair * shape.unit_rows as usize);
                    let rows = rows.take(shape.unit_rows as usize);
                    let product: Vec<f32> = rows.map(|weights| dot(weights, &x) * factor).collect();
                    let to = low.right_by(at * stride);
                    self.write(to, row, &product);
                }
            }
            Operation::AdaptUp {
                stack,
                numbers,
                low,
                out,
            } => {
                let shape = self.program.matrices[stack.0 as usize];
                let stride = shape.cols.next_multiple_of(UNIT);
                for (at, pair, _) in self.pairs_of(set, row, numbers) {
                    let x = self.read(low.right_by(at * stride), row, shape.cols);
                    let mut sums = self.read(out, row, shape.unit_rows);
                    let weights = self.matrices[stack.0 as usize].chunks_exact(x.len());
                    let rows = weights.skip(pair * shape.unit_rows as usize);
                    for (sum, weights) in sums.iter_mut().zip(rows) {
                        *sum += dot(weights, &x);
                    }
                    self.write(out, row, &sums);
                }
            }
            _ => {}
        }
    }

    /// Of a row's adapters that have a pair: its place among them, the pair, and the factor.
    fn pairs_of(&self, set: RowSet, row: usize, numbers: VectorId) -> Vec<(u32, usize, f32)> {
        let first = self.record.place(set).adapters_at as usize;
        if first == 0 {
            return Vec::new();
        }
        let words = &self.record.words()[first + row * ADAPTER_WORDS..][..ADAPTER_WORDS];
        let given = words.as_chunks::<2>().0.iter().zip(0..);
        let given = given.filter(|([number, _], _)| *number != u32::MAX);
        let pairs = given.filter_map(|([number, scale], at)| {
            let pair = self.vector(numbers, 2 * *number as usize);
            let factor = self.vector(numbers, 2 * *number as usize + 1);
            (pair >= 0.0).then(|| (at, pair as usize, f32::from_bits(*scale) * factor))
        });
        pairs.collect()
    }
}
