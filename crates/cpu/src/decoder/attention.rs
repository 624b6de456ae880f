//! Attention of one layer: what is stored, and what the rows read.

use super::caches::HeadCache;
use super::heads::Heads;
use super::rotation::HeadRotation;
use super::{Attention, Config, Decoder, KeyValue, scale};
use crate::norm;
use crate::norm::project;
use kernels::{AttentionParams, Window, attend, sigmoid_mul};

impl Decoder {
    /// Stores keys and values from `normed`, and computes the attention. Returns whether rows are left: after the last layer
    /// that stores, those without outputs are dropped.
    pub(super) fn store_and_attend(
        &mut self,
        config: &Config,
        index: usize,
        layer: &Attention,
        tables: &[u32],
    ) -> bool {
        self.load_normed();
        if let Some(stored) = &layer.key_value {
            self.store_keys_and_values(config, index, stored);
        }
        if index == self.last_stored_layer && self.keep_wanted() == 0 {
            return false;
        }
        self.attention(config, index, layer, tables);
        true
    }

    /// Computes and stores the keys and values of the rows, from the loaded activations.
    pub(super) fn store_keys_and_values(
        &mut self,
        config: &Config,
        index: usize,
        stored: &KeyValue,
    ) {
        let (isa, rows, pool) = (self.isa, self.rows.queries.len(), &mut self.pool);
        let scratch = &mut self.scratch;
        let cols = scratch.key.cols();
        let (key, value) = (scratch.key.head_mut(rows), scratch.value.head_mut(rows));
        let normed = scratch.normed.head(rows);
        project(isa, pool, &stored.key, &scratch.activations, key);
        self.adapters.add(pool, &stored.key, normed, key);
        match &stored.value {
            Some(linear) => {
                project(isa, pool, linear, &scratch.activations, value);
                self.adapters.add(pool, linear, normed, value);
            }
            None => value.copy_from_slice(key),
        }
        let heads = Heads::new(config, isa, index, stored.key_norm.as_ref());
        heads.turn(pool, &self.ropes, &scratch.angles, key, cols);
        if let Some(norm) = &stored.value_norm {
            let head_dim = config.shapes[index].head_dim;
            pool.rows(value, cols, |_, value| {
                norm::apply_to_parts(norm, isa, config.norm_eps, value, head_dim);
            });
        }
        let (cache, layer) = self.caches.of(index);
        let rotation = HeadRotation::of(&cache.kv);
        rotation.apply(pool, key, cols);
        rotation.apply(pool, value, cols);
        cache
            .kv
            .store_rows(pool, layer, &self.rows.slots, key, value);
    }

    /// Attention, from the loaded activations to `update`.
    pub(super) fn attention(
        &mut self,
        config: &Config,
        index: usize,
        layer: &Attention,
        tables: &[u32],
    ) {
        let (isa, rows) = (self.isa, self.rows.queries.len());
        let scratch = &mut self.scratch;
        let cols = scratch.query.cols();
        let normed = scratch.normed.head(rows);
        let (query, gates) = (scratch.query.head_mut(rows), &mut scratch.query_gate);
        for (linear, out) in std::iter::once((&layer.query, &mut *query))
            .chain(layer.gate.as_ref().map(|gate| (gate, gates.head_mut(rows))))
        {
            project(isa, &mut self.pool, linear, &scratch.activations, out);
            self.adapters.add(&mut self.pool, linear, normed, out);
        }
        let heads = Heads::new(config, self.isa, index, layer.query_norm.as_ref());
        heads.turn(&mut self.pool, &self.ropes, &scratch.angles, query, cols);
        self.attend(config, index, layer.sinks.as_deref(), tables);
        let scratch = &mut self.scratch;
        if layer.gate.is_some() {
            let (attended, gates) = (scratch.attended.head_mut(rows), &scratch.query_gate);
            self.pool.rows(attended, cols, |row, attended| {
                sigmoid_mul(isa, attended, gates.row(row));
            });
        }
        let (x, update) = (scratch.attended.head(rows), scratch.update.head_mut(rows));
        scratch
            .activations
            .load(self.isa, &mut self.pool, x, rows, cols);
        project(
            self.isa,
            &mut self.pool,
            &layer.out,
            &scratch.activations,
            update,
        );
        self.adapters.add(&mut self.pool, &layer.out, x, update);
    }

    /// Attention of the queries, which have turned, to the keys and values that layer `index` reads.
    pub(super) fn attend(
        &mut self,
        config: &Config,
        index: usize,
        sinks: Option<&[f32]>,
        tables: &[u32],
    ) {
        let (rows, scratch) = (self.rows.queries.len(), &mut self.scratch);
        let cols = scratch.query.cols();
        let query = scratch.query.head_mut(rows);
        if let Some(temperature) = &config.scales.temperature {
            let queries = &self.rows.queries;
            self.pool.rows(query, cols, |row, query| {
                scale(self.isa, query, temperature.factor(queries[row].position));
            });
        }
        let params = AttentionParams {
            heads: config.heads,
            scale: config.scales.query,
            softcap: config.attention_cap,
            window: config.windows[index].map(|positions| window_of(config, positions)),
            sinks,
        };
        let (HeadCache { kv, attention }, kv_layer) = self.caches.of(index);
        let rotation = HeadRotation::of(kv);
        rotation.apply(&mut self.pool, query, cols);
        let attended = scratch.attended.head_mut(rows);
        attend(
            attention.bounds().isa,
            &mut self.pool,
            attention,
            kv,
            kv_layer,
            &params,
            &self.rows.queries,
            tables,
            query,
            attended,
        );
        rotation.apply(&mut self.pool, attended, cols);
    }
}

/// The window of a layer with one of `positions`.
fn window_of(config: &Config, positions: usize) -> Window {
    if !config.is_causal() {
        return Window::around(positions);
    }
    // Rows of a block see its later rows: the end of a row's own sight is the bound.
    let after = if config.has_blocks() { usize::MAX } else { 0 };
    Window {
        after,
        ..Window::last(positions)
    }
}
