//! The layers of a tower: patches in, a stream of patches out, block by block.

use super::TowerPass;
use crate::decoder::project;
use crate::norm;
use kernels::{
    DenseSpan, Isa, Matrix, Pool, add_assign, gelu_mul, matmul, quick_gelu_in_place, silu_in_place,
    silu_mul,
};
use std::ops::Range;
use weights::parameters::{Linear, Norm, TowerLayer, TowerWeights};
use weights::vision::{Activation, VisionConfig};

impl TowerPass {
    /// Computes the stream of some rows: `numbers` of all patches, `(patches, 3 * patch * patch)`.
    pub(super) fn embed(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (weights, kernel): (&TowerWeights, &Matrix),
        (numbers, rows): (&[f32], Range<usize>),
    ) {
        let (isa, dim, cols) = (self.isa, config.dim, config.patch_cols());
        let (scratch, places) = (&mut self.scratch, &self.places);
        let mut patches = rows.clone().filter_map(|row| places.patch_of(row));
        let first = patches.next().unwrap_or_default();
        let count = 1 + patches.count();
        let x = &numbers[first * cols..][..count * cols];
        scratch.activations.load(isa, pool, x, count, cols);
        let embedded = scratch.update.head_mut(count);
        matmul(pool, kernel, &scratch.activations, embedded);
        let (embedded, stream) = (&scratch.update, scratch.stream.rows_mut(rows.clone()));
        pool.rows(stream, dim, |row, stream| {
            if let Some(patch) = places.patch_of(rows.start + row) {
                stream.copy_from_slice(embedded.row(patch - first));
                if let Some(bias) = &weights.patches_bias {
                    add_assign(isa, stream, bias);
                }
                places.add(isa, &weights.positions, patch, stream);
            } else if let Some(class) = &weights.class_token {
                stream.copy_from_slice(class);
            }
            if let Some(norm) = &weights.pre_norm {
                norm::apply_in_place(norm, isa, config.norm_eps, stream);
            }
        });
    }

    /// Stores the keys and values of some of `stream` rows.
    pub(super) fn store(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        layer: &TowerLayer,
        (stream, rows): (usize, Range<usize>),
    ) {
        self.normalize(pool, config, &layer.attention_norm, rows.clone());
        self.heads(
            pool,
            config,
            (&layer.key, layer.key_norm.as_ref()),
            rows.clone(),
        );
        let (isa, scratch) = (self.isa, &mut self.scratch);
        let value = scratch.value.head_mut(rows.len());
        project(isa, pool, &layer.value, &scratch.activations, value);
        if rows.start == 0 {
            scratch.attention.begin(stream);
        }
        let key = scratch.query.head(rows.len());
        scratch.attention.store(pool, rows, key, value);
    }

    /// Attention of some of `stream` rows, added to the stream: to all of them, or to those of a row's window.
    pub(super) fn attend(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (number, layer): (usize, &TowerLayer),
        (stream, rows): (usize, Range<usize>),
    ) {
        self.normalize(pool, config, &layer.attention_norm, rows.clone());
        self.heads(
            pool,
            config,
            (&layer.query, layer.query_norm.as_ref()),
            rows.clone(),
        );
        let (isa, dim, scratch) = (self.isa, config.dim, &mut self.scratch);
        let is_bound = config.windows.bound(number);
        scratch.spans.clear();
        let mut first = rows.start;
        while first < rows.end {
            let keys = if is_bound {
                self.places.window(first)
            } else {
                0..stream
            };
            let queries = first..keys.end.min(rows.end);
            first = queries.end;
            let queries = queries.start - rows.start..queries.end - rows.start;
            scratch.spans.push(DenseSpan { queries, keys });
        }
        let scale = 1.0 / (config.head_dim() as f32).sqrt();
        let (query, attended) = (
            scratch.query.head(rows.len()),
            scratch.value.head_mut(rows.len()),
        );
        scratch
            .attention
            .attend(pool, &scratch.spans, scale, query, attended);
        let activations = &mut scratch.activations;
        activations.load(isa, pool, attended, rows.len(), dim);
        let update = scratch.update.head_mut(rows.len());
        project(isa, pool, &layer.out, activations, update);
        let after = (
            layer.post_attention_norm.as_ref(),
            layer.attention_scale.as_deref(),
        );
        self.add_update(pool, config, after, rows);
    }

