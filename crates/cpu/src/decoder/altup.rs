//! AltUp and LAuReL of Gemma 3n.
//!
//! A row has several states, of which a layer computes with one. Before a layer, each state is predicted from all; the active
//! prediction runs through attention, a low-rank path beside it, and the feed-forward part; what these changed corrects
//! all states. The coefficients of both steps depend on the row. After the last layer, the states are averaged.

use super::scratch::Buffer;
use super::{BlockInput, Config, Decoder, Dims, Layer, add_assign, matmul, scale};
use crate::norm;
use crate::norm::project;
use kernels::{MatrixStack, RowGroup, add_scaled, matmul_groups, softcap};
use std::f32::consts::FRAC_1_SQRT_2;
use weights::config::altup::{ACTIVE, LAUREL_RANK, STATES};
use weights::parameters::{LayerStates, Norm, StateProjections, Weights};

/// Workspace of the states, allocated once.
pub(super) struct StateScratch {
    /// (dim).
    states: [Buffer; STATES],
    /// (dim).
    predictions: [Buffer; STATES],
    /// The router's output (STATES).
    modes: Buffer,
    /// The low-rank path: inside (LAUREL_RANK), and its output (dim).
    low: Buffer,
    laurel: Buffer,
}

impl StateScratch {
    /// The workspace, for a model with several states.
    pub(super) fn new(config: &Config, dims: &Dims) -> Option<Self> {
        let (rows, dim) = (dims.rows_max, config.dim);
        let buffers = || std::array::from_fn(|_| Buffer::new(rows, dim));
        config.traits.altup.then(|| Self {
            states: buffers(),
            predictions: buffers(),
            modes: Buffer::new(rows, STATES),
            low: Buffer::new(rows, LAUREL_RANK),
            laurel: Buffer::new(rows, dim),
        })
    }

    /// Resident bytes.
    pub(super) fn bytes(&self) -> usize {
        let wide = self.states.iter().chain(&self.predictions);
        let others = [&self.modes, &self.low, &self.laurel];
        wide.chain(others).map(Buffer::bytes).sum()
    }

    /// Moves what the rest of a layer reads of these rows to the front.
    pub(super) fn gather(&mut self, rows: &[usize]) {
        let buffers = self.predictions.iter_mut();
        buffers
            .chain([&mut self.laurel])
            .for_each(|buffer| buffer.gather(rows));
    }
}

impl Decoder {
    /// Sets the states from the embeddings in the stream.
    pub(super) fn start_states(&mut self, config: &Config, projections: &StateProjections) {
        let rows = self.rows.queries.len();
        let Some(scratch) = &mut self.states else {
            return;
        };
        let stream = self.scratch.stream.head(rows);
        scratch.states[ACTIVE]
            .head_mut(rows)
            .copy_from_slice(stream);
        let (isa, dim) = (self.isa.without_amx(), config.dim);
        let activations = &mut self.scratch.activations;
        activations.load(isa, &mut self.pool, stream, rows, dim);
        let stream = &self.scratch.stream;
        for (matrix, state) in scratch.states[ACTIVE + 1..].iter_mut().enumerate() {
            let out = state.head_mut(rows);
            let group = one_group(matrix, rows);
            matmul_groups(&mut self.pool, &projections.into, &group, activations, out);
            self.pool.rows(out, dim, |row, state| {
                scale(isa, state, magnitude(stream.row(row)) / magnitude(state));
            });
        }
    }

    /// Runs layer `index` on all states.
    pub(super) fn layer_of_states(
        &mut self,
        config: &Config,
        index: usize,
        (layer, weights): (&Layer, &LayerStates),
        tables: &[u32],
    ) {
        self.scratch.set_shape(config.heads, &config.shapes[index]);
        self.predict(config, layer, weights);
        self.laurel(config, weights);
        let attention = layer.attention.as_ref();
        if !attention.is_some_and(|layer| self.store_and_attend(config, index, layer, tables)) {
            return;
        }
        self.add_attention_and_laurel(config, layer);
        self.feed_forward(config, layer);
        let post = layer.hidden_post_norm.as_ref();
        self.add_update(config, post, None, &BlockInput::Stream);
        self.correct(config, weights);
        if let Some(update) = &layer.per_layer {
            self.per_layer_update(config, index, update);
            self.add_to_other_states(config, &update.post_norm);
        }
    }

