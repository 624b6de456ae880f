//! AMX kernels of attention over many rows: QK product, masking, softmax, PV product. `attention::amx`
//! describes arithmetic and blocking, [`super::amx_attention_pack`] the layout of tiles.
//!
//! An [`AmxTiles`] argument is the permission: the thread holds tiles, and the processor has AVX-512.

use super::amx::{self, AmxTiles, TILE_BYTES, TILE_ROWS};
use super::amx_attention_pack::{
    BF16_PARTS, TILE_BF16S, TILE_DEPTH, pack_truncated_pair, truncate_to_bf16,
};
use super::prefetch::Prefetcher;
use crate::kv::LANES;
use crate::layout::softmax_shift;
use core::arch::x86_64::*;

/// Floats of a tile.
pub(crate) const TILE_FLOATS: usize = TILE_BYTES / size_of::<f32>();
/// Tiles of queries per kernel call.
pub(crate) const QUERY_TILES: usize = 2;
/// Scores of a block for two tiles of queries: `(tiles, groups, 16 queries, 16 slots)`.
pub(crate) const BLOCK_SCORES: usize = QUERY_TILES * 2 * TILE_FLOATS;
/// Softmax weights of a block for two tiles of queries: `(tiles, 16 queries, 32)`.
pub(crate) const BLOCK_WEIGHTS: usize = QUERY_TILES * TILE_BF16S;

/// Scores of a block, `(tiles, groups, 16, 16)`, for one or two tiles of queries. For each 32 elements, in
/// order, three products are added: low part of the query by high part of the key, high by high, high by low;
/// each part is loaded once. Lines of `prefetchers` are prefetched in between.
pub(crate) fn qk_scores(
    _: &AmxTiles,
    queries: &[u16],
    keys: &[u16],
    scores: &mut [f32],
    prefetchers: &mut [Prefetcher; 2],
) {
    let tile = keys.len() / 2;
    assert!(scores.len() == BLOCK_SCORES && tile > 0 && queries.len().is_multiple_of(tile));
    let (depth_tiles, m) = (tile / TILE_BF16S / BF16_PARTS, queries.len() / tile);
    let (queries, keys) = (queries.as_ptr().cast(), keys.as_ptr().cast());
    let scores = scores.as_mut_ptr();
    // SAFETY: the tiles are held; one or two tiles of queries, a block of keys, and the scores are in bounds.
    unsafe {
        match m {
            1 => qk_tiles::<1>(queries, keys, depth_tiles, scores, prefetchers),
            QUERY_TILES => qk_tiles::<2>(queries, keys, depth_tiles, scores, prefetchers),
            other => panic!("{other} tiles are not one or two"),
        }
    }
}

/// Prefetches some lines of each.
#[inline(always)]
fn prefetch_lines(prefetchers: &mut [Prefetcher; 2]) {
    for prefetcher in prefetchers {
        prefetcher.next_line();
        prefetcher.next_line();
        prefetcher.next_line();
    }
}

unsafe fn qk_tiles<const M: usize>(
    queries: *const u8,
    keys: *const u8,
    depth_tiles: usize,
    scores: *mut f32,
    prefetchers: &mut [Prefetcher; 2],
) {
    let apart = BF16_PARTS * depth_tiles * TILE_BYTES;
    // SAFETY: guaranteed by the caller.
    unsafe {
        amx::zero_sums::<M, 2>();
        for block in 0..depth_tiles {
            let high = queries.add(block * TILE_BYTES);
            let low = high.add(depth_tiles * TILE_BYTES);
            let keys = keys.add(block * BF16_PARTS * 2 * TILE_BYTES);
            amx::load_activations::<M>(low, apart);
            amx::load_weights(keys);
            amx::multiply_loaded_bf16::<M>();
            prefetch_lines(prefetchers);
            amx::load_activations::<M>(high, apart);
            amx::multiply_loaded_bf16::<M>();
            prefetch_lines(prefetchers);
            amx::load_weights(keys.add(2 * TILE_BYTES));
            amx::multiply_loaded_bf16::<M>();
            prefetch_lines(prefetchers);
        }
        amx::store_sums::<M, 2, _>(scores);
    }
}

