//! Dispatches of experts.

use super::{Grid, NONE, Planned, Planner, row_words, vector};
use crate::operation::{Operation, Program};
use crate::webgpu::sources::{Kernel, TILE_ROWS, TILE_ROWS_MIN};

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
        self.push(Kernel::Route, &buffers, constants, Grid::Rows(1))?;
        if self.is_exact() {
            return Ok(());
        }
        self.sorted = Some(out);
        let mut constants = vec![count, used];
        constants.extend(self.place(out));
        constants.push(sorted_at(count, used, self.program.rows_max));
        let buffers = [self.buffer(out), &self.memory.order];
        let kernel = [(u32::MAX, Kernel::SortChoices)];
        self.push_from(TILE_ROWS_MIN, &kernel, &buffers, constants, Grid::One)
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
        let (memory, format) = (self.memory, shape.format);
        let matrix = &memory.matrices[stack.0 as usize];
        let outputs = shape.unit_rows;
        let count = shape.rows / outputs.max(1);
        let work = self.work;
        for part in &matrix.parts {
            self.work = work.part(part.rows, shape.rows);
            let [x_at, x_row] = self.place(input);
            let mut constants = vec![outputs];
            constants.extend(row_words(matrix, format));
            constants.extend([x_at / 4, x_row / 4, input_stride / 4]);
            constants.extend(self.place(out));
            constants.push(out_stride);
            let mut tiles = constants.clone();
            tiles.extend([used, sorted_at(count, used, self.program.rows_max)]);
            constants.extend(self.place(choices));
            let bias = bias.map_or(NONE, |bias| bias.0 + part.first);
            let of_part = [part.first / outputs, part.rows / outputs, bias];
            constants.extend(of_part);
            tiles.extend(of_part);
            let [low, high, scales] = self.planes(part);
            let (x, chosen) = (self.buffer(input), self.buffer(choices));
            let written = self.buffer(out);
            // Choices that no router made are not sorted.
            let has_tiles = self.sorted == Some(choices);
            let few_max = if has_tiles {
                TILE_ROWS_MIN - 1
            } else {
                u32::MAX
            };
            let kernel = [(few_max, Kernel::ExpertMatmul { format })];
            let buffers = [low, high, scales, x, &memory.vectors, chosen, written];
            self.push_all(
                &kernel,
                &buffers,
                constants,
                Grid::Choices { outputs, used },
            )?;
            if has_tiles {
                self.work = work.part(part.rows, shape.rows);
                let buffers = ([low, high, scales], x, written);
                self.expert_tiles((format, used), buffers, tiles, [outputs, count])?;
            }
        }
        Ok(())
    }

    /// Products of sorted choices, by tiles.
    fn expert_tiles(
        &mut self,
        (format, used): (kernels::Format, u32),
        ([low, high, scales], x, written): ([&wgpu::Buffer; 3], &wgpu::Buffer, &wgpu::Buffer),
        constants: Vec<u32>,
        [outputs, count]: [u32; 2],
    ) -> Planned {
        let grid = Grid::Tiles {
            outputs,
            count,
            used,
        };
        let (vectors, order) = (&self.memory.vectors, &self.memory.order);
        let kernel = [(u32::MAX, Kernel::ExpertTile { format })];
        let buffers = [low, high, scales, x, vectors, order, written];
        self.push_from(TILE_ROWS_MIN, &kernel, &buffers, constants, grid)
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

/// Words before the sorted choices: the number of tiles, and four words for each tile that there may be.
fn sorted_at(count: u32, used: u32, rows_max: u32) -> u32 {
    4 + 4 * (count + rows_max * used / TILE_ROWS)
}

/// Words of the sorted choices of a program's experts, with their tiles.
pub(in crate::webgpu) fn order_words(program: &Program) -> u64 {
    let words = program.all_steps().map(|step| match step.operation {
        Operation::Route { count, used, .. } if !program.exact => {
            u64::from(sorted_at(count, used, program.rows_max) + program.rows_max * used)
        }
        _ => 0,
    });
    words.max().unwrap_or(0)
}
