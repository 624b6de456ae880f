//! The layers of a tower: patches in, a stream of patches out, block by block.

use super::TowerPass;
use crate::decoder::project;
use crate::norm::layer_norm;
use kernels::{
    AttentionParams, KvSlot, Matrix, Pool, QueryRow, add_assign, attend, gelu_mul, matmul,
    quick_gelu_in_place, silu_in_place,
};
use std::ops::Range;
use weights::parameters::{LayerNorm, TowerLayer, TowerWeights};
use weights::vision::{Activation, VisionConfig};

impl TowerPass {
    /// Computes the stream of some patches: `numbers` of all patches, `(patches, 3 * patch * patch)`.
    pub(super) fn embed(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (weights, kernel): (&TowerWeights, &Matrix),
        (numbers, rows): (&[f32], Range<usize>),
    ) {
        let (isa, dim, cols) = (self.isa, config.dim, config.patch_cols());
        let scratch = &mut self.scratch;
        let x = &numbers[rows.start * cols..rows.end * cols];
        scratch.activations.load(isa, pool, x, rows.len(), cols);
        let stream = scratch.stream.rows_mut(rows.clone());
        matmul(pool, kernel, &scratch.activations, stream);
        let places = &self.places;
        pool.rows(stream, dim, |row, stream| {
            if let Some(bias) = &weights.patches_bias {
                add_assign(isa, stream, bias);
            }
            places.add(isa, &weights.positions, rows.start + row, stream);
        });
    }

    /// Stores the keys and values of some patches.
    pub(super) fn store(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        layer: &TowerLayer,
        rows: Range<usize>,
    ) {
        self.normalize(pool, config, &layer.attention_norm, rows.clone());
        self.turns(pool, rows.clone());
        let (isa, scratch) = (self.isa, &mut self.scratch);
        let page_patches = scratch.kv.shape().page_tokens;
        scratch.slots.clear();
        scratch.slots.extend(rows.clone().map(|patch| KvSlot {
            page: scratch.pages[patch / page_patches],
            slot: patch % page_patches,
        }));
        let key = scratch.query.head_mut(rows.len());
        let value = scratch.value.head_mut(rows.len());
        project(isa, pool, &layer.key, &scratch.activations, key);
        project(isa, pool, &layer.value, &scratch.activations, value);
        if let Some(rope) = &self.rope {
            let turns = &scratch.turns;
            pool.rows(key, config.dim, |row, key| rope.apply(turns.row(row), key));
        }
        scratch.kv.store_rows(pool, 0, &scratch.slots, key, value);
    }

    /// Attention of some patches to all, added to the stream.
    pub(super) fn attend(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        layer: &TowerLayer,
        (patches, rows): (usize, Range<usize>),
    ) {
        self.normalize(pool, config, &layer.attention_norm, rows.clone());
        self.turns(pool, rows.clone());
        let (isa, dim, scratch) = (self.isa, config.dim, &mut self.scratch);
        let query = scratch.query.head_mut(rows.len());
        project(isa, pool, &layer.query, &scratch.activations, query);
        if let Some(rope) = &self.rope {
            let turns = &scratch.turns;
            pool.rows(query, dim, |row, query| rope.apply(turns.row(row), query));
        }
        let pages = 0..scratch.pages.len();
        scratch.queries.clear();
        scratch
            .queries
            .extend(rows.clone().map(|position| QueryRow {
                position,
                end: patches,
                pages: pages.clone(),
            }));
        let params = AttentionParams {
            heads: config.heads,
            scale: 1.0 / (config.head_dim() as f32).sqrt(),
            softcap: None,
            window: None,
            sinks: None,
        };
        let attended = scratch.value.head_mut(rows.len());
        attend(
            scratch.attention.bounds().isa,
            pool,
            &mut scratch.attention,
            &scratch.kv,
            0,
            &params,
            &scratch.queries,
            &scratch.pages,
            query,
            attended,
        );
        let activations = &mut scratch.activations;
        activations.load(isa, pool, attended, rows.len(), dim);
        let update = scratch.update.head_mut(rows.len());
        project(isa, pool, &layer.out, activations, update);
        self.add_update(pool, config, rows);
    }

    /// The feed-forward part of some patches, added to the stream.
    pub(super) fn feed_forward(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        layer: &TowerLayer,
        rows: Range<usize>,
    ) {
        self.normalize(pool, config, &layer.hidden_norm, rows.clone());
        let (isa, scratch) = (self.isa, &mut self.scratch);
        let (hidden, ones) = (scratch.hidden.head_mut(rows.len()), &scratch.ones);
        project(isa, pool, &layer.up, &scratch.activations, hidden);
        pool.rows(hidden, config.hidden, |_, hidden| match config.activation {
            Activation::Gelu => gelu_mul(isa, hidden, ones),
            Activation::Silu => silu_in_place(isa, hidden),
            Activation::QuickGelu => quick_gelu_in_place(hidden),
        });
        let activations = &mut scratch.activations;
        activations.load(isa, pool, hidden, rows.len(), config.hidden);
        let update = scratch.update.head_mut(rows.len());
        project(isa, pool, &layer.down, activations, update);
        self.add_update(pool, config, rows);
    }

    /// Loads the normalized stream of some patches as the input of the next matrices.
    fn normalize(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        norm: &LayerNorm,
        rows: Range<usize>,
    ) {
        let (isa, dim, scratch) = (self.isa, config.dim, &mut self.scratch);
        let stream = &scratch.stream;
        let normed = scratch.normed.head_mut(rows.len());
        pool.rows(normed, dim, |row, normed| {
            normed.copy_from_slice(stream.row(rows.start + row));
            layer_norm(isa, normed, &norm.weight, Some(&norm.bias), config.norm_eps);
        });
        scratch.activations.load(isa, pool, normed, rows.len(), dim);
    }

    /// Writes the turns of some patches.
    fn turns(&mut self, pool: &mut Pool, rows: Range<usize>) {
        let Some(rope) = &self.rope else { return };
        let places = &self.places;
        let turns = self.scratch.turns.head_mut(rows.len());
        pool.rows(turns, rope.table_len(), |row, table| {
            rope.table(places.of(rows.start + row), table);
        });
    }

    /// Adds `update` to the stream of some patches.
    fn add_update(&mut self, pool: &mut Pool, config: &VisionConfig, rows: Range<usize>) {
        let (isa, scratch) = (self.isa, &mut self.scratch);
        let (stream, update) = (scratch.stream.rows_mut(rows), &scratch.update);
        pool.rows(stream, config.dim, |row, stream| {
            add_assign(isa, stream, update.row(row));
        });
    }
}
