//! One layer: attention, then feed-forward.

use super::heads::Heads;
use super::{Config, Decoder, Gate, Layer, Linear, add_assign, matmul, rms_norm};
use kernels::{Activations, AttentionParams, Isa, Pool, attend, gelu_mul, silu_mul};

impl Decoder {
    /// Runs layer `index`. On entry `normed` holds the stream normalized with the layer's attention norm, on
    /// return with `next_norm`.
    pub(super) fn layer(
        &mut self,
        config: &Config,
        index: usize,
        layer: &Layer,
        next_norm: &[f32],
        tables: &[u32],
    ) {
        self.load_normed();
        self.store_keys_and_values(config, index, layer);
        if index + 1 == config.layers && self.keep_wanted(config, index) == 0 {
            return;
        }
        self.attention(config, index, layer, tables);
        let post = layer.attention_post_norm.as_deref();
        self.add_update(config, post, &layer.hidden_norm);
        self.feed_forward(config, layer);
        self.add_update(config, layer.hidden_post_norm.as_deref(), next_norm);
    }

    /// Loads `normed` as the input of the following projections.
    pub(super) fn load_normed(&mut self) {
        let (rows, normed) = (self.rows.queries.len(), &self.scratch.normed);
        let x = normed.head(rows);
        self.scratch
            .activations
            .load(self.isa, &mut self.pool, x, rows, normed.cols());
    }

    fn store_keys_and_values(&mut self, config: &Config, index: usize, layer: &Layer) {
        let rows = self.rows.queries.len();
        let scratch = &mut self.scratch;
        let (key, value) = (scratch.key.head_mut(rows), scratch.value.head_mut(rows));
        project(
            self.isa,
            &mut self.pool,
            &layer.key,
            &scratch.activations,
            key,
        );
        project(
            self.isa,
            &mut self.pool,
            &layer.value,
            &scratch.activations,
            value,
        );
        let heads = Heads::new(config, self.isa, index, layer.key_norm.as_deref());
        heads.turn(
            &mut self.pool,
            &self.ropes,
            &scratch.angles,
            key,
            config.kv_cols(),
        );
        self.kv
            .store_rows(&mut self.pool, index, &self.rows.slots, key, value);
    }

    /// Drops the rows without outputs; returns the number of remaining rows.
    fn keep_wanted(&mut self, config: &Config, index: usize) -> usize {
        let wanted = &self.rows.wanted;
        if wanted.len() < self.rows.queries.len() {
            self.scratch.stream.gather(wanted);
            self.scratch.normed.gather(wanted);
            self.scratch.angles[usize::from(config.windows[index].is_some())].gather(wanted);
            self.rows.keep_wanted();
            if !self.rows.queries.is_empty() {
                self.load_normed();
            }
        }
        self.rows.queries.len()
    }

    /// Attention, from the loaded activations to `update`.
    fn attention(&mut self, config: &Config, index: usize, layer: &Layer, tables: &[u32]) {
        let rows = self.rows.queries.len();
        let scratch = &mut self.scratch;
        let query = scratch.query.head_mut(rows);
        project(
            self.isa,
            &mut self.pool,
            &layer.query,
            &scratch.activations,
            query,
        );
        let heads = Heads::new(config, self.isa, index, layer.query_norm.as_deref());
        heads.turn(
            &mut self.pool,
            &self.ropes,
            &scratch.angles,
            query,
            config.query_cols(),
        );
        let params = AttentionParams {
            heads: config.heads,
            scale: config.query_scale,
            softcap: config.attention_cap,
            window: config.windows[index],
        };
        attend(
            scratch.attention.bounds().isa,
            &mut self.pool,
            &mut scratch.attention,
            &self.kv,
            index,
            &params,
            &self.rows.queries,
            tables,
            query,
            scratch.attended.head_mut(rows),
        );
        let (x, update) = (scratch.attended.head(rows), scratch.update.head_mut(rows));
        scratch
            .activations
            .load(self.isa, &mut self.pool, x, rows, config.query_cols());
        project(
            self.isa,
            &mut self.pool,
            &layer.attention_out,
            &scratch.activations,
            update,
        );
    }

    /// Feed-forward, from `normed` to `update`.
    fn feed_forward(&mut self, config: &Config, layer: &Layer) {
        self.load_normed();
        let (rows, isa, hidden) = (self.rows.queries.len(), self.isa, config.hidden);
        let (pool, scratch) = (&mut self.pool, &mut self.scratch);
        project(
            isa,
            pool,
            &layer.gate,
            &scratch.activations,
            scratch.gate.head_mut(rows),
        );
        project(
            isa,
            pool,
            &layer.up,
            &scratch.activations,
            scratch.up.head_mut(rows),
        );
        let (gate, up) = (scratch.gate.head_mut(rows), &scratch.up);
        match config.gate {
            Gate::Silu => pool.rows(gate, hidden, |row, gate| silu_mul(isa, gate, up.row(row))),
            Gate::Gelu => pool.rows(gate, hidden, |row, gate| gelu_mul(isa, gate, up.row(row))),
        }
        scratch.activations.load(isa, pool, gate, rows, hidden);
        project(
            isa,
            pool,
            &layer.down,
            &scratch.activations,
            scratch.update.head_mut(rows),
        );
    }

    /// Adds `update` to the stream (normalized with `post`, if any), and normalizes the stream for the next
    /// block.
    fn add_update(&mut self, config: &Config, post: Option<&[f32]>, next_norm: &[f32]) {
        let (rows, isa, eps, dim) = (
            self.rows.queries.len(),
            self.isa,
            config.norm_eps,
            config.dim,
        );
        let update = &self.scratch.update;
        let stream = (self.scratch.stream.head_mut(rows), dim);
        let normed = (self.scratch.normed.head_mut(rows), dim);
        self.pool.rows2(stream, normed, |row, stream, normed| {
            match post {
                Some(post) => {
                    rms_norm(isa, update.row(row), post, eps, normed);
                    add_assign(isa, stream, normed);
                }
                None => add_assign(isa, stream, update.row(row)),
            }
            rms_norm(isa, stream, next_norm, eps, normed);
        });
    }
}

/// Matrix multiplication and bias.
pub(crate) fn project(
    isa: Isa,
    pool: &mut Pool,
    linear: &Linear,
    x: &Activations,
    out: &mut [f32],
) {
    matmul(pool, &linear.weight, x, out);
    if let Some(bias) = &linear.bias {
        pool.rows(out, bias.len(), |_, row| add_assign(isa, row, bias));
    }
}
