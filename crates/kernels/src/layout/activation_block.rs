//! Int8 quantization of 32 columns of a row of activations.

use crate::memory::Pod;
use crate::packing::BLOCK;

/// Blocks with a largest magnitude below this bound count as zero: 127 divided by the magnitude overflows.
pub(crate) const MAX_ABS_MIN: f32 = 1e-35;
/// Blocks with a magnitude above this bound count as not finite: [`ActivationBlock::minus_magic`] overflows.
pub(super) const MAX_ABS_MAX: f32 = 1e33;
/// Zeroed low bits of a scale, so that 1.5 times the scale is exact.
const SCALE_LOW_BITS: u32 = 2;
/// 1.5 times 2^23, where the unit in the last place of an f32 is one: adding an integer of magnitude below 2^22
/// to the bits adds the integer to the value.
pub(crate) const MAGIC: f32 = 12_582_912.0;
/// Bits of [`MAGIC`]: the initial value of an integer sum of products.
pub(crate) const MAGIC_BITS: i32 = MAGIC.to_bits() as i32;
/// Quants of formats with a zero point are shifted so that the zero point is `2^ZERO_POINT_LOG2`.
pub(crate) const ZERO_POINT_LOG2: u32 = 7;

/// 32 columns of one row in one cache line, similar to ggml's `block_q8_1`.
///
/// An integer sum of products that starts at [`MAGIC_BITS`] is, read as an f32, [`MAGIC`] plus the sum. So
/// `fma(sum, scale, minus_magic)` is the sum times the scale, rounded once, without a conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct ActivationBlock {
    /// In `-127..=127`.
    pub(crate) quants: [i8; BLOCK],
    /// The value of one quantization step.
    pub(crate) scale: f32,
    /// -[`MAGIC`] times the scale, exact.
    pub(crate) minus_magic: f32,
    /// [`MAGIC_BITS`] minus `2^ZERO_POINT_LOG2` times the sum of quants: of all, of the first half, of the
    /// second half.
    pub(crate) initial_sums: [i32; 3],
    /// The sum of quants times the scale: of all, of the first half, of the second half.
    pub(crate) scaled_sums: [f32; 3],
}

#[expect(unsafe_code, reason = "a promise about bytes")]
// SAFETY: arrays of numbers that fill one cache line without padding.
unsafe impl Pod for ActivationBlock {}

pub(crate) const ZERO_BLOCK: ActivationBlock = ActivationBlock {
    quants: [0; BLOCK],
    scale: 0.0,
    minus_magic: 0.0,
    initial_sums: [MAGIC_BITS; 3],
    scaled_sums: [0.0; 3],
};

/// Quantizes part of a row, from the first column of `blocks[0]`, and copies the row to `floats`; missing
/// columns are zero.
///
/// Scalar code that the compiler vectorizes for each level; all levels give the same bits.
#[inline(always)]
pub(crate) fn quantize_blocks(x: &[f32], blocks: &mut [ActivationBlock], floats: &mut [f32]) {
    let (copied, padding) = floats.split_at_mut(x.len());
    copied.copy_from_slice(x);
    padding.fill(0.0);
    for (block, x) in blocks.iter_mut().zip(floats.as_chunks::<BLOCK>().0) {
        *block = ActivationBlock::quantize(x);
    }
}

impl ActivationBlock {
    /// The negated sum of quants: of all, of the first half or of the second half.
    #[inline(always)]
    pub(crate) fn negative_sum(&self, which: usize) -> i32 {
        (self.initial_sums[which] - MAGIC_BITS) >> ZERO_POINT_LOG2
    }

    #[inline(always)]
    fn quantize(x: &[f32; BLOCK]) -> Self {
        // Magnitudes order as their bits do, and NaN and infinity order last.
        let bits = x
            .iter()
            .fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff));
        let most = f32::from_bits(bits);
        if most.is_nan() || most > MAX_ABS_MAX {
            return Self {
                scale: f32::NAN,
                minus_magic: f32::NAN,
                scaled_sums: [f32::NAN; 3],
                ..ZERO_BLOCK
            };
        }
        if most < MAX_ABS_MIN {
            return ZERO_BLOCK;
        }
        let low_bits = (1 << SCALE_LOW_BITS) - 1;
        let scale = f32::from_bits((most / 127.0).to_bits() & !low_bits);
        let inverse = 127.0 / most;
        // A loop for each operation: one for all is not vectorized.
        let mut rounded = [0i32; BLOCK];
        for (rounded, x) in rounded.iter_mut().zip(x) {
            *rounded = round_ties_even(x * inverse);
        }
        let mut quants = [0i8; BLOCK];
        for (quant, rounded) in quants.iter_mut().zip(&rounded) {
            *quant = *rounded as i8;
        }
        let (first, second) = rounded.split_at(BLOCK / 2);
        let sums = [first.iter().sum::<i32>(), second.iter().sum()];
        let sums = [sums[0] + sums[1], sums[0], sums[1]];
        Self {
            quants,
            scale,
            minus_magic: -MAGIC * scale,
            initial_sums: sums.map(|sum| MAGIC_BITS - (sum << ZERO_POINT_LOG2)),
            scaled_sums: sums.map(|sum| sum as f32 * scale),
        }
    }
}

/// The nearest integer, ties to even, of a magnitude below 2^22.
#[inline(always)]
pub(super) fn round_ties_even(x: f32) -> i32 {
    // The addition rounds; the difference of the bits is the integer.
    (x + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()) as i32
}
