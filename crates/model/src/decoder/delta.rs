//! Recurrent layers: gated DeltaNet (Yang et al. 2025), in place of attention.
//!
//! A row is projected to queries, keys and values, which a convolution over time mixes with those of the last rows. Each head
//! has a matrix as its state, which forgets by a factor and is corrected towards the value that the key stands for; the
//! output is what the state says of the query, normalized and gated.

use super::layer::project;
use super::scratch::Buffer;
use super::{Config, Decoder};
use crate::config::RecurrentConfig;
use crate::weights::DeltaNet;
use crate::{Batch, ForwardError, SpanStates, SpanView};
use kernels::{
    DeltaRows, DeltaShape, Isa, ScanPlan, StateStore, causal_conv, delta_scan, l2_norm_in_place,
    silu_mul,
};

/// States and workspace of the recurrent layers, allocated once.
pub(super) struct DeltaScratch {
    heads: DeltaShape,
    /// Of each layer of the model: its number among the recurrent ones.
    numbers: Vec<usize>,
    plan: ScanPlan,
    store: StateStore,
    /// Queries, keys and values (cols), before and after the convolution.
    input: Buffer,
    mixed: Buffer,
    /// (value_cols).
    gate: Buffer,
    out: Buffer,
    /// (value_heads).
    decay: Buffer,
    rate: Buffer,
    /// Factor and share of each head (2 * value_heads).
    gates: Buffer,
}

impl DeltaScratch {
    pub(super) fn new(config: &RecurrentConfig, states: usize, rows: usize) -> Self {
        let heads = config.heads;
        let number = |layer: usize| config.layers[..layer].iter().filter(|l| **l).count();
        Self {
            heads,
            numbers: (0..config.layers.len()).map(number).collect(),
            plan: ScanPlan::new(states, rows),
            store: StateStore::new(config.state_shape(), states),
            input: Buffer::new(rows, heads.cols()),
            mixed: Buffer::new(rows, heads.cols()),
            gate: Buffer::new(rows, heads.value_cols()),
            out: Buffer::new(rows, heads.value_cols()),
            decay: Buffer::new(rows, heads.value_heads),
            rate: Buffer::new(rows, heads.value_heads),
            gates: Buffer::new(rows, 2 * heads.value_heads),
        }
    }

    /// Number of states.
    pub(super) fn states(&self) -> usize {
        self.store.states()
    }

    /// Bytes of the states when all are used, and resident bytes of the workspace.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let buffers = [
            &self.input,
            &self.mixed,
            &self.gate,
            &self.out,
            &self.decay,
            &self.rate,
            &self.gates,
        ];
        let workspace = buffers.iter().map(|buffer| buffer.bytes()).sum();
        (self.store.bytes(), workspace)
    }

    /// Reads which states a batch uses; rejects a batch that violates a rule before changing any state.
    pub(super) fn read(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        self.plan.clear();
        for span in batch.spans() {
            let states = span.states.ok_or("a span has no states");
            let pushed = states.and_then(|states| self.push(&span, &states));
            pushed.map_err(ForwardError::BadBatch)?;
        }
        Ok(())
    }

    fn push(&mut self, span: &SpanView<'_>, states: &SpanStates) -> Result<(), &'static str> {
        if states.before.is_some() != (span.position > 0) {
            return Err("a state precedes all tokens but the first");
        }
        let rows = span.tokens.len();
        let written = states.written(rows).map(|kept| (kept.tokens, kept.state));
        self.plan.push(rows, states.before, written)
    }
}

impl Decoder {
    /// Runs the recurrent part of layer `index`, from the loaded activations to `update`, and writes the states.
    pub(super) fn delta(&mut self, config: &Config, index: usize, layer: &DeltaNet) {
        let Some(delta) = &mut self.delta else { return };
        let (isa, rows) = (self.isa, self.rows.queries.len());
        let (pool, activations) = (&mut self.pool, &mut self.scratch.activations);
        let heads = delta.heads;
        let number = delta.numbers[index];
        for (linear, out) in [
            (&layer.input, &mut delta.input),
            (&layer.gate, &mut delta.gate),
            (&layer.decay, &mut delta.decay),
            (&layer.rate, &mut delta.rate),
        ] {
            project(isa, pool, linear, activations, out.head_mut(rows));
        }
        let (input, mixed) = (delta.input.head(rows), delta.mixed.head_mut(rows));
        let store = (&mut delta.store, number);
        causal_conv(isa, pool, &delta.plan, store, &layer.taps, input, mixed);
        pool.rows(mixed, heads.cols(), |_, row| {
            normalize(isa, &heads, config.norm_eps, row);
        });
        let (decay, rate) = (&delta.decay, &delta.rate);
        let gates = delta.gates.head_mut(rows);
        pool.rows(gates, 2 * heads.value_heads, |row, gates| {
            fill_gates(layer, decay.row(row), rate.row(row), gates);
        });
        let input = DeltaRows {
            mixed: delta.mixed.head(rows),
            gates: delta.gates.head(rows),
        };
        let store = (&mut delta.store, number);
        let out = delta.out.head_mut(rows);
        delta_scan(isa, pool, &delta.plan, store, &heads, input, out);
        let gate = delta.gate.head_mut(rows);
        let (eps, cols) = (config.norm_eps, heads.value_cols());
        pool.rows2((gate, cols), (out, cols), |_, gate, out| {
            layer.norm.apply_to_parts(isa, eps, out, heads.value_dim);
            silu_mul(isa, gate, out);
        });
        activations.load(isa, pool, gate, rows, cols);
        let update = self.scratch.update.head_mut(rows);
        project(isa, pool, &layer.out, activations, update);
    }
}

/// Normalizes the queries and the keys of one row; queries are scaled for the product with the state.
fn normalize(isa: Isa, heads: &DeltaShape, eps: f32, row: &mut [f32]) {
    let queries = 1.0 / (heads.key_dim as f32).sqrt();
    let both = 2 * heads.key_heads * heads.key_dim;
    for (head, part) in row[..both].chunks_exact_mut(heads.key_dim).enumerate() {
        let factor = if head < heads.key_heads { queries } else { 1.0 };
        l2_norm_in_place(isa, part, eps, factor);
    }
}

/// The factor and the share of each head of one row.
fn fill_gates(layer: &DeltaNet, decay: &[f32], rate: &[f32], gates: &mut [f32]) {
    for (head, gates) in gates.chunks_exact_mut(2).enumerate() {
        let speed = softplus(decay[head] + layer.decay_bias[head]);
        gates[0] = (speed * layer.decay_factor[head]).exp();
        gates[1] = 1.0 / (1.0 + (-rate[head]).exp());
    }
}

/// `ln(1 + e^x)`, which is `x` where the one does not count.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
