//! Many rows times weights in tiles, for processors that have them (AMX): in int8 where the weights'
//! codes are short, else in bf16.
//!
//! **Codes of up to 6 bits.** 256 columns at a time (fewer at the end), activations are rounded to int8 with one
//! scale for each row, and so are weights: from their codes, scales and shifts to `most / 126` of the largest that
//! these could make, in whole numbers of 16 bits. The sum of their products is exact, and
//! `acc = fma(sum, x_scale * w_scale, acc)`. 8 bits are more than such weights tell, and activations are as
//! llama.cpp has them for these formats.
//!
//! **The others.** Weights and activations are rounded to bf16 (to nearest), their products are summed in f32 in the
//! order of the instruction: for each 32 columns, in order, the products of even columns and those of
//! odd columns are summed distance, and the sum of both is added.
//!
//! That is another order and another rounding than that of the other kernels, which few rows still take: so here,
//! and only here, how many rows share a call decides which bits a row gets. [`crate::Isa::is_batch_invariant`] says who asks for it.
//!
//! # How the work is cut
//!
//! Workers take *groups* of neighboring panels one by one, so that a slow core holds nobody up. A
//! group is multiplied with a *slab* of columns after the other, few enough that the rows' part of
//! it stays in the core's own cache while all panels of the group pass by; sums wait on the worker's
//! workspace from slab to slab. Within a slab, two panels at a time are made ready in *chunks* of 256 columns.

#[cfg(test)]
mod tests;

use super::amx_workspace::with_workspace;
use super::output::write_panel_row;
use crate::dispatch::by_isa;
use crate::layout::amx_gemm::{
    AmxKernel, AmxWorkspace, PAIR_BYTES, PAIRS_MAX, ROW_TILES_MAX, TileJob,
};
use crate::layout::tile_sizes::{BLOCKS_PER_K_BLOCK, TILE_BYTES, TILE_ROWS, fits_int8};
use crate::packing::LANES;
use crate::pool::DisjointSlice;
use crate::{Activations, Matrix, Pool};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Groups for each worker that there should be, so that all end at about the same time.
const GROUPS_PER_WORKER: usize = 4;
/// Bytes of activations in a slab: most of a core's own cache.
const SLAB_BYTES: usize = 768 << 10;

/// All of `out[(x.rows, w.rows)] = x * w^T`; by the caller alone where it is not worth a meeting.
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
                let panels = w.some_panels(panels_of(w, pair));
                #[expect(unsafe_code, reason = "kernels need a level")]
                // SAFETY: the kernel was chosen by the matrix's Isa, which proves the level and lent
                // the tiles; blocks and tiles were counted above.
                unsafe {
                    kernels[job.panels - 1](panels, x, &job, workspace);
                }
            }
        }
        write_group(w, x, &tiles, group, workspace, out);
    }
}

/// Puts the sums of a group where they belong, row by row: what neighboring panels give a row lies side by side.
fn write_group(
    w: &Matrix,
    x: &Activations,
    tiles: &Range<usize>,
    group: &Range<usize>,
    workspace: &AmxWorkspace,
    out: &DisjointSlice<'_, f32>,
) {
    // Only the last panel of a matrix may be alone, or not all there.
    let whole = group.end.min(w.rows() / (2 * LANES)).max(group.start);
    for row in tiles.start * TILE_ROWS..(tiles.end * TILE_ROWS).min(x.rows()) {
        let (tile, line) = (row / TILE_ROWS - tiles.start, row % TILE_ROWS);
        let first = row * w.rows() + 2 * group.start * LANES;
        let outputs = first..first + 2 * (whole - group.start) * LANES;
        #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint columns")]
        // SAFETY: the group's panels are this worker's, so no other writes these outputs.
        let outputs = unsafe { out.part(outputs) };
        let distance = [TILE_BYTES, PAIR_BYTES].map(|bytes| bytes / size_of::<f32>());
        let lines = workspace.accumulator_lines(2 * tile * TILE_ROWS + line);
        gather_lines(w.isa(), lines, distance, outputs);
        for pair in whole..group.end {
            let panels = panels_of(w, pair);
            for (i, panel) in panels.clone().enumerate() {
                let line = (tile * panels.len() + i) * TILE_ROWS + line;
                write_panel_row(
                    w,
                    row,
                    panel,
                    workspace.accumulator_line(pair - group.start, line),
                    out,
                );
            }
        }
    }
}

by_isa! {
    interleave_lines, crate::arch::rowwise::interleave_lines;
    /// See [`interleave_lines`].
    fn gather_lines(lines: &[f32], distance: [usize; 2], to: &mut [f32])
}

/// Copies lines of 16, by twos: those of a pair `distance[0]` from each other, pairs `distance[1]`.
fn interleave_lines(lines: &[f32], distance: [usize; 2], to: &mut [f32]) {
    for (i, to) in to.chunks_exact_mut(LANES).enumerate() {
        to.copy_from_slice(&lines[i % 2 * distance[0] + i / 2 * distance[1]..][..LANES]);
    }
}

/// A pair's panels: the last may be alone.
fn panels_of(w: &Matrix, pair: usize) -> Range<usize> {
    2 * pair..(2 * pair + 2).min(w.panels())
}
