//! Packing queries, keys and values of attention into bf16 tiles for [`super::amx_attention`]. `attention::amx`
//! describes the arithmetic.
//!
//! A *slot group* is 16 slots of one page, a *block* two consecutive slot groups of a KV split. A line of a
//! tile has 32 bf16 values, which interleave two groups of sixteen word by word, the first in the lower halves.
//! An [`AmxTiles`] argument is the permission: the thread holds tiles, and the processor has AVX-512.

use super::amx::{AmxTiles, TILE_BYTES, TILE_ROWS};
use super::amx_attention_sources::{F16Source, Int4Source, Int8Source, KvSource};
use super::amx_bf16_gemm::pack_bf16_pair;
use crate::kv::{KvBlock, LANES, SCALE_GROUP};
use core::arch::x86_64::*;
use half::f16;

/// bf16 values of a tile.
pub(crate) const TILE_BF16S: usize = TILE_BYTES / size_of::<u16>();
/// Elements of a line: the K dimension of a tile product.
pub(crate) const TILE_DEPTH: usize = 2 * LANES;
/// The high and the low bf16 part of a split number.
pub(crate) const BF16_PARTS: usize = 2;
/// Bits of an f32 that form the truncated bf16.
const HIGH: i32 = 0xffff_0000_u32 as i32;
/// Mask of the upper half of each word.
const UPPER: __mmask32 = 0xaaaa_aaaa;

/// 16 slots of a page.
#[derive(Clone, Copy)]
pub(crate) struct SlotGroup<'a> {
    pub(crate) block: KvBlock<'a>,
    /// Slots of the page.
    pub(crate) slots: usize,
    /// The first slot of the group.
    pub(crate) first: usize,
}

impl SlotGroup<'_> {
    /// One element of a slot's value as f32.
    pub(crate) fn dequantize_element(&self, slot: usize, element: usize, elements: usize) -> f32 {
        let slot = self.first + slot;
        match self.block {
            KvBlock::F16 { values, .. } => {
                f16::from_bits(values[slot * elements + element]).to_f32()
            }
            KvBlock::Q8 { values, .. } => {
                let scale = values.scales[element / SCALE_GROUP * self.slots + slot];
                f32::from(values.quants[slot * elements + element]) * f16::from_bits(scale).to_f32()
            }
            KvBlock::Q4 { values, .. } => {
                let scale = values.scales[element / SCALE_GROUP * self.slots + slot];
                let quant = values.quant(slot * elements + element);
                f32::from(quant) * f16::from_bits(scale).to_f32()
            }
        }
    }
}

/// bf16 values of a tile of 16 queries, or of the keys of a slot group: `(parts, dim / 32, 16, 32)`.
pub(crate) const fn split_len(dim: usize) -> usize {
    BF16_PARTS * dim.div_ceil(TILE_DEPTH) * TILE_BF16S
}

