//! 32 columns of a row of activations, as int8.

use crate::memory::Plain;
use crate::packing::BLOCK;

/// A block whose largest magnitude is below this counts as zero: 127 divided by it overflows.
pub(crate) const SMALLEST: f32 = 1e-35;
/// A block with a magnitude beyond this counts as not finite: [`ActBlock::minus_magic`] overflows.
pub(super) const LARGEST: f32 = 1e33;
/// Bits of a scale that are zero, so that one and a half times it is exact.
const SCALE_LOW_BITS: u32 = 2;
/// One and a half times 2^23, where the last bit of an f32 is worth one: an integer of magnitude
/// below 2^22 added to the bits is added to the value.
pub(crate) const MAGIC: f32 = 12_582_912.0;
/// [`MAGIC`]'s bits: where a sum of products starts.
pub(crate) const MAGIC_BITS: i32 = MAGIC.to_bits() as i32;
/// Codes of formats that count from a middle are brought to count from `2^CENTRE_LOG2`.
pub(crate) const CENTRE_LOG2: u32 = 7;

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

/// A block of zeros.
pub(crate) const EMPTY: ActBlock = ActBlock {
    codes: [0; BLOCK],
    scale: 0.0,
    minus_magic: 0.0,
    starts: [MAGIC_BITS; 3],
    moments: [0.0; 3],
};

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
pub(super) fn nearest(x: f32) -> i32 {
    // The addition rounds, the bits count.
    (x + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()) as i32
}
