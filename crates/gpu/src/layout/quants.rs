//! Rows of weights on the device: the values of the file, in planes that kernels read in whole words.
//!
//! A row is cut into *units* of [`UNIT`] weights. Each row has three planes, each a whole number of 16 bytes:
//!
//! - `low`: of each unit the low bits of its quants, or its floats. Of quants, weights `4q .. 4q + 4` of a unit are the four
//!   bytes of a word, shifted: with 4 bits, words hold `q = 0, 1` and `2, 3`; with 2 bits one word holds all.
//! - `high`: the bits above, likewise; with 1 bit a word serves two units.
//! - `scales`: as [`scale_words`] says.

use crate::operation::UNIT;
use half::f16;
use kernels::{Format, QuantBlock, QuantFormat, ScaleKind};

/// Planes of a matrix.
pub(crate) const PLANES: usize = 3;

/// Threads that write rows, at most.
const THREADS_MAX: usize = 16;

/// Weights of a block with its own `d` in the formats with scales of scales.
const SUPER_BLOCK: usize = 256;

/// Sizes of the rows of a matrix on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLayout {
    format: Format,
    cols: usize,
    /// Words of a row in each plane; 0, or a multiple of 4.
    pub(crate) words: [usize; PLANES],
}

impl RowLayout {
    /// The layout of rows of `cols` weights.
    pub(crate) fn of(format: Format, cols: usize) -> Self {
        let units = cols.div_ceil(UNIT as usize);
        let words = match QuantFormat::of(format) {
            None => [
                units * UNIT as usize * format.block_bytes() / size_of::<u32>(),
                0,
                0,
            ],
            Some(quant) => [
                units * low_words(&quant),
                units * quant.high / 2,
                (cols / quant.weights * scale_words(&quant).0).div_ceil(scale_words(&quant).1),
            ],
        };
        Self {
            format,
            cols,
            words: words.map(|words| words.next_multiple_of(4)),
        }
    }

    /// Units of a row.
    pub(crate) fn units(&self) -> usize {
        self.cols.div_ceil(UNIT as usize)
    }

    /// Bytes of a row in the file.
    pub(crate) fn file_bytes(&self) -> usize {
        self.cols / self.format.block_weights() * self.format.block_bytes()
    }

    /// Words of a row in all planes.
    pub(crate) fn row_words(&self) -> usize {
        self.words.iter().sum()
    }

    /// Writes a row of the file into the planes of the row.
    ///
    /// # Panics
    /// If `raw` is not [`Self::file_bytes`] long, or a plane has another length than the row's.
    pub(crate) fn write_row(&self, raw: &[u8], planes: [&mut [u32]; PLANES]) {
        assert_eq!(raw.len(), self.file_bytes());
        let [low, high, scales] = planes;
        assert_eq!([low.len(), high.len(), scales.len()], self.words);
        low.fill(0);
        high.fill(0);
        scales.fill(0);
        let Some(quant) = QuantFormat::of(self.format) else {
            return write_floats(raw, low);
        };
        let mut block = QuantBlock::default();
        let units = quant.weights / UNIT as usize;
        for (index, bytes) in raw.chunks_exact(self.format.block_bytes()).enumerate() {
            block.decode(self.format, bytes);
            let quants = block.quants[..quant.weights].chunks_exact(UNIT as usize);
            for (unit, quants) in (index * units..).zip(quants) {
                write_unit(&quant, unit, quants, low, high);
            }
            write_scales(&quant, index, &block, scales);
        }
    }

