//! Making ready what attention over many rows multiplies on AMX tiles; `attention::tiled` says what is
//! computed, [`super::attention_tiles`] multiplies.
//!
//! A *unit* is 16 slots of one page, a *block* two units that follow each other in a span. Whatever is
//! multiplied lies as tiles of bf16: a line of 32 elements holds two sixteens word by word, the first in
//! the lower halves. A [`Tiles`] is the permission: the thread has tiles, and the processor AVX-512.

use super::lanes::{F32x16, Lanes};
use super::tiled::pair;
use super::tiles::{TILE_BYTES, TILE_LINES, Tiles};
use crate::kv::{Block, Codes, LANES, QUANTUM};
use core::arch::x86_64::*;
use half::f16;

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
    /// Keys and values of the page.
    pub(crate) block: Block<'a>,
    /// Slots of the page.
    pub(crate) slots: usize,
    /// The first of the sixteen.
    pub(crate) first: usize,
}

impl Unit<'_> {
    /// An element of a slot's value.
    pub(crate) fn value(&self, slot: usize, element: usize, elements: usize) -> f32 {
        let slot = self.first + slot;
        match self.block {
            Block::F16 { values, .. } => f16::from_bits(values[slot * elements + element]).to_f32(),
            Block::Q8 { values, .. } => {
                let scale = values.scales[element / QUANTUM * self.slots + slot];
                f32::from(values.codes[slot * elements + element]) * f16::from_bits(scale).to_f32()
            }
        }
    }
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

/// The high halves of both, the first's in the lower half of each word.
#[inline(always)]
pub(super) unsafe fn cut_pair(first: __m512, second: __m512) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let first = _mm512_srli_epi32::<16>(_mm512_castps_si512(first));
        _mm512_mask_blend_epi16(UPPER, first, _mm512_castps_si512(second))
    }
}

/// Splits a block's keys into two bf16: the high part is their first 8 digits, the low one what is left, rounded
/// (a tie away from zero). Those are all of an f16's 11 digits, and 16 of a code's and its scale's. They become
/// `to`, `(dim / 32, parts, units, 16, 32)`; a unit that is not there is zero.
pub(crate) fn take_keys(_: &Tiles, units: [Option<Unit<'_>>; 2], dim: usize, to: &mut [u16]) {
    assert!(to.len() == 2 * split_halves(dim));
    for (n, unit) in units.into_iter().enumerate() {
        let Some(unit) = unit else {
            for lines in to.chunks_exact_mut(2 * TILE_HALVES) {
                lines[n * TILE_HALVES..][..TILE_HALVES].fill(0);
            }
            continue;
        };
        let to = to[n * TILE_HALVES..].as_mut_ptr();
        // SAFETY: the tiles' promise; each makes sure of 16 slots of `dim` elements, and there is room.
        unsafe {
            match unit.block {
                Block::F16 { keys, .. } => split_keys(&Halves::keys(keys, unit, dim), dim, to),
                Block::Q8 { keys, .. } => split_keys(&Coded::keys(keys, unit, dim), dim, to),
            }
        }
    }
}

/// Where keys or values of one unit are, from its first slot on.
///
/// # Safety
/// Of both methods: the processor has AVX-512, and there is such an element.
trait Source {
    /// One element of sixteen keys.
    unsafe fn key(&self, element: usize) -> __m512;
    /// Sixteen elements of one value, from a multiple of sixteen on.
    unsafe fn value(&self, slot: usize, element: usize) -> __m512;
}

/// f16: keys `(dim, row)`, or values `(slots, row)`.
struct Halves {
    at: *const u16,
    row: usize,
}

/// Codes, keys `(elements / 4, slots, 4)` or values `(slots, row)`, and scales `(quanta, slots)`.
struct Coded {
    codes: *const i8,
    row: usize,
    scales: *const u16,
    slots: usize,
}

impl Halves {
    fn keys(keys: &[u16], unit: Unit<'_>, dim: usize) -> Self {
        assert!(keys.len() == dim * unit.slots && unit.first + LANES <= unit.slots);
        Self {
            at: keys[unit.first..].as_ptr(),
            row: unit.slots,
        }
    }

    fn values(values: &[u16], unit: Unit<'_>, elements: usize) -> Self {
        assert!(values.len() == unit.slots * elements && unit.first + LANES <= unit.slots);
        Self {
            at: values[unit.first * elements..].as_ptr(),
            row: elements,
        }
    }
}

impl Coded {
    fn keys(keys: Codes<'_>, unit: Unit<'_>, dim: usize) -> Self {
        let elements = dim.next_multiple_of(LANES);
        Self {
            codes: keys.codes[unit.first * 4..].as_ptr(),
            ..Self::values(keys, unit, elements)
        }
    }

    fn values(values: Codes<'_>, unit: Unit<'_>, elements: usize) -> Self {
        let Unit { slots, first, .. } = unit;
        assert!(values.codes.len() == slots * elements && first + LANES <= slots);
        assert!(values.scales.len() == elements.div_ceil(QUANTUM) * slots);
        Self {
            codes: values.codes[first * elements..].as_ptr(),
            row: elements,
            scales: values.scales[first..].as_ptr(),
            slots,
        }
    }
}

// SAFETY of all blocks: the trait's promise.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl Source for Halves {
    #[inline(always)]
    unsafe fn key(&self, element: usize) -> __m512 {
        unsafe { F32x16::load_f16(self.at.add(element * self.row)).0 }
    }

    #[inline(always)]
    unsafe fn value(&self, slot: usize, element: usize) -> __m512 {
        unsafe { F32x16::load_f16(self.at.add(slot * self.row + element)).0 }
    }
}