/// Scales a query and splits each element into two bf16: the nearest, and the nearest to the remainder. The
/// result is one line of `to`, a tile of 16 queries `(parts, dim / 32, 16, 32)`; missing elements of the last
/// 32 are zero.
pub(crate) fn pack_query(_: &AmxTiles, query: &[f32], scale: f32, line: usize, to: &mut [u16]) {
    assert!(line < TILE_ROWS && to.len() == split_len(query.len()));
    // SAFETY: the tiles are held; the line is within the tile.
    unsafe { split_query(query, scale, to.as_mut_ptr().add(line * TILE_DEPTH)) }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn split_query(query: &[f32], scale: f32, to: *mut u16) {
    let depth_tiles = query.len().div_ceil(TILE_DEPTH);
    // SAFETY: masks keep loads within the query.
    unsafe {
        for block in 0..depth_tiles {
            let (mut high, mut low) = ([_mm512_setzero_ps(); 2], [_mm512_setzero_ps(); 2]);
            for half in 0..2 {
                let at = block * TILE_DEPTH + half * LANES;
                let count = query.len().saturating_sub(at).min(LANES);
                let x = _mm512_maskz_loadu_ps(
                    ((1u32 << count) - 1) as __mmask16,
                    query.as_ptr().wrapping_add(at),
                );
                let x = _mm512_mul_ps(x, _mm512_set1_ps(scale));
                high[half] = round_to_finite_bf16(x);
                low[half] = _mm512_sub_ps(x, high[half]);
            }
            let to = to.add(block * TILE_BF16S);
            _mm512_store_si512(to.cast(), pack_bf16_pair(high[0], high[1]));
            let to = to.add(depth_tiles * TILE_BF16S);
            _mm512_store_si512(to.cast(), pack_bf16_pair(low[0], low[1]));
        }
    }
}

/// The nearest bf16 (ties away from zero), or the largest finite bf16 where rounding overflows; NaN for NaN.
#[inline(always)]
unsafe fn round_to_finite_bf16(x: __m512) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let bits = _mm512_castps_si512(x);
        let cut = _mm512_and_si512(bits, _mm512_set1_epi32(HIGH));
        let infinite = _mm512_set1_ps(f32::INFINITY);
        let near = truncate_to_bf16(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)));
        let over = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(_mm512_abs_ps(near), infinite);
        let near = _mm512_mask_mov_ps(near, over, _mm512_castsi512_ps(cut));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
        _mm512_mask_mov_ps(near, nan, _mm512_set1_ps(f32::NAN))
    }
}

/// Truncates the bits of an f32 to a bf16, kept as an f32.
#[inline(always)]
pub(super) unsafe fn truncate_to_bf16(bits: __m512i) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe { _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(HIGH))) }
}

/// Truncates both vectors to bf16 and interleaves them, the first in the lower half of each word.
#[inline(always)]
pub(super) unsafe fn pack_truncated_pair(first: __m512, second: __m512) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let first = _mm512_srli_epi32::<16>(_mm512_castps_si512(first));
        _mm512_mask_blend_epi16(UPPER, first, _mm512_castps_si512(second))
    }
}