    /// Writes rows of the file into the planes of all these rows, by several threads.
    ///
    /// # Panics
    /// As for [`Self::write_row`].
    pub(crate) fn write_rows(&self, raw: &[u8], planes: &mut [Vec<u32>; PLANES]) {
        let rows = raw.len() / self.file_bytes().max(1);
        for (plane, words) in planes.iter_mut().zip(self.words) {
            plane.resize(rows * words, 0);
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let per_thread = rows.div_ceil(threads.min(THREADS_MAX)).max(1);
        let mut rest = planes.each_mut().map(|plane| &mut plane[..]);
        std::thread::scope(|scope| {
            for raw in raw.chunks(per_thread * self.file_bytes().max(1)) {
                let count = raw.len() / self.file_bytes().max(1);
                let mut words = self.words.into_iter();
                let parts = rest.each_mut().map(|rest| {
                    let words = words.next().unwrap_or(0);
                    rest.split_off_mut(..count * words).unwrap_or_default()
                });
                scope.spawn(|| self.write_part(raw, parts));
            }
        });
    }

    /// Writes rows one after the other.
    fn write_part(&self, raw: &[u8], planes: [&mut [u32]; PLANES]) {
        let [mut low, mut high, mut scales] = planes;
        for raw in raw.chunks_exact(self.file_bytes().max(1)) {
            let mut words = self.words.into_iter();
            let row = [&mut low, &mut high, &mut scales].map(|rest| {
                let words = words.next().unwrap_or(0);
                rest.split_off_mut(..words).unwrap_or_default()
            });
            self.write_row(raw, row);
        }
    }
}

/// Words of a unit in the low plane.
fn low_words(quant: &QuantFormat) -> usize {
    UNIT as usize * quant.low / 32
}

/// Words of the scales of a block, as a fraction:
///
/// - a block of 32 weights has `d` in half a word, or `d` and `m` in one, or the byte of a power;
/// - a block of 256 has `d` and `m` in a word, then the bytes of its scales, then those of its mins. Where both have 4 bits,
///   a byte has both, the scale below.
fn scale_words(quant: &QuantFormat) -> (usize, usize) {
    match quant.scale_kind {
        ScaleKind::Plain => (1, 2),
        ScaleKind::PlainMin => (1, 1),
        ScaleKind::Power => (1, 4),
        ScaleKind::Super32 => (3, 1),
        ScaleKind::Super16 | ScaleKind::SuperMin16 | ScaleKind::SuperMin32 => (5, 1),
    }
}

/// Floats as in the file, two of 16 bits in a word.
fn write_floats(raw: &[u8], low: &mut [u32]) {
    for (word, bytes) in low.iter_mut().zip(raw.chunks(4)) {
        let mut whole = [0; 4];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u32::from_le_bytes(whole);
    }
}

fn write_unit(quant: &QuantFormat, unit: usize, quants: &[u8], low: &mut [u32], high: &mut [u32]) {
    let every = |bits: usize| u32::from_le_bytes([((1u32 << bits) - 1) as u8; 4]);
    let per_word = 8 / quant.low;
    for (index, quad) in quants.as_chunks::<4>().0.iter().enumerate() {
        let quad = u32::from_le_bytes(*quad);
        let word = unit * low_words(quant) + index / per_word;
        low[word] |= (quad & every(quant.low)) << (index % per_word * quant.low);
        let above = quad >> quant.low & every(quant.high);
        match quant.high {
            0 => {}
            1 => high[unit / 2] |= above << (unit % 2 * 4 + index),
            _ => high[unit] |= above << (2 * index),
        }
    }
}

fn write_scales(quant: &QuantFormat, index: usize, block: &QuantBlock, words: &mut [u32]) {
    let bits = |half: f16| u32::from(half.to_bits());
    let both = bits(block.d) | bits(block.m) << 16;
    match quant.scale_kind {
        ScaleKind::Plain => words[index / 2] |= bits(block.d) << (index % 2 * 16),
        ScaleKind::PlainMin => words[index] = both,
        ScaleKind::Power => {
            words[index / 4] |= u32::from(block.scales[0] as u8) << (index % 4 * 8);
        }
        _ => {
            let count = SUPER_BLOCK / quant.sub_block_weights();
            let (per_block, _) = scale_words(quant);
            let words = &mut words[index * per_block..][..per_block];
            words[0] = both;
            let bytes = block.scales.iter().zip(&block.mins);
            for (sub, (&scale, &min)) in bytes.take(count).enumerate() {
                let scale = u32::from(scale as u8);
                let (at, shift) = (1 + sub / 4, sub % 4 * 8);
                match quant.scale_kind {
                    ScaleKind::SuperMin16 => {
                        words[at] |= (scale | u32::from(min) << 4) << shift;
                    }
                    ScaleKind::SuperMin32 => {
                        words[at] |= scale << shift;
                        words[at + 2] |= u32::from(min) << shift;
                    }
                    _ => words[at] |= scale << shift,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::{dequantize, power_scale};

    /// Blocks of any bytes whose `d` and `m` are finite.
    pub(crate) fn noise(format: Format, rows: usize, cols: usize) -> Vec<u8> {
        let bytes = rows * cols / format.block_weights() * format.block_bytes();
        let mut seed = 0x9e37_79b9u32 ^ format as u32;
        (0..bytes)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8 & 0x3b
            })
            .collect()
    }

    /// A weight as the kernels compute it, from the planes of its row.
    fn read(layout: &RowLayout, planes: [&[u32]; 3], col: usize) -> f32 {
        let [low, high, scales] = planes;
        let (unit, within) = (col / 16, col % 16);
        let (index, byte) = (within / 4, within % 4 * 8);
        let Some(quant) = QuantFormat::of(layout.format) else {
            return match layout.format {
                Format::F32 => f32::from_bits(low[col]),
                format => {
                    let bits = (low[col / 2] >> (col % 2 * 16)) as u16;
                    match format {
                        Format::F16 => f16::from_bits(bits).to_f32(),
                        _ => f32::from_bits(u32::from(bits) << 16),
                    }
                }
            };
        };
        let per_word = 8 / quant.low;
        let quad = low[unit * low_words(&quant) + index / per_word];
        let quad = quad >> (index % per_word * quant.low);
        let above = match quant.high {
            0 => 0,
            1 => high[unit / 2] >> (unit % 2 * 4 + index),
            _ => high[unit] >> (2 * index),
        };
        let field = |word: u32, bits: usize| (word >> byte) & ((1 << bits) - 1);
        let q = field(quad, quant.low) | field(above, quant.high) << quant.low;
        let half = |word: u32| f16::from_bits(word as u16).to_f32();
        let byte_of = |word: u32, at: usize| (word >> (at % 4 * 8)) as u8;
        let block = &scales[col / 256 * scale_words(&quant).0..];
        let sub = col % 256 / quant.sub_block_weights();
        let (scale, shift) = match quant.scale_kind {
            ScaleKind::Plain => (half(scales[col / 64] >> (col / 32 % 2 * 16)), 0.0),
            ScaleKind::PlainMin => (half(scales[col / 32]), half(scales[col / 32] >> 16)),
            ScaleKind::Power => (power_scale(byte_of(scales[col / 128], col / 32)), 0.0),
            ScaleKind::Super16 | ScaleKind::Super32 => {
                let scale = byte_of(block[1 + sub / 4], sub) as i8;
                (half(block[0]) * f32::from(scale) * quant.unit(), 0.0)
            }
            ScaleKind::SuperMin16 => {
                let both = byte_of(block[1 + sub / 4], sub);
                let shift = -half(block[0] >> 16) * f32::from(both >> 4);
                (half(block[0]) * f32::from(both & 15), shift)
            }
            ScaleKind::SuperMin32 => {
                let min = byte_of(block[3 + sub / 4], sub);
                let scale = byte_of(block[1 + sub / 4], sub);
                let shift = -half(block[0] >> 16) * f32::from(min);
                (half(block[0]) * f32::from(scale), shift)
            }
        };
        scale * quant.level(q as u8) as f32 + shift
    }

    #[test]
    fn rows_of_all_threads_are_those_of_one() {
        for (format, cols) in [(Format::Q6_K, 512), (Format::Q8_0, 96), (Format::F16, 37)] {
            let layout = RowLayout::of(format, cols);
            for rows in [1, 2, 7, 40] {
                let raw = noise(format, rows, cols);
                let mut found = layout.words.map(|_| vec![u32::MAX; 3]);
                layout.write_rows(&raw, &mut found);
                let mut wanted = layout.words.map(|words| vec![u32::MAX; rows * words]);
                let [low, high, scales] = &mut wanted;
                layout.write_part(&raw, [low, high, scales]);
                assert_eq!(found, wanted, "{format:?} {rows}");
            }
        }
    }

    /// As `docs/devices.md` has it.
    #[test]
    fn rows_take_the_bytes_of_the_file_but_for_scales_and_grids() {
        for format in Format::ALL {
            let layout = RowLayout::of(format, 4096);
            let thousandths = 4000 * layout.row_words() / layout.file_bytes();
            let wanted = match format {
                Format::Q6_K => 1009,
                Format::Q5_K => 1022,
                Format::Q4_K => 1027,
                Format::IQ4_XS => 1029,
                Format::Q3_K => 1054,
                Format::IQ3_S => 1345,
                Format::IQ2_S => 1414,
                Format::IQ3_XXS => 1510,
                Format::IQ2_XS => 1567,
                Format::IQ2_XXS => 1757,
                _ => 1000,
            };
            assert_eq!(thousandths, wanted, "{format:?}");
        }
    }

    #[test]
    fn planes_hold_the_values_of_the_file() {
        for format in Format::ALL {
            let cols = match format.block_weights() {
                1 => 37,
                32 => 5 * 32,
                _ => 3 * 256,
            };
            let layout = RowLayout::of(format, cols);
            let raw = noise(format, 1, cols);
            let mut planes = layout.words.map(|words| vec![u32::MAX; words]);
            let [low, high, scales] = &mut planes;
            layout.write_row(&raw, [low, high, scales]);
            let [low, high, scales] = &planes;
            let mut wanted = vec![0.0; cols];
            dequantize(format, &raw, &mut wanted);
            for (col, wanted) in wanted.iter().enumerate() {
                let found = read(&layout, [low, high, scales], col);
                assert_eq!(found, *wanted, "{format:?} {col}");
            }
            assert!(layout.words.iter().all(|words| words % 4 == 0));
        }
    }
}
