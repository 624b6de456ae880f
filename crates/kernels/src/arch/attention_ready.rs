//! Making ready what attention over many rows multiplies on AMX tiles; `attention::tiled` says what is
//! computed, [`super::attention_tiles`] multiplies.
//!
//! A *unit* is 16 slots of one page, a *block* two units that follow each other in a span. Whatever is
//! multiplied lies as tiles of bf16: a line of 32 elements holds two sixteens word by word, the first in
//! the lower halves. A [`Tiles`] is the permission: the thread has tiles, and the processor AVX-512.

use super::lanes::{F32x16, Lanes};
use super::tiled::pair;
use super::tiles::{TILE_BYTES, TILE_LINES, Tiles};
use crate::kv::LANES;
use core::arch::x86_64::*;

/// Halves of a tile.
pub(crate) const TILE_HALVES: usize = TILE_BYTES / size_of::<u16>();
/// Elements of a line.
pub(crate) const DEPTH: usize = 2 * LANES;
/// The high and the low part of what is split.
pub(crate) const PARTS: usize = 2;
/// Bits of an f32 that are a bf16's.
const HIGH: i32 = 0xffff_0000_u32 as i32;
/// Every second half of a vector: the upper ones.
const UPPER: __mmask32 = 0xaaaa_aaaa;

/// 16 slots of a page.
#[derive(Clone, Copy)]
pub(crate) struct Unit<'a> {
    /// Bits of f16, `(dim, slots)`.
    pub(crate) keys: &'a [u16],
    /// Bits of f16, `(slots, elements)`.
    pub(crate) values: &'a [u16],
    /// Slots of the page.
    pub(crate) slots: usize,
    /// The first of the sixteen.
    pub(crate) first: usize,
}

/// Halves of a tile of 16 queries, or of the keys of a unit: `(parts, dim / 32, 16, 32)`.
pub(crate) const fn split_halves(dim: usize) -> usize {
    PARTS * dim.div_ceil(DEPTH) * TILE_HALVES
}

/// Scales a query and splits it into two bf16: the nearest, and the nearest to what that leaves. It
/// becomes a line of `to`, a tile of 16 queries `(parts, dim / 32, 16, 32)`; what the last 32 lack is zero.
pub(crate) fn take_query(_: &Tiles, query: &[f32], scale: f32, line: usize, to: &mut [u16]) {
    assert!(line < TILE_LINES && to.len() == split_halves(query.len()));
    // SAFETY: the tiles' promise; the line is within the tile.
    unsafe { split_query(query, scale, to.as_mut_ptr().add(line * DEPTH)) }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn split_query(query: &[f32], scale: f32, to: *mut u16) {
    let deep = query.len().div_ceil(DEPTH);
    // SAFETY: masks keep loads within the query.
    unsafe {
        for block in 0..deep {
            let (mut high, mut low) = ([_mm512_setzero_ps(); 2], [_mm512_setzero_ps(); 2]);
            for half in 0..2 {
                let at = block * DEPTH + half * LANES;
                let some = query.len().saturating_sub(at).min(LANES);
                let x = _mm512_maskz_loadu_ps(
                    ((1u32 << some) - 1) as __mmask16,
                    query.as_ptr().wrapping_add(at),
                );
                let x = _mm512_mul_ps(x, _mm512_set1_ps(scale));
                high[half] = nearest_below_infinity(x);
                low[half] = _mm512_sub_ps(x, high[half]);
            }
            let to = to.add(block * TILE_HALVES);
            _mm512_store_si512(to.cast(), pair(high[0], high[1]));
            let to = to.add(deep * TILE_HALVES);
            _mm512_store_si512(to.cast(), pair(low[0], low[1]));
        }
    }
}

/// The nearest bf16 (a tie away from zero), but the one below where that would be infinite; NaN for NaN.
#[inline(always)]
unsafe fn nearest_below_infinity(x: __m512) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let bits = _mm512_castps_si512(x);
        let cut = _mm512_and_si512(bits, _mm512_set1_epi32(HIGH));
        let infinite = _mm512_set1_ps(f32::INFINITY);
        let near = cut_to_high(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)));
        let over = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(_mm512_abs_ps(near), infinite);
        let near = _mm512_mask_mov_ps(near, over, _mm512_castsi512_ps(cut));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
        _mm512_mask_mov_ps(near, nan, _mm512_set1_ps(f32::NAN))
    }
}

/// The bits of a bf16, as an f32.
#[inline(always)]
pub(super) unsafe fn cut_to_high(bits: __m512i) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe { _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(HIGH))) }
}

