//! Dispatches of adapters.

use super::{Grid, Planned, Planner};
use crate::operation::{Operation, UNIT};
use crate::webgpu::sources::Kernel;

/// Elements of a product that a workgroup computes, to the rank and from it.
const DOWN_BLOCK: u32 = 4;
const UP_BLOCK: u32 = 128;

impl Planner<'_> {
    pub(super) fn adapt(&mut self, operation: &Operation) -> Planned {
        let (stack, numbers, low, other, is_down) = match *operation {
            Operation::AdaptDown {
                stack,
                numbers,
                input,
                low,
            } => (stack, numbers, low, input, true),
            Operation::AdaptUp {
                stack,
                numbers,
                low,
                out,
            } => (stack, numbers, low, out, false),
            _ => return Ok(()),
        };
        let shape = self.program.matrices[stack.0 as usize];
        let memory = self.memory;
        let matrix = &memory.matrices[stack.0 as usize];
        let (rows, width) = (shape.unit_rows, matrix.layout.units() as u32 * UNIT / 4);
        let rank = if is_down { rows } else { shape.cols };
        let low_stride = rank.next_multiple_of(UNIT);
        let (low_place, other_place) = (self.place(low), self.place(other));
        for part in &matrix.parts {
            let mut constants = vec![rows, width];
            if is_down {
                constants.extend(other_place.map(|place| place / 4));
                constants.extend(low_place);
                constants.push(low_stride);
            } else {
                constants.extend(low_place.map(|place| place / 4));
                constants.push(low_stride / 4);
                constants.extend(other_place);
            }
            constants.extend([numbers.0, part.first / rows, part.rows / rows]);
            let [weights, ..] = self.planes(part);
            let (low, other) = (self.buffer(low), self.buffer(other));
            let (kernel, read, written, block) = if is_down {
                (Kernel::AdaptDown, other, low, DOWN_BLOCK)
            } else {
                (Kernel::AdaptUp, low, other, UP_BLOCK)
            };
            let buffers = [weights, &memory.vectors, &memory.record, read, written];
            let grid = Grid::Adapters {
                blocks: rows.div_ceil(block),
                each: is_down,
            };
            self.push(kernel, &buffers, constants, grid)?;
        }
        Ok(())
    }
}
