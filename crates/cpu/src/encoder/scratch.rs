//! Workspace of an encoder's forward pass, allocated once for the largest batch.

use crate::decoder::experts::ExpertScratch;
use crate::decoder::scratch::{Buffer, attention_isa};
use kernels::{Activations, AttentionBounds, AttentionScratch, Isa, KvKind};
use model::Dims;
use weights::config::Gate;
use weights::encoder::EncoderConfig;
use weights::parameters::{ClassifierHead, EncoderWeights};

/// All buffers, with their columns.
pub(super) struct EncoderScratch {
    /// The normalized stream (dim).
    pub(super) stream: Buffer,
    /// Output of attention or feed-forward, to be added to the stream (dim).
    pub(super) update: Buffer,
    /// (heads * head_dim).
    pub(super) query: Buffer,
    /// (kv_heads * head_dim).
    pub(super) key: Buffer,
    /// (kv_heads * head_dim).
    pub(super) value: Buffer,
    /// Output of attention before the projection (heads * head_dim).
    pub(super) attended: Buffer,
    /// (hidden).
    pub(super) up: Buffer,
    /// (hidden); no columns without a gate.
    pub(super) gate: Buffer,
    /// Cosine and sine of each row's position (rope dims); no columns without a rope.
    pub(super) angles: Buffer,
    /// Requested hidden states (dim).
    pub(super) hidden: Buffer,
    /// Scores of the requested hidden states (classes); no columns without a head.
    pub(super) scores: Buffer,
    /// The second factor of a feed-forward part without a gate, `(hidden)`.
    pub(super) ones: Vec<f32>,
    /// The input of the projections (cols_max).
    pub(super) activations: Activations,
    activations_bytes: usize,
    /// Workspace of attention.
    pub(super) attention: AttentionScratch,
    /// Workspace of experts, in a model with experts.
    pub(super) experts: Option<ExpertScratch>,
}

impl EncoderScratch {
    pub(super) fn new(
        config: &EncoderConfig,
        weights: &EncoderWeights,
        dims: &Dims,
        isa: Isa,
        threads: usize,
    ) -> Self {
        let rows = dims.rows_max;
        let (query_cols, kv_cols) = (config.query_cols(), config.kv_cols());
        let cols_max = config.dim.max(config.hidden).max(query_cols);
        let classes = weights.head.as_ref().map_or(0, ClassifierHead::classes);
        let is_gated = config.is_gated();
        let experts = config.experts.map(|each| each.experts);
        // Experts gather their rows.
        let gathered = rows.max(experts.map_or(0, |experts| experts.used));
        Self {
            stream: Buffer::new(rows, config.dim),
            update: Buffer::new(rows, config.dim),
            query: Buffer::new(rows, query_cols),
            key: Buffer::new(rows, kv_cols),
            value: Buffer::new(rows, kv_cols),
            attended: Buffer::new(rows, query_cols),
            up: Buffer::new(rows, config.hidden),
            gate: Buffer::new(rows, if is_gated { config.hidden } else { 0 }),
            angles: Buffer::new(rows, config.rope.as_ref().map_or(0, |rope| rope.dims)),
            hidden: Buffer::new(rows, config.dim),
            scores: Buffer::new(rows, classes),
            ones: vec![1.0; if is_gated { 0 } else { config.hidden }],
            activations: Activations::new(gathered, cols_max).for_weights(weights.formats()),
            activations_bytes: Activations::bytes(gathered, cols_max),
            attention: AttentionScratch::new(AttentionBounds {
                threads,
                heads: config.heads,
                kv_heads: config.kv_heads,
                head_dim: config.head_dim,
                rows_max: rows,
                context_max: dims.context_max,
                kind: KvKind::F16,
                isa: attention_isa(isa, weights.formats()),
            }),
            experts: experts
                .map(|experts| ExpertScratch::new(&experts, (Gate::Gelu, false), config.dim, rows)),
        }
    }

    /// Resident bytes.
    pub(super) fn bytes(&self) -> usize {
        let buffers = [
            &self.stream,
            &self.update,
            &self.query,
            &self.key,
            &self.value,
            &self.attended,
            &self.up,
            &self.gate,
            &self.angles,
            &self.hidden,
            &self.scores,
        ];
        let buffers: usize = buffers.iter().map(|buffer| buffer.bytes()).sum();
        let experts = self.experts.as_ref().map_or(0, ExpertScratch::bytes);
        let others = self.activations_bytes + self.attention.bytes() + experts;
        buffers + size_of_val(&self.ones[..]) + others
    }
}