/// Sets the scores `(16 queries, 16 slots)` of invisible slots to -inf: `visible` has a bit for each visible slot.
pub(crate) fn mask_scores(_: &AmxTiles, scores: &mut [f32], visible: &[u16; TILE_ROWS]) {
    assert!(scores.len() == TILE_FLOATS);
    // SAFETY: the tiles are held; 16 lines are in bounds.
    unsafe { mask_rows(scores.as_mut_ptr(), visible) }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn mask_rows(scores: *mut f32, visible: &[u16; TILE_ROWS]) {
    for (line, visible) in visible.iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let nothing = _mm512_set1_ps(f32::NEG_INFINITY);
            _mm512_mask_storeu_ps(scores.add(line * LANES), !visible, nothing);
        }
    }
}

/// Softmax statistics of a tile of 16 queries: m and l of FlashAttention.
#[derive(Default)]
pub(crate) struct SoftmaxStats {
    /// Row maximum; a NaN may be ignored.
    pub(crate) max: [f32; TILE_ROWS],
    /// Row sum of the weights after rounding.
    pub(crate) sum: [f32; TILE_ROWS],
}

/// Turns the scores of query tile `m`, `(blocks, tiles, groups, 16, 16)`, into weights `e^(score - max)`,
/// rounded to bf16 (ties up), `(blocks, tiles, 16, 32)`.
pub(crate) fn softmax_rows(
    _: &AmxTiles,
    scores: &[f32],
    m: usize,
    weights: &mut [u16],
) -> SoftmaxStats {
    let blocks = scores.len() / BLOCK_SCORES;
    assert!(m < QUERY_TILES && blocks * BLOCK_SCORES == scores.len());
    assert!(blocks * BLOCK_WEIGHTS == weights.len());
    let mut stats = SoftmaxStats::default();
    // SAFETY: the tiles are held; the blocks are in bounds.
    unsafe {
        let scores = scores.as_ptr().add(m * 2 * TILE_FLOATS);
        let weights = weights.as_mut_ptr().wrapping_add(m * TILE_BF16S);
        row_maxima(scores, blocks, &mut stats.max);
        exp_rows(scores, blocks, weights, &mut stats);
    }
    stats
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn row_maxima(scores: *const f32, blocks: usize, max: &mut [f32; TILE_ROWS]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut maxima = [_mm512_set1_ps(f32::NEG_INFINITY); TILE_ROWS];
        for block in 0..blocks {
            for group in 0..2 {
                let at = scores.add(block * BLOCK_SCORES + group * TILE_FLOATS);
                for (line, maxima) in maxima.iter_mut().enumerate() {
                    *maxima = _mm512_max_ps(*maxima, _mm512_load_ps(at.add(line * LANES)));
                }
            }
        }
        for (max, maxima) in max.iter_mut().zip(&maxima) {
            *max = _mm512_reduce_max_ps(*maxima);
        }
    }
}

/// Rows of the softmax at a time: as many sums as fit the registers.
const ROWS_AT_ONCE: usize = 8;

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn exp_rows(scores: *const f32, blocks: usize, weights: *mut u16, stats: &mut SoftmaxStats) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        for first in (0..TILE_ROWS).step_by(ROWS_AT_ONCE) {
            let mut sums = [_mm512_setzero_ps(); ROWS_AT_ONCE];
            let mut bases = [0.0f32; ROWS_AT_ONCE];
            for (base_of, max) in bases.iter_mut().zip(&stats.max[first..]) {
                *base_of = softmax_shift(*max) * -std::f32::consts::LOG2_E;
            }
            for block in 0..blocks {
                let scores = scores.add(block * BLOCK_SCORES + first * LANES);
                let weights = weights.add(block * BLOCK_WEIGHTS + first * TILE_DEPTH);
                for (line, (sum, base)) in sums.iter_mut().zip(&bases).enumerate() {
                    let (at, base) = (scores.add(line * LANES), _mm512_set1_ps(*base));
                    let a = exp_weight(_mm512_load_ps(at), base);
                    let b = exp_weight(_mm512_load_ps(at.add(TILE_FLOATS)), base);
                    let (a, b) = (round_to_bf16(a), round_to_bf16(b));
                    *sum = _mm512_add_ps(_mm512_add_ps(*sum, a), b);
                    _mm512_store_si512(
                        weights.add(line * TILE_DEPTH).cast(),
                        pack_truncated_pair(a, b),
                    );
                }
            }
            for (to, sum) in stats.sum[first..].iter_mut().zip(&sums) {
                *to = _mm512_reduce_add_ps(*sum);
            }
        }
    }
}

