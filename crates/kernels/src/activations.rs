//! Rows of activations in the forms that matmuls read.

pub(crate) mod codes;
pub(crate) mod halves;
#[cfg(test)]
mod tests;

use crate::matmul::tiled;
use crate::memory::{Plain, Zeroed};
use crate::packing::BLOCK;
use crate::pool::Disjoint;
use crate::{Format, Isa, Pool};
use codes::CodeLine;
use std::ops::Range;

/// Blocks a row is padded to a multiple of: a tile of weights is never narrower.
const ROW_BLOCKS: usize = 2;
/// Blocks of nothing after each row, so that rows do not all fall on the same cache sets.
const STAGGER: usize = 1;
/// Blocks below which the caller prepares them alone: about what a meeting of the threads costs.
const ALONE_BLOCKS: usize = 128;
/// A block whose largest magnitude is below this counts as zero: 127 divided by it overflows.
const SMALLEST: f32 = 1e-35;
/// A block with a magnitude beyond this counts as not finite: [`ActBlock::minus_magic`] overflows.
const LARGEST: f32 = 1e33;
/// Bits of a scale that are zero, so that one and a half times it is exact.
const SCALE_LOW_BITS: u32 = 2;
/// One and a half times 2^23, where the last bit of an f32 is worth one: an integer of magnitude
/// below 2^22 added to the bits is added to the value.
const MAGIC: f32 = 12_582_912.0;
/// [`MAGIC`]'s bits: where a sum of products starts.
pub(crate) const MAGIC_BITS: i32 = MAGIC.to_bits() as i32;
/// Codes of formats that count from a middle are brought to count from `2^CENTRE_LOG2`.
pub(crate) const CENTRE_LOG2: u32 = 7;

/// Up to `rows_max` rows, prepared once and read by every projection that takes the same input:
/// as f32, and as int8 with a scale and sums per 32 columns; or, many rows for tiles, as bf16 and as int8
/// with a scale per 256 columns, whichever the weights take.
///
/// The int8 form is symmetric: `scale = max |x| / 127` (its last two bits cleared), codes rounded to
/// nearest, ties to even. A block that holds a NaN, an infinity or a magnitude beyond [`LARGEST`]
/// makes every product of its row NaN.
pub struct Activations {
    rows: usize,
    cols: usize,
    /// Blocks from one row to the next; nothing of `blocks` where `tiled`.
    stride: usize,
    /// Whether the rows are in tiles.
    tiled: bool,
    /// What rows in tiles are kept as.
    forms: Forms,
    /// `(rows_max, stride)`; where `tiled`, lines of 32 bf16: `(row tiles, blocks, 16 rows)`.
    blocks: Zeroed<ActBlock>,
    /// `(rows_max, stride, 32)`
    floats: Zeroed<f32>,
    /// Where `tiled`: `(row tiles, blocks / 2, 16 rows)`.
    codes: Zeroed<CodeLine>,
    /// What they stand for: `(row tiles, blocks / 8, 16 rows)`.
    scales: Zeroed<f32>,
}

/// In which forms rows in tiles are needed.
#[derive(Clone, Copy)]
struct Forms {
    floats: bool,
    halves: bool,
    codes: bool,
}

/// 32 columns of one row, in one cache line.
///
/// An integer sum of products that starts at [`MAGIC_BITS`] is, read as an f32, [`MAGIC`] plus the sum.
/// So `fma(sum, scale, minus_magic)` is the sum times the scale, rounded once, without a conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct ActBlock {
    /// In `-127..=127`.
    pub(crate) codes: [i8; BLOCK],
    /// What a code stands for.
    pub(crate) scale: f32,
    /// [`MAGIC`] times minus the scale, exact.
    pub(crate) minus_magic: f32,
    /// [`MAGIC_BITS`] less `2^CENTRE_LOG2` times the sum of codes: of all, of the first half, of the
    /// second.
    pub(crate) starts: [i32; 3],
    /// The sum of codes times the scale: of all, of the first half, of the second.
    pub(crate) moments: [f32; 3],
}

#[expect(unsafe_code, reason = "a promise about bytes")]
// SAFETY: arrays of numbers, one line long without gaps.
unsafe impl Plain for ActBlock {}

