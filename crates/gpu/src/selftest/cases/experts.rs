//! A layer of experts: choice, products and sum.

use super::{Builder, Case};
use crate::operation::{Operation, RouteRule, UNIT};
use kernels::Format;

/// Experts that a row uses.
const USED: u32 = 3;
/// Outputs of an expert, an odd number.
const OUTPUTS: u32 = 19;

/// Experts of this format, whose rows choose by each rule in turn.
pub(super) fn experts(format: Format, rows: u32) -> Case {
    let mut builder = Builder::new(format!("experts {format:?}, {rows} rows"));
    let cols = match format.block_weights() {
        1 => 37,
        32 => 96,
        _ => 256,
    };
    // With many rows, few experts: more rows for each than a tile has.
    let count = if rows < 16 { 70 } else { 4 };
    let stride = OUTPUTS.next_multiple_of(UNIT);
    let stack = builder.stack(format, count, OUTPUTS, cols);
    let input = builder.buffer(rows, cols);
    let apart = cols.next_multiple_of(UNIT);
    let inputs = builder.buffer(rows, USED * apart);
    let (bias, factors) = (builder.vector(count * OUTPUTS), builder.vector(count));
    for (sigmoid, normalized, by_scores) in [
        (false, true, true),
        (false, false, true),
        (true, true, false),
        (false, false, false),
    ] {
        let scores = builder.buffer(rows, count);
        let choices = builder.buffer(rows, 2 * USED);
        let choice_bias = (!by_scores).then(|| builder.vector(count));
        builder.push(Operation::Route {
            scores,
            count,
            used: USED,
            rule: rule([sigmoid, normalized, by_scores], count),
            choice_bias,
            factors: normalized.then_some(factors),
            out: choices,
        });
        let out = builder.buffer(rows, USED * stride);
        builder.push(Operation::ExpertMatmul {
            stack,
            choices,
            used: USED,
            input: if normalized { input } else { inputs },
            input_stride: if normalized { 0 } else { apart },
            bias: normalized.then_some(bias),
            out,
            out_stride: stride,
        });
        let sum = builder.buffer(rows, OUTPUTS);
        builder.push(Operation::Combine {
            outputs: out,
            stride,
            choices,
            used: USED,
            cols: OUTPUTS,
            add: sigmoid,
            out: sum,
        });
    }
    builder.plain_rows(rows);
    builder.case
}

/// A rule; with sigmoids and many experts, among groups.
fn rule([sigmoid, normalized, by_scores]: [bool; 3], count: u32) -> RouteRule {
    RouteRule {
        sigmoid,
        normalized,
        by_scores,
        groups: (sigmoid && count.is_multiple_of(7)).then_some((7, 2)),
        scale: if by_scores { 1.0 } else { 2.5 },
    }
}

/// A copy of parts of rows.
pub(super) fn copy_parts() -> Case {
    let mut builder = Builder::new("copy of parts".into());
    let (input, out) = (builder.buffer(3, 310), builder.buffer(3, 300));
    builder.push(Operation::CopyParts {
        input,
        input_stride: 99,
        parts: 3,
        len: 95,
        out,
        out_stride: 97,
    });
    builder.plain_rows(3);
    builder.case
}