/// The nearest bf16, ties away from zero.
#[inline(always)]
pub(super) unsafe fn round_to_bf16(x: __m512) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let half = _mm512_set1_epi32(0x8000);
        truncate_to_bf16(_mm512_add_epi32(_mm512_castps_si512(x), half))
    }
}

/// `2^(score log2(e) + base)`, as [`exp2`].
#[inline(always)]
unsafe fn exp_weight(score: __m512, base: __m512) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe {
        exp2(_mm512_fmadd_ps(
            score,
            _mm512_set1_ps(std::f32::consts::LOG2_E),
            base,
        ))
    }
}

/// `2^x` with relative error 2^-18; zero for -inf, NaN for NaN (with the lower half zero, as in a score).
#[inline(always)]
pub(super) unsafe fn exp2(x: __m512) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let x = _mm512_max_ps(_mm512_set1_ps(EXP2_MIN), x);
        // The fraction above the integer part (rounded down).
        let f = _mm512_reduce_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(x);
        let mut p = _mm512_set1_ps(EXP2_COEFFICIENTS[0]);
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP2_COEFFICIENTS[1]));
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP2_COEFFICIENTS[2]));
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(EXP2_COEFFICIENTS[3]));
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0));
        _mm512_scalef_ps(p, x)
    }
}

/// Polynomial of `2^f` for `f` from 0 to 1 with minimal relative error, coefficients from the highest power
/// down.
pub(crate) const EXP2_COEFFICIENTS: [f32; 4] =
    [1.342_693_3e-2, 5.224_207_4e-2, 0.241_280_4, 0.693_044_8];
/// Exponents below this give zero.
pub(crate) const EXP2_MIN: f32 = -200.0;

/// `sums[i, e] = weights[i, t] * values[t, e]` over blocks in order, for one or two tiles of queries: weights
/// `(blocks, tiles, 16, 32)` and sums `(queries, elements)`. `values` has `n` adjacent tiles of 16 elements,
/// `(blocks, n, 16, 32)`, for the elements from `element` on.
pub(crate) fn pv_product(
    _: &AmxTiles,
    weights: &[u16],
    (values, n): (&[u16], usize),
    sums: &mut [f32],
    (element, elements): (usize, usize),
) {
    let blocks = weights.len() / BLOCK_WEIGHTS;
    let m = sums.len() / elements / TILE_ROWS;
    assert!(values.len() == blocks * n * TILE_BF16S && element + n * LANES <= elements);
    assert!(m * TILE_ROWS * elements == sums.len());
    let sums = sums[element..].as_mut_ptr();
    let (weights, values) = (weights.as_ptr().cast(), values.as_ptr().cast());
    // SAFETY: the tiles are held; the tiles in memory are in bounds.
    unsafe {
        match (m, n) {
            (1, 1) => pv_tiles::<1, 1>(weights, values, blocks, sums, elements),
            (1, 2) => pv_tiles::<1, 2>(weights, values, blocks, sums, elements),
            (2, 1) => pv_tiles::<2, 1>(weights, values, blocks, sums, elements),
            (2, 2) => pv_tiles::<2, 2>(weights, values, blocks, sums, elements),
            other => panic!("{other:?} tiles are not one or two"),
        }
    }
}

unsafe fn pv_tiles<const M: usize, const N: usize>(
    weights: *const u8,
    values: *const u8,
    blocks: usize,
    sums: *mut f32,
    elements: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        amx::zero_sums::<M, N>();
        for block in 0..blocks {
            let weights = weights.add(block * QUERY_TILES * TILE_BYTES);
            amx::multiply_bf16::<M, N>(weights, TILE_BYTES, values.add(block * N * TILE_BYTES));
        }
        amx::store_sum_rows::<M, N>(sums, elements);
    }
}
