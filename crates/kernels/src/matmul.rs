//! Matrix multiplication: rows of activations times packed weights.
//!
//! Three kernels serve all formats. GEMV multiplies a panel (sixteen rows of weights) with one to eight rows of
//! activations and unpacks quants on the fly: weights are read once, which bounds the speed of a decode step.
//! GEMM ([`gemm`], from five or nine rows on) unpacks a K-block of two panels into the L1 cache and multiplies
//! many rows with the K-block. AMX GEMM ([`amx_gemm`], from 16 rows on where the processor has AMX) dequantizes
//! K-blocks to tiles.
//!
//! GEMV and GEMM are batch-invariant: the order of additions depends on the layout of the weights alone, so a
//! row's result has the same bits whatever the other rows of the call, on any number of threads:
//!
//! - Quantized formats: for each 32 columns (16 where the format has a scale for each 16), in order, an exact
//!   integer product `dot`, then `acc = fma(dot * x_scale, w_scale, acc)`, and in formats with a shift `acc =
//!   fma(x_scaled_sum, w_shift, acc)`.
//! - Floats: even and odd columns are summed separately, in order, by `acc = fma(w, x, acc)`; the result is
//!   `even + odd`.
//!
//! [`reference`] has this arithmetic in plain Rust; the vector kernels give the same bits.

mod amx_gemm;
pub(crate) mod amx_workspace;
mod dispatch;
mod gemm;
mod groups;
mod output;
mod reference;
#[cfg(test)]
mod tests;

use crate::layout::gemm::{GEMV_ROWS, GemmWorkspace, GemvKernel};
use crate::matrix::Panels;
use crate::packing::LANES;
use crate::pool::DisjointSlice;
use crate::{Activations, Format, Isa, Matrix, Pool};
use dispatch::{amx_kernels, gemm_kernels, gemv_kernel};
use std::ops::Range;

pub use groups::{RowGroup, matmul_groups};

/// Bytes of a group of panels: the L2 cache of a core holds the group while all rows are multiplied, and the L1
/// cache the rows of one kernel call.
const GROUP_BYTES: usize = 256 << 10;
/// Bytes of the shortest range of panels that a worker claims: reading them takes longer than claiming them.
const GRAIN_BYTES: usize = 64 << 10;
/// Weights times rows below which the caller works alone: about the cost of one pool barrier.
const ALONE_PRODUCTS: usize = 64 << 10;

/// `out[(x.rows, w.rows)] = x[(x.rows, w.cols)] * w^T`. A row's result does not depend on the other rows of `x`
/// (batch-invariant, bit for bit), on the number of threads or on the instruction set; with AMX (see
/// `amx_gemm`) a row's result depends on whether the call has enough rows for tiles.
///
/// # Panics
/// If `x` and `w` have different numbers of columns, or `out` has another shape.
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
    let out = DisjointSlice::new(out);
    let alone = x.rows() * w.rows() * w.cols() < ALONE_PRODUCTS;
    if x.is_tiled()
        && let Some(kernels) = amx_kernels(w.isa(), w.format())
    {
        return amx_gemm::multiply_all(kernels, (pool, alone), w, x, &out);
    }
    assert!(
        !x.is_tiled() || w.format() == Format::F32 && x.has_floats(),
        "activations in tiles, weights for none"
    );
    let gemv_kernels = gemv_kernels(w.isa(), w.format());
    let gemm_kernels = gemm_kernels(w.isa(), w.format()).filter(|gemm| x.rows() >= gemm.rows_min);
    let (view, rows) = (&w.panels_view(), 0..x.rows());
    let work = |panels: Range<usize>| match gemm_kernels {
        Some(gemm) => {
            let workspace = &mut GemmWorkspace::new();
            for_panel_groups(view, panels, |panels| {
                gemm::multiply(gemm, workspace, view, x, rows.clone(), &panels, &out);
            });
        }
        None => for_panel_groups(view, panels, |panels| {
            multiply_few(&gemv_kernels, view, x, rows.clone(), &panels, &out);
        }),
    };
    if alone {
        work(0..w.panels());
    } else {
        pool.guided(w.panels(), panels_in_bytes(view, GRAIN_BYTES), work);
    }
}

fn gemv_kernels(isa: Isa, format: Format) -> [GemvKernel; GEMV_ROWS] {
    std::array::from_fn(|i| gemv_kernel(isa, format, i + 1))
}

/// Multiplies panels with rows, eight rows at a time.
fn multiply_few(
    kernels: &[GemvKernel; GEMV_ROWS],
    w: &Panels<'_>,
    x: &Activations,
    rows: Range<usize>,
    panels: &Range<usize>,
    out: &DisjointSlice<'_, f32>,
) {
    let end = rows.end;
    for row in rows.step_by(GEMV_ROWS) {
        let rows = row..(row + GEMV_ROWS).min(end);
        let kernel = kernels[rows.len() - 1];
        for panel in panels.clone() {
            multiply_panel(kernel, w, x, panel, rows.clone(), out);
        }
    }
}

/// Calls a kernel and writes its results to `out`.
fn multiply_panel(
    kernel: GemvKernel,
    w: &Panels<'_>,
    x: &Activations,
    panel: usize,
    rows: Range<usize>,
    out: &DisjointSlice<'_, f32>,
) {
    let mut results = [[0.0; LANES]; GEMV_ROWS];
    let results = &mut results[..rows.len()];
    #[expect(unsafe_code, reason = "kernels need a level")]
    // SAFETY: the kernel was chosen by the matrix's Isa, which proves the level.
    unsafe {
        kernel(w.panel(panel), x, rows.start, results);
    }
    for (row, result) in rows.zip(results) {
        output::write_panel_row(w.rows(), row, panel, result, (out, output::Stores::Cached));
    }
}

/// Calls `work` for groups of about [`GROUP_BYTES`], an even number of panels each.
fn for_panel_groups(w: &Panels<'_>, panels: Range<usize>, mut work: impl FnMut(Range<usize>)) {
    let group = panels_in_bytes(w, GROUP_BYTES);
    for first in panels.clone().step_by(group) {
        work(first..(first + group).min(panels.end));
    }
}

/// An even number of panels of about `bytes` bytes.
fn panels_in_bytes(w: &Panels<'_>, bytes: usize) -> usize {
    (bytes / w.panel_bytes().max(1)).max(2) / 2 * 2
}
