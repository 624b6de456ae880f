//! What single rows have or are: vectors, adapters, places among other rows.

use super::Builder;
use super::Case;
use crate::operation::{At, Operation, RowSet, UNIT};
use crate::record::Row;
use kernels::Format;
use model::AdapterSet;
use model::adapters::SEQUENCE_ADAPTERS_MAX;

/// Rows of which some are vectors, in another order than the rows.
pub(super) fn vectors() -> Case {
    let mut builder = Builder::new("vectors in place of tokens".into());
    let (cols, parts) = (48, 2);
    let vectors = builder.buffer(3, parts * cols);
    for (add, next) in [(false, None), (true, Some(false)), (true, Some(true))] {
        let [stream, normed] = [0, 1].map(|_| builder.buffer(4, cols));
        let next = next.map(|whole| (builder.norm(cols, whole), normed));
        builder.push(Operation::Vectors {
            vectors: At {
                column: u32::from(add) * cols,
                ..vectors
            },
            add,
            stream,
            next,
            cols,
        });
    }
    let row = |vector| Row {
        vector,
        ..Row::default()
    };
    let rows = [row(Some(2)), row(None), row(Some(0)), row(None)];
    builder.rows(RowSet::All, &rows, [&[]; 2]);
    builder.case
}

/// Rows with several adapters, of which two have pairs of rank 5.
pub(super) fn adapters() -> Case {
    let mut builder = Builder::new("adapters".into());
    let (inputs, outputs, rank) = (150, 131, 5);
    let input = builder.buffer(5, inputs);
    let low = builder.buffer(5, UNIT * SEQUENCE_ADAPTERS_MAX as u32);
    let out = builder.buffer(5, outputs);
    let numbers = [-1.0, 0.0, 0.0, 0.5, -1.0, 0.0, 1.0, 2.0];
    let numbers = builder.case.program.vector(&numbers);
    let stack = builder.stack(Format::F32, 2, rank, inputs);
    builder.push(Operation::AdaptDown {
        stack,
        numbers,
        input,
        low,
    });
    let stack = builder.stack(Format::F32, 2, outputs, rank);
    builder.push(Operation::AdaptUp {
        stack,
        numbers,
        low,
        out,
    });
    let row = |given: &[(usize, f32)]| Row {
        adapters: AdapterSet::new(given.iter().copied()).unwrap_or_default(),
        ..Row::default()
    };
    let rows = [
        row(&[(3, 0.5)]),
        row(&[]),
        row(&[(0, 1.0), (1, -1.5), (2, 1.0), (3, 1.0)]),
        row(&[(2, 1.0)]),
        row(&[(1, 1.0)]),
    ];
    builder.rows(RowSet::All, &rows, [&[]; 2]);
    builder.case
}

/// Rows that others are gathered from.
pub(super) fn gather() -> Case {
    let mut builder = Builder::new("gather".into());
    let [input, out] = [7, 3].map(|rows| builder.buffer(rows, 41));
    let row = |source| Row {
        source,
        ..Row::default()
    };
    builder.plain_rows(7);
    builder.rows(RowSet::Wanted, &[row(1), row(2), row(6)], [&[]; 2]);
    let gather = Operation::Gather {
        input,
        cols: 41,
        out,
    };
    builder.case.program.push(RowSet::Wanted, gather);
    builder.case
}
