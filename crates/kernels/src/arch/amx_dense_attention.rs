//! AMX kernels of dense attention: packing, transposed scores, the online softmax, transposed sums of values.
//! `attention::dense::tiles` describes arithmetic and layouts.
//!
//! An [`AmxTiles`] argument is the permission: the thread holds tiles, and the processor has AVX-512.

use super::amx::{self, AmxTiles, TILE_BYTES, TILE_ROWS};
use super::amx_attention::{exp2, round_to_bf16};
use super::amx_attention_pack::{TILE_BF16S, TILE_DEPTH, pack_truncated_pair};
use super::amx_bf16_gemm::pack_bf16_pair;
use crate::kv::LANES;
use core::arch::x86_64::*;

/// Floats of sixteen lines of scores or of weighted values of sixteen queries.
pub(crate) const PAIR_LINES: usize = TILE_ROWS * LANES;

/// The online softmax of sixteen queries.
#[derive(Clone, Copy)]
pub(crate) struct QueryState {
    /// Largest score.
    max: [f32; LANES],
    /// Sum of weights.
    sum: [f32; LANES],
}

impl QueryState {
    /// No key was seen.
    pub(crate) const fn new() -> Self {
        Self {
            max: [f32::NEG_INFINITY; LANES],
            sum: [0.0; LANES],
        }
    }
}

/// Rounds sixteen keys of `dim` elements to bf16, `(dim / 32, 16, 32)`; a line has elements `i` and `i + 16` of 32 next to
/// each other. Missing rows are empty.
pub(crate) fn pack_keys(_: &AmxTiles, rows: &[&[f32]; TILE_ROWS], dim: usize, to: &mut [u16]) {
    check_rows(rows, dim);
    assert!(to.len() == dim.div_ceil(TILE_DEPTH) * TILE_BF16S);
    // SAFETY: the tiles are held; `to` has a line for each row and each 32 elements.
    unsafe {
        for block in 0..dim.div_ceil(TILE_DEPTH) {
            for (line, row) in rows.iter().enumerate() {
                let to = to.as_mut_ptr().add(block * TILE_BF16S + line * TILE_DEPTH);
                store_line(to, load_pair(row, block * TILE_DEPTH, 1.0));
            }
        }
    }
}

/// Scales sixteen queries and rounds them to bf16, as tile `n` of a pair, `(dim / 32, 2, 16, 32)`: a line has two elements of
/// each query. Missing rows are empty.
pub(crate) fn pack_queries(
    _: &AmxTiles,
    rows: &[&[f32]; TILE_ROWS],
    (dim, scale): (usize, f32),
    (to, n): (&mut [u16], usize),
) {
    check_rows(rows, dim);
    assert!(n < 2 && to.len() == 2 * dim.div_ceil(TILE_DEPTH) * TILE_BF16S);
    // SAFETY: the tiles are held; `to` has two tiles for each 32 elements.
    unsafe {
        for block in 0..dim.div_ceil(TILE_DEPTH) {
            let to = to.as_mut_ptr().add((2 * block + n) * TILE_BF16S);
            pack_transposed(|row| load_pair(rows[row], block * TILE_DEPTH, scale), to);
        }
    }
}

/// Rounds two times sixteen values of `dim` elements to bf16, `(dim / 16, 16, 32)`: a line has one element of all. Missing
/// rows are empty.
pub(crate) fn pack_values(
    _: &AmxTiles,
    rows: [&[&[f32]; TILE_ROWS]; 2],
    dim: usize,
    to: &mut [u16],
) {
    check_rows(rows[0], dim);
    check_rows(rows[1], dim);
    assert!(to.len() == dim.div_ceil(LANES) * TILE_BF16S);
    // SAFETY: the tiles are held; `to` has a tile for each sixteen elements.
    unsafe {
        for tile in 0..dim.div_ceil(LANES) {
            let to = to.as_mut_ptr().add(tile * TILE_BF16S);
            let load = |row: usize| load_two([rows[0][row], rows[1][row]], tile * LANES);
            pack_transposed(load, to);
        }
    }
}

fn check_rows(rows: &[&[f32]; TILE_ROWS], dim: usize) {
    assert!(rows.iter().all(|row| row.is_empty() || row.len() == dim));
}

