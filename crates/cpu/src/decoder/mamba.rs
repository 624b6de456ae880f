//! Mamba-2 (Dao and Gu 2024).
//!
//! A row is projected to values, keys and queries, which a convolution over time mixes with those of the last rows. Each head
//! has a matrix as its state, which decays and takes the value in where the key stands; the output is what the state says of
//! the query, plus the value by a factor, gated and normalized.

use super::recurrent::{ScanScratch, softplus};
use super::{Config, Decoder};
use crate::norm;
use crate::norm::project;
use kernels::{Convolution, ScanRows, add_scaled, scan, silu_mul};
use weights::parameters::Mamba;

impl Decoder {
    /// Runs the recurrent part of layer `index`, from the loaded activations to `update`, and writes the states.
    pub(super) fn mamba(&mut self, config: &Config, index: usize, layer: &Mamba) {
        let (isa, rows) = (self.isa, self.rows.queries.len());
        let (pool, activations) = (&mut self.pool, &mut self.scratch.activations);
        let Some((common, own)) = self.recurrent.as_mut().and_then(|scratch| scratch.scan()) else {
            return;
        };
        let ScanScratch { heads, .. } = *own;
        for (linear, out) in [
            (&layer.input, &mut common.input),
            (&layer.gate, &mut own.gate),
            (&layer.step, &mut own.step),
        ] {
            project(isa, pool, linear, activations, out.head_mut(rows));
        }
        let convolution = Convolution {
            taps: &layer.taps,
            bias: layer.taps_bias.as_deref(),
            silu: true,
        };
        common.convolve(isa, pool, (index, rows), convolution);
        let mixed = common.mixed.head_mut(rows);
        let (steps, gates) = (&own.step, own.gates.head_mut(rows));
        pool.rows(gates, 2 * heads.value_heads, |row, gates| {
            let steps = steps.row(row).iter().zip(&layer.step_bias);
            let heads = steps.zip(&layer.decay_factor);
            for (gates, ((step, bias), factor)) in gates.chunks_exact_mut(2).zip(heads) {
                let step = softplus(step + bias);
                gates.copy_from_slice(&[(step * factor).exp(), step]);
            }
        });
        let store = (&mut common.store, common.numbers[index]);
        let (input, out) = (ScanRows { mixed, gates }, own.out.head_mut(rows));
        scan(isa, pool, &common.plan, store, &heads, input, out);
        let (eps, cols, dim) = (config.norm_eps, heads.value_cols(), heads.value_dim);
        let (gate, mixed) = (own.gate.head_mut(rows), &common.mixed);
        pool.rows2((gate, cols), (out, cols), |row, gate, out| {
            let values = mixed.row(row)[..cols].chunks_exact(dim);
            for ((out, value), factor) in out.chunks_exact_mut(dim).zip(values).zip(&layer.skip) {
                add_scaled(isa, out, value, *factor);
            }
            silu_mul(isa, gate, out);
            if let Some(norm) = &layer.norm {
                norm::apply_to_parts(norm, isa, eps, gate, cols / heads.key_heads);
            }
        });
        activations.load(isa, pool, gate, rows, cols);
        let update = self.scratch.update.head_mut(rows);
        project(isa, pool, &layer.out, activations, update);
    }
}
