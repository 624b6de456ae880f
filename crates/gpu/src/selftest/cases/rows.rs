//! Operations on single rows: vectors, adapters, places among other rows, norms, sums, activations, logits.

use super::Builder;
use super::Case;
use crate::operation::{Activation, At, Operation, RowSet, UNIT};
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

pub(super) fn norms() -> Case {
    let mut builder = Builder::new("norm".into());
    for cols in [37, 700] {
        for whole in [false, true] {
            let norm = builder.norm(cols, whole);
            let [input, out] = [0, 1].map(|_| builder.buffer(3, cols));
            builder.push(Operation::Norm {
                input,
                cols,
                norm,
                out,
            });
        }
    }
    for (own_weights, whole) in [(false, false), (false, true), (true, true)] {
        let (parts, len) = (3, 70);
        let weights = if own_weights { parts * len } else { len };
        let norm = builder.norm(weights, whole);
        let x = builder.buffer(3, parts * len);
        builder.push(Operation::NormParts {
            x,
            parts,
            len,
            norm,
            own_weights,
        });
    }
    builder.plain_rows(3);
    builder.case
}

pub(super) fn add() -> Case {
    let mut builder = Builder::new("add".into());
    let cols = 333;
    for (post, next) in [
        (None, None),
        (None, Some(false)),
        (Some(true), Some(true)),
        (Some(false), None),
    ] {
        let [update, stream, normed] = [0, 1, 2].map(|_| builder.buffer(3, cols));
        let post = post.map(|whole| builder.norm(cols, whole));
        let next = next.map(|whole| (builder.norm(cols, whole), normed));
        builder.push(Operation::Add {
            update,
            post,
            factor: 0.7,
            stream,
            stream_factor: 1.3,
            next,
            cols,
        });
    }
    builder.plain_rows(3);
    builder.case
}

pub(super) fn activate() -> Case {
    let mut builder = Builder::new("activate".into());
    let cols = 300;
    for activation in [
        Activation::Silu,
        Activation::Gelu,
        Activation::SquaredRelu,
        Activation::ClampedSwiglu,
        Activation::Sigmoid,
        Activation::Identity,
    ] {
        let [gate, up, apart] = [0, 1, 2].map(|_| builder.buffer(2, cols));
        for buffer in [gate, up] {
            let values = &mut builder.case.buffers[buffer.buffer.0 as usize];
            values.iter_mut().for_each(|x| *x *= 12.0);
        }
        let second = builder.buffer(2, cols);
        for (up, out) in [
            (Some(up), apart),
            (None, second),
            (Some(up), gate),
            (Some(gate), up),
        ] {
            builder.push(Operation::Activate {
                activation,
                gate,
                up,
                cols,
                out,
            });
        }
    }
    builder.plain_rows(2);
    builder.case
}

pub(super) fn finish() -> Case {
    let mut builder = Builder::new("finish".into());
    let cols = 300;
    for (factor, cap) in [(1.0, None), (3.0, Some(2.0))] {
        let logits = builder.buffer(2, cols);
        let values = &mut builder.case.buffers[logits.buffer.0 as usize];
        values[5] = f32::NAN;
        values[300] = f32::INFINITY;
        values[7] = 1e6;
        let bias = cap.map(|_| builder.vector(cols));
        builder.push(Operation::Finish {
            logits,
            cols,
            bias,
            factor,
            cap,
        });
    }
    builder.plain_rows(2);
    builder.case
}