    /// The feed-forward part of some rows, added to the stream.
    pub(super) fn feed_forward(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        layer: &TowerLayer,
        rows: Range<usize>,
    ) {
        self.normalize(pool, config, &layer.hidden_norm, rows.clone());
        let (isa, scratch) = (self.isa, &mut self.scratch);
        let (hidden, kind) = (scratch.hidden.head_mut(rows.len()), config.activation);
        if let Some(gate) = &layer.gate {
            let up = scratch.up.head_mut(rows.len());
            project(isa, pool, gate, &scratch.activations, hidden);
            project(isa, pool, &layer.up, &scratch.activations, up);
            let up = &scratch.up;
            pool.rows(hidden, config.hidden, |row, hidden| {
                activate_gate(isa, kind, hidden, up.row(row));
            });
        } else {
            project(isa, pool, &layer.up, &scratch.activations, hidden);
            let ones = &scratch.ones;
            pool.rows(hidden, config.hidden, |_, hidden| match kind {
                Activation::Gelu => gelu_mul(isa, hidden, ones),
                Activation::Silu => silu_in_place(isa, hidden),
                Activation::QuickGelu => quick_gelu_in_place(hidden),
            });
        }
        let activations = &mut scratch.activations;
        activations.load(isa, pool, hidden, rows.len(), config.hidden);
        let update = scratch.update.head_mut(rows.len());
        project(isa, pool, &layer.down, activations, update);
        let after = (
            layer.post_hidden_norm.as_ref(),
            layer.hidden_scale.as_deref(),
        );
        self.add_update(pool, config, after, rows);
    }

    /// Loads the normalized stream of some rows as the input of the next matrices.
    fn normalize(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        norm: &Norm,
        rows: Range<usize>,
    ) {
        let (isa, dim, scratch) = (self.isa, config.dim, &mut self.scratch);
        let stream = &scratch.stream;
        let normed = scratch.normed.head_mut(rows.len());
        pool.rows(normed, dim, |row, normed| {
            norm::apply(
                norm,
                isa,
                config.norm_eps,
                stream.row(rows.start + row),
                normed,
            );
        });
        scratch.activations.load(isa, pool, normed, rows.len(), dim);
    }

    /// Computes the queries or keys of some rows, normalized and turned.
    fn heads(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (linear, norm): (&Linear, Option<&Norm>),
        rows: Range<usize>,
    ) {
        let (isa, scratch, places) = (self.isa, &mut self.scratch, &self.places);
        let heads = scratch.query.head_mut(rows.len());
        project(isa, pool, linear, &scratch.activations, heads);
        if let Some(norm) = norm {
            let (eps, len) = (config.norm_eps, norm.weight.len());
            pool.rows(heads, config.dim, |_, row| {
                norm::apply_to_parts(norm, isa, eps, row, len);
            });
        }
        let Some(rope) = &self.rope else { return };
        let turns = scratch.turns.head_mut(rows.len());
        pool.rows(turns, rope.table_len(), |row, table| {
            let place = places
                .patch_of(rows.start + row)
                .map(|patch| places.of(patch));
            rope.table(place.unwrap_or_default(), table);
        });
        let turns = &scratch.turns;
        pool.rows(heads, config.dim, |row, heads| {
            rope.apply(turns.row(row), heads);
        });
    }

    /// Adds `update`, normalized and scaled, to the stream of some rows.
    fn add_update(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (norm, scale): (Option<&Norm>, Option<&[f32]>),
        rows: Range<usize>,
    ) {
        let (isa, scratch) = (self.isa, &mut self.scratch);
        if norm.is_some() || scale.is_some() {
            let update = scratch.update.head_mut(rows.len());
            pool.rows(update, config.dim, |_, update| {
                if let Some(norm) = norm {
                    norm::apply_in_place(norm, isa, config.norm_eps, update);
                }
                let factors = scale.unwrap_or_default();
                update
                    .iter_mut()
                    .zip(factors)
                    .for_each(|(x, factor)| *x *= factor);
            });
        }
        let (stream, update) = (scratch.stream.rows_mut(rows), &scratch.update);
        pool.rows(stream, config.dim, |row, stream| {
            add_assign(isa, stream, update.row(row));
        });
    }
}

/// The non-linearity of a gate, times `up`.
fn activate_gate(isa: Isa, kind: Activation, gate: &mut [f32], up: &[f32]) {
    match kind {
        Activation::Gelu => gelu_mul(isa, gate, up),
        Activation::Silu => silu_mul(isa, gate, up),
        Activation::QuickGelu => {
            quick_gelu_in_place(gate);
            gate.iter_mut().zip(up).for_each(|(gate, up)| *gate *= up);
        }
    }
}
