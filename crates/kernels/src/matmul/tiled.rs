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
//! and only here, how many rows share a call decides which bits a row gets. [`crate::Isa::steady`] says who asks for it.
//!
//! # How the work is cut
//!
//! Workers take *groups* of neighbouring panels one by one, so that a slow core holds nobody up. A
//! group is multiplied with a *slab* of columns after the other, few enough that the rows' part of
//! it stays in the core's own cache while all panels of the group pass by; sums wait on the worker's
//! desk from slab to slab. Within a slab, two panels at a time are made ready in *chunks* of 256 columns.

#[cfg(test)]
mod tests;

use super::write;
use crate::arch::by_isa;
use crate::memory::{LINE, Zeroed};
use crate::packing::LANES;
use crate::pool::Disjoint;
use crate::quant::Scheme;
use crate::{Activations, Format, Isa, Matrix, Pool};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows from which this is faster than the other kernels.
pub(crate) const ROWS_MIN: usize = 16;
/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Bytes of a tile.
const TILE_BYTES: usize = TILE_ROWS * LINE;
/// Bits of a code up to which int8 holds what 256 of them tell.
const CODE_BITS_MAX: usize = 6;
/// Tiles of rows that are taken at a time.
const ROW_TILES_MAX: usize = 32;
/// Pairs of panels in a group, at most.
const PAIRS_MAX: usize = 8;
/// Groups for each worker that there should be, so that all end at about the same time.
const GROUPS_PER_WORKER: usize = 4;
/// Bytes of activations in a slab: most of a core's own cache.
const SLAB_BYTES: usize = 768 << 10;
/// Blocks of 32 columns that are made ready at a time.
pub(crate) const CHUNK_BLOCKS: usize = 8;
/// Bytes of two panels' chunk: what is in int8 needs half of it for its tiles.
pub(crate) const READY_BYTES: usize = 2 * CHUNK_BLOCKS * TILE_BYTES;
/// Bytes of the sums of a pair of panels.
const PAIR_BYTES: usize = 2 * ROW_TILES_MAX * TILE_BYTES;

/// Multiplies one or two panels (which one is fixed by the kernel) with rows of the activations.
///
/// # Safety
/// The processor has the level that the kernel was chosen for, and the thread its tiles. The job's
/// blocks and tiles are among those of the activations, its tiles and its pair among the desk's.
pub(crate) type Tiled = unsafe fn(panels: &[u8], x: &Activations, job: &Job, desk: &mut Desk);

/// What one kernel call is to do.
pub(crate) struct Job {
    /// Blocks of 32 columns.
    pub(crate) blocks: Range<usize>,
    /// Tiles of rows.
    pub(crate) tiles: Range<usize>,
    /// Which of the group's pairs of panels this is.
    pair: usize,
    /// The pair's panels: one or two.
    panels: usize,
}

/// What a worker works on: made when a thread first comes here, and kept.
pub(crate) struct Desk {
    /// Two chunks and the sums of a group.
    bytes: Zeroed<f32>,
}

impl Scheme {
    /// Whether its weights become tiles of int8.
    pub(crate) const fn takes_codes(&self) -> bool {
        self.low + self.high <= CODE_BITS_MAX
    }
}

/// Whether weights of a format become tiles of int8.
pub(crate) fn takes_codes(format: Format) -> bool {
    Scheme::of(format).is_some_and(|scheme| scheme.takes_codes())
}

impl Desk {
    fn new() -> Self {
        let bytes = 2 * READY_BYTES + PAIRS_MAX * PAIR_BYTES;
        Self {
            bytes: Zeroed::new(bytes / size_of::<f32>()),
        }
    }

    /// Room for two chunks.
    pub(crate) fn ready(&mut self) -> [*mut u8; 2] {
        let start = self.bytes.as_mut_ptr().cast::<u8>();
        [start, start.wrapping_add(READY_BYTES)]
    }

    /// The sums of a tile of the job's rows: (panels, 16 rows, 16 columns), the next tile's behind.
    pub(crate) fn sums(&mut self, job: &Job, tile: usize) -> *mut f32 {
        let tile = (tile - job.tiles.start) * job.panels;
        let at = 2 * READY_BYTES + job.pair * PAIR_BYTES + tile * TILE_BYTES;
        self.bytes[at / size_of::<f32>()..].as_mut_ptr()
    }

    /// Copies one row's sums of the pairs from the first on, two panels of each: the first panel's line of the first
    /// pair is number `line`.
    fn give(&self, isa: Isa, line: usize, outputs: &mut [f32]) {
        let first = (2 * READY_BYTES + line * LINE) / size_of::<f32>();
        let apart = [TILE_BYTES, PAIR_BYTES].map(|bytes| bytes / size_of::<f32>());
        gather(isa, &self.bytes[first..], apart, outputs);
    }

    /// A line of a pair's sums.
    fn line(&self, pair: usize, line: usize) -> &[f32; LANES] {
        let at = 2 * READY_BYTES + pair * PAIR_BYTES + line * LINE;
        let (lines, _) = self.bytes[at / size_of::<f32>()..].as_chunks();
        &lines[0]
    }
}

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

thread_local! {
    static DESK: RefCell<Option<Desk>> = const { RefCell::new(None) };
}

/// Makes each worker's desk, so that products allocate nothing.
pub(crate) fn make_desks(pool: &mut Pool) {
    pool.run_on_each(|| {
        DESK.with_borrow_mut(|desk| _ = desk.get_or_insert_with(Desk::new));
    });
}

/// Lends this thread's desk, with its tiles ready.
fn on_desk(isa: Isa, work: impl FnOnce(&mut Desk)) {
    #[cfg(target_arch = "x86_64")]
    let _tiles = isa.tiles();
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    DESK.with_borrow_mut(|desk| work(desk.get_or_insert_with(Desk::new)));
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

/// Puts the sums of a group where they belong, row by row: what neighbouring panels give a row lies side by side.
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
        desk.give(w.isa(), 2 * tile * TILE_ROWS + line, outputs);
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
