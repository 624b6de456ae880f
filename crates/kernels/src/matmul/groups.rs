//! Products of groups of rows, each with a matrix of its own.

use super::dispatch::gemm_kernels;
use super::{
    ALONE_PRODUCTS, GRAIN_BYTES, GROUP_BYTES, gemm, gemv_kernels, multiply_few, panels_in_bytes,
};
use crate::layout::gemm::GemmWorkspace;
use crate::pool::DisjointSlice;
use crate::{Activations, MatrixStack, Pool};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

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
                    gemm::multiply(gemm, workspace, view, x, rows, &panels, &out);
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
