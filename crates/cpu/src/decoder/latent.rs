//! Attention to latents, in the absorbed form.
//!
//! A head's query is multiplied with the head's key projection, transposed, and so becomes a query of latents: then all heads
//! read the one latent that the cache has for a position. What a head attends to is a sum of latents, which the head's value
//! projection turns into its value. Both projections are products of groups of rows, one group for each head, and so of equal
//! bits in every batch.

use super::rotation::HeadRotation;
use super::scratch::Buffer;
use super::{Config, Decoder};
use crate::norm;
use crate::norm::project;
use kernels::{Activations, Isa, MatrixStack, Pool, RowGroup, matmul_groups};
use model::Dims;
use weights::config::LatentConfig;
use weights::parameters::{Latent, Weights};

/// Workspace of attention to latents, allocated once for the largest batch. Buffers by head have the rows of the first head
/// first.
pub(super) struct LatentScratch {
    sizes: LatentConfig,
    /// Between the two parts of the query projection (query_rank).
    query_low: Buffer,
    /// Queries before the key projection (heads * (plain + turned)).
    query: Buffer,
    /// Latent and key before norm and rope (rank + turned).
    latent: Buffer,
    /// Queries by head (plain).
    plain: Buffer,
    /// Queries of latents, then sums of latents, by head (rank).
    latents: Buffer,
    /// Values by head (value).
    values: Buffer,
    /// Values (heads * value).
    joined: Buffer,
    by_head: ByHead,
}

/// Products of each head's rows with its matrix.
struct ByHead {
    heads: usize,
    /// Inputs by head.
    activations: Activations,
    activations_bytes: usize,
    groups: Vec<RowGroup>,
}

impl LatentScratch {
    /// The workspace, in a model with latents.
    pub(super) fn new(config: &Config, weights: &Weights, dims: &Dims) -> Option<Self> {
        let sizes = config.latent?;
        let (rows, heads) = (dims.rows_max, config.heads);
        let cols_max = sizes.plain.max(sizes.rank);
        let activations = Activations::new(rows * heads, cols_max);
        Some(Self {
            query_low: Buffer::new(rows, sizes.query_rank.unwrap_or(0)),
            query: Buffer::new(rows, heads * sizes.query()),
            latent: Buffer::new(rows, sizes.head_dim()),
            plain: Buffer::new(rows * heads, sizes.plain),
            latents: Buffer::new(rows * heads, sizes.rank),
            values: Buffer::new(rows * heads, sizes.value),
            joined: Buffer::new(rows, heads * sizes.value),
            by_head: ByHead {
                heads,
                activations: activations.for_weights(weights.formats()),
                activations_bytes: Activations::bytes(rows * heads, cols_max),
                groups: Vec::with_capacity(heads),
            },
            sizes,
        })
    }

    /// Resident bytes.
    pub(super) fn bytes(&self) -> usize {
        let buffers = [
            &self.query_low,
            &self.query,
            &self.latent,
            &self.plain,
            &self.latents,
            &self.values,
            &self.joined,
        ];
        let buffers: usize = buffers.iter().map(|buffer| buffer.bytes()).sum();
        let groups = self.by_head.groups.capacity() * size_of::<RowGroup>();
        buffers + groups + self.by_head.activations_bytes
    }
}

impl ByHead {
    /// Multiplies the rows of each head, of which a batch has `rows`, with the head's matrix.
    fn multiply(
        &mut self,
        isa: Isa,
        pool: &mut Pool,
        matrices: &MatrixStack,
        rows: usize,
        from: &Buffer,
        to: &mut Buffer,
    ) {
        let all = rows * self.heads;
        self.groups.clear();
        self.groups.extend((0..self.heads).map(|head| RowGroup {
            matrix: head,
            rows: head * rows..(head + 1) * rows,
        }));
        let x = &mut self.activations;
        x.load(isa.without_amx(), pool, from.head(all), all, from.cols());
        matmul_groups(pool, matrices, &self.groups, x, to.head_mut(all));
    }
}

impl Decoder {
    /// Stores the latents of `normed`, and computes attention to latents. Returns whether rows are left, as
    /// [`Decoder::store_and_attend`].
    pub(super) fn store_and_attend_latents(
        &mut self,
        config: &Config,
        index: usize,
        layer: &Latent,
        tables: &[u32],
    ) -> bool {
        self.load_normed();
        self.store_latents(config, index, layer);
        if index == self.last_stored_layer && self.keep_wanted() == 0 {
            return false;
        }
        self.query_latents(config, layer);
        self.attend(config, index, None, tables);
        self.project_latents(layer);
        true
    }

