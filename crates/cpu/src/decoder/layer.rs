//! One layer: attention, then feed-forward.

use super::{BlockInput, Config, Decoder, Dense, Gate, Layer, add_assign, scale};
use crate::norm::{self, keep_largest, project, sum_of_products};
use kernels::{Isa, Pool, clamped_swiglu_mul, gelu_mul, silu_mul, squared_relu_mul};
use weights::parameters::{Norm, Recurrent};

impl Decoder {
    /// Runs layer `index`. On entry `normed` holds the input of the layer's attention, on return the input of `next`.
    pub(super) fn layer(
        &mut self,
        config: &Config,
        index: usize,
        layer: &Layer,
        next: &BlockInput,
        tables: &[u32],
    ) {
        self.scratch.set_shape(config.heads, &config.shapes[index]);
        if layer.mixes() {
            if !self.mix(config, index, layer, tables) {
                return;
            }
            let post = layer.attention_post_norm.as_ref();
            if !layer.feeds() {
                self.add_update(config, post, None, next);
                return;
            }
            self.add_update(config, post, None, &layer.hidden_input);
        }
        self.feed(config, index, layer, next);
    }

    /// The part of a layer after attention. On entry `normed` holds its input, on return the input of `next`.
    pub(super) fn feed(&mut self, config: &Config, index: usize, layer: &Layer, next: &BlockInput) {
        self.feed_forward(config, layer);
        let (post, factor) = (layer.hidden_post_norm.as_ref(), layer.output_scale);
        match &layer.per_layer {
            None => self.add_update(config, post, factor, next),
            Some(update) => {
                self.add_update(config, post, None, &BlockInput::Stream);
                self.per_layer_update(config, index, update);
                self.add_update(config, Some(&update.post_norm), factor, next);
            }
        }
    }

    /// Computes attention or the recurrent part, from `normed` to `update`, and stores what later tokens need. Where a layer
    /// has both, the update of the recurrent part is added first. Returns whether rows are left, as below.
    fn mix(&mut self, config: &Config, index: usize, layer: &Layer, tables: &[u32]) -> bool {
        let recurrent = layer.recurrent.as_ref();
        if let Some(recurrent) = recurrent {
            self.recur(config, index, recurrent);
        }
        if let Some(latent) = &layer.latent {
            return self.store_and_attend_latents(config, index, latent, tables);
        }
        let Some(attention) = &layer.attention else {
            return self.keep_wanted_updates(index);
        };
        if recurrent.is_some() {
            self.add_update(config, None, None, &BlockInput::AsAttention);
        }
        self.store_and_attend(config, index, attention, tables)
    }

    /// Computes the recurrent part from `normed` to `update`, and stores the states.
    fn recur(&mut self, config: &Config, index: usize, layer: &Recurrent) {
        self.load_normed();
        match layer {
            Recurrent::Delta(layer) => self.delta(config, index, layer),
            Recurrent::Mamba(layer) => self.mamba(config, index, layer),
            Recurrent::Convolution(layer) => self.short_conv(index, layer),
        }
    }

    /// Drops the rows without outputs, with their updates, after the last layer that stores. Returns whether rows are left.
    fn keep_wanted_updates(&mut self, index: usize) -> bool {
        if index < self.last_stored_layer {
            return true;
        }
        self.scratch.update.gather(&self.rows.wanted);
        self.keep_wanted() > 0
    }

    /// Loads `normed` as the input of the following projections.
    pub(super) fn load_normed(&mut self) {
        let (rows, normed) = (self.rows.queries.len(), &self.scratch.normed);
        let x = normed.head(rows);
        self.scratch
            .activations
            .load(self.isa, &mut self.pool, x, rows, normed.cols());
    }

    /// Drops the rows without outputs; returns the number of remaining rows.
    pub(super) fn keep_wanted(&mut self) -> usize {
        let wanted = &self.rows.wanted;
        if wanted.len() < self.rows.queries.len() {
            self.scratch.stream.gather(wanted);
            self.scratch.normed.gather(wanted);
            for angles in &mut self.scratch.angles {
                angles.gather(wanted);
            }
            if let Some(inputs) = &mut self.per_layer {
                inputs.gather(wanted);
            }
            if let Some(states) = &mut self.states {
                states.gather(wanted);
            }
            self.rows.keep_wanted();
            self.adapters.read(&self.rows);
            if !self.rows.queries.is_empty() {
                self.load_normed();
            }
        }
        self.rows.queries.len()
    }

    /// Feed-forward, from `normed` to `update`: what every row uses, plus the experts that a row chooses.
    pub(super) fn feed_forward(&mut self, config: &Config, layer: &Layer) {
        let rows = self.rows.queries.len();
        match &layer.dense {
            Some(dense) => {
                self.dense(config, dense);
                self.take_share(dense);
            }
            None => self.scratch.update.head_mut(rows).fill(0.0),
        }
        let Some(experts) = &layer.experts else {
            return;
        };
        if let Some(norms) = &experts.norms {
            self.normalize_update(config, &norms.dense_post);
            self.read_stream(config, &norms.router);
        }
        self.choose_experts(experts);
        if let Some(norms) = &experts.norms {
            self.read_stream(config, &norms.input);
        }
        self.add_experts(config, experts);
    }

