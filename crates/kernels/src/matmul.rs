//! Rows times weights. (Stub.)

use crate::{Activations, Matrix, Pool};

/// `out[(x.rows, w.rows)] = x[(x.rows, w.cols)] * w^T`. Each output row's value does not depend on
/// which or how many other rows are in `x` (batch-invariant, bit for bit).
pub fn matmul(_pool: &mut Pool, _w: &Matrix, _x: &Activations, _out: &mut [f32]) {
    todo!()
}