/// 32 elements of a row from `first` on, times `scale`, in bf16: the first sixteen in the lower halves of words.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn load_pair(row: &[f32], first: usize, scale: f32) -> __m512i {
    // SAFETY: masks keep loads within the row.
    unsafe {
        let scale = _mm512_set1_ps(scale);
        let a = _mm512_mul_ps(load_part(row, first), scale);
        let b = _mm512_mul_ps(load_part(row, first + LANES), scale);
        pack_bf16_pair(a, b)
    }
}

/// Sixteen elements of two rows from `first` on, in bf16: the first row in the lower halves of words.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn load_two([a, b]: [&[f32]; 2], first: usize) -> __m512i {
    // SAFETY: masks keep loads within the rows.
    unsafe { pack_bf16_pair(load_part(a, first), load_part(b, first)) }
}

/// Up to sixteen elements of a row from `first` on, then zeros.
#[inline(always)]
unsafe fn load_part(row: &[f32], first: usize) -> __m512 {
    let count = row.len().saturating_sub(first).min(LANES);
    // SAFETY: called with AVX-512 only; the mask keeps the load within the row.
    unsafe { _mm512_maskz_loadu_ps(first_lanes(count), row.as_ptr().wrapping_add(first)) }
}

/// Mask of the first `count` of sixteen elements.
#[inline(always)]
fn first_lanes(count: usize) -> __mmask16 {
    ((1u32 << count) - 1) as __mmask16
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn store_line(to: *mut u16, line: __m512i) {
    // SAFETY: the caller has room for a line.
    unsafe { _mm512_storeu_si512(to.cast(), line) };
}

/// Writes sixteen vectors as the columns of a tile.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn pack_transposed(load: impl Fn(usize) -> __m512i, to: *mut u16) {
    let mut vectors = [_mm512_setzero_si512(); TILE_ROWS];
    for (row, vector) in vectors.iter_mut().enumerate() {
        *vector = load(row);
    }
    transpose(&mut vectors);
    for (line, vector) in vectors.into_iter().enumerate() {
        // SAFETY: the caller has room for a tile.
        unsafe { store_line(to.add(line * TILE_DEPTH), vector) };
    }
}

