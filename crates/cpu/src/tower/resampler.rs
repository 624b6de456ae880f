//! The resampler of MiniCPM-V: learned queries attend to all patches of a slice, whose keys know their places.
//!
//! A place is sines and cosines of the patch's column, then of its row (`resampler.py` of the published models).

use super::TowerPass;
use super::scratch::TowerScratch;
use super::stages::{BLOCK_PATCHES, BLOCK_ROWS};
use crate::decoder::scratch::{Buffer, attention_isa};
use crate::norm::{self, project};
use kernels::{DenseAttention, DenseShape, DenseSpan, Isa, Pool, add_assign};
use std::ops::Range;
use weights::parameters::{Resampler, TowerWeights};
use weights::vision::{RESAMPLER_HEAD, VisionConfig};

/// Base of the frequencies of places.
const THETA: f32 = 10_000.0;

/// Workspace of a resampler.
pub(super) struct ResamplerScratch {
    /// Keys and values of a whole picture (out).
    attention: DenseAttention,
    /// Of each place along an edge, sines and cosines (out / 2). As many as the longest edge so far.
    places: Vec<f32>,
    /// Inputs of the projections to keys and values, or to queries (out).
    seen: Buffer,
    /// Keys or queries of a block (out).
    keys: Buffer,
    /// Values, or what attention gives, of a block (out).
    values: Buffer,
}

impl ResamplerScratch {
    /// The workspace of a tower with a resampler.
    pub(super) fn of(
        config: &VisionConfig,
        weights: &TowerWeights,
        (isa, threads): (Isa, usize),
    ) -> Option<Self> {
        config.resampler?;
        let out = config.projection_dim;
        Some(Self {
            attention: DenseAttention::new(DenseShape {
                heads: out / RESAMPLER_HEAD,
                head_dim: RESAMPLER_HEAD,
                rows_max: config.patches_max(),
                queries_max: BLOCK_ROWS,
                threads,
                isa: attention_isa(isa, weights.formats()),
            }),
            places: Vec::new(),
            seen: Buffer::new(BLOCK_PATCHES, out),
            keys: Buffer::new(BLOCK_PATCHES, out),
            values: Buffer::new(BLOCK_PATCHES, out),
        })
    }

    /// Bytes, when the largest picture was computed.
    pub(super) fn bytes(&self) -> usize {
        let buffers = [&self.seen, &self.keys, &self.values];
        let buffers: usize = buffers.iter().map(|buffer| buffer.bytes()).sum();
        buffers + self.attention.bytes() + size_of_val(&self.places[..])
    }

    /// Computes the places of an edge of so many patches.
    pub(super) fn place(&mut self, edge: usize) {
        let half = self.seen.cols() / 2;
        let known = self.places.len() / half;
        for at in known..edge {
            let angles = (0..half / 2).map(|number| at as f32 * frequency(number, half / 2));
            self.places.extend(angles.clone().map(f32::sin));
            self.places.extend(angles.map(f32::cos));
        }
    }
}

/// The frequency with this number among `count`, with the roundings of numpy.
fn frequency(number: usize, count: usize) -> f32 {
    1.0 / THETA.powf(number as f32 / count as f32)
}

impl TowerPass {
    /// Stores the keys and values of some of `stream` rows for the queries.
    pub(super) fn store_seen(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (weights, resampler): (&TowerWeights, &Resampler),
        (stream, rows): (usize, Range<usize>),
    ) {
        let (isa, count, dim) = (self.isa, rows.len(), config.dim);
        let TowerScratch {
            stream: patches,
            normed,
            activations,
            resampler: Some(scratch),
            ..
        } = &mut self.scratch
        else {
            return;
        };
        let (out, places) = (config.projection_dim, &self.places);
        let normed = normed.head_mut(count);
        pool.rows(normed, dim, |row, normed| {
            normed.copy_from_slice(patches.row(rows.start + row));
            if let Some(norm) = &weights.post_norm {
                norm::apply_in_place(norm, isa, config.norm_eps, normed);
            }
        });
        activations.load(isa, pool, normed, count, dim);
        let seen = scratch.seen.head_mut(count);
        project(isa, pool, &resampler.seen, activations, seen);
        let eps = head_eps(config);
        pool.rows(seen, out, |_, row| {
            norm::apply_in_place(&resampler.seen_norm, isa, eps, row);
        });
        activations.load(isa, pool, seen, count, out);
        let values = scratch.values.head_mut(count);
        project(isa, pool, &resampler.value, activations, values);
        let table = &scratch.places;
        pool.rows(seen, out, |row, seen| {
            let (line, column) = places.of(rows.start + row);
            let half = seen.len() / 2;
            let (first, second) = seen.split_at_mut(half);
            add_assign(isa, first, &table[column * half..][..half]);
            add_assign(isa, second, &table[line * half..][..half]);
        });
        activations.load(isa, pool, seen, count, out);
        let keys = scratch.keys.head_mut(count);
        project(isa, pool, &resampler.key, activations, keys);
        if rows.start == 0 {
            scratch.attention.begin(stream);
        }
        scratch.attention.store(pool, rows, keys, values);
    }

    /// Computes some rows of the picture, each of a query that attends to all of `stream` patches.
    pub(super) fn resample(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        resampler: &Resampler,
        (stream, rows): (usize, Range<usize>),
    ) {
        let (isa, count, out) = (self.isa, rows.len(), config.projection_dim);
        let TowerScratch {
            rows: kept,
            spans,
            activations,
            resampler: Some(scratch),
            ..
        } = &mut self.scratch
        else {
            return;
        };
        let eps = head_eps(config);
        let learned = &resampler.queries[rows.start * out..rows.end * out];
        let seen = scratch.seen.head_mut(count);
        pool.rows(seen, out, |row, seen| {
            let learned = &learned[row * out..][..out];
            norm::apply(&resampler.query_norm, isa, eps, learned, seen);
        });
        activations.load(isa, pool, seen, count, out);
        let queries = scratch.keys.head_mut(count);
        project(isa, pool, &resampler.query, activations, queries);
        spans.clear();
        spans.push(DenseSpan {
            queries: 0..count,
            keys: 0..stream,
        });
        let attended = scratch.values.head_mut(count);
        let scale = 1.0 / (RESAMPLER_HEAD as f32).sqrt();
        scratch
            .attention
            .attend(pool, spans, scale, queries, attended);
        activations.load(isa, pool, attended, count, out);
        project(isa, pool, &resampler.attended, activations, seen);
        pool.rows(seen, out, |_, row| {
            norm::apply_in_place(&resampler.post_norm, isa, eps, row);
        });
        activations.load(isa, pool, seen, count, out);
        let kept = kept.rows_mut(rows);
        project(isa, pool, &resampler.row, activations, kept);
    }
}

/// Epsilon of the projector's norms.
pub(super) fn head_eps(config: &VisionConfig) -> f32 {
    config.traits.head_eps.unwrap_or(config.norm_eps)
}

#[cfg(test)]
mod tests {
    use super::frequency;

    #[test]
    fn frequencies_fall_from_one_to_the_base() {
        let all: Vec<f32> = (0..64).map(|number| frequency(number, 64)).collect();
        assert_eq!(all[0], 1.0);
        assert!(all.windows(2).all(|pair| pair[1] < pair[0]));
        assert!((all[32] - 0.01).abs() < 1e-6);
    }
}
