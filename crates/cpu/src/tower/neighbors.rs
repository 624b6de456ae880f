//! The merger of MiniCPM-V 4.6 within its layers: two by two neighbors become one row of the stream, by a feed-forward part of
//! all side by side that is added to their mean. Neighbors are consecutive rows.

use super::TowerPass;
use crate::norm::{self, project};
use kernels::{Pool, add_assign, gelu_mul, scale};
use std::ops::Range;
use weights::parameters::TowerLayer;
use weights::vision::{NEIGHBORS, VisionConfig};

impl TowerPass {
    /// Computes some rows of the shorter stream, at its beginning: no later block reads what a block overwrites.
    pub(super) fn merge_neighbors(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        layer: &TowerLayer,
        rows: Range<usize>,
    ) {
        let (isa, dim, count) = (self.isa, config.dim, rows.len());
        let scratch = &mut self.scratch;
        let (stream, side_cols) = (&scratch.stream, NEIGHBORS * dim);
        let means = scratch.value.head_mut(count);
        pool.rows(means, dim, |row, mean| {
            mean.fill(0.0);
            let first = (rows.start + row) * NEIGHBORS;
            for neighbor in first..first + NEIGHBORS {
                add_assign(isa, mean, stream.row(neighbor));
            }
            scale(isa, mean, 1.0 / NEIGHBORS as f32);
        });
        let side = scratch.side.head_mut(count);
        pool.rows(side, side_cols, |row, side| {
            let first = (rows.start + row) * NEIGHBORS;
            for (number, part) in side.chunks_exact_mut(dim).enumerate() {
                part.copy_from_slice(stream.row(first + number));
            }
            norm::apply_in_place(&layer.hidden_norm, isa, config.norm_eps, side);
        });
        scratch.activations.load(isa, pool, side, count, side_cols);
        let inner = layer.up.weight.rows();
        scratch.between.set_cols(inner);
        let between = scratch.between.head_mut(count);
        project(isa, pool, &layer.up, &scratch.activations, between);
        let ones = &scratch.ones[..inner];
        pool.rows(between, inner, |_, row| gelu_mul(isa, row, ones));
        scratch.activations.load(isa, pool, between, count, inner);
        let merged = scratch.stream.rows_mut(rows);
        project(isa, pool, &layer.down, &scratch.activations, merged);
        let means = &scratch.value;
        pool.rows(merged, dim, |row, merged| {
            add_assign(isa, merged, means.row(row));
        });
    }
}
