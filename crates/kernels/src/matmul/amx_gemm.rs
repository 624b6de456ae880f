//! AMX GEMM: many rows of activations times weights, in int8 tiles where the weights have short quants, else in
//! bf16 tiles.
//!
//! **Quants of up to 6 bits.** For each K-block of 256 columns (fewer at the end), activations are quantized to
//! int8 with one scale per row, and weights are requantized from their quants, scales and shifts to int8 with
//! one scale per row, `max / 126`, where `max` is the largest magnitude that scales and shifts permit; the
//! arithmetic is fixed point in 16 bits. The int8 product is exact, and `acc = fma(dot, x_scale * w_scale,
//! acc)`. 8 bits carry more than such weights contain, and activations are quantized as in llama.cpp for these
//! formats.
//!
//! **Other formats.** Weights and activations are rounded to bf16 (to nearest), and products are summed in f32
//! in the order of the `TDPBF16PS` instruction: for each 32 columns, in order, products of even columns and of
//! odd columns are summed separately, then both sums are added.
//!
//! Order and rounding differ from the vector kernels, which still serve calls of few rows: only here does the
//! number of rows in a call decide which bits a row gets. Callers that need batch invariance use an
//! [`Isa`](crate::Isa) without AMX.
//!
//! # Blocking
//!
//! Workers claim *groups* of consecutive panels one by one, so that a slow core delays nothing. A group is
//! multiplied with one *slab* of columns after another. The slab's part of the rows stays in the L2 cache while
//! all panels of the group are multiplied; accumulators stay in the worker's workspace from slab to slab.
//! Within a slab, two panels at a time are dequantized in *K-blocks* of 256 columns, double-buffered: the tiles
//! of the next K-block are written while the current K-block is multiplied.

#[cfg(test)]
mod tests;

use super::{Stores, write_panel_row};
use crate::dispatch::by_isa;
use crate::layout::gemm::{AmxKernel, AmxWorkspace, PAIR_BYTES, PAIRS_MAX, ROW_TILES_MAX, TileJob};
use crate::layout::tiles::{BLOCKS_PER_K_BLOCK, TILE_BYTES, TILE_ROWS, fits_int8};
use crate::packing::LANES;
use crate::pool::DisjointSlice;
use crate::{Activations, Isa, Matrix, Pool};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Groups per worker, so that all workers end at about the same time.
const GROUPS_PER_WORKER: usize = 4;
/// Bytes of activations in a slab: most of the L2 cache of a core.
const SLAB_BYTES: usize = 768 << 10;

/// Computes all of `out[(x.rows, w.rows)] = x * w^T`; on the caller alone if `alone`.
pub(super) fn multiply_all(
    kernels: [AmxKernel; 2],
    (pool, alone): (&mut Pool, bool),
    w: &Matrix,
    x: &Activations,
    out: &DisjointSlice<'_, f32>,
) {
    let pairs = w.panels().div_ceil(2);
    let step = pairs
        .div_ceil(GROUPS_PER_WORKER * pool.threads())
        .clamp(1, PAIRS_MAX);
    let next = AtomicUsize::new(0);
    let work = |_| {
        let mut first = next.fetch_add(step, Ordering::Relaxed);
        if first >= pairs {
            return;
        }
        with_workspace(w.isa(), |workspace| {
            while first < pairs {
                let group = first..(first + step).min(pairs);
                multiply_group(kernels, w, x, &group, workspace, out);
                first = next.fetch_add(step, Ordering::Relaxed);
            }
        });
    };
    if alone { work(0) } else { pool.run(work) }
}

