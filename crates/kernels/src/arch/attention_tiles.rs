//! The inner loops of attention over many rows, on AMX tiles; `attention::tiled` says what they compute
//! and how the work is cut. [`super::attention_ready`] tells units, blocks, and how they lie.
//!
//! A [`Tiles`] is the permission: the thread has tiles, and the processor AVX-512.

use super::attention_ready::{DEPTH, PARTS, TILE_HALVES, cut_pair, cut_to_high};
use super::prefetch::Ahead;
use super::tiles::{self, TILE_BYTES, TILE_LINES, Tiles};
use crate::kv::LANES;
use crate::layout::attention::base;
use core::arch::x86_64::*;

/// Floats of a tile.
pub(crate) const TILE_FLOATS: usize = TILE_BYTES / size_of::<f32>();
/// Tiles of queries that are taken at a time.
pub(crate) const PAIR: usize = 2;
/// Floats of a block's scores of a pair of tiles: `(tiles, units, 16 queries, 16 slots)`.
pub(crate) const BLOCK_SCORES: usize = PAIR * 2 * TILE_FLOATS;
/// Halves of a block's weights of a pair of tiles: `(tiles, 16 queries, 32)`.
pub(crate) const BLOCK_WEIGHTS: usize = PAIR * TILE_HALVES;

/// A block's scores `(tiles, units, 16, 16)` of one or two tiles of queries. For each 32 elements, in
/// order, the products of the query's low part with the key's high one, of both high parts, and of the
/// query's high with the key's low are added: so each is loaded once. `ahead` is asked for meanwhile.
pub(crate) fn score(
    _: &Tiles,
    queries: &[u16],
    keys: &[u16],
    scores: &mut [f32],
    ahead: &mut [Ahead; 2],
) {
    let tile = keys.len() / 2;
    assert!(scores.len() == BLOCK_SCORES && tile > 0 && queries.len().is_multiple_of(tile));
    let (deep, m) = (tile / TILE_HALVES / PARTS, queries.len() / tile);
    let (queries, keys) = (queries.as_ptr().cast(), keys.as_ptr().cast());
    let scores = scores.as_mut_ptr();
    // SAFETY: the tiles' promise; one or two tiles of queries, a block's keys, and the room are there.
    unsafe {
        match m {
            1 => score_tiles::<1>(queries, keys, deep, scores, ahead),
            PAIR => score_tiles::<2>(queries, keys, deep, scores, ahead),
            other => panic!("{other} tiles are not one or two"),
        }
    }
}

/// Asks for a few lines of each.
#[inline(always)]
fn ask(ahead: &mut [Ahead; 2]) {
    for ahead in ahead {
        ahead.line();
        ahead.line();
        ahead.line();
    }
}

unsafe fn score_tiles<const M: usize>(
    queries: *const u8,
    keys: *const u8,
    deep: usize,
    scores: *mut f32,
    ahead: &mut [Ahead; 2],
) {
    let apart = PARTS * deep * TILE_BYTES;
    // SAFETY: as the caller says.
    unsafe {
        tiles::zero::<M, 2>();
        for block in 0..deep {
            let high = queries.add(block * TILE_BYTES);
            let low = high.add(deep * TILE_BYTES);
            let keys = keys.add(block * PARTS * 2 * TILE_BYTES);
            tiles::load_activations::<M>(low, apart);
            tiles::load_weights(keys);
            tiles::multiply_loaded::<M>();
            ask(ahead);
            tiles::load_activations::<M>(high, apart);
            tiles::multiply_loaded::<M>();
            ask(ahead);
            tiles::load_weights(keys.add(2 * TILE_BYTES));
            tiles::multiply_loaded::<M>();
            ask(ahead);
        }
        tiles::store::<M, 2, _>(scores);
    }
}

