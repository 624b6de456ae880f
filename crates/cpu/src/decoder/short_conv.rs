//! A convolution over time between two gates (LFM2).

use super::Decoder;
use crate::norm::project;
use kernels::{Convolution, add_mul};
use weights::parameters::ShortConv;

impl Decoder {
    /// Runs the gated convolution of layer `index`, from the loaded activations to `update`, and writes the states.
    pub(super) fn short_conv(&mut self, index: usize, layer: &ShortConv) {
        let (isa, rows) = (self.isa, self.rows.queries.len());
        let (pool, activations) = (&mut self.pool, &mut self.scratch.activations);
        let Some(scratch) = &mut self.recurrent else {
            return;
        };
        let (common, projected) = (&mut scratch.common, &mut scratch.projected);
        project(
            isa,
            pool,
            &layer.input,
            activations,
            projected.head_mut(rows),
        );
        let dim = common.input.cols();
        let (projected, input) = (&*projected, common.input.head_mut(rows));
        // Gate, second gate and input of a row.
        pool.rows(input, dim, |row, out| {
            let parts = projected.row(row);
            out.fill(0.0);
            add_mul(isa, out, &parts[..dim], &parts[2 * dim..]);
        });
        let convolution = Convolution {
            taps: &layer.taps,
            bias: None,
            silu: false,
        };
        common.convolve(isa, pool, (index, rows), convolution);
        let (input, mixed) = (common.input.head_mut(rows), &common.mixed);
        pool.rows(input, dim, |row, out| {
            out.fill(0.0);
            add_mul(isa, out, &projected.row(row)[dim..2 * dim], mixed.row(row));
        });
        activations.load(isa, pool, input, rows, dim);
        let update = self.scratch.update.head_mut(rows);
        project(isa, pool, &layer.out, activations, update);
    }
}
