//! Matrix multiplication: rows of activations times packed weights.
//!
//! Three kernels serve all formats. GEMV multiplies a panel (sixteen rows of weights) with one to eight rows of
//! activations and unpacks quants on the fly: weights are read once, which bounds the speed of a decode step.
//! GEMM (from five or nine rows on) unpacks a K-block of two panels into the L1 cache and multiplies
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

pub(crate) mod amx_gemm;
mod dispatch;
mod reference;
#[cfg(test)]
mod tests;

use crate::arch::prefetch;
use crate::layout::gemm::{GEMM_ROWS_MAX, GEMV_ROWS, GemmKernels, GemmWorkspace, GemvKernel};
use crate::matrix::Panels;
use crate::packing::LANES;
use crate::pool::DisjointSlice;
use crate::{Activations, Format, Isa, Matrix, MatrixStack, Pool};
use dispatch::{amx_kernels, gemm_kernels, gemv_kernel};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

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
                multiply(gemm, workspace, view, x, rows.clone(), &panels, &out);
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
        write_panel_row(w.rows(), row, panel, result, (out, Stores::Cached));
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

/// Multiplies the panels of a group with rows.
fn multiply(
    gemm: GemmKernels,
    workspace: &mut GemmWorkspace,
    w: &Panels<'_>,
    x: &Activations,
    rows: Range<usize>,
    panels: &Range<usize>,
    out: &DisjointSlice<'_, f32>,
) {
    let most = (gemm.rows_bytes / x.row_bytes()).clamp(LANES, GEMM_ROWS_MAX);
    // Calls of about as many rows each.
    let some = rows.len().div_ceil(rows.len().div_ceil(most).max(1)).max(1);
    let stores = Stores::new(rows.len() * w.rows());
    let end = rows.end;
    for row in rows.step_by(some) {
        let rows = row..(row + some).min(end);
        for first in panels.clone().step_by(2) {
            let pair = first..(first + 2).min(panels.end);
            #[expect(unsafe_code, reason = "kernels need a level")]
            // SAFETY: the kernel was chosen by the matrix's Isa, which proves the level.
            unsafe {
                gemm.kernels[pair.len() - 1](w.some(pair.clone()), x, rows.clone(), workspace);
            }
            for (row, sums) in rows.clone().zip(&workspace.sums) {
                for (panel, sums) in pair.clone().zip(sums.as_chunks::<LANES>().0) {
                    write_panel_row(w.rows(), row, panel, sums, (out, stores));
                }
            }
        }
    }
    stores.finish();
}

/// Bytes of outputs from which a call writes them past the caches, which would not keep them until they are read.
const STREAMED_BYTES: usize = 4 << 20;

/// How outputs are written.
#[derive(Clone, Copy)]
enum Stores {
    /// Into the caches.
    Cached,
    /// Past the caches; [`Stores::finish`] follows.
    Streamed,
}

impl Stores {
    /// For so many outputs of a call.
    fn new(outputs: usize) -> Self {
        if outputs * size_of::<f32>() < STREAMED_BYTES {
            Self::Cached
        } else {
            Self::Streamed
        }
    }

    /// Before other threads may read what this one wrote.
    fn finish(self) {
        if matches!(self, Self::Streamed) {
            prefetch::finish();
        }
    }
}

/// Writes the results of one row and panel of a matrix of `outputs` rows.
fn write_panel_row(
    outputs: usize,
    row: usize,
    panel: usize,
    results: &[f32; LANES],
    (out, stores): (&DisjointSlice<'_, f32>, Stores),
) {
    let first = panel * LANES;
    let live = LANES.min(outputs - first);
    let at = row * outputs + first;
    #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint columns")]
    // SAFETY: each panel belongs, for each row, to one worker, so no other worker writes these outputs.
    let out = unsafe { out.part(at..at + live) };
    match (<&mut [f32; LANES]>::try_from(&mut *out), stores) {
        // One vector store, where a slice copy would be a function call.
        (Ok(whole), Stores::Cached) => *whole = *results,
        (Ok(whole), Stores::Streamed) => prefetch::write(whole, results),
        (Err(_), _) => out.copy_from_slice(&results[..live]),
    }
}

/// Parts of the work per worker, so that all workers end at about the same time.
const PARTS_PER_WORKER: usize = 16;

/// Rows of activations that are multiplied with one matrix of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowGroup {
    /// Index of the matrix.
    pub matrix: usize,
    /// The rows.
    pub rows: Range<usize>,
}