/// Makes the scores `(16 queries, 16 slots)` of what a query does not see minus infinity: `seen` has a bit
/// for each slot.
pub(crate) fn hide(_: &Tiles, scores: &mut [f32], seen: &[u16; TILE_LINES]) {
    assert!(scores.len() == TILE_FLOATS);
    // SAFETY: the tiles' promise; 16 lines are there.
    unsafe { hide_lines(scores.as_mut_ptr(), seen) }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn hide_lines(scores: *mut f32, seen: &[u16; TILE_LINES]) {
    for (line, seen) in seen.iter().enumerate() {
        // SAFETY: as the caller says.
        unsafe {
            let nothing = _mm512_set1_ps(f32::NEG_INFINITY);
            _mm512_mask_storeu_ps(scores.add(line * LANES), !seen, nothing);
        }
    }
}

/// What a tile of 16 queries has after softmax.
#[derive(Default)]
pub(crate) struct Softened {
    /// The largest score; a NaN may be passed over.
    pub(crate) max: [f32; TILE_LINES],
    /// The sum of weights, rounded as they are.
    pub(crate) sum: [f32; TILE_LINES],
}

/// Turns the scores of the `m`th of two tiles of queries, `(blocks, tiles, units, 16, 16)`, into weights
/// `e^(score - max)`, rounded to bf16 (a tie up), `(blocks, tiles, 16, 32)`.
pub(crate) fn soften(_: &Tiles, scores: &[f32], m: usize, weights: &mut [u16]) -> Softened {
    let blocks = scores.len() / BLOCK_SCORES;
    assert!(m < PAIR && blocks * BLOCK_SCORES == scores.len());
    assert!(blocks * BLOCK_WEIGHTS == weights.len());
    let mut softened = Softened::default();
    // SAFETY: the tiles' promise; so many blocks are there.
    unsafe {
        let scores = scores.as_ptr().add(m * 2 * TILE_FLOATS);
        let weights = weights.as_mut_ptr().wrapping_add(m * TILE_HALVES);
        find_largest(scores, blocks, &mut softened.max);
        weigh_lines(scores, blocks, weights, &mut softened);
    }
    softened
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn find_largest(scores: *const f32, blocks: usize, max: &mut [f32; TILE_LINES]) {
    // SAFETY: as the caller says.
    unsafe {
        let mut most = [_mm512_set1_ps(f32::NEG_INFINITY); TILE_LINES];
        for block in 0..blocks {
            for unit in 0..2 {
                let at = scores.add(block * BLOCK_SCORES + unit * TILE_FLOATS);
                for (line, most) in most.iter_mut().enumerate() {
                    *most = _mm512_max_ps(*most, _mm512_load_ps(at.add(line * LANES)));
                }
            }
        }
        for (max, most) in max.iter_mut().zip(&most) {
            *max = _mm512_reduce_max_ps(*most);
        }
    }
}

/// Lines that are weighed at a time: as many sums as registers hold beside the rest.
const LINES: usize = 8;

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn weigh_lines(
    scores: *const f32,
    blocks: usize,
    weights: *mut u16,
    softened: &mut Softened,
) {
    // SAFETY: as the caller says.
    unsafe {
        for first in (0..TILE_LINES).step_by(LINES) {
            let mut sums = [_mm512_setzero_ps(); LINES];
            let mut bases = [0.0f32; LINES];
            for (base_of, max) in bases.iter_mut().zip(&softened.max[first..]) {
                *base_of = base(*max) * -std::f32::consts::LOG2_E;
            }
            for block in 0..blocks {
                let scores = scores.add(block * BLOCK_SCORES + first * LANES);
                let weights = weights.add(block * BLOCK_WEIGHTS + first * DEPTH);
                for (line, (sum, base)) in sums.iter_mut().zip(&bases).enumerate() {
                    let (at, base) = (scores.add(line * LANES), _mm512_set1_ps(*base));
                    let a = weight(_mm512_load_ps(at), base);
                    let b = weight(_mm512_load_ps(at.add(TILE_FLOATS)), base);
                    let (a, b) = (rounded(a), rounded(b));
                    *sum = _mm512_add_ps(_mm512_add_ps(*sum, a), b);
                    _mm512_store_si512(weights.add(line * DEPTH).cast(), cut_pair(a, b));
                }
            }
            for (to, sum) in softened.sum[first..].iter_mut().zip(&sums) {
                *to = _mm512_reduce_add_ps(*sum);
            }
        }
    }
}

/// The nearest bf16; of two, the larger in magnitude.
#[inline(always)]
unsafe fn rounded(x: __m512) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let half = _mm512_set1_epi32(0x8000);
        cut_to_high(_mm512_add_epi32(_mm512_castps_si512(x), half))
    }
}

