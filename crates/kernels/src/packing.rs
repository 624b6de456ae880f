//! Packed layouts of quantized weights.
//!
//! Sixteen consecutive rows are a *panel*. Within a panel the columns are cut into *tiles* of 64 columns (256
//! for formats with super-blocks), each a header of scales and then, for each block of 32 columns, the quants:
//!
//! ```text
//! panel:   tile, tile, ...                         one sequential stream for a matmul
//! tile:    header | quants of 32 columns | quants of 32 columns | ...
//! header:  Plain      d f16[2][16]
//!          Power      scale bf16[2][16]
//!          PlainMin   d f16[2][16], m f16[2][16]
//!          Super16    d f16[16], unused (32 bytes), scales i8[16][16]
//!          Super32    d f16[16], unused (32 bytes), scales i8[8][16]
//!          SuperMin16 d f16[16], -m f16[16], (scale | min << 4) u8[16][16]
//!          SuperMin32 d f16[16], -m f16[16], (scales u8[16], mins u8[16])[8]
//! quants:  plane of the low bits, then plane of the high bits
//! plane:   lines of 64 bytes; byte 4 r + j is row r, and column 4 g + j for a group g
//! ```
//!
//! A plane of w-bit quants stores 8 / w groups in each line, the first group in the lowest bits. So one 64-byte
//! load, a shift and a mask give four columns of sixteen rows, the operand of a dot-product instruction. A
//! missing row or column has scale zero.

use crate::memory::{AlignedBytes, LINE};
use crate::quant::{QuantBlock, QuantFormat, ScaleKind, power_scale};
use crate::{Format, Pool};
use half::{bf16, f16};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows of a panel.
pub(crate) const LANES: usize = 16;
/// Columns of a block: they share an activation scale.
pub(crate) const BLOCK: usize = 32;
/// Groups of four columns in a block.
pub(crate) const GROUPS: usize = BLOCK / 4;
/// Bytes of the header of a super-block tile before the integer scales.
pub(crate) const SUPER_SCALES_BYTES: usize = 64;

/// A quantization format as a type, so that kernels are compiled for each format.
pub(crate) trait PackedFormat {
    const QUANT: QuantFormat;
}

macro_rules! packings {
    ($($format:ident),*) => {
        $(
            #[allow(non_camel_case_types, reason = "the formats' own names")]
            pub(crate) struct $format;

            impl PackedFormat for $format {
                const QUANT: QuantFormat = QuantFormat::of(Format::$format).unwrap();
            }
        )*
    };
}

packings!(
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, IQ3_S, IQ3_XXS,
    IQ2_S, MXFP4
);

impl QuantFormat {
    /// Blocks of 32 columns in a tile.
    pub(crate) const fn tile_blocks(&self) -> usize {
        if self.weights == BLOCK {
            2
        } else {
            self.weights / BLOCK
        }
    }

    /// Columns of a tile.
    pub(crate) const fn tile_cols(&self) -> usize {
        self.tile_blocks() * BLOCK
    }

    /// Scales in a block of 32 columns: 1 or 2.
    pub(crate) const fn sub_blocks_per_block(&self) -> usize {
        BLOCK / self.sub_block_weights()
    }

    /// Bytes of a tile before the quants.
    pub(crate) const fn header_bytes(&self) -> usize {
        match self.scale_kind {
            ScaleKind::Plain | ScaleKind::Power => 2 * 2 * LANES,
            ScaleKind::PlainMin => 2 * 2 * 2 * LANES,
            ScaleKind::Super32 => SUPER_SCALES_BYTES + 8 * LANES,
            _ => SUPER_SCALES_BYTES + 16 * LANES,
        }
    }

    /// Bytes of the quants of 32 columns.
    pub(crate) const fn block_bytes(&self) -> usize {
        (self.low + self.high) * LINE
    }

    /// Bytes of a tile.
    pub(crate) const fn tile_bytes(&self) -> usize {
        self.header_bytes() + self.tile_blocks() * self.block_bytes()
    }

