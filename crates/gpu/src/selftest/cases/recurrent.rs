//! Recurrent layers: a batch that writes states, then one that reads them.

use super::{Builder, Case};
use crate::operation::{At, Operation, RowSet, ScanHeads, StatesShape};
use crate::record::{Record, Row, Span};

/// Rows of each batch.
const ROWS: u32 = 7;

/// A convolution, gates and a scan with these heads, after each other.
pub(in crate::selftest) fn scan(heads: ScanHeads) -> Case {
    let kind = if heads.delta { "delta" } else { "linear" };
    let name = format!("scan of {} x {}, {kind}", heads.key_dim, heads.value_dim);
    let mut builder = Builder::new(name);
    let values = heads.value_heads * heads.value_dim;
    let cols = 2 * heads.key_heads * heads.key_dim + values;
    let shape = states(&mut builder, cols, Some(heads));
    let input = builder.buffer(ROWS, cols);
    let [decay, rate] = [0, 1].map(|_| builder.buffer(ROWS, heads.value_heads));
    let taps = builder.vector((shape.conv_rows + 1) * cols);
    let [bias, factor] = [0, 1].map(|_| builder.vector(heads.value_heads));
    // Factors of decays are negative.
    for x in &mut builder.case.program.vectors[factor.0 as usize..] {
        *x = -x.abs();
    }
    for layer in 0..shape.layers {
        let mixed = builder.buffer(ROWS, cols);
        let gates = builder.buffer(ROWS, 2 * heads.value_heads);
        let out = builder.buffer(ROWS, values);
        builder.push(Operation::Convolve {
            input,
            layer,
            taps,
            bias: None,
            silu: true,
            out: mixed,
        });
        builder.push(Operation::ScanGates {
            decay,
            rate: heads.delta.then_some(rate),
            heads: heads.value_heads,
            bias,
            factor,
            out: gates,
        });
        let mixed = shrunk(&mut builder, mixed, cols);
        builder.push(Operation::Scan {
            mixed,
            gates,
            layer,
            out,
        });
    }
    batches(&mut builder);
    builder.case
}

/// A convolution without a scan, a share, and a sum of parts.
pub(super) fn convolution() -> Case {
    let mut builder = Builder::new("convolution".into());
    let cols = 300;
    let shape = states(&mut builder, cols, None);
    let [input, out] = [0, 1].map(|_| builder.buffer(ROWS, cols));
    let taps = builder.vector((shape.conv_rows + 1) * cols);
    let bias = Some(builder.vector(cols));
    builder.push(Operation::Convolve {
        input,
        layer: 1,
        taps,
        bias,
        silu: false,
        out,
    });
    // The hidden states before rows.
    let [hidden, before] = [37, 37 + 44].map(|cols| builder.buffer(ROWS, cols));
    let taps = [[1.0; 37], [0.0; 37]].concat();
    let taps = builder.case.program.vector(&taps);
    builder.push(Operation::Convolve {
        input: hidden,
        layer: shape.layers,
        taps,
        bias: None,
        silu: false,
        out: before.right_by(44),
    });
    let x = builder.buffer(ROWS, 70);
    let weights = builder.vector(cols);
    builder.push(Operation::Share {
        x,
        cols: 70,
        input,
        input_cols: cols,
        weights,
    });
    let values = builder.buffer(ROWS, 5 * 70);
    let x = builder.buffer(ROWS, 5 * 70);
    let factors = builder.vector(5);
    builder.push(Operation::AddParts {
        x,
        parts: 5,
        len: 70,
        values,
        factors,
    });
    batches(&mut builder);
    builder.case
}

/// A quarter of a buffer's contents, so that states stay small.
fn shrunk(builder: &mut Builder, x: At, cols: u32) -> At {
    let out = builder.buffer(ROWS, cols);
    let weights: Vec<f32> = vec![0.25; cols as usize];
    let weight = builder.case.program.vector(&weights);
    builder.push(Operation::Norm {
        input: x,
        cols,
        norm: crate::operation::Norm {
            weight: Some(weight),
            bias: None,
            centered: false,
            eps: 1e-5,
        },
        out,
    });
    out
}

fn states(builder: &mut Builder, conv_cols: u32, scan: Option<ScanHeads>) -> StatesShape {
    let shape = StatesShape {
        layers: 2,
        states: 6,
        conv_rows: 3,
        conv_cols,
        scan,
        hidden: 37,
    };
    builder.case.program.states = Some(shape);
    shape
}

/// Spans of five rows, of one and of one; then spans that read what these wrote.
fn batches(builder: &mut Builder) {
    let span = |first, rows, before, writes: &[(u32, u32)]| {
        let mut span = Span {
            first,
            rows,
            before,
            ..Span::default()
        };
        for (to, write) in span.writes.iter_mut().zip(writes) {
            *to = Some(*write);
        }
        span
    };
    let earlier = [
        span(0, 5, None, &[(1, 0), (4, 1), (5, 2)]),
        span(5, 1, None, &[(1, 3)]),
        span(6, 1, None, &[(1, 4)]),
    ];
    let last = [
        span(0, 1, Some(3), &[(1, 5)]),
        span(1, 4, Some(1), &[(2, 0), (4, 2)]),
        span(5, 2, None, &[(2, 4)]),
    ];
    let record = |spans: &[Span]| {
        let rows = (0..).zip(spans).flat_map(|(index, span)| {
            let row = Row {
                span: index,
                ..Row::default()
            };
            std::iter::repeat_n(row, span.rows as usize)
        });
        let mut record = Record::default();
        record.clear();
        record.set(RowSet::All, &rows.collect::<Vec<_>>(), [&[]; 2]);
        record.spans(spans);
        record
    };
    builder.case.earlier = Some(record(&earlier));
    builder.case.record = record(&last);
}
