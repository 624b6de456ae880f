//! Unpacked panels: quants of a byte, in vectors of eight rows of weights.
//!
//! ```text
//! unpacked panel: for every 32 columns: quants [group][half][32], scale f32 [sub_block][half][8],
//!                 shift f32 [sub_block][half][8] in formats with a shift
//! quants of 8 bits: [group][half][2][32]: less 128, and the magnitude of that
//! ```

use crate::arch::int8_dot::{Avx2, Int8Dot};
use crate::arch::packed_block::PackedBlock;
use crate::layout::activation_block::{ActivationBlock, ZERO_POINT_LOG2};
use crate::packing::{GROUPS, PackedFormat};
use crate::quant::QuantFormat;
use core::arch::x86_64::*;

/// Bytes of a vector.
pub(super) const VECTOR: usize = 32;
/// Vectors of a panel: eight rows of weights each.
pub(super) const HALVES: usize = 2;

/// Blocks of 32 columns in a K-block: whole tiles of any format, two panels in the workspace.
pub(super) const fn k_block_blocks(quant: &QuantFormat) -> usize {
    if quant.factor_bits() == 8 { 8 } else { 16 }
}

/// Bytes of the unpacked quants of a block of a panel.
pub(super) const fn unpacked_quants_bytes(quant: &QuantFormat) -> usize {
    let planes = if quant.factor_bits() == 8 { 2 } else { 1 };
    GROUPS * HALVES * planes * VECTOR
}

/// Bytes of an unpacked block of a panel.
pub(super) const fn unpacked_block_bytes(quant: &QuantFormat) -> usize {
    let scales = if quant.has_shift() { 2 } else { 1 };
    unpacked_quants_bytes(quant) + scales * quant.sub_blocks_per_block() * HALVES * VECTOR
}

/// Integer sums are this many times too large, so that [`ActivationBlock::initial_sums`] removes the zero point;
/// unpacked scales are that much smaller, which is exact.
pub(super) const fn sum_factor(quant: &QuantFormat) -> i16 {
    match quant.zero_log2 {
        Some(log2) => 1 << (ZERO_POINT_LOG2 - log2),
        None => 1,
    }
}

/// Unpacks `tiles` tiles of one panel.
///
/// # Safety
/// As [`super::gemm_quants_avx2`]; `from` points to `tiles` tiles of a panel, and `unpacked` holds them.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn unpack_panel<P: PackedFormat>(
    from: *const u8,
    tiles: usize,
    unpacked: *mut u8,
) {
    let quant = P::QUANT;
    let sub_blocks = quant.sub_blocks_per_block();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let unit = _mm256_set1_ps(1.0 / f32::from(sum_factor(&quant)));
        for index in 0..tiles * quant.tile_blocks() {
            let tile = from.add(index / quant.tile_blocks() * quant.tile_bytes());
            let block = index % quant.tile_blocks();
            let unpacked = unpacked.add(index * unpacked_block_bytes(&quant));
            let scales = unpacked.add(unpacked_quants_bytes(&quant));
            for half in 0..HALVES {
                let first = half * Avx2::ROWS;
                let block = PackedBlock { tile, block, first };
                let quants = block.load_quants::<Avx2, P>();
                for (group, quants) in quants.into_iter().enumerate() {
                    let at = group * HALVES + half;
                    if quant.factor_bits() == 8 {
                        let quants = _mm256_xor_si256(quants, _mm256_set1_epi8(-128));
                        let at: *mut __m256i = unpacked.add(2 * at * VECTOR).cast();
                        _mm256_store_si256(at, quants);
                        _mm256_store_si256(at.add(1), _mm256_abs_epi8(quants));
                    } else {
                        _mm256_store_si256(unpacked.add(at * VECTOR).cast(), quants);
                    }
                }
                for sub_block in 0..sub_blocks {
                    let (scale, shift) = block.load_scales::<Avx2, P>(sub_block);
                    let at = scales.add((sub_block * HALVES + half) * VECTOR);
                    _mm256_store_ps(at.cast(), _mm256_mul_ps(scale, unit));
                    if quant.has_shift() {
                        _mm256_store_ps(at.add(sub_blocks * HALVES * VECTOR).cast(), shift);
                    }
                }
            }
        }
    }
}

/// Four columns of the quants of a panel.
pub(super) struct Factors {
    quants: [__m256i; HALVES],
    /// Of quants of 8 bits, else the quants.
    magnitudes: [__m256i; HALVES],
}

impl Factors {
    /// # Safety
    /// As [`super::multiply_panel`].
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    pub(super) unsafe fn load<P: PackedFormat>(quants: *const u8, group: usize) -> Self {
        let from: *const __m256i = quants.cast();
        // SAFETY: guaranteed by the caller.
        unsafe {
            if P::QUANT.factor_bits() == 8 {
                let from = from.add(2 * HALVES * group);
                Self {
                    quants: [_mm256_load_si256(from), _mm256_load_si256(from.add(2))],
                    magnitudes: [
                        _mm256_load_si256(from.add(1)),
                        _mm256_load_si256(from.add(3)),
                    ],
                }
            } else {
                let from = from.add(HALVES * group);
                let quants = [_mm256_load_si256(from), _mm256_load_si256(from.add(1))];
                Self {
                    quants,
                    magnitudes: quants,
                }
            }
        }
    }

    /// Sums of two products with four columns of a row of activations.
    ///
    /// # Safety
    /// `x` points to a block.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    pub(super) unsafe fn products<P: PackedFormat>(
        &self,
        x: *const ActivationBlock,
        group: usize,
    ) -> [__m256i; HALVES] {
        // SAFETY: a block has eight groups of four columns.
        let x = unsafe { (&raw const (*x).quants).cast::<i32>().add(group).read() };
        let x = _mm256_set1_epi32(x);
        let [mut low, mut high] = [x; HALVES];
        if P::QUANT.factor_bits() == 8 {
            // A magnitude is at most 128: two products with |x| <= 127 stay below 2^15.
            low = _mm256_sign_epi8(x, self.quants[0]);
            high = _mm256_sign_epi8(x, self.quants[1]);
        }
        [
            _mm256_maddubs_epi16(self.magnitudes[0], low),
            _mm256_maddubs_epi16(self.magnitudes[1], high),
        ]
    }
}