    /// Writes one block of each row of a panel, the `index`th of the row (as the tensor format counts blocks).
    #[inline(always)]
    pub(crate) fn write_blocks(&self, panel: &mut [u8], index: usize, rows: &[QuantBlock; LANES]) {
        let first = index * self.weights / BLOCK;
        let tile =
            &mut panel[first / self.tile_blocks() * self.tile_bytes()..][..self.tile_bytes()];
        for (lane, row) in rows.iter().enumerate() {
            self.write_scales(tile, first % self.tile_blocks(), lane, row);
        }
        for block in 0..self.weights / BLOCK {
            let at =
                self.header_bytes() + (first % self.tile_blocks() + block) * self.block_bytes();
            let (low, high) = tile[at..][..self.block_bytes()].split_at_mut(self.low * LINE);
            let word = |lane: usize, group: usize| {
                let at = block * BLOCK + group * 4;
                let quants = &rows[lane].quants[at..at + 4];
                u32::from_le_bytes([quants[0], quants[1], quants[2], quants[3]])
            };
            write_plane(low, self.low, word);
            write_plane(high, self.high, |lane, group| word(lane, group) >> self.low);
        }
    }

    #[inline(always)]
    fn write_scales(&self, tile: &mut [u8], block: usize, lane: usize, row: &QuantBlock) {
        let mut put = |at: usize, bytes: [u8; 2]| {
            tile[at + 2 * lane..][..2].copy_from_slice(&bytes);
        };
        if self.scale_kind == ScaleKind::Power {
            // Exact: a power of two.
            let scale = bf16::from_f32(power_scale(row.scales[0] as u8));
            return put(2 * LANES * block, scale.to_le_bytes());
        }
        let mut half = |at: usize, value: f16| put(at, value.to_le_bytes());
        match self.scale_kind {
            ScaleKind::Plain => return half(2 * LANES * block, row.d),
            ScaleKind::PlainMin => {
                half(2 * LANES * block, row.d);
                return half(2 * LANES * (2 + block), row.m);
            }
            ScaleKind::SuperMin16 | ScaleKind::SuperMin32 => {
                half(0, row.d);
                half(2 * LANES, -row.m);
            }
            _ => half(0, row.d),
        }
        let numbers = &mut tile[SUPER_SCALES_BYTES..];
        for i in 0..self.weights / self.sub_block_weights() {
            let (s, t) = (row.scales[i] as u8, row.mins[i]);
            match self.scale_kind {
                ScaleKind::SuperMin32 => {
                    numbers[2 * LANES * i + lane] = s;
                    numbers[2 * LANES * i + LANES + lane] = t;
                }
                ScaleKind::SuperMin16 => numbers[LANES * i + lane] = s | t << 4,
                _ => numbers[LANES * i + lane] = s,
            }
        }
    }

    /// Scale and shift of sub-block `sub` of the `block`th 32 columns of a tile, for one row.
    #[inline(always)]
    pub(crate) fn scale_and_shift(
        &self,
        tile: &[u8],
        block: usize,
        sub: usize,
        lane: usize,
    ) -> (f32, f32) {
        let half =
            |at: usize| f16::from_le_bytes([tile[at + 2 * lane], tile[at + 2 * lane + 1]]).to_f32();
        let number = |at: usize| tile[SUPER_SCALES_BYTES + at + lane];
        let i = block * self.sub_blocks_per_block() + sub;
        match self.scale_kind {
            ScaleKind::Plain => (half(2 * LANES * block), 0.0),
            ScaleKind::Power => {
                let at = 2 * LANES * block + 2 * lane;
                (read_float(Format::BF16, &tile[at..at + 2]), 0.0)
            }
            ScaleKind::PlainMin => (half(2 * LANES * block), half(2 * LANES * (2 + block))),
            ScaleKind::Super16 | ScaleKind::Super32 => {
                let scale = half(0) * f32::from(number(LANES * i) as i8);
                (scale * self.unit(), 0.0)
            }
            ScaleKind::SuperMin16 => {
                let both = number(LANES * i);
                (
                    half(0) * f32::from(both & 15),
                    half(2 * LANES) * f32::from(both >> 4),
                )
            }
            ScaleKind::SuperMin32 => (
                half(0) * f32::from(number(2 * LANES * i)),
                half(2 * LANES) * f32::from(number(2 * LANES * i + LANES)),
            ),
        }
    }

