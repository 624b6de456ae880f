//! Rows that are vectors: how wide they are, and what of them is added after the first layers (DeepStack, arXiv 2406.04334).

use super::{BlockInput, Config, Decoder, add_assign};
use crate::norm;
use model::{Batch, RowAdditions};

/// The width of a vector, and what rows may be beside tokens.
pub(super) fn rows_of(config: &Config) -> (usize, RowAdditions) {
    let additions = RowAdditions {
        // The whole text of an encoder is tokens.
        vectors: config.is_causal(),
        axes: config.has_axes(),
        blocks: config.traits.blocks,
    };
    (config.dim * (1 + config.deepstack), additions)
}

impl Decoder {
    /// Adds part `1 + index` of each vector to the stream after layer `index`, and prepares the input of `next` again.
    pub(super) fn add_deepstack(
        &mut self,
        config: &Config,
        index: usize,
        next: &BlockInput,
        batch: &Batch,
    ) {
        let (isa, dim, eps) = (self.isa, config.dim, config.norm_eps);
        let (count, wanted) = (self.rows.queries.len(), &self.rows.wanted);
        // After the last layer that stores, only the rows with outputs are left.
        let is_cut = count < batch.tokens().len();
        let part = (1 + index) * dim..(2 + index) * dim;
        let stream = self.scratch.stream.head_mut(count);
        let normed = self.scratch.normed.head_mut(count);
        self.pool
            .rows2((stream, dim), (normed, dim), |row, stream, normed| {
                let row = if is_cut { wanted[row] } else { row };
                if let Some(vector) = batch.vector(row) {
                    add_assign(isa, stream, &vector[part.clone()]);
                    norm::read_input(next, isa, eps, stream, normed);
                }
            });
    }
}