    /// Averages the states into the stream, and prepares the input of `next`.
    pub(super) fn end_states(&mut self, config: &Config, weights: &Weights) {
        let rows = self.rows.queries.len();
        let (Some(scratch), Some(projections)) = (&mut self.states, &weights.states) else {
            return;
        };
        let (isa, dim) = (self.isa.without_amx(), config.dim);
        let active = &scratch.states[ACTIVE];
        let stream = self.scratch.stream.head_mut(rows);
        stream.copy_from_slice(active.head(rows));
        let (pool, activations) = (&mut self.pool, &mut self.scratch.activations);
        let out = scratch.laurel.head_mut(rows);
        for (matrix, state) in scratch.states[ACTIVE + 1..].iter().enumerate() {
            activations.load(isa, pool, state.head(rows), rows, dim);
            let projected: &MatrixStack = &projections.out_of;
            matmul_groups(pool, projected, &one_group(matrix, rows), activations, out);
            pool.rows2(
                (&mut *stream, dim),
                (&mut *out, dim),
                |row, stream, state| {
                    let factor = magnitude(active.row(row)) / magnitude(state);
                    add_scaled(isa, stream, state, factor);
                },
            );
        }
        let normed = self.scratch.normed.head_mut(rows);
        pool.rows2((stream, dim), (normed, dim), |_, stream, normed| {
            scale(isa, stream, 1.0 / STATES as f32);
            norm::read_input(&weights.output_input, isa, config.norm_eps, stream, normed);
        });
    }

    /// Writes the router's output for the rows of `of` (the active state, else the stream).
    fn route(&mut self, config: &Config, weights: &LayerStates, of_state: bool) {
        let (isa, rows, eps) = (self.isa, self.rows.queries.len(), config.norm_eps);
        let Some(scratch) = &mut self.states else {
            return;
        };
        let source = if of_state {
            &scratch.states[ACTIVE]
        } else {
            &self.scratch.stream
        };
        let normed = self.scratch.normed.head_mut(rows);
        self.pool.rows(normed, config.dim, |row, normed| {
            norm::apply(&weights.router_norm, isa, eps, source.row(row), normed);
        });
        let isa = isa.without_amx();
        let activations = &mut self.scratch.activations;
        activations.load(isa, &mut self.pool, normed, rows, config.dim);
        let modes = scratch.modes.head_mut(rows);
        matmul(&mut self.pool, &weights.router, activations, modes);
        self.pool
            .rows(modes, STATES, |_, modes| softcap(isa, modes, 1.0));
    }

    /// Predicts the states; the stream is the active prediction, and `normed` the input of attention.
    fn predict(&mut self, config: &Config, layer: &Layer, weights: &LayerStates) {
        self.route(config, weights, true);
        let (isa, rows, dim) = (self.isa, self.rows.queries.len(), config.dim);
        let Some(scratch) = &mut self.states else {
            return;
        };
        let (states, modes) = (&scratch.states, &scratch.modes);
        for (to, prediction) in scratch.predictions.iter_mut().enumerate() {
            let out = prediction.head_mut(rows);
            self.pool.rows(out, dim, |row, out| {
                out.copy_from_slice(states[to].row(row));
                for (from, state) in states.iter().enumerate() {
                    let weights = &weights.predict[(to * STATES + from) * STATES..][..STATES];
                    add_scaled(isa, out, state.row(row), dot(weights, modes.row(row)));
                }
            });
        }
        let active = &scratch.predictions[ACTIVE];
        let stream = (self.scratch.stream.head_mut(rows), dim);
        let normed = (self.scratch.normed.head_mut(rows), dim);
        self.pool.rows2(stream, normed, |row, stream, normed| {
            stream.copy_from_slice(active.row(row));
            let input = &layer.attention_input;
            norm::read_input(input, isa, config.norm_eps, stream, normed);
        });
    }

