//! Forward pass of a decoder, for all families.
//!
//! A pass computes embeddings; then for each layer attention and feed-forward, each added to the residual
//! stream; then the vocabulary projection of the rows that need logits. In the last layer, rows without
//! outputs stop as soon as their keys and values are stored.
//!
//! The arithmetic of a row never depends on other rows: kernels guarantee this for matrix multiplication and
//! attention, and the rest works row by row. So neither other sequences in the batch nor the division of a
//! prompt change a bit, on every batch-invariant [`Isa`](kernels::Isa).

pub(crate) mod adapters;
mod altup;
mod attention;
mod axes;
mod block;
mod caches;
mod deepstack;
mod delta;
pub(crate) mod experts;
mod finish;
mod heads;
mod latent;
mod layer;
mod mamba;
mod mtp;
mod per_layer;
mod recurrent;
mod rotation;
mod router;
pub(crate) mod rows;
pub(crate) mod scratch;
mod short_conv;
pub(crate) mod state_head;

use crate::norm;
use adapters::AdapterPass;
use altup::StateScratch;
use block::BlockPass;
use caches::LayerCaches;
use experts::ExpertScratch;
use kernels::{Isa, KvError, KvKind, PackError, Pool, Rope, add_assign, matmul, scale};
use latent::LatentScratch;
use model::{Batch, Dims, ForwardError};
use mtp::MtpScratch;
use per_layer::PerLayerScratch;
use recurrent::RecurrentScratch;
use rows::Rows;
use scratch::Scratch;
use state_head::HeadScratch;
use weights::config::Gate;
use weights::parameters::{Attention, BlockInput, Dense, KeyValue, Layer, Weights};
use weights::{Adapter, Config};

/// Mutable state of a decoder.
pub(crate) struct Decoder {
    isa: Isa,
    pool: Pool,
    caches: LayerCaches,
    /// Global and local rope.
    ropes: [Rope; 2],
    rows: Rows,
    /// Adapters of the rows.
    adapters: AdapterPass,
    scratch: Scratch,
    /// Workspace of the head on hidden states, in a model with one.
    state_head: Option<HeadScratch>,
    /// Workspace of experts, in a model with experts.
    experts: Option<ExpertScratch>,
    /// Workspace of attention to latents, in a model with latents.
    latent: Option<LatentScratch>,
    /// Inputs of the layers besides the stream, in a model that has them.
    per_layer: Option<PerLayerScratch>,
    /// States of the stream, in a model with several.
    states: Option<StateScratch>,
    /// States of sequences, and workspace of the recurrent layers, in a model that has such layers.
    recurrent: Option<RecurrentScratch>,
    /// Workspace and hidden states of the MTP head, if it is loaded.
    mtp: Option<MtpScratch>,
    /// The pass over rows that see each other.
    block: BlockPass,
    /// The last layer that stores keys and values, or a state: later ones run for the rows with outputs only.
    last_stored_layer: usize,
}