// SAFETY of all blocks: the trait's promise.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once above")]
impl Source for Coded {
    #[inline(always)]
    unsafe fn key(&self, element: usize) -> __m512 {
        unsafe {
            let codes = self.codes.add(element / 4 * self.slots * 4);
            let codes = _mm512_loadu_si512(codes.cast());
            let above = _mm512_set1_epi32(24 - element as i32 % 4 * 8);
            let codes = _mm512_srai_epi32::<24>(_mm512_sllv_epi32(codes, above));
            let scales = F32x16::load_f16(self.scales.add(element / QUANTUM * self.slots));
            _mm512_mul_ps(_mm512_cvtepi32_ps(codes), scales.0)
        }
    }

    #[inline(always)]
    unsafe fn value(&self, slot: usize, element: usize) -> __m512 {
        unsafe {
            let codes = _mm_loadu_si128(self.codes.add(slot * self.row + element).cast());
            let codes = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
            let scale = *self.scales.add(element / QUANTUM * self.slots + slot);
            let scale = _mm512_cvtph_ps(_mm256_set1_epi16(scale as i16));
            _mm512_mul_ps(codes, scale)
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn split_keys<S: Source>(keys: &S, dim: usize, to: *mut u16) {
    // SAFETY: as the caller says.
    unsafe {
        for block in 0..dim.div_ceil(DEPTH) {
            let high = to.add(block * PARTS * 2 * TILE_HALVES);
            let low = high.add(2 * TILE_HALVES);
            for line in 0..TILE_LINES {
                let at = block * DEPTH + line;
                let (mut a, mut b) = (_mm512_setzero_ps(), _mm512_setzero_ps());
                if at < dim {
                    a = keys.key(at);
                }
                if at + LANES < dim {
                    b = keys.key(at + LANES);
                }
                _mm512_store_si512(high.add(line * DEPTH).cast(), cut_pair(a, b));
                let a = _mm512_sub_ps(a, cut_to_high(_mm512_castps_si512(a)));
                let b = _mm512_sub_ps(b, cut_to_high(_mm512_castps_si512(b)));
                _mm512_store_si512(low.add(line * DEPTH).cast(), pair(a, b));
            }
        }
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
    assert!(elements.is_multiple_of(LANES));
    let halves = units.map(|unit| match unit?.block {
        Block::F16 { values, .. } => Some(Halves::values(values, unit?, elements)),
        Block::Q8 { .. } => None,
    });
    let coded = units.map(|unit| match unit?.block {
        Block::Q8 { values, .. } => Some(Coded::values(values, unit?, elements)),
        Block::F16 { .. } => None,
    });
    let mut odd = false;
    for tile in 0..elements / LANES {
        let to = &mut to[place(tile)..][..TILE_HALVES];
        // SAFETY: the tiles' promise; rows of so many elements and the room are there.
        odd |= unsafe {
            match &coded {
                [None, None] => round_values(&halves, tile * LANES, to.as_mut_ptr()),
                coded => round_values(coded, tile * LANES, to.as_mut_ptr()),
            }
        };
    }
    odd
}

unsafe fn round_values<S: Source>(units: &[Option<S>; 2], element: usize, to: *mut u16) -> bool {
    // SAFETY: as the caller says.
    unsafe {
        // Seldom are there any: so they are looked for while all is rounded, and then it is done again.
        let odd = round_lines::<S, false>(units, element, to);
        odd && round_lines::<S, true>(units, element, to)
    }
}

/// Sixteen elements of two times sixteen slots; without what is not finite, if it is to be `CLEAN`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn round_lines<S: Source, const CLEAN: bool>(
    [first, second]: &[Option<S>; 2],
    element: usize,
    to: *mut u16,
) -> bool {
    /// Infinities and NaN, quiet or not.
    const ODD: i32 = 0x01 | 0x08 | 0x10 | 0x80;
    let mut odd = 0;
    // SAFETY: as the caller says.
    unsafe {
        for line in 0..TILE_LINES {
            let mut a = match first {
                Some(first) => first.value(line, element),
                None => _mm512_setzero_ps(),
            };
            let mut b = match second {
                Some(second) => second.value(line, element),
                None => _mm512_setzero_ps(),
            };
            let odd_a = _mm512_fpclass_ps_mask::<ODD>(a);
            let odd_b = _mm512_fpclass_ps_mask::<ODD>(b);
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