    /// The low-rank path, which reads what attention reads.
    fn laurel(&mut self, config: &Config, weights: &LayerStates) {
        self.load_normed();
        let (isa, rows, dim) = (self.isa, self.rows.queries.len(), config.dim);
        let Some(scratch) = &mut self.states else {
            return;
        };
        let activations = &mut self.scratch.activations;
        let (low, pool) = (scratch.low.head_mut(rows), &mut self.pool);
        project(isa, pool, &weights.laurel_left, activations, low);
        activations.load(isa, pool, low, rows, LAUREL_RANK);
        let out = scratch.laurel.head_mut(rows);
        project(isa, pool, &weights.laurel_right, activations, out);
        let normed = &self.scratch.normed;
        pool.rows(out, dim, |row, out| {
            norm::apply_to_parts(&weights.laurel_norm, isa, config.norm_eps, out, dim);
            add_assign(isa, out, normed.row(row));
        });
    }

    /// Adds the outputs of attention and of the low-rank path to the stream, and prepares the input of the feed-forward part.
    fn add_attention_and_laurel(&mut self, config: &Config, layer: &Layer) {
        let (isa, rows, dim) = (self.isa, self.rows.queries.len(), config.dim);
        let (Some(scratch), Some(post)) = (&self.states, &layer.attention_post_norm) else {
            return;
        };
        let (update, laurel, eps) = (&self.scratch.update, &scratch.laurel, config.norm_eps);
        let stream = (self.scratch.stream.head_mut(rows), dim);
        let normed = (self.scratch.normed.head_mut(rows), dim);
        self.pool.rows2(stream, normed, |row, stream, normed| {
            norm::apply(post, isa, eps, update.row(row), normed);
            add_assign(isa, stream, normed);
            add_assign(isa, stream, laurel.row(row));
            scale(isa, stream, FRAC_1_SQRT_2);
            norm::read_input(&layer.hidden_input, isa, eps, stream, normed);
        });
    }

    /// Corrects all states by what the layer changed in the active one; `normed` is the active state, scaled.
    fn correct(&mut self, config: &Config, weights: &LayerStates) {
        self.route(config, weights, false);
        let (isa, rows, dim) = (self.isa, self.rows.queries.len(), config.dim);
        let Some(scratch) = &mut self.states else {
            return;
        };
        let (predictions, modes) = (&scratch.predictions, &scratch.modes);
        let stream = self.scratch.stream.head_mut(rows);
        self.pool.rows(stream, dim, |row, stream| {
            add_scaled(isa, stream, predictions[ACTIVE].row(row), -1.0);
        });
        let change = &self.scratch.stream;
        for (to, state) in scratch.states.iter_mut().enumerate() {
            let weights = &weights.correct[to * STATES..][..STATES];
            self.pool.rows(state.head_mut(rows), dim, |row, state| {
                state.copy_from_slice(predictions[to].row(row));
                let factor = 1.0 + dot(weights, modes.row(row));
                add_scaled(isa, state, change.row(row), factor);
            });
        }
        let active = &scratch.states[ACTIVE];
        let normed = self.scratch.normed.head_mut(rows);
        self.pool.rows(normed, dim, |row, normed| {
            let entries = active.row(row).iter().zip(&weights.correct_scale);
            for (out, (state, factor)) in normed.iter_mut().zip(entries) {
                *out = state * factor;
            }
        });
    }

    /// Adds `update`, normalized, to the states besides the active one.
    fn add_to_other_states(&mut self, config: &Config, post: &Norm) {
        let (isa, rows, dim) = (self.isa, self.rows.queries.len(), config.dim);
        self.normalize_update(config, post);
        let Some(scratch) = &mut self.states else {
            return;
        };
        let update = &self.scratch.update;
        for state in &mut scratch.states[ACTIVE + 1..] {
            self.pool.rows(state.head_mut(rows), dim, |row, state| {
                add_assign(isa, state, update.row(row));
            });
        }
    }
}

fn one_group(matrix: usize, rows: usize) -> [RowGroup; 1] {
    let rows = 0..rows;
    [RowGroup { matrix, rows }]
}

/// The square root of the sum of squares.
fn magnitude(row: &[f32]) -> f32 {
    norm::sum_of(row, |entry| entry * entry).sqrt()
}

fn dot(weights: &[f32], modes: &[f32]) -> f32 {
    let products = weights
        .iter()
        .zip(modes)
        .map(|(weight, mode)| weight * mode);
    products.sum()
}
