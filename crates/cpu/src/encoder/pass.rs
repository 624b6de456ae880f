//! Forward pass of an encoder.
//!
//! A pass computes embeddings, then for each layer attention and feed-forward; each is added to the stream, which is
//! normalized after that. The rows of all texts stand end to end without padding; a row attends to every row of its
//! own text, whose keys and values lie in the text's pages for the time of one layer.
//!
//! As in a decoder, the arithmetic of a row never depends on other texts of the batch.

use super::scratch::EncoderScratch;
use crate::decoder::rows::Rows;
use crate::norm::layer_norm;
use crate::norm::project;
use kernels::{
    AttentionParams, Isa, KvCache, KvError, Pool, Rope, add_assign, attend, gelu_mul, silu_mul,
};
use model::{Batch, Dims, ForwardError, RowAdditions};
use weights::encoder::EncoderConfig;
use weights::parameters::{
    ClassifierHead, EncoderFeedForward, EncoderLayer, EncoderWeights, Experts, LayerNorm, Linear,
};

/// Mutable state of an encoder.
pub(super) struct EncoderPass {
    isa: Isa,
    pool: Pool,
    kv: KvCache,
    rope: Option<Rope>,
    rows: Rows,
    /// Token type of each row.
    types: Vec<usize>,
    scratch: EncoderScratch,
}

impl EncoderPass {
    pub(super) fn new(
        config: &EncoderConfig,
        weights: &EncoderWeights,
        dims: &Dims,
        isa: Isa,
        pool: Pool,
    ) -> Result<Self, KvError> {
        Ok(Self {
            isa,
            kv: KvCache::new(config.kv_shape(dims.pages, dims.page_tokens))?,
            rope: config.rope.clone().map(Rope::new),
            rows: Rows::new(dims, false, (config.dim, RowAdditions::NONE)),
            types: Vec::with_capacity(dims.rows_max),
            scratch: EncoderScratch::new(config, weights, dims, isa, pool.threads()),
            pool,
        })
    }

    /// Runs a batch of whole texts.
    pub(super) fn forward(
        &mut self,
        config: &EncoderConfig,
        weights: &EncoderWeights,
        dims: &Dims,
        batch: &Batch,
    ) -> Result<(), ForwardError> {
        self.rows.read(batch, dims)?;
        let has_types = weights.token_types.len() > 1;
        self.read_types(batch, config.separator.filter(|_| has_types));
        self.embed(config, weights, batch.tokens());
        for layer in &weights.layers {
            self.attention(config, layer, batch.pages());
            self.add_update(config, &layer.attention_norm);
            match &layer.feed_forward {
                EncoderFeedForward::Dense { gate, up, down } => {
                    self.feed_forward(config, gate.as_ref(), up, down);
                }
                EncoderFeedForward::Experts(experts) => self.experts(experts),
            }
            self.add_update(config, &layer.output_norm);
        }
        let scratch = &mut self.scratch;
        scratch.hidden.copy_rows(&scratch.stream, &self.rows.wanted);
        if let Some(head) = &weights.head {
            self.classify(config, head);
        }
        Ok(())
    }

    /// The requested hidden states, or their scores: `(rows, dim or classes)`.
    pub(super) fn hidden(&self, ranks: bool) -> &[f32] {
        let rows = self.rows.wanted.len();
        if ranks {
            self.scratch.scores.head(rows)
        } else {
            self.scratch.hidden.head(rows)
        }
    }

    /// Bytes of keys and values when fully used, and of the workspace.
    pub(super) fn bytes(&self) -> (usize, usize) {
        (self.kv.bytes(), self.scratch.bytes())
    }

    /// The token type of each row: what follows the first separator of a text is of the second type.
    fn read_types(&mut self, batch: &Batch, separator: Option<u32>) {
        self.types.clear();
        for span in batch.ranges() {
            let mut kind = 0;
            for token in &batch.tokens()[span.tokens.clone()] {
                self.types.push(kind);
                kind |= usize::from(separator == Some(*token));
            }
        }
    }

    /// Writes the normalized sum of the embeddings of token, type and position to the stream, and the angles of the
    /// rope.
    fn embed(&mut self, config: &EncoderConfig, weights: &EncoderWeights, tokens: &[u32]) {
        let (isa, eps, queries) = (self.isa, config.norm_eps, &self.rows.queries);
        let types = &self.types;
        let (update, dim) = (self.scratch.update.head_mut(tokens.len()), config.dim);
        let stream = self.scratch.stream.head_mut(tokens.len());
        let (stream, update) = ((stream, dim), (update, dim));
        self.pool.rows2(stream, update, |row, stream, learned| {
            weights.embedding.row(tokens[row] as usize, stream);
            if let Some(token_type) = weights.token_types.get(types[row]) {
                add_assign(isa, stream, token_type);
            }
            if let Some(table) = &weights.positions {
                table.row(queries[row].position, learned);
                add_assign(isa, stream, learned);
            }
            normalize(isa, stream, &weights.embedding_norm, eps);
        });
        if let Some(rope) = &self.rope {
            let cols = self.scratch.angles.cols();
            let angles = self.scratch.angles.head_mut(tokens.len());
            self.pool.rows(angles, cols, |row, table| {
                rope.table(queries[row].position, table);
            });
        }
    }