const EMPTY: ActBlock = ActBlock {
    codes: [0; BLOCK],
    scale: 0.0,
    minus_magic: 0.0,
    starts: [MAGIC_BITS; 3],
    moments: [0.0; 3],
};

impl Activations {
    /// Room for `(rows_max, cols_max)`; the only allocation.
    pub fn new(rows_max: usize, cols_max: usize) -> Self {
        Self {
            rows: 0,
            cols: 0,
            stride: 0,
            tiled: false,
            forms: Forms {
                floats: true,
                halves: true,
                codes: true,
            },
            blocks: Zeroed::new(rows_room(rows_max) * stride(cols_max)),
            floats: Zeroed::new(rows_max * stride(cols_max) * BLOCK),
            codes: Zeroed::new(Self::code_lines(tile_room(rows_max), stride(cols_max))),
            scales: Zeroed::new(Self::code_scales(tile_room(rows_max), stride(cols_max))),
        }
    }

    /// From now on rows in tiles are kept only in the forms that weights of these formats take.
    pub fn for_weights(mut self, formats: impl IntoIterator<Item = Format>) -> Self {
        self.forms = Forms {
            floats: false,
            halves: false,
            codes: false,
        };
        for format in formats {
            match format {
                Format::F32 => self.forms.floats = true,
                _ if tiled::takes_codes(format) => self.forms.codes = true,
                _ => self.forms.halves = true,
            }
        }
        self
    }

    /// Bytes of room for `(rows_max, cols_max)`: 7 for each column, and a little for each row.
    pub const fn bytes(rows_max: usize, cols_max: usize) -> usize {
        let stride = stride(cols_max);
        let blocks = rows_room(rows_max) * stride * size_of::<ActBlock>();
        let floats = rows_max * stride * BLOCK * size_of::<f32>();
        let codes = Self::code_lines(tile_room(rows_max), stride) * size_of::<CodeLine>();
        let scales = Self::code_scales(tile_room(rows_max), stride) * size_of::<f32>();
        blocks + floats + codes + scales
    }

    /// Prepares `x`, shape `(rows, cols)`, any number of columns.
    ///
    /// # Panics
    /// If `x` has another shape, or there is no room for it.
    pub fn load(&mut self, isa: Isa, pool: &mut Pool, x: &[f32], rows: usize, cols: usize) {
        assert_eq!(x.len(), rows * cols, "({rows}, {cols}) activations");
        let stride = stride(cols);
        assert!(
            rows * stride * BLOCK <= self.floats.len(),
            "no room for ({rows}, {cols}) activations"
        );
        (self.rows, self.cols, self.stride) = (rows, cols, stride);
        self.tiled = isa.has_tiles() && rows >= tiled::ROWS_MIN && cols > 0;
        if self.tiled {
            if self.forms.codes {
                self.load_codes(isa, pool, x);
            }
            if self.forms.halves || self.forms.floats {
                self.load_tiles(isa, pool, x);
            }
            return;
        }
        let row_blocks = stride - STAGGER;
        let blocks = Disjoint::new(&mut self.blocks);
        let floats = Disjoint::new(&mut self.floats);
        let work = |mut range: Range<usize>| {
            while !range.is_empty() {
                let (row, first) = (range.start / row_blocks, range.start % row_blocks);
                let some = range.len().min(row_blocks - first);
                range.start += some;
                let columns = (first * BLOCK).min(cols)..((first + some) * BLOCK).min(cols);
                let at = row * stride + first;
                #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint blocks")]
                // SAFETY: the workers' ranges of blocks are disjoint, and so are these parts.
                let (blocks, floats) = unsafe {
                    (
                        blocks.part(at..at + some),
                        floats.part(at * BLOCK..(at + some) * BLOCK),
                    )
                };
                prepare_on(isa, &x[row * cols..][columns], blocks, floats);
            }
        };
        let total = rows * row_blocks;
        if total < ALONE_BLOCKS {
            work(0..total);
        } else {
            pool.ranges(total, 1, work);
        }
    }

    /// Rows loaded.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns loaded.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes that a product reads of a row of blocks, at least one.
    pub(crate) fn row_bytes(&self) -> usize {
        self.stride * size_of::<ActBlock>()
    }

    /// Whether rows are in tiles: then there are no [`Activations::blocks`].
    pub(crate) fn tiled(&self) -> bool {
        self.tiled
    }

