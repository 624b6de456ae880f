//! Rows times weights.
//!
//! One shape of kernel serves all formats: it multiplies one panel (sixteen rows of weights) with
//! one to eight rows of activations. How it sums is fixed by the weights' layout alone, so a row's
//! result has the same bits whatever rows it shares a call with, on any number of threads:
//!
//! - Integer formats: for each 32 columns (16 where the format has a scale for each 16), in order,
//!   an exact integer product `dot`, then `acc = fma(dot * x_scale, w_scale, acc)`, and in formats
//!   with a shift `acc = fma(x_moment, w_shift, acc)`.
//! - Floats: even and odd columns are summed apart, in order, by `acc = fma(w, x, acc)`; the result
//!   is `even + odd`.
//!
//! [`scalar`] says this in plain Rust; the fast paths give the same bits.

mod scalar;
#[cfg(test)]
mod tests;

use crate::packing::{self, LANES, Packing};
use crate::pool::Disjoint;
use crate::{Activations, Format, Isa, Matrix, Pool};
use std::ops::Range;

/// Rows of activations that one kernel call takes.
pub(crate) const KERNEL_ROWS: usize = 8;
/// Panels are taken in groups of about this many bytes, which a core's own cache holds while all
/// rows pass by; the rows of one kernel call stay in the innermost cache meanwhile.
const GROUP_BYTES: usize = 256 << 10;
/// Weights times rows below which the caller works alone: about what a meeting of the threads costs.
const ALONE_PRODUCTS: usize = 64 << 10;

/// Multiplies a panel with rows `row..row + out.len()` of the activations, at most [`KERNEL_ROWS`].
///
/// # Safety
/// The processor has the level that the kernel was chosen for.
pub(crate) type Kernel =
    unsafe fn(panel: &[u8], x: &Activations, row: usize, out: &mut [[f32; LANES]]);

/// `out[(x.rows, w.rows)] = x[(x.rows, w.cols)] * w^T`. Each output row's value does not depend on
/// which or how many other rows are in `x` (batch-invariant, bit for bit), nor on the number of
/// threads, nor on the instruction set.
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
    let kernels: [Kernel; KERNEL_ROWS] =
        std::array::from_fn(|i| kernel(w.isa(), w.format(), i + 1));
    let out = Disjoint::new(out);
    let work = |panels: Range<usize>| {
        let group = (GROUP_BYTES / w.panel_bytes().max(1)).max(1);
        for first in panels.clone().step_by(group) {
            let panels = first..(first + group).min(panels.end);
            for row in (0..x.rows()).step_by(KERNEL_ROWS) {
                let rows = row..(row + KERNEL_ROWS).min(x.rows());
                for panel in panels.clone() {
                    multiply(kernels[rows.len() - 1], w, x, panel, rows.clone(), &out);
                }
            }
        }
    };
    if x.rows() * w.rows() * w.cols() < ALONE_PRODUCTS {
        work(0..w.panels());
    } else {
        pool.ranges(w.panels(), 1, work);
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
    let first = panel * LANES;
    let live = LANES.min(w.rows() - first);
    for (row, result) in rows.zip(results) {
        let at = row * w.rows() + first;
        #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint columns")]
        // SAFETY: each panel is one worker's, so no other writes these outputs.
        let out = unsafe { out.part(at..at + live) };
        out.copy_from_slice(&result[..live]);
    }
}

/// The kernel for `rows` rows of activations.
fn kernel(isa: Isa, format: Format, rows: usize) -> Kernel {
    match format {
        Format::F32 => float_kernel::<{ Format::F32 as u8 }>(isa, rows),
        Format::F16 => float_kernel::<{ Format::F16 as u8 }>(isa, rows),
        Format::BF16 => float_kernel::<{ Format::BF16 as u8 }>(isa, rows),
        Format::Q4_0 => code_kernel::<packing::Q4_0>(isa, rows),
        Format::Q4_1 => code_kernel::<packing::Q4_1>(isa, rows),
        Format::Q5_0 => code_kernel::<packing::Q5_0>(isa, rows),
        Format::Q5_1 => code_kernel::<packing::Q5_1>(isa, rows),
        Format::Q8_0 => code_kernel::<packing::Q8_0>(isa, rows),
        Format::Q2_K => code_kernel::<packing::Q2_K>(isa, rows),
        Format::Q3_K => code_kernel::<packing::Q3_K>(isa, rows),
        Format::Q4_K => code_kernel::<packing::Q4_K>(isa, rows),
        Format::Q5_K => code_kernel::<packing::Q5_K>(isa, rows),
        Format::Q6_K => code_kernel::<packing::Q6_K>(isa, rows),
    }
}

fn code_kernel<P: Packing>(isa: Isa, rows: usize) -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = crate::arch::matmul::code_kernel::<P>(isa, rows) {
        return kernel;
    }
    let _ = (isa, rows);
    scalar::codes::<P>
}

fn float_kernel<const F: u8>(isa: Isa, rows: usize) -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = crate::arch::matmul::float_kernel::<F>(isa, rows) {
        return kernel;
    }
    let _ = (isa, rows);
    scalar::floats::<F>
}