/// Multiplies a group of pairs of panels with all rows.
fn multiply_group(
    kernels: [AmxKernel; 2],
    w: &Matrix,
    x: &Activations,
    group: &Range<usize>,
    workspace: &mut AmxWorkspace,
    out: &DisjointSlice<'_, f32>,
) {
    let row_tiles = x.rows().div_ceil(TILE_ROWS);
    for first in (0..row_tiles).step_by(ROW_TILES_MAX) {
        let tiles = first..(first + ROW_TILES_MAX).min(row_tiles);
        let in_tile = if fits_int8(w.format()) { 2 } else { 1 };
        let slab = SLAB_BYTES * in_tile / (tiles.len() * TILE_BYTES) / BLOCKS_PER_K_BLOCK
            * BLOCKS_PER_K_BLOCK;
        let slab = slab.max(BLOCKS_PER_K_BLOCK);
        let all = 0..x.tile_blocks();
        for first in all.clone().step_by(slab) {
            for pair in group.clone() {
                let job = TileJob {
                    blocks: first..(first + slab).min(all.end),
                    tiles: tiles.clone(),
                    pair: pair - group.start,
                    panels: panels_of(w, pair).len(),
                };
                let panels = w.panels_view().some(panels_of(w, pair));
                #[expect(unsafe_code, reason = "kernels need a level")]
                // SAFETY: the matrix's Isa proves the level that the kernel was chosen for, and configured the
                // tiles; blocks and tiles were counted above.
                unsafe {
                    kernels[job.panels - 1](panels, x, &job, workspace);
                }
            }
        }
        write_group(w, x, &tiles, group, workspace, out);
    }
}

/// Writes the accumulators of a group to `out`, row by row: outputs of neighboring panels are adjacent.
fn write_group(
    w: &Matrix,
    x: &Activations,
    tiles: &Range<usize>,
    group: &Range<usize>,
    workspace: &AmxWorkspace,
    out: &DisjointSlice<'_, f32>,
) {
    // Only the last panel of a matrix may be unpaired or incomplete.
    let whole = group.end.min(w.rows() / (2 * LANES)).max(group.start);
    for row in tiles.start * TILE_ROWS..(tiles.end * TILE_ROWS).min(x.rows()) {
        let (tile, line) = (row / TILE_ROWS - tiles.start, row % TILE_ROWS);
        let first = row * w.rows() + 2 * group.start * LANES;
        let outputs = first..first + 2 * (whole - group.start) * LANES;
        #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint columns")]
        // SAFETY: the group's panels belong to this worker, so no other worker writes these outputs.
        let outputs = unsafe { out.part(outputs) };
        let distance = [TILE_BYTES, PAIR_BYTES].map(|bytes| bytes / size_of::<f32>());
        let lines = workspace.accumulator_lines(2 * tile * TILE_ROWS + line);
        gather_lines(w.isa(), lines, distance, outputs);
        for pair in whole..group.end {
            let panels = panels_of(w, pair);
            for (i, panel) in panels.clone().enumerate() {
                let line = (tile * panels.len() + i) * TILE_ROWS + line;
                write_panel_row(
                    w.rows(),
                    row,
                    panel,
                    workspace.accumulator_line(pair - group.start, line),
                    (out, Stores::Cached),
                );
            }
        }
    }
}

by_isa! {
    interleave_lines, crate::arch::rowwise::interleave_lines;
    /// [`interleave_lines`] on the vectors of a level.
    fn gather_lines(lines: &[f32], distance: [usize; 2], to: &mut [f32])
}

/// Copies lines of 16 floats in pairs: the lines of a pair are `distance[0]` floats apart, the pairs
/// `distance[1]`.
fn interleave_lines(lines: &[f32], distance: [usize; 2], to: &mut [f32]) {
    for (i, to) in to.chunks_exact_mut(LANES).enumerate() {
        to.copy_from_slice(&lines[i % 2 * distance[0] + i / 2 * distance[1]..][..LANES]);
    }
}

/// The panels of a pair; the last panel may be unpaired.
fn panels_of(w: &Matrix, pair: usize) -> Range<usize> {
    2 * pair..(2 * pair + 2).min(w.panels())
}

thread_local! {
    static WORKSPACE: RefCell<Option<AmxWorkspace>> = const { RefCell::new(None) };
}

/// Allocates the workspace of each worker, so that matmuls allocate nothing.
pub(crate) fn allocate_workspaces(pool: &mut Pool) {
    pool.run_on_each(|| {
        WORKSPACE.with_borrow_mut(|workspace| _ = workspace.get_or_insert_with(AmxWorkspace::new));
    });
}

/// Calls `work` with this thread's workspace and with configured AMX tiles.
pub(super) fn with_workspace(isa: Isa, work: impl FnOnce(&mut AmxWorkspace)) {
    #[cfg(target_arch = "x86_64")]
    let _tiles = isa.tiles();
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    WORKSPACE.with_borrow_mut(|workspace| work(workspace.get_or_insert_with(AmxWorkspace::new)));
}