    /// Attention, from the stream to `update`.
    fn attention(&mut self, config: &EncoderConfig, layer: &EncoderLayer, tables: &[u32]) {
        let (rows, isa) = (self.rows.queries.len(), self.isa);
        self.load_stream(config);
        let (pool, scratch) = (&mut self.pool, &mut self.scratch);
        let x = &scratch.activations;
        let (query, key) = (scratch.query.head_mut(rows), scratch.key.head_mut(rows));
        let value = scratch.value.head_mut(rows);
        project(isa, pool, &layer.query, x, query);
        project(isa, pool, &layer.key, x, key);
        project(isa, pool, &layer.value, x, value);
        if let Some(rope) = &self.rope {
            let (angles, dim) = (&scratch.angles, config.head_dim);
            for (x, cols) in [
                (&mut *query, config.query_cols()),
                (&mut *key, config.kv_cols()),
            ] {
                pool.rows(x, cols, |row, heads| {
                    rope.apply(angles.row(row), heads, dim);
                });
            }
        }
        self.kv.store_rows(pool, 0, &self.rows.slots, key, value);
        let params = AttentionParams {
            heads: config.heads,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
            softcap: None,
            window: None,
            sinks: None,
        };
        attend(
            scratch.attention.bounds().isa,
            pool,
            &mut scratch.attention,
            &self.kv,
            0,
            &params,
            &self.rows.queries,
            tables,
            query,
            scratch.attended.head_mut(rows),
        );
        let (x, cols) = (scratch.attended.head(rows), config.query_cols());
        scratch.activations.load(isa, pool, x, rows, cols);
        let update = scratch.update.head_mut(rows);
        project(
            isa,
            pool,
            &layer.attention_out,
            &scratch.activations,
            update,
        );
    }

    /// Feed-forward, from the stream to `update`.
    fn feed_forward(
        &mut self,
        config: &EncoderConfig,
        gate: Option<&Linear>,
        up_linear: &Linear,
        down: &Linear,
    ) {
        let (rows, isa, hidden) = (self.rows.queries.len(), self.isa, config.hidden);
        self.load_stream(config);
        let (pool, scratch) = (&mut self.pool, &mut self.scratch);
        let up = scratch.up.head_mut(rows);
        project(isa, pool, up_linear, &scratch.activations, up);
        let x = match gate {
            Some(linear) => {
                let (gate, up) = (scratch.gate.head_mut(rows), &scratch.up);
                project(isa, pool, linear, &scratch.activations, gate);
                pool.rows(gate, hidden, |row, gate| silu_mul(isa, gate, up.row(row)));
                scratch.gate.head(rows)
            }
            None => {
                let ones = &scratch.ones;
                pool.rows(up, hidden, |_, up| gelu_mul(isa, up, ones));
                scratch.up.head(rows)
            }
        };
        scratch.activations.load(isa, pool, x, rows, hidden);
        let update = scratch.update.head_mut(rows);
        project(isa, pool, down, &scratch.activations, update);
    }

    /// Feed-forward by the experts that each row chooses, from the stream to `update`.
    fn experts(&mut self, experts: &Experts) {
        let (rows, isa) = (self.rows.queries.len(), self.isa.without_amx());
        let (pool, scratch) = (&mut self.pool, &mut self.scratch);
        let Some(chosen) = &mut scratch.experts else {
            return;
        };
        let (activations, stream) = (&mut scratch.activations, &scratch.stream);
        let update = scratch.update.head_mut(rows);
        update.fill(0.0);
        chosen.choose(isa, pool, experts, activations, stream, rows);
        chosen.add_outputs(isa, pool, experts, activations, stream, update);
    }

    /// Loads the stream as the input of the following projections.
    fn load_stream(&mut self, config: &EncoderConfig) {
        let rows = self.rows.queries.len();
        let scratch = &mut self.scratch;
        let (x, pool) = (scratch.stream.head(rows), &mut self.pool);
        scratch
            .activations
            .load(self.isa, pool, x, rows, config.dim);
    }

    /// Adds `update` to the stream and normalizes the sum.
    fn add_update(&mut self, config: &EncoderConfig, norm: &LayerNorm) {
        let (rows, isa, eps) = (self.rows.queries.len(), self.isa, config.norm_eps);
        let update = &self.scratch.update;
        let stream = self.scratch.stream.head_mut(rows);
        self.pool.rows(stream, config.dim, |row, stream| {
            add_assign(isa, stream, update.row(row));
            normalize(isa, stream, norm, eps);
        });
    }

    /// Scores of the requested hidden states.
    fn classify(&mut self, config: &EncoderConfig, head: &ClassifierHead) {
        let (rows, isa, dim) = (self.rows.wanted.len(), self.isa, config.dim);
        if rows == 0 {
            return;
        }
        let (pool, scratch) = (&mut self.pool, &mut self.scratch);
        let x = scratch.hidden.head(rows);
        scratch.activations.load(isa, pool, x, rows, dim);
        if let Some(pooler) = &head.pooler {
            let pooled = scratch.update.head_mut(rows);
            project(isa, pool, pooler, &scratch.activations, pooled);
            pooled.iter_mut().for_each(|entry| *entry = entry.tanh());
            scratch.activations.load(isa, pool, pooled, rows, dim);
        }
        let scores = scratch.scores.head_mut(rows);
        project(isa, pool, &head.scores, &scratch.activations, scores);
    }
}

/// Normalizes one row.
fn normalize(isa: Isa, row: &mut [f32], norm: &LayerNorm, eps: f32) {
    layer_norm(isa, row, &norm.weight, Some(&norm.bias), eps);
}