    /// The quants of 32 columns of one row, or the levels that they stand for, four to a word.
    #[inline(always)]
    pub(crate) fn read_quants(&self, tile: &[u8], block: usize, lane: usize) -> [u32; GROUPS] {
        let at = self.header_bytes() + block * self.block_bytes();
        let (low, high) = tile[at..][..self.block_bytes()].split_at(self.low * LINE);
        std::array::from_fn(|group| {
            let above = if self.high > 0 {
                read_plane(high, self.high, lane, group)
            } else {
                0
            };
            let quants = read_plane(low, self.low, lane, group) | above << self.low;
            match &self.levels {
                Some(levels) => {
                    let quants = quants.to_le_bytes();
                    u32::from_le_bytes(quants.map(|quant| levels[usize::from(quant & 15)]))
                }
                None => quants,
            }
        })
    }
}

/// Writes a plane of `bits` bits: the lowest bits of each byte of `word(lane, group)`.
#[inline(always)]
fn write_plane(plane: &mut [u8], bits: usize, word: impl Fn(usize, usize) -> u32) {
    if bits == 0 {
        return;
    }
    let per_line = 8 / bits;
    for (i, line) in plane.chunks_exact_mut(LINE).enumerate() {
        for (lane, bytes) in line.chunks_exact_mut(4).enumerate() {
            let mut packed = 0;
            for k in 0..per_line {
                packed |= (word(lane, i * per_line + k) & low_bits_mask(bits)) << (k * bits);
            }
            bytes.copy_from_slice(&packed.to_le_bytes());
        }
    }
}

#[inline(always)]
fn read_plane(plane: &[u8], bits: usize, lane: usize, group: usize) -> u32 {
    let per_line = 8 / bits;
    let at = group / per_line * LINE + 4 * lane;
    let packed = u32::from_le_bytes([plane[at], plane[at + 1], plane[at + 2], plane[at + 3]]);
    packed >> (group % per_line * bits) & low_bits_mask(bits)
}

/// The lowest `bits` bits of each byte.
const fn low_bits_mask(bits: usize) -> u32 {
    0x0101_0101 * ((1 << bits) - 1)
}

/// A float weight from its little-endian bytes.
#[inline(always)]
pub(crate) fn read_float(format: Format, bytes: &[u8]) -> f32 {
    match format {
        Format::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        Format::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        _ => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
    }
}

/// Memory that is lent, such as a mapped file. The slice is the same one at each call.
pub type LentMemory = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Packed weights, a whole number of cache lines. A clone is a further handle of the same bytes.
#[derive(Clone)]
pub struct PackedBytes(Storage);

#[derive(Clone)]
enum Storage {
    Own(Arc<AlignedBytes>),
    Lent {
        memory: LentMemory,
        range: Range<usize>,
    },
}

impl PackedBytes {
    /// Bytes that were just packed.
    pub(crate) fn own(bytes: AlignedBytes) -> Self {
        Self(Storage::Own(Arc::new(bytes)))
    }

    /// A part of lent memory, which is not copied; `None` if the range is outside, or not in whole cache lines.
    pub fn lent(memory: LentMemory, range: Range<usize>) -> Option<Self> {
        let part = bytes_of(&memory).get(range.clone())?;
        let is_whole = part.len().is_multiple_of(LINE) && part.as_ptr().addr().is_multiple_of(LINE);
        is_whole.then_some(Self(Storage::Lent { memory, range }))
    }

    /// A copy of `source` in huge pages where the operating system agrees, made by all workers. `is_right` sees each copied
    /// chunk of `chunk_bytes` (the last one may be shorter) with its number; `None` if it rejects one, or if `source` is
    /// no whole number of cache lines.
    pub fn copied(
        pool: &mut Pool,
        source: &[u8],
        chunk_bytes: usize,
        is_right: impl Fn(usize, &[u8]) -> bool + Sync,
    ) -> Option<Self> {
        if chunk_bytes == 0 || !source.len().is_multiple_of(LINE) {
            return None;
        }
        let mut copy = AlignedBytes::zeroed(source.len());
        let all_right = AtomicBool::new(true);
        let fill = |chunk: usize, to: &mut [u8]| {
            to.copy_from_slice(&source[chunk * chunk_bytes..][..to.len()]);
            if !is_right(chunk, to) {
                all_right.store(false, Ordering::Relaxed);
            }
        };
        let whole = source.len() / chunk_bytes;
        let (chunks, rest) = copy.split_at_mut(whole * chunk_bytes);
        pool.rows(chunks, chunk_bytes, fill);
        if !rest.is_empty() {
            fill(whole, rest);
        }
        all_right.into_inner().then(|| Self::own(copy))
    }