/// Transposes sixteen by sixteen words.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn transpose(rows: &mut [__m512i; TILE_ROWS]) {
    /// Quarters 0 and 2 of two vectors, and quarters 1 and 3.
    const EVEN: i32 = 0x88;
    const ODD: i32 = 0xdd;
    let mut half = [_mm512_setzero_si512(); TILE_ROWS];
    for i in (0..TILE_ROWS).step_by(2) {
        half[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        half[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // Quarter q of vector 4 j + c: column 4 q + c of rows 4 j to 4 j + 3.
    for j in (0..TILE_ROWS).step_by(4) {
        rows[j] = _mm512_unpacklo_epi64(half[j], half[j + 2]);
        rows[j + 1] = _mm512_unpackhi_epi64(half[j], half[j + 2]);
        rows[j + 2] = _mm512_unpacklo_epi64(half[j + 1], half[j + 3]);
        rows[j + 3] = _mm512_unpackhi_epi64(half[j + 1], half[j + 3]);
    }
    for c in 0..4 {
        half[c] = _mm512_shuffle_i32x4::<EVEN>(rows[c], rows[4 + c]);
        half[4 + c] = _mm512_shuffle_i32x4::<ODD>(rows[c], rows[4 + c]);
        half[8 + c] = _mm512_shuffle_i32x4::<EVEN>(rows[8 + c], rows[12 + c]);
        half[12 + c] = _mm512_shuffle_i32x4::<ODD>(rows[8 + c], rows[12 + c]);
    }
    for c in 0..4 {
        rows[c] = _mm512_shuffle_i32x4::<EVEN>(half[c], half[8 + c]);
        rows[4 + c] = _mm512_shuffle_i32x4::<EVEN>(half[4 + c], half[12 + c]);
        rows[8 + c] = _mm512_shuffle_i32x4::<ODD>(half[c], half[8 + c]);
        rows[12 + c] = _mm512_shuffle_i32x4::<ODD>(half[4 + c], half[12 + c]);
    }
}

/// Scores of groups of 32 keys for a pair of tiles of queries, `(keys / 16, 2, 16 keys, 16 queries)`.
pub(crate) fn score_keys(_: &AmxTiles, queries: &[u16], keys: &[u16], scores: &mut [f32]) {
    let blocks = queries.len() / (2 * TILE_BF16S);
    let group = 2 * blocks * TILE_BF16S;
    assert!(group > 0 && queries.len() == group && keys.len().is_multiple_of(group));
    assert!(scores.len() == keys.len() / group * 4 * PAIR_LINES);
    let distance = blocks * TILE_BYTES;
    for (keys, scores) in keys
        .chunks_exact(group)
        .zip(scores.chunks_exact_mut(4 * PAIR_LINES))
    {
        let (keys, queries) = (keys.as_ptr().cast::<u8>(), queries.as_ptr().cast::<u8>());
        // SAFETY: the tiles are held; two tiles of keys and of queries for each block, and four of scores, are in bounds.
        unsafe {
            amx::zero_sums::<2, 2>();
            for block in 0..blocks {
                let at = block * TILE_BYTES;
                amx::multiply_bf16::<2, 2>(keys.add(at), distance, queries.add(2 * at));
            }
            amx::store_sums::<2, 2, _>(scores.as_mut_ptr());
        }
    }
}

/// Turns the scores of query tile `n` of a pair into weights in bf16, `(groups, 2, 16, 32)`, and adds these to the sums.
/// Where the maxima rise, the sums are corrected, and the factors of that are returned.
pub(crate) fn weigh_scores(
    _: &AmxTiles,
    (scores, n): (&[f32], usize),
    state: &mut QueryState,
    weights: &mut [u16],
) -> Option<[f32; LANES]> {
    let groups = scores.len() / (4 * PAIR_LINES);
    assert!(n < 2 && scores.len() == groups * 4 * PAIR_LINES);
    assert!(weights.len() == groups * 2 * TILE_BF16S);
    // SAFETY: the tiles are held; the groups are in bounds.
    unsafe {
        let scores = scores.as_ptr().add(n * PAIR_LINES);
        let weights = weights.as_mut_ptr().add(n * TILE_BF16S);
        weigh_groups(scores, groups, state, weights)
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn weigh_groups(
    scores: *const f32,
    groups: usize,
    state: &mut QueryState,
    weights: *mut u16,
) -> Option<[f32; LANES]> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let line = |tile: usize, line: usize| scores.add(tile * 2 * PAIR_LINES + line * LANES);
        let old = _mm512_loadu_ps(state.max.as_ptr());
        // Independent chains; the order of a maximum does not matter.
        let mut most = [old; 4];
        for tile in 0..2 * groups {
            for i in (0..TILE_ROWS).step_by(4) {
                for (chain, most) in most.iter_mut().enumerate() {
                    *most = _mm512_max_ps(*most, _mm512_load_ps(line(tile, i + chain)));
                }
            }
        }
        let most = _mm512_max_ps(
            _mm512_max_ps(most[0], most[1]),
            _mm512_max_ps(most[2], most[3]),
        );
        // A query that has seen nothing keeps weights of zero.
        let none = _mm512_set1_ps(f32::NEG_INFINITY);
        let unseen = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(most, none);
        let shift = _mm512_mask_mov_ps(most, unseen, _mm512_setzero_ps());
        let mut sum = _mm512_setzero_ps();
        for group in 0..groups {
            for i in 0..TILE_ROWS {
                let a = exp2(_mm512_sub_ps(_mm512_load_ps(line(2 * group, i)), shift));
                let b = exp2(_mm512_sub_ps(_mm512_load_ps(line(2 * group + 1, i)), shift));
                let (a, b) = (round_to_bf16(a), round_to_bf16(b));
                sum = _mm512_add_ps(_mm512_add_ps(sum, a), b);
                let to = weights.add(group * 2 * TILE_BF16S + i * TILE_DEPTH);
                _mm512_store_si512(to.cast(), pack_truncated_pair(a, b));
            }
        }
        let before = _mm512_loadu_ps(state.sum.as_ptr());
        let rises = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(most, old);
        let factor = exp2(_mm512_sub_ps(old, shift));
        let factor = _mm512_mask_mov_ps(_mm512_set1_ps(1.0), rises, factor);
        let sum = _mm512_fmadd_ps(before, factor, sum);
        _mm512_storeu_ps(state.max.as_mut_ptr(), most);
        _mm512_storeu_ps(state.sum.as_mut_ptr(), sum);
        let mut factors = [0.0; LANES];
        _mm512_storeu_ps(factors.as_mut_ptr(), factor);
        (rises != 0).then_some(factors)
    }
}

/// Multiplies the weighted values of query tile `n` of a pair, `(elements / 16, 2, 16, 16)`, by a factor for each query.
pub(crate) fn correct_values(
    _: &AmxTiles,
    (values, n): (&mut [f32], usize),
    factor: &[f32; LANES],
) {
    assert!(n < 2 && values.len().is_multiple_of(2 * PAIR_LINES));
    for values in values.chunks_exact_mut(2 * PAIR_LINES) {
        // SAFETY: the tiles are held.
        unsafe { correct_lines(&mut values[n * PAIR_LINES..][..PAIR_LINES], factor) };
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn correct_lines(lines: &mut [f32], factor: &[f32; LANES]) {
    for line in lines.as_chunks_mut::<LANES>().0 {
        // SAFETY: a line has as many floats as a vector.
        unsafe {
            let product = _mm512_mul_ps(
                _mm512_loadu_ps(line.as_ptr()),
                _mm512_loadu_ps(factor.as_ptr()),
            );
            _mm512_storeu_ps(line.as_mut_ptr(), product);
        }
    }
}

/// Adds the values of groups of 32 keys, `(groups, elements / 16, 16, 32)`, times the weights of a pair,
/// `(groups, 2, 16, 32)`, to the weighted values, `(elements / 16, 2, 16, 16)`.
pub(crate) fn add_values(_: &AmxTiles, values: &[u16], weights: &[u16], sums: &mut [f32]) {
    let groups = weights.len() / (2 * TILE_BF16S);
    let tiles = sums.len() / (2 * PAIR_LINES);
    assert!(weights.len() == groups * 2 * TILE_BF16S && sums.len() == tiles * 2 * PAIR_LINES);
    assert!(values.len() == groups * tiles * TILE_BF16S);
    let (values, weights) = (values.as_ptr().cast::<u8>(), weights.as_ptr().cast::<u8>());
    for tile in (0..tiles).step_by(2) {
        // SAFETY: the tiles are held; tiles and groups are in bounds.
        unsafe {
            let sums = sums.as_mut_ptr().add(tile * 2 * PAIR_LINES);
            let values = values.add(tile * TILE_BYTES);
            if tile + 1 < tiles {
                add_tiles::<2>(values, tiles, weights, groups, sums);
            } else {
                add_tiles::<1>(values, tiles, weights, groups, sums);
            }
        }
    }
}

unsafe fn add_tiles<const M: usize>(
    values: *const u8,
    tiles: usize,
    weights: *const u8,
    groups: usize,
    sums: *mut f32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        amx::load_sums::<M, 2>(sums);
        for group in 0..groups {
            let values = values.add(group * tiles * TILE_BYTES);
            let weights = weights.add(group * 2 * TILE_BYTES);
            amx::multiply_bf16::<M, 2>(values, TILE_BYTES, weights);
        }
        amx::store_sums::<M, 2, _>(sums);
    }
}

/// Writes the results of query tile `n` of a pair, `(16, dim)`: weighted values by the sums of weights.
pub(crate) fn write_rows(
    _: &AmxTiles,
    (values, n): (&[f32], usize),
    state: &QueryState,
    rows: &mut [f32],
) {
    let dim = rows.len() / TILE_ROWS;
    let tiles = dim.div_ceil(LANES);
    assert!(n < 2 && rows.len() == TILE_ROWS * dim && values.len() == tiles * 2 * PAIR_LINES);
    for tile in 0..tiles {
        let values = &values[(2 * tile + n) * PAIR_LINES..][..PAIR_LINES];
        let count = (dim - tile * LANES).min(LANES);
        // SAFETY: the tiles are held; `count` elements of each row from the tile's on are in bounds.
        unsafe {
            let rows = rows.as_mut_ptr().add(tile * LANES);
            write_tile(values.as_ptr(), state, rows, (dim, count));
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn write_tile(
    values: *const f32,
    state: &QueryState,
    rows: *mut f32,
    (dim, count): (usize, usize),
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let sum = _mm512_loadu_ps(state.sum.as_ptr());
        let mut vectors = [_mm512_setzero_si512(); TILE_ROWS];
        for (line, vector) in vectors.iter_mut().enumerate() {
            let values = _mm512_loadu_ps(values.add(line * LANES));
            *vector = _mm512_castps_si512(_mm512_div_ps(values, sum));
        }
        transpose(&mut vectors);
        for (row, vector) in vectors.into_iter().enumerate() {
            let to = rows.add(row * dim);
            _mm512_mask_storeu_ps(to, first_lanes(count), _mm512_castsi512_ps(vector));
        }
    }
}
