//! Products of an unpacked panel with a few rows of activations.

use super::unpacked::{Factors, HALVES, VECTOR, sum_factor, unpacked_quants_bytes};
use crate::arch::int8_dot::{Avx2, Int8Dot, sums_in_i16};
use crate::arch::packed_block::each_row;
use crate::layout::activation_block::{ActivationBlock, MAGIC_BITS};
use crate::packing::{LANES, PackedFormat};
use crate::quant::QuantFormat;
use core::arch::asm;
use core::arch::x86_64::*;

/// Keeps the compiler from reordering what computes two vectors: it would load more quants early than there are
/// registers, and store and load sums instead.
macro_rules! keep_order {
    ($vectors:expr) => {
        // No instruction: the vectors are in registers here, and loads stay on their side.
        asm!("/* {0} {1} */", inout(ymm_reg) $vectors[0], inout(ymm_reg) $vectors[1], options(nostack, preserves_flags));
    };
}

/// The accumulators of a row.
///
/// # Safety
/// As [`super::multiply_panel`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn load_sums(sums: *const f32, row: usize) -> [__m256; HALVES] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let at = sums.add(row * 4 * LANES);
        [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(Avx2::ROWS))]
    }
}

/// # Safety
/// As [`super::multiply_panel`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn store_sums(sums: *mut f32, row: usize, acc: [__m256; HALVES]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let at = sums.add(row * 4 * LANES);
        _mm256_storeu_ps(at, acc[0]);
        _mm256_storeu_ps(at.add(Avx2::ROWS), acc[1]);
    }
}

/// Adds the products of a sub-block to the accumulators, group after group: the sums of all rows are in registers.
///
/// # Safety
/// As [`super::multiply_panel`]; `block` is an unpacked block.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn add_by_groups<P: PackedFormat, const M: usize>(
    block: *const u8,
    sub_block: usize,
    x: &[*const ActivationBlock; M],
    acc: &mut [[__m256; HALVES]; M],
) {
    let quant = P::QUANT;
    let groups = quant.sub_block_weights() / 4;
    let some = sums_in_i16(quant.factor_bits()).min(groups);
    debug_assert!(groups.is_multiple_of(some), "whole runs of groups");
    // SAFETY: guaranteed by the caller.
    unsafe {
        let factor = _mm256_set1_epi16(sum_factor(&quant));
        let mut dots = [[_mm256_setzero_si256(); HALVES]; M];
        if some == 1 {
            each_row!(m in M => { dots[m] = initial_sums::<P>(x[m], sub_block); });
        }
        let start = sub_block * groups;
        for first in (start..start + groups).step_by(some) {
            let mut pairs = [[_mm256_setzero_si256(); HALVES]; M];
            for group in first..first + some {
                let w = Factors::load::<P>(block, group);
                each_row!(m in M => {
                    let products = w.products::<P>(x[m], group);
                    if some == 1 {
                        dots[m] = add_i32(dots[m], products, factor);
                        keep_order!(dots[m]);
                    } else {
                        pairs[m] = if group == first { products } else { add_i16(pairs[m], products) };
                        keep_order!(pairs[m]);
                    }
                });
            }
            if some > 1 {
                each_row!(m in M => {
                    // Not before the products: registers are few.
                    if first == start {
                        dots[m] = initial_sums::<P>(x[m], sub_block);
                    }
                    dots[m] = add_i32(dots[m], pairs[m], factor);
                });
            }
        }
        each_row!(m in M => { scale_and_add::<P>(block, sub_block, &*x[m], dots[m], &mut acc[m]); });
    }
}