    /// Computes and stores the latents of the rows, from the loaded activations. The latent is stored among the keys and among
    /// the values, which attention reads in different order.
    fn store_latents(&mut self, config: &Config, index: usize, layer: &Latent) {
        let Some(own) = &mut self.latent else { return };
        let (isa, rows, pool) = (self.isa, self.rows.queries.len(), &mut self.pool);
        let scratch = &mut self.scratch;
        let LatentConfig { rank, turned, .. } = own.sizes;
        let latent = own.latent.head_mut(rows);
        project(isa, pool, &layer.latent, &scratch.activations, latent);
        let cols = scratch.key.cols();
        let key = scratch.key.head_mut(rows);
        let (rope, angles, from) = (&self.ropes[0], &scratch.angles[0], &own.latent);
        pool.rows(key, cols, |row, key| {
            let (latent, turning) = from.row(row).split_at(rank);
            let (head, rest) = key.split_at_mut(turned);
            head.copy_from_slice(turning);
            rope.apply(angles.row(row), head, turned);
            norm::apply(&layer.latent_norm, isa, config.norm_eps, latent, rest);
        });
        let (cache, kv_layer) = self.caches.of(index);
        let slots = &self.rows.slots;
        HeadRotation::of(&cache.kv).apply(pool, key, cols);
        cache.kv.store_rows(pool, kv_layer, slots, key, key);
    }

    /// Computes the queries of latents, from the loaded activations.
    fn query_latents(&mut self, config: &Config, layer: &Latent) {
        let Some(own) = &mut self.latent else { return };
        let (isa, rows, pool) = (self.isa, self.rows.queries.len(), &mut self.pool);
        let scratch = &mut self.scratch;
        let LatentConfig { turned, plain, .. } = own.sizes;
        let (heads, len) = (own.by_head.heads, own.sizes.query());
        if let Some((down, norm)) = &layer.query_down {
            let cols = own.query_low.cols();
            let low = own.query_low.head_mut(rows);
            project(isa, pool, down, &scratch.activations, low);
            pool.rows(low, cols, |_, low| {
                norm::apply_to_parts(norm, isa, config.norm_eps, low, cols);
            });
            scratch.activations.load(isa, pool, low, rows, cols);
        }
        let query = own.query.head_mut(rows);
        project(isa, pool, &layer.query, &scratch.activations, query);
        let query = &own.query;
        pool.rows(own.plain.head_mut(rows * heads), plain, |at, part| {
            let (head, row) = (at / rows, at % rows);
            part.copy_from_slice(&query.row(row)[head * len..][..plain]);
        });
        own.by_head
            .multiply(isa, pool, &layer.keys, rows, &own.plain, &mut own.latents);
        let (cols, head_dim) = (scratch.query.cols(), own.sizes.head_dim());
        let (rope, angles, latents) = (&self.ropes[0], &scratch.angles[0], &own.latents);
        pool.rows(scratch.query.head_mut(rows), cols, |row, absorbed| {
            for (head, absorbed) in absorbed.chunks_exact_mut(head_dim).enumerate() {
                let (first, rest) = absorbed.split_at_mut(turned);
                first.copy_from_slice(&query.row(row)[head * len + plain..][..turned]);
                rest.copy_from_slice(latents.row(head * rows + row));
            }
            rope.apply(angles.row(row), absorbed, head_dim);
        });
    }

    /// Projects what was attended to values, and these to `update`.
    fn project_latents(&mut self, layer: &Latent) {
        let Some(own) = &mut self.latent else { return };
        let (isa, rows, pool) = (self.isa, self.rows.queries.len(), &mut self.pool);
        let scratch = &mut self.scratch;
        let LatentConfig {
            rank,
            turned,
            value,
            ..
        } = own.sizes;
        let (heads, head_dim) = (own.by_head.heads, own.sizes.head_dim());
        let attended = &scratch.attended;
        pool.rows(own.latents.head_mut(rows * heads), rank, |at, latent| {
            let (head, row) = (at / rows, at % rows);
            latent.copy_from_slice(&attended.row(row)[head * head_dim + turned..][..rank]);
        });
        own.by_head.multiply(
            isa,
            pool,
            &layer.values,
            rows,
            &own.latents,
            &mut own.values,
        );
        let (cols, values) = (own.joined.cols(), &own.values);
        let joined = own.joined.head_mut(rows);
        pool.rows(joined, cols, |row, joined| {
            for (head, joined) in joined.chunks_exact_mut(value).enumerate() {
                joined.copy_from_slice(values.row(head * rows + row));
            }
        });
        scratch.activations.load(isa, pool, joined, rows, cols);
        let update = scratch.update.head_mut(rows);
        project(isa, pool, &layer.out, &scratch.activations, update);
    }
}
