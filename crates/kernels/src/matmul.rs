//! Rows times weights.
//!
//! Two shapes of kernel serve all formats. One multiplies a panel (sixteen rows of weights) with one to
//! eight rows of activations and takes codes apart on the way: it reads weights once, which is what a
//! decode step waits for. The other ([`wide`], from nine rows on) takes some columns of two panels
//! apart into the innermost cache and multiplies many rows with them. How they sum is fixed by the weights' layout alone, so a row's
//! result has the same bits whatever rows it shares a call with, on any number of threads:
//!
//! - Integer formats: for each 32 columns (16 where the format has a scale for each 16), in order,
//!   an exact integer product `dot`, then `acc = fma(dot * x_scale, w_scale, acc)`, and in formats
//!   with a shift `acc = fma(x_moment, w_shift, acc)`.
//! - Floats: even and odd columns are summed apart, in order, by `acc = fma(w, x, acc)`; the result
//!   is `even + odd`.
//!
//! [`scalar`] says this in plain Rust; the fast paths give the same bits.

mod dispatch;
mod scalar;
#[cfg(test)]
mod tests;
pub(crate) mod tile_desk;
mod tiled;
mod wide;
mod write;

use crate::layout::gemm::{Desk, KERNEL_ROWS, Kernel};
use crate::packing::LANES;
use crate::pool::Disjoint;
use crate::{Activations, Format, Matrix, Pool};
use dispatch::{kernel, tiled_kernels, wide_kernels};
use std::ops::Range;

/// Panels are taken in groups of about this many bytes, which a core's own cache holds while all
/// rows pass by; the rows of one kernel call stay in the innermost cache meanwhile.
const GROUP_BYTES: usize = 256 << 10;
/// Bytes of the shortest range of panels that a worker takes: reading them takes longer than taking them.
const GRAIN_BYTES: usize = 64 << 10;
/// Weights times rows below which the caller works alone: about what a meeting of the threads costs.
const ALONE_PRODUCTS: usize = 64 << 10;

/// `out[(x.rows, w.rows)] = x[(x.rows, w.cols)] * w^T`. Each output row's value does not depend on
/// which or how many other rows are in `x` (batch-invariant, bit for bit), nor on the number of
/// threads, nor on the instruction set; but on tiles ([`tiled`]) on whether there are enough rows for them.
///
/// # Panics
/// If `x` has not as many columns as `w`, or `out` has another shape.
pub fn matmul(pool: &mut Pool, w: &Matrix, x: &Activations, out: &mut [f32]) {
    assert_eq!(
        x.cols(),
        w.cols(),
        "inputs of the weights and columns of the activations"
    );
    assert_eq!(
        out.len(),
        x.rows() * w.rows(),
        "({}, {}) outputs",
        x.rows(),
        w.rows()
    );
    let out = Disjoint::new(out);
    let alone = x.rows() * w.rows() * w.cols() < ALONE_PRODUCTS;
    if x.tiled()
        && let Some(kernels) = tiled_kernels(w.isa(), w.format())
    {
        return tiled::multiply(kernels, (pool, alone), w, x, &out);
    }
    assert!(
        !x.tiled() || w.format() == Format::F32 && x.has_floats(),
        "activations in tiles, weights for none"
    );
    let narrow: [Kernel; KERNEL_ROWS] = std::array::from_fn(|i| kernel(w.isa(), w.format(), i + 1));
    let wide = wide_kernels(w.isa(), w.format()).filter(|_| x.rows() >= wide::ROWS_MIN);
    let work = |panels: Range<usize>| match wide {
        Some(kernels) => {
            let desk = &mut Desk::new();
            each_group(w, panels, |panels| {
                wide::multiply(kernels, desk, w, x, &panels, &out);
            });
        }
        None => each_group(w, panels, |panels| {
            for row in (0..x.rows()).step_by(KERNEL_ROWS) {
                let rows = row..(row + KERNEL_ROWS).min(x.rows());
                for panel in panels.clone() {
                    multiply(narrow[rows.len() - 1], w, x, panel, rows.clone(), &out);
                }
            }
        }),
    };
    if alone {
        work(0..w.panels());
    } else {
        pool.guided(w.panels(), panels_of(w, GRAIN_BYTES), work);
    }
}

/// One kernel call, and its results put where they belong.
fn multiply(
    kernel: Kernel,
    w: &Matrix,
    x: &Activations,
    panel: usize,
    rows: Range<usize>,
    out: &Disjoint<'_, f32>,
) {
    let mut results = [[0.0; LANES]; KERNEL_ROWS];
    let results = &mut results[..rows.len()];
    #[expect(unsafe_code, reason = "kernels need a level")]
    // SAFETY: the kernel was chosen by the matrix's Isa, which proves the level.
    unsafe {
        kernel(w.panel(panel), x, rows.start, results);
    }
    for (row, result) in rows.zip(results) {
        write::write(w, row, panel, result, out);
    }
}

/// Cuts panels into groups of about [`GROUP_BYTES`], of an even number of panels.
fn each_group(w: &Matrix, panels: Range<usize>, mut work: impl FnMut(Range<usize>)) {
    let group = panels_of(w, GROUP_BYTES);
    for first in panels.clone().step_by(group) {
        work(first..(first + group).min(panels.end));
    }
}

/// An even number of panels, of about so many bytes.
fn panels_of(w: &Matrix, bytes: usize) -> usize {
    (bytes / w.panel_bytes().max(1)).max(2) / 2 * 2
}
