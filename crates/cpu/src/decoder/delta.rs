//! Gated DeltaNet (Yang et al. 2025).
//!
//! A row is projected to queries, keys and values, which a convolution over time mixes with those of the last rows. Each head
//! has a matrix as its state, which forgets by a factor and is corrected towards the value that the key stands for; the
//! output is what the state says of the query, normalized and gated.

use super::recurrent::{ScanScratch, softplus};
use super::{Config, Decoder};
use crate::norm;
use crate::norm::project;
use kernels::{Convolution, Isa, ScanRows, ScanShape, l2_norm_in_place, scan, silu_mul};
use weights::parameters::DeltaNet;

impl Decoder {
    /// Runs the recurrent part of layer `index`, from the loaded activations to `update`, and writes the states.
    pub(super) fn delta(&mut self, config: &Config, index: usize, layer: &DeltaNet) {
        let (isa, rows) = (self.isa, self.rows.queries.len());
        let (pool, activations) = (&mut self.pool, &mut self.scratch.activations);
        let Some((common, own)) = self.recurrent.as_mut().and_then(|scratch| scratch.scan()) else {
            return;
        };
        let ScanScratch { heads, .. } = *own;
        for (linear, out) in [
            (&layer.input, &mut common.input),
            (&layer.gate, &mut own.gate),
            (&layer.decay, &mut own.step),
            (&layer.rate, &mut own.rate),
        ] {
            project(isa, pool, linear, activations, out.head_mut(rows));
        }
        let convolution = Convolution {
            taps: &layer.taps,
            bias: None,
            silu: true,
        };
        common.convolve(isa, pool, (index, rows), convolution);
        let mixed = common.mixed.head_mut(rows);
        pool.rows(mixed, heads.cols(), |_, row| {
            normalize(isa, &heads, config.norm_eps, row);
        });
        let (decay, rate) = (&own.step, &own.rate);
        let gates = own.gates.head_mut(rows);
        pool.rows(gates, 2 * heads.value_heads, |row, gates| {
            fill_gates(layer, decay.row(row), rate.row(row), gates);
        });
        let input = ScanRows { mixed, gates };
        let store = (&mut common.store, common.numbers[index]);
        let out = own.out.head_mut(rows);
        scan(isa, pool, &common.plan, store, &heads, input, out);
        let gate = own.gate.head_mut(rows);
        let (eps, cols) = (config.norm_eps, heads.value_cols());
        pool.rows2((gate, cols), (out, cols), |_, gate, out| {
            norm::apply_to_parts(&layer.norm, isa, eps, out, heads.value_dim);
            silu_mul(isa, gate, out);
        });
        activations.load(isa, pool, gate, rows, cols);
        let update = self.scratch.update.head_mut(rows);
        project(isa, pool, &layer.out, activations, update);
    }
}

/// Normalizes the queries and the keys of one row; queries are scaled for the product with the state.
fn normalize(isa: Isa, heads: &ScanShape, eps: f32, row: &mut [f32]) {
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