/// Adds the products of a sub-block of 16 columns to the accumulators, row after row: the quants are in registers.
/// Two sums of two products fit 16 bits.
///
/// # Safety
/// As [`super::multiply_panel`]; `block` is an unpacked block.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
pub(super) unsafe fn add_by_rows<P: PackedFormat, const M: usize>(
    block: *const u8,
    sub_block: usize,
    x: &[*const ActivationBlock; M],
    sums: *mut f32,
) {
    let first = sub_block * 4;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let factor = _mm256_set1_epi16(sum_factor(&P::QUANT));
        let w: [Factors; 4] = [
            Factors::load::<P>(block, first),
            Factors::load::<P>(block, first + 1),
            Factors::load::<P>(block, first + 2),
            Factors::load::<P>(block, first + 3),
        ];
        each_row!(m in M => {
            let [a, b, c, d] = [
                w[0].products::<P>(x[m], first),
                w[1].products::<P>(x[m], first + 1),
                w[2].products::<P>(x[m], first + 2),
                w[3].products::<P>(x[m], first + 3),
            ];
            let dots = initial_sums::<P>(x[m], sub_block);
            let dots = add_i32(dots, add_i16(a, b), factor);
            let dots = add_i32(dots, add_i16(c, d), factor);
            let mut acc = load_sums(sums, m);
            scale_and_add::<P>(block, sub_block, &*x[m], dots, &mut acc);
            keep_order!(acc);
            store_sums(sums, m, acc);
        });
    }
}

/// [`MAGIC_BITS`], less the zero point times the activations, times [`sum_factor`].
///
/// # Safety
/// `x` points to a block.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn initial_sums<P: PackedFormat>(
    x: *const ActivationBlock,
    sub_block: usize,
) -> [__m256i; HALVES] {
    let quant = P::QUANT;
    let start = match quant.zero_log2 {
        // SAFETY: guaranteed by the caller.
        Some(_) if quant.factor_bits() < 8 => unsafe {
            (*x).initial_sums[sum_index(&quant, sub_block)]
        },
        _ => MAGIC_BITS,
    };
    [_mm256_set1_epi32(start); HALVES]
}

/// Index of a sub-block in the sums of an activation block.
const fn sum_index(quant: &QuantFormat, sub_block: usize) -> usize {
    if quant.sub_blocks_per_block() == 1 {
        0
    } else {
        1 + sub_block
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn add_i16(a: [__m256i; HALVES], b: [__m256i; HALVES]) -> [__m256i; HALVES] {
    [_mm256_add_epi16(a[0], b[0]), _mm256_add_epi16(a[1], b[1])]
}

/// Adds the sums in 16 bits, times `factor`, to those in 32 bits.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn add_i32(
    sums: [__m256i; HALVES],
    pairs: [__m256i; HALVES],
    factor: __m256i,
) -> [__m256i; HALVES] {
    [
        _mm256_add_epi32(sums[0], _mm256_madd_epi16(pairs[0], factor)),
        _mm256_add_epi32(sums[1], _mm256_madd_epi16(pairs[1], factor)),
    ]
}

/// Adds the sums of a sub-block, times both scales, and the shift to the accumulators of a row.
///
/// # Safety
/// As [`super::multiply_panel`]; `block` is an unpacked block.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn scale_and_add<P: PackedFormat>(
    block: *const u8,
    sub_block: usize,
    x: &ActivationBlock,
    dots: [__m256i; HALVES],
    acc: &mut [__m256; HALVES],
) {
    let quant = P::QUANT;
    let (step, minus_magic) = (_mm256_set1_ps(x.scale), _mm256_set1_ps(x.minus_magic));
    let moment = _mm256_set1_ps(x.scaled_sums[sum_index(&quant, sub_block)]);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let scales = block.add(unpacked_quants_bytes(&quant));
        each_row!(p in HALVES => {
            let at = scales.add((sub_block * HALVES + p) * VECTOR);
            let dot = _mm256_fmadd_ps(_mm256_castsi256_ps(dots[p]), step, minus_magic);
            acc[p] = _mm256_fmadd_ps(dot, _mm256_load_ps(at.cast()), acc[p]);
            if quant.has_shift() {
                let shift = at.add(quant.sub_blocks_per_block() * HALVES * VECTOR);
                acc[p] = _mm256_fmadd_ps(moment, _mm256_load_ps(shift.cast()), acc[p]);
            }
        });
    }
}