/// Splits the keys of a block into two bf16: the high part is the first 8 significant bits, the low part the
/// remainder, rounded (ties away from zero). That keeps all 11 bits of an f16 and 16 bits of a quant times its
/// scale. The result `to` is `(dim / 32, parts, groups, 16, 32)`; a missing slot group is zero.
pub(crate) fn pack_keys(
    _: &AmxTiles,
    groups: [Option<SlotGroup<'_>>; 2],
    dim: usize,
    to: &mut [u16],
) {
    assert!(to.len() == 2 * split_len(dim));
    for (n, group) in groups.into_iter().enumerate() {
        let Some(group) = group else {
            for lines in to.chunks_exact_mut(2 * TILE_BF16S) {
                lines[n * TILE_BF16S..][..TILE_BF16S].fill(0);
            }
            continue;
        };
        let to = to[n * TILE_BF16S..].as_mut_ptr();
        // SAFETY: the tiles are held; the constructors check 16 slots of `dim` elements, and `to` is long
        // enough.
        unsafe {
            match group.block {
                KvBlock::F16 { keys, .. } => {
                    split_keys(&F16Source::keys(keys, group, dim), dim, to);
                }
                KvBlock::Q8 { keys, .. } => {
                    split_keys(&Int8Source::keys(keys, group, dim), dim, to);
                }
                KvBlock::Q4 { keys, .. } => {
                    split_keys(&Int4Source::keys(keys, group, dim), dim, to);
                }
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn split_keys<S: KvSource>(keys: &S, dim: usize, to: *mut u16) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        for block in 0..dim.div_ceil(TILE_DEPTH) {
            let high = to.add(block * BF16_PARTS * 2 * TILE_BF16S);
            let low = high.add(2 * TILE_BF16S);
            for line in 0..TILE_ROWS {
                let at = block * TILE_DEPTH + line;
                let (mut a, mut b) = (_mm512_setzero_ps(), _mm512_setzero_ps());
                if at < dim {
                    a = keys.load_key(at);
                }
                if at + LANES < dim {
                    b = keys.load_key(at + LANES);
                }
                _mm512_store_si512(
                    high.add(line * TILE_DEPTH).cast(),
                    pack_truncated_pair(a, b),
                );
                let a = _mm512_sub_ps(a, truncate_to_bf16(_mm512_castps_si512(a)));
                let b = _mm512_sub_ps(b, truncate_to_bf16(_mm512_castps_si512(b)));
                _mm512_store_si512(low.add(line * TILE_DEPTH).cast(), pack_bf16_pair(a, b));
            }
        }
    }
}

/// Rounds the values of a block to the nearest bf16 (ties away from zero), and infinities and NaN to zero;
/// returns whether there were infinities or NaN. The results are the tiles `place(element / 16)` of `to`, each
/// `(16, 32)`; a missing slot group is zero.
pub(crate) fn pack_values(
    _: &AmxTiles,
    groups: [Option<SlotGroup<'_>>; 2],
    elements: usize,
    to: &mut [u16],
    place: impl Fn(usize) -> usize,
) -> bool {
    assert!(elements.is_multiple_of(LANES));
    let f16_sources = groups.map(|group| match group?.block {
        KvBlock::F16 { values, .. } => Some(F16Source::values(values, group?, elements)),
        KvBlock::Q8 { .. } | KvBlock::Q4 { .. } => None,
    });
    let int8_sources = groups.map(|group| match group?.block {
        KvBlock::Q8 { values, .. } => Some(Int8Source::values(values, group?, elements)),
        KvBlock::F16 { .. } | KvBlock::Q4 { .. } => None,
    });
    let int4_sources = groups.map(|group| match group?.block {
        KvBlock::Q4 { values, .. } => Some(Int4Source::values(values, group?, elements)),
        KvBlock::F16 { .. } | KvBlock::Q8 { .. } => None,
    });
    let mut non_finite = false;
    for tile in 0..elements / LANES {
        let to = &mut to[place(tile)..][..TILE_BF16S];
        // SAFETY: the tiles are held; the rows of values are in bounds, and `to` is long enough.
        non_finite |= unsafe {
            let to = to.as_mut_ptr();
            match (&int8_sources, &int4_sources) {
                ([None, None], [None, None]) => round_values(&f16_sources, tile * LANES, to),
                ([None, None], int4_sources) => round_values(int4_sources, tile * LANES, to),
                (int8_sources, _) => round_values(int8_sources, tile * LANES, to),
            }
        };
    }
    non_finite
}

unsafe fn round_values<S: KvSource>(groups: &[Option<S>; 2], element: usize, to: *mut u16) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        // Non-finite values are rare: they are only detected in the first pass, and zeroed in a second pass.
        let non_finite = round_lines::<S, false>(groups, element, to);
        non_finite && round_lines::<S, true>(groups, element, to)
    }
}

/// Packs sixteen elements of two slot groups; zeroes non-finite values if `CLEAN`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn round_lines<S: KvSource, const CLEAN: bool>(
    [first, second]: &[Option<S>; 2],
    element: usize,
    to: *mut u16,
) -> bool {
    /// Class mask of infinities, quiet and signaling NaN.
    const NON_FINITE: i32 = 0x01 | 0x08 | 0x10 | 0x80;
    let mut non_finite = 0;
    // SAFETY: guaranteed by the caller.
    unsafe {
        for line in 0..TILE_ROWS {
            let mut a = match first {
                Some(first) => first.load_value(line, element),
                None => _mm512_setzero_ps(),
            };
            let mut b = match second {
                Some(second) => second.load_value(line, element),
                None => _mm512_setzero_ps(),
            };
            let non_finite_a = _mm512_fpclass_ps_mask::<NON_FINITE>(a);
            let non_finite_b = _mm512_fpclass_ps_mask::<NON_FINITE>(b);
            if CLEAN {
                a = _mm512_maskz_mov_ps(!non_finite_a, a);
                b = _mm512_maskz_mov_ps(!non_finite_b, b);
            }
            non_finite |= non_finite_a | non_finite_b;
            _mm512_store_si512(to.add(line * TILE_DEPTH).cast(), pack_bf16_pair(a, b));
        }
    }
    non_finite != 0
}