/// `out[row] = x[row] * w[group.matrix]^T` for each row of each group; `out` has shape `(x.rows, w.rows)`, and rows
/// outside of the groups stay. Each matrix of the groups is read once, the others not at all. Results are as
/// batch-invariant as those of [`crate::matmul`], to which they are equal.
///
/// # Panics
/// If the groups' rows do not ascend or are not within `x`, a matrix does not exist, `x` and `w` have different numbers of
/// columns, or `out` has another shape.
pub fn matmul_groups(
    pool: &mut Pool,
    w: &MatrixStack,
    groups: &[RowGroup],
    x: &Activations,
    out: &mut [f32],
) {
    assert_eq!(
        x.cols(),
        w.cols(),
        "inputs of the weights and columns of the activations"
    );
    assert_eq!(out.len(), x.rows() * w.rows(), "one output for each row");
    assert!(!x.is_tiled(), "activations in tiles");
    let end = groups.iter().fold(0, |end, group| {
        assert!(group.rows.start >= end, "rows of groups ascend");
        group.rows.end.max(group.rows.start)
    });
    assert!(end <= x.rows(), "rows of groups are within the activations");
    let Some(first) = groups.first() else { return };
    let out = DisjointSlice::new(out);
    let parts = Parts::new(w, first.matrix, groups.len(), pool.threads());
    let gemv = gemv_kernels(w.isa(), w.format());
    let gemm = gemm_kernels(w.isa(), w.format());
    let next = AtomicUsize::new(0);
    let work = |_| {
        let mut workspace = None;
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            let Some((group, panels)) = parts.part(part, groups) else {
                return;
            };
            let (view, rows) = (&w.panels_view(group.matrix), group.rows.clone());
            match gemm.filter(|gemm| rows.len() >= gemm.rows_min) {
                Some(gemm) => {
                    let workspace = workspace.get_or_insert_with(GemmWorkspace::new);
                    multiply(gemm, workspace, view, x, rows, &panels, &out);
                }
                None => multiply_few(&gemv, view, x, rows, &panels, &out),
            }
        }
    };
    let rows: usize = groups.iter().map(|group| group.rows.len()).sum();
    if rows * w.rows() * w.cols() < ALONE_PRODUCTS {
        work(0);
    } else {
        pool.run(work);
    }
}

/// Division of the panels of all groups into parts of one group each.
struct Parts {
    /// Panels of a matrix.
    panels: usize,
    /// Panels of a part, except a group's last.
    step: usize,
    /// Parts of a group.
    of_group: usize,
}

impl Parts {
    fn new(w: &MatrixStack, matrix: usize, groups: usize, threads: usize) -> Self {
        let view = w.panels_view(matrix);
        let even = groups * w.panels() / (PARTS_PER_WORKER * threads) / 2 * 2;
        let (least, most) = [GRAIN_BYTES, GROUP_BYTES]
            .map(|bytes| panels_in_bytes(&view, bytes))
            .into();
        let step = even.clamp(least, most);
        Self {
            panels: w.panels(),
            step,
            of_group: w.panels().div_ceil(step),
        }
    }

    /// The group and the panels of a part; `None` beyond the last.
    fn part<'a>(
        &self,
        part: usize,
        groups: &'a [RowGroup],
    ) -> Option<(&'a RowGroup, Range<usize>)> {
        let group = groups.get(part.checked_div(self.of_group)?)?;
        let first = part % self.of_group * self.step;
        Some((group, first..(first + self.step).min(self.panels)))
    }
}
