//! Projectors, between a tower and the text: neighbors become one row, block by block.

use super::TowerPass;
use crate::decoder::project;
use crate::norm::layer_norm;
use kernels::{Matrix, Pool, add_assign, gelu_erf_in_place, matmul, rms_norm_in_place, scale};
use std::ops::Range;
use weights::parameters::{LayerNorm, Merger, TowerHead, TowerWeights};
use weights::vision::VisionConfig;

impl TowerPass {
    /// Computes some rows of the picture. `pooled` is the matrix of a head that has one in f32.
    pub(super) fn head(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (weights, pooled): (&TowerWeights, Option<&Matrix>),
        rows: Range<usize>,
    ) {
        let count = rows.len();
        let post = weights.post_norm.as_ref();
        match &weights.head {
            TowerHead::Joined { matrix } => {
                self.join(pool, config, post, rows.clone());
                let (isa, scratch) = (self.isa, &mut self.scratch);
                let (x, cols) = (scratch.side.head(count), scratch.side.cols());
                scratch.activations.load(isa, pool, x, count, cols);
                let out = scratch.projected.head_mut(count);
                project(isa, pool, matrix, &scratch.activations, out);
            }
            TowerHead::Merged(merger) => {
                self.join(pool, config, Some(&merger.norm), rows.clone());
                self.merge(pool, merger, count);
            }
            TowerHead::Pooled { norm, .. } => {
                self.join(pool, config, post, rows.clone());
                self.average(pool, config, norm, count);
                let scratch = &mut self.scratch;
                if let Some(matrix) = pooled {
                    let out = scratch.projected.head_mut(count);
                    matmul(pool, matrix, &scratch.activations, out);
                }
            }
        }
        self.keep(config, 0, rows);
    }

    /// Computes some rows for a further text layer.
    pub(super) fn deepstack(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (number, merger): (usize, &Merger),
        rows: Range<usize>,
    ) {
        let (isa, count) = (self.isa, rows.len());
        self.join(pool, config, None, rows.clone());
        let (norm, cols) = (&merger.norm, self.scratch.side.cols());
        let side = self.scratch.side.head_mut(count);
        pool.rows(side, cols, |_, side| {
            layer_norm(isa, side, &norm.weight, Some(&norm.bias), config.norm_eps);
        });
        self.merge(pool, merger, count);
        self.keep(config, 1 + number, rows);
    }

    /// Puts the patches of some rows side by side, each normalized if there is a norm.
    fn join(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        norm: Option<&LayerNorm>,
        rows: Range<usize>,
    ) {
        let (isa, dim, neighbors) = (self.isa, config.dim, config.merged_patches());
        let (stream, cols) = (&self.scratch.stream, self.scratch.side.cols());
        let side = self.scratch.side.head_mut(rows.len());
        pool.rows(side, cols, |row, side| {
            let first = (rows.start + row) * neighbors;
            for (number, patch) in side.chunks_exact_mut(dim).enumerate() {
                patch.copy_from_slice(stream.row(first + number));
                if let Some(norm) = norm {
                    layer_norm(isa, patch, &norm.weight, Some(&norm.bias), config.norm_eps);
                }
            }
        });
    }

    /// Two matrices, from neighbors side by side to rows.
    fn merge(&mut self, pool: &mut Pool, merger: &Merger, count: usize) {
        let (isa, scratch) = (self.isa, &mut self.scratch);
        let (x, cols) = (scratch.side.head(count), scratch.side.cols());
        scratch.activations.load(isa, pool, x, count, cols);
        let between = scratch.between.head_mut(count);
        project(isa, pool, &merger.first, &scratch.activations, between);
        pool.rows(between, cols, |_, row| gelu_erf_in_place(row));
        scratch.activations.load(isa, pool, between, count, cols);
        let out = scratch.projected.head_mut(count);
        project(isa, pool, &merger.second, &scratch.activations, out);
    }

    /// The mean of neighbors, normalized, as the input of the next matrix.
    fn average(&mut self, pool: &mut Pool, config: &VisionConfig, norm: &[f32], count: usize) {
        let (isa, dim, neighbors) = (self.isa, config.dim, config.merged_patches());
        let (side, means) = (&self.scratch.side, self.scratch.between.head_mut(count));
        pool.rows(means, dim, |row, mean| {
            mean.fill(0.0);
            for patch in side.row(row).chunks_exact(dim) {
                add_assign(isa, mean, patch);
            }
            scale(isa, mean, 1.0 / neighbors as f32);
            rms_norm_in_place(isa, mean, norm, config.norm_eps);
        });
        self.scratch.activations.load(isa, pool, means, count, dim);
    }

    /// Keeps the projected rows as part `part` of the picture's rows.
    fn keep(&mut self, config: &VisionConfig, part: usize, rows: Range<usize>) {
        let (width, scratch) = (config.projection_dim, &mut self.scratch);
        let cols = scratch.rows.cols();
        let kept = scratch.rows.rows_mut(rows.clone()).chunks_exact_mut(cols);
        let projected = scratch.projected.head(rows.len()).chunks_exact(width);
        for (kept, projected) in kept.zip(projected) {
            kept[part * width..][..width].copy_from_slice(projected);
        }
    }
}