    /// A feed-forward part that every row uses, from `normed` to `update`.
    fn dense(&mut self, config: &Config, layer: &Dense) {
        self.load_normed();
        let (rows, isa) = (self.rows.queries.len(), self.isa);
        let (pool, scratch) = (&mut self.pool, &mut self.scratch);
        let hidden = scratch.up.cols();
        let x = &scratch.activations;
        let (normed, adapters) = (scratch.normed.head(rows), &mut self.adapters);
        project(isa, pool, &layer.up, x, scratch.up.head_mut(rows));
        adapters.add(pool, &layer.up, normed, scratch.up.head_mut(rows));
        let gate = match &layer.gate {
            Some(linear) => {
                project(isa, pool, linear, x, scratch.gate.head_mut(rows));
                adapters.add(pool, linear, normed, scratch.gate.head_mut(rows));
                if let Some(cutoff) = layer.cutoff {
                    let gate = scratch.gate.head_mut(rows);
                    pool.rows(gate, hidden, |_, gate| keep_largest(gate, cutoff));
                }
                let up = |row| scratch.up.row(row);
                activate(
                    isa,
                    pool,
                    config.gate,
                    hidden,
                    scratch.gate.head_mut(rows),
                    up,
                );
                scratch.gate.head(rows)
            }
            None => {
                let ones = &scratch.ones[..hidden];
                let up = scratch.up.head_mut(rows);
                activate(isa, pool, config.gate, hidden, up, |_| ones);
                scratch.up.head(rows)
            }
        };
        scratch.activations.load(isa, pool, gate, rows, hidden);
        let update = scratch.update.head_mut(rows);
        project(isa, pool, &layer.down, &scratch.activations, update);
        adapters.add(pool, &layer.down, gate, update);
    }

    /// Multiplies each row of `update` with its factor, if there is one: a sigmoid of what the row's input says.
    fn take_share(&mut self, layer: &Dense) {
        let Some(weights) = &layer.share else { return };
        let (isa, rows) = (self.isa, self.rows.queries.len());
        let (normed, dim) = (&self.scratch.normed, self.scratch.update.cols());
        let update = self.scratch.update.head_mut(rows);
        self.pool.rows(update, dim, |row, update| {
            let logit = sum_of_products(weights, normed.row(row));
            scale(isa, update, 1.0 / (1.0 + (-logit).exp()));
        });
    }

    /// Adds `update` to the stream (normalized with `post`, if any, and scaled), multiplies the stream with `stream_factor`,
    /// and prepares the input of the next block.
    pub(super) fn add_update(
        &mut self,
        config: &Config,
        post: Option<&Norm>,
        stream_factor: Option<f32>,
        next: &BlockInput,
    ) {
        let (rows, isa, eps, dim) = (
            self.rows.queries.len(),
            self.isa,
            config.norm_eps,
            config.dim,
        );
        let factor = config.scales.update;
        let stream = (self.scratch.stream.head_mut(rows), dim);
        if matches!(next, BlockInput::AsAttention) {
            debug_assert!(post.is_none(), "blocks side by side have no norm between");
            let update = (self.scratch.update.head_mut(rows), dim);
            self.pool.rows2(stream, update, |_, stream, update| {
                scale(isa, update, factor);
                add_assign(isa, stream, update);
            });
            return;
        }
        let update = &self.scratch.update;
        let normed = (self.scratch.normed.head_mut(rows), dim);
        self.pool.rows2(stream, normed, |row, stream, normed| {
            let update = update.row(row);
            match post {
                None if factor == 1.0 => add_assign(isa, stream, update),
                _ => {
                    match post {
                        Some(post) => norm::apply(post, isa, eps, update, normed),
                        None => normed.copy_from_slice(update),
                    }
                    scale(isa, normed, factor);
                    add_assign(isa, stream, normed);
                }
            }
            if let Some(factor) = stream_factor {
                scale(isa, stream, factor);
            }
            norm::read_input(next, isa, eps, stream, normed);
        });
    }
}

/// The non-linearity of each row of `gate`, times the row that `up` gives.
pub(super) fn activate<'a>(
    isa: Isa,
    pool: &mut Pool,
    kind: Gate,
    hidden: usize,
    gate: &mut [f32],
    up: impl Fn(usize) -> &'a [f32] + Sync,
) {
    match kind {
        Gate::Silu => pool.rows(gate, hidden, |row, gate| silu_mul(isa, gate, up(row))),
        Gate::SquaredRelu => pool.rows(gate, hidden, |row, gate| {
            squared_relu_mul(isa, gate, up(row));
        }),
        Gate::Gelu => pool.rows(gate, hidden, |row, gate| gelu_mul(isa, gate, up(row))),
        Gate::ClampedSwiglu => pool.rows(gate, hidden, |row, gate| {
            clamped_swiglu_mul(isa, gate, up(row));
        }),
    }
}
