//! A layer of experts: choice, products and sum.

use super::{Builder, Case};
use crate::operation::{Operation, RouteRule, UNIT};
use kernels::Format;

/// Rows, experts, and experts that a row uses.
const ROWS: u32 = 5;
const COUNT: u32 = 70;
const USED: u32 = 3;
/// Outputs of an expert, an odd number.
const OUTPUTS: u32 = 19;

/// Experts of this format, whose rows choose by each rule in turn.
pub(super) fn experts(format: Format) -> Case {
    let mut builder = Builder::new(format!("experts {format:?}"));
    let cols = match format.block_weights() {
        1 => 37,
        32 => 96,
        _ => 256,
    };
    let stride = OUTPUTS.next_multiple_of(UNIT);
    let stack = builder.stack(format, COUNT, OUTPUTS, cols);
    let input = builder.buffer(ROWS, cols);
    let apart = cols.next_multiple_of(UNIT);
    let inputs = builder.buffer(ROWS, USED * apart);
    let (bias, factors) = (builder.vector(COUNT * OUTPUTS), builder.vector(COUNT));
    for (sigmoid, normalized, by_scores) in [
        (false, true, true),
        (false, false, true),
        (true, true, false),
        (false, false, false),
    ] {
        let scores = builder.buffer(ROWS, COUNT);
        let choices = builder.buffer(ROWS, 2 * USED);
        let choice_bias = (!by_scores).then(|| builder.vector(COUNT));
        builder.push(Operation::Route {
            scores,
            count: COUNT,
            used: USED,
            rule: RouteRule {
                sigmoid,
                normalized,
                by_scores,
                groups: sigmoid.then_some((7, 2)),
                scale: if by_scores { 1.0 } else { 2.5 },
            },
            choice_bias,
            factors: normalized.then_some(factors),
            out: choices,
        });
        let out = builder.buffer(ROWS, USED * stride);
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
        let sum = builder.buffer(ROWS, OUTPUTS);
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
    let apart = builder.buffer(ROWS, 3 * OUTPUTS);
    builder.push(Operation::CopyParts {
        input,
        input_stride: 9,
        parts: 3,
        len: 7,
        out: apart,
        out_stride: OUTPUTS,
    });
    builder.plain_rows(ROWS);
    builder.case
}