/// Splits a block's keys, exactly: the high part has 8 digits, the low one the 3 that are left of an
/// f16's 11. They become `to`, `(dim / 32, parts, units, 16, 32)`; a unit that is not there is zero.
pub(crate) fn take_keys(_: &Tiles, units: [Option<Unit<'_>>; 2], dim: usize, to: &mut [u16]) {
    assert!(to.len() == 2 * split_halves(dim));
    for (n, unit) in units.into_iter().enumerate() {
        let (keys, slots) = match unit {
            Some(unit) => {
                assert!(unit.keys.len() == dim * unit.slots && unit.first + LANES <= unit.slots);
                (unit.keys[unit.first..].as_ptr(), unit.slots)
            }
            None => (std::ptr::null(), 0),
        };
        // SAFETY: the tiles' promise; 16 slots of `dim` rows are there, and so is the room.
        unsafe {
            split_keys(keys, slots, dim, to.as_mut_ptr().add(n * TILE_HALVES));
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn split_keys(keys: *const u16, slots: usize, dim: usize, to: *mut u16) {
    let there = if keys.is_null() { 0 } else { dim };
    // SAFETY: as the caller says.
    unsafe {
        for block in 0..dim.div_ceil(DEPTH) {
            let high = to.add(block * PARTS * 2 * TILE_HALVES);
            let low = high.add(2 * TILE_HALVES);
            for line in 0..TILE_LINES {
                let at = block * DEPTH + line;
                let (mut a, mut b) = (_mm512_setzero_ps(), _mm512_setzero_ps());
                if at < there {
                    a = F32x16::load_f16(keys.add(at * slots)).0;
                }
                if at + LANES < there {
                    b = F32x16::load_f16(keys.add((at + LANES) * slots)).0;
                }
                _mm512_store_si512(high.add(line * DEPTH).cast(), cut_pair(a, b));
                let a = _mm512_sub_ps(a, cut_to_high(_mm512_castps_si512(a)));
                let b = _mm512_sub_ps(b, cut_to_high(_mm512_castps_si512(b)));
                _mm512_store_si512(low.add(line * DEPTH).cast(), cut_pair(a, b));
            }
        }
    }
}

/// The high halves of both, the first's in the lower half of each word.
#[inline(always)]
pub(super) unsafe fn cut_pair(first: __m512, second: __m512) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let first = _mm512_srli_epi32::<16>(_mm512_castps_si512(first));
        _mm512_mask_blend_epi16(UPPER, first, _mm512_castps_si512(second))
    }
}

/// Rounds a block's values to the nearest bf16 (a tie away from zero), infinities and NaN to zero; says
/// whether there were any. They become the tiles `place(element / 16)` of `to`, each `(16, 32)`; a unit
/// that is not there is zero.
pub(crate) fn take_values(
    _: &Tiles,
    units: [Option<Unit<'_>>; 2],
    elements: usize,
    to: &mut [u16],
    place: impl Fn(usize) -> usize,
) -> bool {
    const NOTHING: [u16; LANES] = [0; LANES];
    assert!(elements.is_multiple_of(LANES));
    // A unit that is not there is sixteen times the same zeros.
    let mut from = [(NOTHING.as_ptr(), 0); 2];
    let mut at = [0; 2];
    for ((from, at), unit) in from.iter_mut().zip(&mut at).zip(&units) {
        if let Some(unit) = unit {
            assert!(unit.values.len() == unit.slots * elements && unit.first + LANES <= unit.slots);
            *from = (unit.values[unit.first * elements..].as_ptr(), elements);
            *at = LANES;
        }
    }
    let mut odd = false;
    for tile in 0..elements / LANES {
        let to = &mut to[place(tile)..][..TILE_HALVES];
        // SAFETY: the tiles' promise; rows and room are there.
        unsafe {
            if round_values::<false>(from, to.as_mut_ptr()) {
                round_values::<true>(from, to.as_mut_ptr());
                odd = true;
            }
        }
        for (from, at) in from.iter_mut().zip(at) {
            from.0 = from.0.wrapping_add(at);
        }
    }
    odd
}

/// Sixteen elements of two times sixteen rows, each with the distance between its rows.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn round_values<const CLEAN: bool>(from: [(*const u16, usize); 2], to: *mut u16) -> bool {
    /// Infinities and NaN, quiet or not.
    const ODD: i32 = 0x01 | 0x08 | 0x10 | 0x80;
    let [(first, first_row), (second, second_row)] = from;
    let mut odd = 0;
    // SAFETY: as the caller says.
    unsafe {
        for line in 0..TILE_LINES {
            let mut a = F32x16::load_f16(first.add(line * first_row)).0;
            let mut b = F32x16::load_f16(second.add(line * second_row)).0;
            let (odd_a, odd_b) = (
                _mm512_fpclass_ps_mask::<ODD>(a),
                _mm512_fpclass_ps_mask::<ODD>(b),
            );
            if CLEAN {
                a = _mm512_maskz_mov_ps(!odd_a, a);
                b = _mm512_maskz_mov_ps(!odd_b, b);
            }
            odd |= odd_a | odd_b;
            _mm512_store_si512(to.add(line * DEPTH).cast(), pair(a, b));
        }
    }
    odd != 0
}
