//! Workspace of a tower: what lasts for an encoding, and what lasts for a unit.

use super::resampler::ResamplerScratch;
use super::stages::{BLOCK_PATCHES, BLOCK_ROWS};
use crate::decoder::scratch::{Buffer, attention_isa};
use kernels::{Activations, DenseAttention, DenseShape, DenseSpan, Format, Isa};
use weights::parameters::TowerWeights;
use weights::vision::VisionConfig;

/// All buffers, with their columns. Memory that no picture was large enough for stays untouched.
pub(super) struct TowerScratch {
    /// The stream of a whole picture (dim).
    pub(super) stream: Buffer,
    /// Outputs of layers side by side, of a whole picture (dim for each); no columns where the projector takes one.
    pub(super) features: Buffer,
    /// Rows of a whole picture (row_width).
    pub(super) rows: Buffer,
    /// Keys and values of a whole picture, of one layer, and the workspace of attention.
    pub(super) attention: DenseAttention,
    /// Keys that the queries of a block see.
    pub(super) spans: Vec<DenseSpan>,
    /// The normalized stream of a block (dim).
    pub(super) normed: Buffer,
    /// Queries, or keys, of a block (dim).
    pub(super) query: Buffer,
    /// Values, or what attention gives, of a block (dim).
    pub(super) value: Buffer,
    /// Values added to the stream of a block (dim).
    pub(super) update: Buffer,
    /// Turns of a block (head_dim); no columns without a rope.
    pub(super) turns: Buffer,
    /// The wide part of a block (hidden).
    pub(super) hidden: Buffer,
    /// Factor of the gate of a block (hidden); no columns without one.
    pub(super) up: Buffer,
    /// Neighbors side by side (side).
    pub(super) side: Buffer,
    /// Values between the matrices of a merger, or means of neighbors, at their widest.
    pub(super) between: Buffer,
    /// Rows of a block of a projector (projection_dim).
    pub(super) projected: Buffer,
    /// The input of a matrix whose input has bounds or a norm of its own, at its widest.
    pub(super) input: Buffer,
    /// In a tower with a resampler.
    pub(super) resampler: Option<ResamplerScratch>,
    /// Factors of a feed-forward part without a gate, at its widest.
    pub(super) ones: Vec<f32>,
    /// The input of a matrix (cols_max).
    pub(super) activations: Activations,
    activations_bytes: usize,
}

impl TowerScratch {
    pub(super) fn new(
        config: &VisionConfig,
        weights: &TowerWeights,
        (isa, threads): (Isa, usize),
    ) -> Self {
        let rows_max = config.rows_max();
        let stream_max = stream_max(config);
        let (dim, side) = (config.dim, config.side());
        let head_dim = config.head_dim();
        let cols_max = weights.cols_max().max(config.patch_cols());
        let is_clamped = weights.layers.iter().any(|layer| layer.clamps.is_some());
        let input_cols = match &weights.patch_matrix {
            Some(_) => config.patch_cols(),
            None if is_clamped => dim.max(config.hidden),
            None => 0,
        };
        let gated = weights.layers.iter().any(|layer| layer.gate.is_some());
        let neighbors = weights
            .neighbors
            .as_ref()
            .map(|layer| layer.up.weight.rows());
        let formats = || weights.formats().chain(std::iter::once(Format::F32));
        Self {
            stream: Buffer::new(stream_max, dim),
            features: Buffer::new(stream_max, dim * config.features.len()),
            rows: Buffer::new(rows_max, config.row_width()),
            attention: DenseAttention::new(DenseShape {
                heads: config.heads,
                head_dim,
                rows_max: stream_max,
                queries_max: BLOCK_PATCHES,
                threads,
                isa: attention_isa(isa, weights.formats()),
            }),
            spans: Vec::with_capacity(BLOCK_PATCHES),
            normed: Buffer::new(BLOCK_PATCHES, dim),
            query: Buffer::new(BLOCK_PATCHES, dim),
            value: Buffer::new(BLOCK_PATCHES, dim),
            update: Buffer::new(BLOCK_PATCHES, dim),
            turns: Buffer::new(
                BLOCK_PATCHES,
                if config.traits.rope.is_some() {
                    head_dim
                } else {
                    0
                },
            ),
            hidden: Buffer::new(BLOCK_PATCHES, config.hidden),
            up: Buffer::new(BLOCK_PATCHES, if gated { config.hidden } else { 0 }),
            side: Buffer::new(BLOCK_ROWS, side),
            between: Buffer::new(BLOCK_ROWS, weights.between_max(dim)),
            projected: Buffer::new(BLOCK_ROWS, config.projection_dim),
            input: Buffer::new(BLOCK_PATCHES, input_cols),
            resampler: ResamplerScratch::of(config, weights, (isa, threads)),
            ones: vec![1.0; config.hidden.max(neighbors.unwrap_or_default())],
            activations: Activations::new(BLOCK_PATCHES, cols_max).for_weights(formats()),
            activations_bytes: Activations::bytes(BLOCK_PATCHES, cols_max),
        }
    }

    /// Bytes, when the largest picture was computed.
    pub(super) fn bytes(&self) -> usize {
        let buffers = [
            &self.stream,
            &self.features,
            &self.rows,
            &self.normed,
            &self.query,
            &self.value,
            &self.update,
            &self.turns,
            &self.hidden,
            &self.up,
            &self.side,
            &self.between,
            &self.projected,
            &self.input,
        ];
        let buffers: usize = buffers.iter().map(|buffer| buffer.bytes()).sum();
        let resampler = self.resampler.as_ref().map_or(0, ResamplerScratch::bytes);
        let others = self.activations_bytes + self.attention.bytes() + resampler;
        buffers + size_of_val(&self.ones[..]) + others
    }
}

/// Rows of the largest stream: patches, and a class token for each picture.
fn stream_max(config: &VisionConfig) -> usize {
    let patches = config.patches_max();
    let table = config.table_edge * config.table_edge;
    if config.traits.class_token {
        patches + patches.div_ceil(table)
    } else {
        patches
    }
}