impl Decoder {
    pub(crate) fn new(
        config: &Config,
        weights: &Weights,
        dims: &Dims,
        (kv, states): (KvKind, usize),
        isa: Isa,
        pool: Pool,
    ) -> Result<Self, KvError> {
        let caches = LayerCaches::new(config, weights, dims, kv, isa, pool.threads())?;
        let recurrent = config.recurrent.as_ref();
        let ropes = [&config.rope, &config.rope_local].map(|rope| {
            let factors = rope.factors.and(weights.rope_factors.clone());
            Rope::new(rope.spec(factors))
        });
        Ok(Self {
            isa,
            caches,
            ropes,
            rows: Rows::of(config, dims),
            adapters: AdapterPass::new(config, dims, isa, (0, 0)),
            scratch: Scratch::new(config, weights, dims),
            state_head: HeadScratch::new(config, weights, dims),
            experts: config.experts.map(|experts| {
                let gate = (config.gate, true);
                ExpertScratch::new(&experts, gate, config.dim, dims.rows_max)
            }),
            latent: LatentScratch::new(config, weights, dims),
            per_layer: PerLayerScratch::new(config, dims),
            states: StateScratch::new(config, dims),
            recurrent: recurrent.map(|layers| RecurrentScratch::new(layers, states, dims.rows_max)),
            mtp: MtpScratch::new(config, dims, states),
            block: BlockPass::new(config),
            last_stored_layer: config.last_stored_layer(),
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
        self.adapters.check(batch)?;
        self.rows.read(batch, dims)?;
        if let Some(recurrent) = &mut self.recurrent {
            recurrent.read(batch)?;
        }
        self.adapters.read(&self.rows);
        self.angles(config);
        self.embed(config, weights, batch);
        self.per_layer_inputs(config, weights, batch.tokens());
        if let Some(projections) = &weights.states {
            self.start_states(config, projections);
        }
        for (index, layer) in weights.layers.iter().enumerate() {
            let next = weights.layers.get(index + 1);
            let next = next.map_or(&weights.output_input, |layer| &layer.attention_input);
            match &layer.states {
                None => self.layer(config, index, layer, next, batch.pages()),
                Some(states) => {
                    self.layer_of_states(config, index, (layer, states), batch.pages());
                }
            }
            if index < config.deepstack && !batch.vector_rows().is_empty() {
                self.add_deepstack(config, index, next, batch);
            }
            if self.rows.queries.is_empty() {
                break;
            }
        }
        self.store_for_mtp(config, weights, batch)?;
        self.end_states(config, weights);
        self.logits(config, weights, weights.projection())
    }

    /// Packs adapters beside the weights, and prepares the workspace of their products.
    pub(crate) fn adapt(
        &mut self,
        (config, dims): (&Config, &Dims),
        weights: &mut Weights,
        adapters: &[Adapter],
    ) -> Result<(), PackError> {
        weights.adapt(config, adapters, self.isa, &mut self.pool)?;
        let rank_max = adapters.iter().map(Adapter::rank).max().unwrap_or(0);
        self.adapters = AdapterPass::new(config, dims, self.isa, (adapters.len(), rank_max));
        Ok(())
    }

    /// Number of adapters.
    pub(crate) fn adapters(&self) -> usize {
        self.adapters.count()
    }

    /// The instruction set and the threads.
    pub(crate) fn machine(&mut self) -> (Isa, &mut Pool) {
        (self.isa, &mut self.pool)
    }

    pub(crate) fn copy_page(&mut self, from: u32, to: u32) {
        self.caches.copy_page(from, to);
    }

    /// Bytes of one page in all layers.
    pub(crate) fn page_bytes(&self) -> usize {
        self.caches.page_bytes()
    }

    pub(crate) fn export_page(&self, page: u32, bytes: &mut [u8]) {
        self.caches.export_page(page, bytes);
    }

    pub(crate) fn import_page(&mut self, page: u32, bytes: &[u8]) {
        self.caches.import_page(page, bytes);
    }

    /// Number of states of sequences.
    pub(crate) fn state_count(&self) -> usize {
        self.recurrent.as_ref().map_or(0, RecurrentScratch::states)
    }

    /// Bytes of the KV cache and of the states of sequences when fully used, and of the workspace.
    pub(crate) fn bytes(&self) -> (usize, usize, usize) {
        let experts = self.experts.as_ref().map_or(0, ExpertScratch::bytes);
        let per_layer = self.per_layer.as_ref().map_or(0, PerLayerScratch::bytes);
        let states = self.states.as_ref().map_or(0, StateScratch::bytes);
        let recurrent = self.recurrent.as_ref().map(RecurrentScratch::bytes);
        let (kept, recurrent) = recurrent.unwrap_or_default();
        let (hidden, mtp) = self.mtp.as_ref().map_or((0, 0), MtpScratch::bytes);
        let head = self.state_head.as_ref().map_or(0, HeadScratch::bytes);
        let latent = self.latent.as_ref().map_or(0, LatentScratch::bytes);
        let layers = experts + latent + per_layer + states + recurrent;
        let parts = layers + head + mtp + self.block.bytes() + self.adapters.bytes();
        let scratch = self.scratch.bytes() + self.caches.scratch_bytes() + parts;
        (self.caches.kv_bytes(), kept + hidden, scratch)
    }

    /// Writes embeddings, and the vectors in their place, to the stream, and prepares the input of the first layer. Vectors
    /// have the scale of the stream, but where a family was trained with the factor of embeddings for them, too.
    fn embed(&mut self, config: &Config, weights: &Weights, batch: &Batch) {
        let (isa, dim, tokens) = (self.isa, config.dim, batch.tokens());
        let input = &weights.layers[0].attention_input;
        let stream = self.scratch.stream.head_mut(tokens.len());
        let normed = self.scratch.normed.head_mut(tokens.len());
        self.pool
            .rows2((stream, dim), (normed, dim), |row, stream, normed| {
                if let Some(vector) = batch.vector(row) {
                    stream.copy_from_slice(&vector[..dim]);
                    if config.scales.vectors != 1.0 {
                        scale(isa, stream, config.scales.vectors);
                    }
                } else {
                    weights.embedding.row(tokens[row] as usize, stream);
                    if config.scales.embedding != 1.0 {
                        scale(isa, stream, config.scales.embedding);
                    }
                }
                norm::read_input(input, isa, config.norm_eps, stream, normed);
            });
    }
}
