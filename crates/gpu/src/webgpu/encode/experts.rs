//! Dispatches of experts.

use super::{Grid, NONE, Planned, Planner, row_words, vector};
use crate::operation::Operation;
use crate::webgpu::sources::Kernel;

impl Planner<'_> {
    pub(super) fn route(&mut self, operation: &Operation) -> Planned {
        let Operation::Route {
            scores,
            count,
            used,
            rule,
            choice_bias,
            factors,
            out,
        } = *operation
        else {
            return Ok(());
        };
        let mut constants = vec![count, used];
        constants.extend(self.place(scores));
        constants.extend(self.place(out));
        let mode = [rule.sigmoid, rule.normalized, rule.by_scores];
        let mode = mode
            .iter()
            .rev()
            .fold(0, |mode, flag| 2 * mode + u32::from(*flag));
        constants.extend([mode, vector(choice_bias), vector(factors)]);
        constants.push(rule.scale.to_bits());
        let (groups, groups_used) = rule.groups.unwrap_or((0, 0));
        constants.extend([groups, groups_used]);
        let buffers = [&self.memory.vectors, self.buffer(scores), self.buffer(out)];
        self.push(Kernel::Route, &buffers, constants, Grid::Rows(1))
    }

    pub(super) fn copy_parts(&mut self, operation: &Operation) -> Planned {
        let Operation::CopyParts {
            input,
            input_stride,
            parts,
            len,
            out,
            out_stride,
        } = *operation
        else {
            return Ok(());
        };
        let mut constants = vec![parts * len, len];
        constants.extend(self.place(input));
        constants.push(input_stride);
        constants.extend(self.place(out));
        constants.push(out_stride);
        let buffers = [self.buffer(input), self.buffer(out)];
        let grid = Grid::Rows((parts * len).div_ceil(256));
        self.push(Kernel::CopyParts, &buffers, constants, grid)
    }

    pub(super) fn expert_matmul(&mut self, operation: &Operation) -> Planned {
        let Operation::ExpertMatmul {
            stack,
            choices,
            used,
            input,
            input_stride,
            bias,
            out,
            out_stride,
        } = *operation
        else {
            return Ok(());
        };
        let shape = self.program.matrices[stack.0 as usize];
        let memory = self.memory;
        let matrix = &memory.matrices[stack.0 as usize];
        let outputs = shape.unit_rows;
        for part in &matrix.parts {
            let [x_at, x_row] = self.place(input);
            let mut constants = vec![outputs];
            constants.extend(row_words(matrix, shape.format));
            constants.extend([x_at / 4, x_row / 4, input_stride / 4]);
            constants.extend(self.place(out));
            constants.push(out_stride);
            constants.extend(self.place(choices));
            constants.extend([part.first / outputs, part.rows / outputs]);
            constants.push(bias.map_or(NONE, |bias| bias.0 + part.first));
            let [low, high, scales] = self.planes(part);
            let (x, chosen) = (self.buffer(input), self.buffer(choices));
            let out = self.buffer(out);
            let buffers = [low, high, scales, x, &memory.vectors, chosen, out];
            let kernel = Kernel::ExpertMatmul {
                format: shape.format,
            };
            let grid = Grid::Choices { outputs, used };
            self.push(kernel, &buffers, constants, grid)?;
        }
        Ok(())
    }

    pub(super) fn combine(&mut self, operation: &Operation) -> Planned {
        let Operation::Combine {
            outputs,
            stride,
            choices,
            used,
            cols,
            add,
            out,
        } = *operation
        else {
            return Ok(());
        };
        let mut constants = vec![cols, used];
        constants.extend(self.place(outputs));
        constants.push(stride);
        constants.extend(self.place(choices));
        constants.extend(self.place(out));
        constants.push(u32::from(add));
        let buffers = [self.buffer(outputs), self.buffer(choices), self.buffer(out)];
        let grid = Grid::Rows(cols.div_ceil(256));
        self.push(Kernel::Combine, &buffers, constants, grid)
    }
}