/// `2^(score log2(e) + base)`, within 2^-18 of it; zero for minus infinity, NaN for NaN (with the lower
/// half zero, as a score's is).
#[inline(always)]
unsafe fn weight(score: __m512, base: __m512) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let log2e = _mm512_set1_ps(std::f32::consts::LOG2_E);
        let x = _mm512_fmadd_ps(score, log2e, base);
        let x = _mm512_max_ps(_mm512_set1_ps(LEAST), x);
        // What is above the next whole number below.
        let f = _mm512_reduce_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(x);
        let mut p = _mm512_set1_ps(POWER[0]);
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(POWER[1]));
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(POWER[2]));
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(POWER[3]));
        p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0));
        _mm512_scalef_ps(p, x)
    }
}

/// `2^f` for `f` from 0 to 1, nearest in proportion, from the highest power down to the first.
pub(crate) const POWER: [f32; 4] = [1.342_693_3e-2, 5.224_207_4e-2, 0.241_280_4, 0.693_044_8];
/// Two to this is zero.
pub(crate) const LEAST: f32 = -200.0;

/// `sums[i, e] = weights[i, t] * values[t, e]` over rising blocks, for one or two tiles of queries: weights
/// `(blocks, tiles, 16, 32)` and sums `(queries, elements)`. `values` are the tiles of one or two times 16
/// elements side by side, `(blocks, n, 16, 32)`, and the sums those from `element` on.
pub(crate) fn weigh(
    _: &Tiles,
    weights: &[u16],
    (values, n): (&[u16], usize),
    sums: &mut [f32],
    (element, elements): (usize, usize),
) {
    let blocks = weights.len() / BLOCK_WEIGHTS;
    let m = sums.len() / elements / TILE_LINES;
    assert!(values.len() == blocks * n * TILE_HALVES && element + n * LANES <= elements);
    assert!(m * TILE_LINES * elements == sums.len());
    let sums = sums[element..].as_mut_ptr();
    let (weights, values) = (weights.as_ptr().cast(), values.as_ptr().cast());
    // SAFETY: the tiles' promise; so many tiles are there.
    unsafe {
        match (m, n) {
            (1, 1) => weigh_tiles::<1, 1>(weights, values, blocks, sums, elements),
            (1, 2) => weigh_tiles::<1, 2>(weights, values, blocks, sums, elements),
            (2, 1) => weigh_tiles::<2, 1>(weights, values, blocks, sums, elements),
            (2, 2) => weigh_tiles::<2, 2>(weights, values, blocks, sums, elements),
            other => panic!("{other:?} tiles are not one or two"),
        }
    }
}

unsafe fn weigh_tiles<const M: usize, const N: usize>(
    weights: *const u8,
    values: *const u8,
    blocks: usize,
    sums: *mut f32,
    elements: usize,
) {
    // SAFETY: as the caller says.
    unsafe {
        tiles::zero::<M, N>();
        for block in 0..blocks {
            let weights = weights.add(block * PAIR * TILE_BYTES);
            tiles::multiply_halves::<M, N>(weights, TILE_BYTES, values.add(block * N * TILE_BYTES));
        }
        tiles::store_rows::<M, N>(sums, elements);
    }
}
