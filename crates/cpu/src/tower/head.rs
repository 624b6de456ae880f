//! Projectors, between a tower and the text: neighbors become one row, block by block.

use super::TowerPass;
use super::resampler::head_eps;
use crate::norm;
use crate::norm::project;
use kernels::{Matrix, Pool, add_assign, gelu_erf_in_place, matmul, rms_norm_in_place, scale};
use std::ops::Range;
use weights::parameters::{Merger, Norm, TowerHead, TowerWeights};
use weights::vision::VisionConfig;

/// A change of the mean of neighbors: times a factor, less the first numbers and times the second.
#[derive(Clone, Copy)]
struct MeanChange<'a> {
    factor: f32,
    standard: Option<&'a [Vec<f32>; 2]>,
}

impl MeanChange<'_> {
    const NONE: Self = Self {
        factor: 1.0,
        standard: None,
    };
}

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
                self.join(pool, config, &[(post, config.norm_eps)], rows.clone());
                let (isa, scratch) = (self.isa, &mut self.scratch);
                let (x, cols) = (scratch.side.head(count), scratch.side.cols());
                scratch.activations.load(isa, pool, x, count, cols);
                let out = scratch.projected.head_mut(count);
                project(isa, pool, matrix, &scratch.activations, out);
            }
            TowerHead::Merged(merger) => {
                self.merge(pool, config, (post, merger), rows.clone());
            }
            TowerHead::Standardized {
                factor,
                standard,
                norm,
                matrix,
            } => {
                self.join(pool, config, &[(post, config.norm_eps)], rows.clone());
                let change = MeanChange {
                    factor: *factor,
                    standard: standard.as_ref(),
                };
                self.average(pool, config, (change, norm), count);
                let (isa, scratch) = (self.isa, &mut self.scratch);
                let out = scratch.projected.head_mut(count);
                project(isa, pool, matrix, &scratch.activations, out);
            }
            TowerHead::Pooled { norm, .. } => {
                self.join(pool, config, &[(post, config.norm_eps)], rows.clone());
                self.average(pool, config, (MeanChange::NONE, norm), count);
                let scratch = &mut self.scratch;
                if let Some(matrix) = pooled {
                    let out = scratch.projected.head_mut(count);
                    matmul(pool, matrix, &scratch.activations, out);
                }
            }
            TowerHead::Resampled(resampler) => {
                let stream = self.places.patches();
                return self.resample(pool, config, resampler, (stream, rows));
            }
        }
        self.keep(config, 0, rows);
        if let Some(mark) = &weights.line_end {
            for row in self.places.line_ends() {
                let kept = self.scratch.rows.rows_mut(row..row + 1);
                kept[..mark.len()].copy_from_slice(mark);
            }
        }
    }

    /// Computes some rows for a further text layer.
    pub(super) fn deepstack(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (number, merger): (usize, &Merger),
        rows: Range<usize>,
    ) {
        self.merge(pool, config, (None, merger), rows.clone());
        self.keep(config, 1 + number, rows);
    }

    /// Keeps the output of layer number `layer`, counted from 1, of some rows of the stream, if the projector takes several.
    pub(super) fn keep_features(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (layer, rows): (usize, Range<usize>),
    ) {
        let (dim, layers) = (config.dim, &config.features);
        if !layers.contains(&layer) {
            return;
        }
        let (first, stream) = (rows.start, &self.scratch.stream);
        let kept = self.scratch.features.rows_mut(rows);
        pool.rows(kept, dim * layers.len(), |row, kept| {
            let parts = kept.chunks_exact_mut(dim).zip(layers);
            for (part, _) in parts.filter(|(_, of)| **of == layer) {
                part.copy_from_slice(stream.row(first + row));
            }
        });
    }

    /// Puts the patches of some rows side by side, with these norms, one after another: of each patch, or of all together, by its length.
    fn join(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        norms: &[(Option<&Norm>, f32)],
        rows: Range<usize>,
    ) {
        let (isa, places) = (self.isa, &self.places);
        let stream = if config.features.is_empty() {
            &self.scratch.stream
        } else {
            &self.scratch.features
        };
        let (dim, cols) = (stream.cols(), self.scratch.side.cols());
        let neighbors = cols / dim;
        let side = self.scratch.side.head_mut(rows.len());
        pool.rows(side, cols, |row, side| {
            let first = (rows.start + row) * neighbors;
            for (number, patch) in side.chunks_exact_mut(dim).enumerate() {
                patch.copy_from_slice(stream.row(places.stream_row(first + number)));
            }
            for (norm, eps) in norms {
                let Some(norm) = norm else { continue };
                for part in side.chunks_exact_mut(norm.weight.len()) {
                    norm::apply_in_place(norm, isa, *eps, part);
                }
            }
        });
    }

    /// Two matrices, from the patches of some rows to these rows.
    fn merge(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (post, merger): (Option<&Norm>, &Merger),
        rows: Range<usize>,
    ) {
        let count = rows.len();
        let eps = head_eps(config);
        let norms = [(post, config.norm_eps), (merger.norm.as_ref(), eps)];
        self.join(pool, config, &norms, rows);
        let (isa, scratch) = (self.isa, &mut self.scratch);
        let (x, cols) = (scratch.side.head(count), scratch.side.cols());
        if let Some(reduce) = &merger.reduce {
            let (dim, neighbors) = (config.dim, config.merged_patches());
            scratch.between.set_cols(cols);
            let by_element = scratch.between.head_mut(count);
            let side = &scratch.side;
            pool.rows(by_element, cols, |row, by_element| {
                let patches = side.row(row);
                for (at, entry) in by_element.iter_mut().enumerate() {
                    *entry = patches[at % neighbors * dim + at / neighbors];
                }
            });
            scratch.activations.load(isa, pool, by_element, count, cols);
            let reduced = scratch.update.head_mut(count);
            project(isa, pool, reduce, &scratch.activations, reduced);
            scratch.activations.load(isa, pool, reduced, count, dim);
        } else {
            scratch.activations.load(isa, pool, x, count, cols);
        }
        let inner = merger.first.weight.rows();
        scratch.between.set_cols(inner);
        let between = scratch.between.head_mut(count);
        project(isa, pool, &merger.first, &scratch.activations, between);
        pool.rows(between, inner, |_, row| gelu_erf_in_place(row));
        scratch.activations.load(isa, pool, between, count, inner);
        let out = scratch.projected.head_mut(count);
        project(isa, pool, &merger.second, &scratch.activations, out);
    }

    /// The mean of neighbors, changed and normalized, as the input of the next matrix.
    fn average(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (change, norm): (MeanChange<'_>, &[f32]),
        count: usize,
    ) {
        let (isa, dim, neighbors) = (self.isa, config.dim, config.merged_patches());
        self.scratch.between.set_cols(dim);
        let (side, means) = (&self.scratch.side, self.scratch.between.head_mut(count));
        pool.rows(means, dim, |row, mean| {
            mean.fill(0.0);
            for patch in side.row(row).chunks_exact(dim) {
                add_assign(isa, mean, patch);
            }
            scale(isa, mean, 1.0 / neighbors as f32);
            if change.factor != 1.0 {
                scale(isa, mean, change.factor);
            }
            if let Some([shift, by]) = change.standard {
                let changes = shift.iter().zip(by);
                let numbers = mean.iter_mut().zip(changes);
                numbers.for_each(|(x, (shift, by))| *x = (*x - shift) * by);
            }
            rms_norm_in_place(isa, mean, norm, config.norm_eps);
        });
        self.scratch.activations.load(isa, pool, means, count, dim);
    }

    /// Keeps the projected rows as part `part` of the picture's rows.
    fn keep(&mut self, config: &VisionConfig, part: usize, rows: Range<usize>) {
        let (width, scratch) = (config.projection_dim, &mut self.scratch);
        let projected = scratch.projected.head(rows.len()).chunks_exact(width);
        for (row, projected) in rows.zip(projected) {
            let Some(kept) = self.places.output_row(row) else {
                continue;
            };
            let kept = scratch.rows.rows_mut(kept..kept + 1);
            kept[part * width..][..width].copy_from_slice(projected);
        }
    }
}
