//! Forward pass of a decoder, for all families.
//!
//! A pass computes embeddings; then for each layer attention and feed-forward, each added to the residual
//! stream; then the vocabulary projection of the rows that need logits. In the last layer, rows without
//! outputs stop as soon as their keys and values are stored.
//!
//! The arithmetic of a row never depends on other rows: kernels guarantee this for matrix multiplication and
//! attention, and the rest works row by row. So neither other sequences in the batch nor the division of a
//! prompt change a bit, on every batch-invariant [`Isa`](kernels::Isa).

mod experts;
mod finish;
mod heads;
mod layer;
mod router;
pub(crate) mod rows;
pub(crate) mod scratch;

use crate::config::Gate;
use crate::weights::{BlockInput, Dense, Layer, Linear, Weights};
use crate::{Batch, Config, Dims, ForwardError};
use experts::ExpertScratch;
use kernels::{Isa, KvCache, KvError, KvKind, Pool, Rope, add_assign, matmul, scale};
pub(crate) use layer::project;
use rows::Rows;
use scratch::Scratch;

/// Mutable state of a decoder.
pub(crate) struct Decoder {
    isa: Isa,
    pool: Pool,
    kv: KvCache,
    /// Global and local rope.
    ropes: [Rope; 2],
    rows: Rows,
    scratch: Scratch,
    /// Workspace of experts, in a model with experts.
    experts: Option<ExpertScratch>,
}

impl Decoder {
    pub(crate) fn new(
        config: &Config,
        weights: &Weights,
        dims: &Dims,
        kv: KvKind,
        isa: Isa,
        pool: Pool,
    ) -> Result<Self, KvError> {
        let kv = KvCache::new(config.kv_shape(dims.pages, dims.page_tokens, kv))?;
        let ropes = [&config.rope, &config.rope_local]
            .map(|rope| Rope::new(rope.spec(weights.rope_factors.clone())));
        let kind = kv.shape().kind;
        let scratch = Scratch::new(config, weights, dims, kind, isa, pool.threads());
        Ok(Self {
            isa,
            kv,
            ropes,
            rows: Rows::new(dims),
            scratch,
            experts: ExpertScratch::new(config, dims.rows_max),
            pool,
        })
    }

    /// Runs a batch; logits have shape `(batch.logit_rows(), vocab)`.
    pub(crate) fn forward(
        &mut self,
        config: &Config,
        weights: &Weights,
        dims: &Dims,
        batch: &Batch,
    ) -> Result<&mut [f32], ForwardError> {
        self.rows.read(batch, dims)?;
        self.angles();
        self.embed(config, weights, batch.tokens());
        for index in 0..config.layers {
            let next = weights.layers.get(index + 1);
            let next = next.map_or(&weights.output_input, |layer| &layer.attention_input);
            self.layer(config, index, &weights.layers[index], next, batch.pages());
        }
        self.logits(config, weights)
    }

    pub(crate) fn copy_page(&mut self, from: u32, to: u32) {
        self.kv.copy_page(from, to);
    }

    /// Bytes of the KV cache when fully used, and of the workspace.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let experts = self.experts.as_ref().map_or(0, ExpertScratch::bytes);
        (self.kv.bytes(), self.scratch.bytes() + experts)
    }

    /// Computes sine and cosine of every row's position, for both ropes.
    fn angles(&mut self) {
        let queries = &self.rows.queries;
        for (rope, angles) in self.ropes.iter().zip(&mut self.scratch.angles) {
            let cols = angles.cols();
            self.pool
                .rows(angles.head_mut(queries.len()), cols, |row, table| {
                    rope.table(queries[row].position, table);
                });
        }
    }

    /// Writes embeddings to the stream, and prepares the input of the first layer.
    fn embed(&mut self, config: &Config, weights: &Weights, tokens: &[u32]) {
        let (isa, dim) = (self.isa, config.dim);
        let input = &weights.layers[0].attention_input;
        let stream = self.scratch.stream.head_mut(tokens.len());
        let normed = self.scratch.normed.head_mut(tokens.len());
        self.pool
            .rows2((stream, dim), (normed, dim), |row, stream, normed| {
                weights.embedding.row(tokens[row] as usize, stream);
                if config.scales.embedding != 1.0 {
                    scale(isa, stream, config.scales.embedding);
                }
                input.read(isa, config.norm_eps, stream, normed);
            });
    }
}
