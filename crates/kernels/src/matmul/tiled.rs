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
//! odd columns are summed apart, and the sum of both is added.
//!
//! That is another order and another rounding than that of the other kernels, which few rows still take: so here,
//! and only here, how many rows share a call decides which bits a row gets. [`crate::Isa::is_batch_invariant`] says who asks for it.
//!
//! # How the work is cut
//!
//! Workers take *groups* of neighboring panels one by one, so that a slow core holds nobody up. A
//! group is multiplied with a *slab* of columns after the other, few enough that the rows' part of
//! it stays in the core's own cache while all panels of the group pass by; sums wait on the worker's
//! desk from slab to slab. Within a slab, two panels at a time are made ready in *chunks* of 256 columns.

#[cfg(test)]
mod tests;

use super::tile_desk::on_desk;
use super::write::write;
use crate::dispatch::by_isa;
use crate::layout::amx_gemm::{Desk, Job, PAIR_BYTES, PAIRS_MAX, ROW_TILES_MAX, Tiled};
use crate::layout::tile_sizes::{CHUNK_BLOCKS, TILE_BYTES, TILE_ROWS, takes_codes};
use crate::packing::LANES;
use crate::pool::Disjoint;
use crate::{Activations, Matrix, Pool};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Groups for each worker that there should be, so that all end at about the same time.
const GROUPS_PER_WORKER: usize = 4;
/// Bytes of activations in a slab: most of a core's own cache.
const SLAB_BYTES: usize = 768 << 10;

/// All of `out[(x.rows, w.rows)] = x * w^T`; by the caller alone where it is not worth a meeting.
pub(super) fn multiply(
    kernels: [Tiled; 2],
    (pool, alone): (&mut Pool, bool),
    w: &Matrix,
    x: &Activations,
    out: &Disjoint<'_, f32>,
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
        on_desk(w.isa(), |desk| {
            while first < pairs {
                let group = first..(first + step).min(pairs);
                multiply_group(kernels, w, x, &group, desk, out);
                first = next.fetch_add(step, Ordering::Relaxed);
            }
        });
    };
    if alone { work(0) } else { pool.run(work) }
}

/// Multiplies a group of pairs of panels with all rows.
fn multiply_group(
    kernels: [Tiled; 2],
    w: &Matrix,
    x: &Activations,
    group: &Range<usize>,
    desk: &mut Desk,
    out: &Disjoint<'_, f32>,
) {
    let row_tiles = x.rows().div_ceil(TILE_ROWS);
    for first in (0..row_tiles).step_by(ROW_TILES_MAX) {
        let tiles = first..(first + ROW_TILES_MAX).min(row_tiles);
        let in_tile = if takes_codes(w.format()) { 2 } else { 1 };
        let slab = SLAB_BYTES * in_tile / (tiles.len() * TILE_BYTES) / CHUNK_BLOCKS * CHUNK_BLOCKS;
        let slab = slab.max(CHUNK_BLOCKS);
        let all = 0..x.tile_blocks();
        for first in all.clone().step_by(slab) {
            for pair in group.clone() {
                let job = Job {
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
                    kernels[job.panels - 1](panels, x, &job, desk);
                }
            }
        }
        write_group(w, x, &tiles, group, desk, out);
    }
}

/// Puts the sums of a group where they belong, row by row: what neighboring panels give a row lies side by side.
fn write_group(
    w: &Matrix,
    x: &Activations,
    tiles: &Range<usize>,
    group: &Range<usize>,
    desk: &Desk,
    out: &Disjoint<'_, f32>,
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
        let apart = [TILE_BYTES, PAIR_BYTES].map(|bytes| bytes / size_of::<f32>());
        let lines = desk.lines(2 * tile * TILE_ROWS + line);
        gather(w.isa(), lines, apart, outputs);
        for pair in whole..group.end {
            let panels = panels_of(w, pair);
            for (i, panel) in panels.clone().enumerate() {
                let line = (tile * panels.len() + i) * TILE_ROWS + line;
                write(w, row, panel, desk.line(pair - group.start, line), out);
            }
        }
    }
}

by_isa! {
    side_by_side, crate::arch::rowwise::side_by_side;
    /// See [`side_by_side`].
    fn gather(lines: &[f32], apart: [usize; 2], to: &mut [f32])
}

/// Copies lines of 16, by twos: those of a pair `apart[0]` from each other, pairs `apart[1]`.
fn side_by_side(lines: &[f32], apart: [usize; 2], to: &mut [f32]) {
    for (i, to) in to.chunks_exact_mut(LANES).enumerate() {
        to.copy_from_slice(&lines[i % 2 * apart[0] + i / 2 * apart[1]..][..LANES]);
    }
}

/// A pair's panels: the last may be alone.
fn panels_of(w: &Matrix, pair: usize) -> Range<usize> {
    2 * pair..(2 * pair + 2).min(w.panels())
}