    /// Whether there are [`Activations::floats`].
    pub(crate) fn has_floats(&self) -> bool {
        !self.tiled || self.forms.floats
    }

    /// A row's blocks, an even number of them.
    ///
    /// # Panics
    /// Where rows are tiled (debug builds).
    #[inline(always)]
    pub(crate) fn blocks(&self, row: usize) -> &[ActBlock] {
        debug_assert!(!self.tiled, "rows are in tiles");
        &self.blocks[row * self.stride..][..self.stride - STAGGER]
    }

    /// A row as f32, padded with zeros to whole blocks.
    #[inline(always)]
    pub(crate) fn floats(&self, row: usize) -> &[f32] {
        &self.floats[row * self.stride * BLOCK..][..(self.stride - STAGGER) * BLOCK]
    }
}

/// Rows that there is room for: whole tiles of them, where there may be tiles at all.
const fn rows_room(rows: usize) -> usize {
    if rows < tiled::ROWS_MIN {
        rows
    } else {
        rows.next_multiple_of(tiled::TILE_ROWS)
    }
}

/// The same of rows in tiles, of which fewer are never.
const fn tile_room(rows: usize) -> usize {
    if rows < tiled::ROWS_MIN {
        0
    } else {
        rows_room(rows)
    }
}

/// Blocks from one row of `cols` to the next.
const fn stride(cols: usize) -> usize {
    cols.div_ceil(BLOCK).next_multiple_of(ROW_BLOCKS) + STAGGER
}

#[cfg(target_arch = "x86_64")]
use crate::arch::prepare::prepare_on;

#[cfg(not(target_arch = "x86_64"))]
fn prepare_on(_: Isa, x: &[f32], blocks: &mut [ActBlock], floats: &mut [f32]) {
    prepare(x, blocks, floats);
}

/// Prepares part of a row, from the first column of `blocks[0]`; what `x` lacks is zero.
///
/// Plain code that the compiler turns into vectors of each level; all give the same bits.
#[inline(always)]
pub(crate) fn prepare(x: &[f32], blocks: &mut [ActBlock], floats: &mut [f32]) {
    let (copied, padding) = floats.split_at_mut(x.len());
    copied.copy_from_slice(x);
    padding.fill(0.0);
    for (block, x) in blocks.iter_mut().zip(floats.as_chunks::<BLOCK>().0) {
        *block = ActBlock::of(x);
    }
}

impl ActBlock {
    /// Minus the sum of codes: of all, of the first half or of the second.
    #[inline(always)]
    pub(crate) fn minus_sum(&self, which: usize) -> i32 {
        (self.starts[which] - MAGIC_BITS) >> CENTRE_LOG2
    }

    #[inline(always)]
    fn of(x: &[f32; BLOCK]) -> Self {
        // Magnitudes compare as their bits do, and NaN and infinity come out on top.
        let bits = x
            .iter()
            .fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff));
        let most = f32::from_bits(bits);
        if most.is_nan() || most > LARGEST {
            return Self {
                scale: f32::NAN,
                minus_magic: f32::NAN,
                moments: [f32::NAN; 3],
                ..EMPTY
            };
        }
        if most < SMALLEST {
            return EMPTY;
        }
        let low_bits = (1 << SCALE_LOW_BITS) - 1;
        let scale = f32::from_bits((most / 127.0).to_bits() & !low_bits);
        let inverse = 127.0 / most;
        let mut codes = [0i8; BLOCK];
        let mut sums = [0i32; 2];
        for (i, (code, x)) in codes.iter_mut().zip(x).enumerate() {
            let nearest = nearest(x * inverse);
            *code = nearest as i8;
            sums[i / (BLOCK / 2)] += nearest;
        }
        let sums = [sums[0] + sums[1], sums[0], sums[1]];
        Self {
            codes,
            scale,
            minus_magic: -MAGIC * scale,
            starts: sums.map(|sum| MAGIC_BITS - (sum << CENTRE_LOG2)),
            moments: sums.map(|sum| sum as f32 * scale),
        }
    }
}

/// The nearest whole number, ties to even, of a magnitude below 2^22.
#[inline(always)]
fn nearest(x: f32) -> i32 {
    // The addition rounds, the bits count.
    (x + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()) as i32
}
