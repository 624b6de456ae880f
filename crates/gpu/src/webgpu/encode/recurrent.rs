//! Dispatches of recurrent layers.

use super::{Grid, Planned, Planner, vector};
use crate::operation::Operation;
use crate::webgpu::sources::Kernel;

impl Planner<'_> {
    /// A convolution, then what it keeps.
    pub(super) fn convolve(&mut self, operation: &Operation) -> Planned {
        let (
            Operation::Convolve {
                input,
                layer,
                taps,
                bias,
                silu,
                out,
            },
            Some(shape),
        ) = (*operation, self.program.states)
        else {
            return Ok(());
        };
        let memory = self.memory;
        let [states, _] = &memory.states[layer as usize];
        let (vectors, record) = (&memory.vectors, &memory.record);
        let [conv_rows, conv_cols] = shape.convolution(layer);
        let mut kept = vec![conv_cols, conv_rows];
        kept.extend(self.place(input));
        let mut constants = kept.clone();
        constants.extend(self.place(out));
        constants.extend([taps.0, vector(bias), u32::from(silu)]);
        let blocks = conv_cols.div_ceil(256);
        let buffers = [
            vectors,
            record,
            self.buffer(input),
            states,
            self.buffer(out),
        ];
        self.push(Kernel::Convolve, &buffers, constants, Grid::Rows(blocks))?;
        let grid = Grid::Spans {
            blocks,
            writes: true,
        };
        let buffers = [record, self.buffer(input), states];
        self.push(Kernel::Keep, &buffers, kept, grid)
    }

    pub(super) fn scan_gates(&mut self, operation: &Operation) -> Planned {
        let Operation::ScanGates {
            decay,
            rate,
            heads,
            bias,
            factor,
            out,
        } = *operation
        else {
            return Ok(());
        };
        let memory = self.memory;
        let mut constants = vec![heads];
        constants.extend(self.place(decay));
        constants.extend(rate.map_or([0; 2], |rate| self.place(rate)));
        constants.extend(self.place(out));
        constants.extend([bias.0, factor.0, u32::from(rate.is_some())]);
        let rate = rate.map_or(&memory.nothing[0], |rate| self.buffer(rate));
        let buffers = [&memory.vectors, self.buffer(decay), rate, self.buffer(out)];
        let blocks = heads.div_ceil(64);
        self.push(Kernel::ScanGates, &buffers, constants, Grid::Rows(blocks))
    }

    pub(super) fn scan(&mut self, operation: &Operation) -> Planned {
        let (
            Operation::Scan {
                mixed,
                gates,
                layer,
                out,
            },
            Some(heads),
        ) = (
            *operation,
            self.program.states.and_then(|states| states.scan),
        )
        else {
            return Ok(());
        };
        let memory = self.memory;
        let [_, states] = &memory.states[layer as usize];
        let mut constants = self.place(mixed).to_vec();
        constants.extend(self.place(gates));
        constants.extend(self.place(out));
        constants.extend([heads.key_heads, heads.value_heads]);
        constants.push(u32::from(heads.grouped));
        let buffers = [
            &memory.record,
            self.buffer(mixed),
            self.buffer(gates),
            states,
            self.buffer(out),
        ];
        let kernel = Kernel::Scan {
            key_dim: heads.key_dim,
            value_dim: heads.value_dim,
            delta: heads.delta,
        };
        let grid = Grid::Spans {
            blocks: heads.value_heads * (heads.value_dim / SCAN_COLUMNS),
            writes: false,
        };
        self.push(kernel, &buffers, constants, grid)
    }

    pub(super) fn share(&mut self, operation: &Operation) -> Planned {
        let Operation::Share {
            x,
            cols,
            input,
            input_cols,
            weights,
        } = *operation
        else {
            return Ok(());
        };
        let memory = self.memory;
        let mut constants = vec![cols];
        constants.extend(self.place(x));
        constants.push(input_cols);
        constants.extend(self.place(input));
        constants.push(weights.0);
        let buffers = [&memory.vectors, self.buffer(input), self.buffer(x)];
        self.push(Kernel::Share, &buffers, constants, Grid::Rows(1))
    }

    pub(super) fn add_parts(&mut self, operation: &Operation) -> Planned {
        let Operation::AddParts {
            x,
            parts,
            len,
            values,
            factors,
        } = *operation
        else {
            return Ok(());
        };
        let cols = parts * len;
        let mut constants = vec![cols, len];
        constants.extend(self.place(x));
        constants.extend(self.place(values));
        constants.push(factors.0);
        let memory = self.memory;
        let buffers = [&memory.vectors, self.buffer(values), self.buffer(x)];
        let grid = Grid::Rows(cols.div_ceil(256));
        self.push(Kernel::AddParts, &buffers, constants, grid)
    }
}

/// Columns of a head's state that a workgroup computes.
const SCAN_COLUMNS: u32 = 16;