    /// The bytes, to be written. Shared or lent bytes are copied first, so that no other handle sees the change.
    pub(crate) fn to_mut(&mut self) -> &mut [u8] {
        let is_alone = match &mut self.0 {
            Storage::Own(bytes) => Arc::get_mut(bytes).is_some(),
            Storage::Lent { .. } => false,
        };
        if !is_alone {
            let mut copy = AlignedBytes::zeroed(self.len());
            copy.copy_from_slice(self);
            *self = Self::own(copy);
        }
        match &mut self.0 {
            Storage::Own(bytes) => Arc::get_mut(bytes).expect("the only handle"),
            Storage::Lent { .. } => unreachable!("copied above"),
        }
    }
}

impl Deref for PackedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Own(bytes) => bytes,
            Storage::Lent { memory, range } => {
                let part = &bytes_of(memory)[range.clone()];
                // Kernels load whole lines; the type of `memory` is not known here.
                assert!(
                    part.as_ptr().addr().is_multiple_of(LINE),
                    "lent memory moved"
                );
                part
            }
        }
    }
}

fn bytes_of(memory: &LentMemory) -> &[u8] {
    let memory: &(dyn AsRef<[u8]> + Send + Sync) = &**memory;
    memory.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that begin at a cache line.
    struct Lines(AlignedBytes);

    impl AsRef<[u8]> for Lines {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    fn numbered(len: usize) -> AlignedBytes {
        let mut bytes = AlignedBytes::zeroed(len);
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (at % 251) as u8;
        }
        bytes
    }

    #[test]
    fn lent_range_is_whole_lines_inside_of_the_memory() {
        let memory: LentMemory = Arc::new(Lines(numbered(4 * LINE)));
        let rows = [
            (0..4 * LINE, true),
            (LINE..2 * LINE, true),
            (2 * LINE..2 * LINE, true),
            (1..LINE + 1, false),
            (0..LINE - 1, false),
            (3 * LINE..5 * LINE, false),
            (usize::MAX - LINE..usize::MAX, false),
        ];
        for (range, is_taken) in rows {
            let lent = PackedBytes::lent(Arc::clone(&memory), range.clone());
            assert_eq!(lent.is_some(), is_taken, "{range:?}");
            if let Some(lent) = lent {
                assert_eq!(*lent, numbered(4 * LINE)[range]);
            }
        }
    }

    #[test]
    fn copy_is_equal_and_each_chunk_is_checked_once() {
        for (lines, chunk, threads) in [(0, 100, 2), (5, 64, 1), (200, 1000, 3), (200, 1 << 20, 2)]
        {
            let source = numbered(lines * LINE);
            let seen: Vec<_> = (0..=source.len() / chunk)
                .map(|_| AtomicBool::new(false))
                .collect();
            let copy = PackedBytes::copied(&mut Pool::new(threads), &source, chunk, |at, bytes| {
                let twice = seen[at].swap(true, Ordering::Relaxed);
                !twice && *bytes == source[at * chunk..][..bytes.len()]
            });
            assert!(copy.is_some_and(|copy| *copy == *source), "{lines} {chunk}");
            let checked = seen.iter().filter(|seen| seen.load(Ordering::Relaxed));
            assert_eq!(checked.count(), source.len().div_ceil(chunk));
        }
    }

    #[test]
    fn copy_with_a_wrong_chunk_is_refused() {
        let source = numbered(100 * LINE);
        for wrong in [0, 3, 6] {
            let copy = PackedBytes::copied(&mut Pool::new(2), &source, 1000, |at, _| at != wrong);
            assert!(copy.is_none(), "chunk {wrong}");
        }
        assert!(PackedBytes::copied(&mut Pool::new(1), &source[1..], 1000, |_, _| true).is_none());
        assert!(PackedBytes::copied(&mut Pool::new(1), &source, 0, |_, _| true).is_none());
    }

    #[test]
    fn writing_changes_no_other_handle() {
        let mut bytes = PackedBytes::own(numbered(2 * LINE));
        bytes.to_mut()[0] = 9;
        let other = bytes.clone();
        bytes.to_mut()[0] = 7;
        assert_eq!((bytes[0], other[0]), (7, 9));
        let memory: LentMemory = Arc::new(Lines(numbered(2 * LINE)));
        let mut lent = PackedBytes::lent(Arc::clone(&memory), 0..2 * LINE).unwrap();
        lent.to_mut()[1] = 99;
        assert_eq!((lent[1], bytes_of(&memory)[1]), (99, 1));
    }
}
