//! Work of operations, by which a long batch is cut into several submits.

use crate::operation::{Operation, Program};

/// Multiply-adds of a submit, at most, unless a single workgroup has more: 1 to 2 seconds of a weak integrated GPU. Drivers
/// take longer submits for a hang and reset the device: Windows after 2 seconds. A step of a single row has less in models of up to
/// 100 billion weights.
pub(super) const SUBMIT_WORK_MAX: u64 = 100_000_000_000;

/// Multiply-adds for each row that an operation runs for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Those of a row.
    row: u64,
    /// Those of a row for each position that it sees.
    position: u64,
    /// The most positions that a row sees.
    positions_max: u32,
}

impl Work {
    /// The work of an operation; none for those that only move or scale what is there.
    pub(super) fn of_operation(program: &Program, operation: &Operation) -> Self {
        let row = |row: u64| Self {
            row,
            ..Self::default()
        };
        match *operation {
            Operation::Matmul { matrix, .. } => {
                let shape = program.matrices[matrix.0 as usize];
                row(u64::from(shape.rows) * u64::from(shape.cols))
            }
            Operation::ExpertMatmul { stack, used, .. } => {
                let shape = program.matrices[stack.0 as usize];
                row(u64::from(shape.unit_rows) * u64::from(shape.cols) * u64::from(used))
            }
            Operation::Attend {
                heads,
                cache,
                window,
                ..
            } => {
                let stride = program.caches[cache.0 as usize].stride();
                Self {
                    row: 0,
                    position: 2 * u64::from(heads) * u64::from(stride),
                    positions_max: window.unwrap_or(u32::MAX),
                }
            }
            Operation::Scan { .. } => {
                let heads = program.states.and_then(|states| states.scan);
                row(heads.map_or(0, |heads| {
                    let state = u64::from(heads.key_dim) * u64::from(heads.value_dim);
                    3 * u64::from(heads.value_heads) * state
                }))
            }
            _ => Self::default(),
        }
    }

    /// The work of `some` of `all` outputs.
    pub(super) fn part(self, some: u32, all: u32) -> Self {
        let part = |work: u64| work * u64::from(some) / u64::from(all.max(1));
        Self {
            row: part(self.row),
            position: part(self.position),
            ..self
        }
    }

    /// The work for so many rows, the longest of which sees `positions`.
    pub(super) fn of(self, rows: u32, positions: u32) -> u64 {
        let seen = u64::from(positions.min(self.positions_max));
        let of_row = self.row.saturating_add(self.position.saturating_mul(seen));
        of_row.saturating_mul(u64::from(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{At, BufferId, CacheShape, MatrixId, MatrixShape};
    use kernels::Format;

    fn product(matrix: MatrixId) -> Operation {
        let at = At::start(BufferId(0));
        Operation::Matmul {
            matrix,
            input: at,
            bias: None,
            add: false,
            out: at,
        }
    }

    #[test]
    fn work_counts_weights_and_visible_positions() {
        let mut program = Program::default();
        let matrix = program.matrix(MatrixShape {
            format: Format::Q8_0,
            rows: 12,
            cols: 64,
            unit_rows: 3,
        });
        let cache = program.cache(CacheShape {
            layers: 1,
            pages: 1,
            page_tokens: 16,
            kv_heads: 2,
            head_dim: 20,
            kind: kernels::KvKind::F16,
        });
        let at = At::start(BufferId(0));
        let experts = Operation::ExpertMatmul {
            stack: matrix,
            choices: at,
            used: 2,
            input: at,
            input_stride: 0,
            bias: None,
            out: at,
            out_stride: 16,
        };
        let attention = |window| Operation::Attend {
            query: at,
            heads: 4,
            cache,
            layer: 0,
            scale: 1.0,
            cap: None,
            window,
            blocks: false,
            sinks: None,
            out: at,
        };
        let gather = Operation::Gather {
            input: at,
            cols: 64,
            out: at,
        };
        for (operation, wanted) in [
            (product(matrix), 7 * 12 * 64),
            (experts, 7 * 2 * 3 * 64),
            (attention(None), 7 * 2 * 4 * 24 * 100),
            (attention(Some(9)), 7 * 2 * 4 * 24 * 9),
            (gather, 0),
        ] {
            let work = Work::of_operation(&program, &operation);
            assert_eq!(work.of(7, 100), wanted, "{operation:?}");
            assert_eq!(work.of(0, 100), 0);
        }
        let work = Work::of_operation(&program, &attention(None));
        assert_eq!(work.of(u32::MAX, u32::MAX), u64::MAX);
        let work = Work::of_operation(&program, &product(matrix));
        assert_eq!(work.part(3, 12).of(7, 100), 7 * 3 * 64);
    }
}
