//! The matmul kernels for many rows on AMX, in bf16; `matmul::tiled` says what they compute and how the work
//! is cut.
//!
//! Some columns of one or two panels become bf16 tiles that the innermost cache holds and are
//! multiplied with all rows; while the first rows pass by, the next columns are made ready.

use super::amx::{self, TILE_BYTES, TILE_ROWS};
use super::int8_dot::Avx512;
use super::packed_block::{PackedBlock, prefetch_ahead};
use crate::layout::activation_block::ZERO_POINT_LOG2;
use crate::layout::amx_gemm::{AmxWorkspace, TileJob};
use crate::layout::tile_sizes::BLOCKS_PER_K_BLOCK;
use crate::memory::LINE;
use crate::packing::{LANES, PackedFormat, Q8_0};
use crate::{Activations, Format};
use core::arch::x86_64::*;
use std::ops::Range;

/// Packed weights that become tiles.
pub(crate) trait BTileSource {
    /// Blocks of 32 columns in a panel.
    fn blocks(panel_bytes: usize) -> usize;

    /// Q8Source of a panel before a block.
    fn bytes_before(block: usize) -> usize;

    /// Writes a block of a panel as a tile: in each line a pair of columns, both of a row together.
    ///
    /// # Safety
    /// The processor has AVX-512, the block is within the panel, and `to` has room for a tile.
    unsafe fn dequantize_tile(panel: *const u8, panel_bytes: usize, block: usize, to: *mut u8);
}

/// Q8_0, the one format whose quants are too long for tiles of int8.
pub(crate) struct Q8Source;

/// bf16 or f16, by the format's number.
pub(crate) struct FloatSource<const F: u8>;

/// # Safety
/// The processor has AVX-512, and this thread its tiles; the job's blocks and tiles are among the
/// activations', and the workspace has sums for the tiles.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn gemm_bf16<S: BTileSource, const N: usize>(
    panels: &[u8],
    x: &Activations,
    job: &TileJob,
    workspace: &mut AmxWorkspace,
) {
    let end = job.blocks.end.min(S::blocks(panels.len() / N));
    let k_block = |first: usize| first..(first + BLOCKS_PER_K_BLOCK).min(end);
    let mut now = k_block(job.blocks.start);
    let [mut b_current, mut b_next] = workspace.b_buffers();
    // SAFETY: the caller's promise; each half of the workspace's room holds a k_block.
    unsafe {
        for (i, block) in now.clone().enumerate() {
            dequantize_panels::<S, N>(panels, block, b_current, i);
        }
        while !now.is_empty() {
            let next = k_block(now.end);
            let pass = Bf16TilePass {
                x,
                now: now.clone(),
                b_tiles: b_current,
                is_first_k_block: now.start == 0,
            };
            let mut ahead = next.clone();
            let mut next_panels = NextPanelsPrefetcher::<N>::new::<S>(panels, job);
            for tile in job.tiles.clone().step_by(2) {
                let sums = workspace.accumulators(job, tile);
                // The first rows see all of it ready: no k_block is longer than the one before.
                let mut interleaved = |i: usize| {
                    if let Some(block) = ahead.next() {
                        dequantize_panels::<S, N>(panels, block, b_next, i);
                    } else if next.is_empty() {
                        next_panels.advance();
                    }
                };
                if tile + 1 < job.tiles.end {
                    pass.multiply_tiles::<2, N>(tile, sums, &mut interleaved);
                } else {
                    pass.multiply_tiles::<1, N>(tile, sums, &mut interleaved);
                }
            }
            (b_current, b_next) = (b_next, b_current);
            now = next;
        }
    }
}

/// The first k_block of the panels that follow these, done for while the last of these is multiplied: it is made ready at
/// once, with nothing to do interleaved.
struct NextPanelsPrefetcher<const N: usize> {
    from: *const u8,
    panel_bytes: usize,
    /// Q8Source of each panel that were done for, and all.
    done: usize,
    bytes: usize,
}

impl<const N: usize> NextPanelsPrefetcher<N> {
    fn new<S: BTileSource>(panels: &[u8], job: &TileJob) -> Self {
        let first = S::bytes_before(job.blocks.start);
        let end = (job.blocks.start + BLOCKS_PER_K_BLOCK).min(job.blocks.end);
        Self {
            from: panels.as_ptr().wrapping_add(panels.len() + first),
            panel_bytes: panels.len() / N,
            done: 0,
            bytes: S::bytes_before(end) - first,
        }
    }

    /// Asks for the next lines of each panel, if there are any left.
    #[inline(always)]
    fn advance(&mut self) {
        /// So many that all are done for in the course of eight tiles of rows.
        const LINES: usize = 4;
        let end = (self.done + LINES * LINE).min(self.bytes);
        for at in (self.done..end).step_by(LINE) {
            for n in 0..N {
                let line = self.from.wrapping_add(n * self.panel_bytes + at);
                // SAFETY: a prefetch reads nothing; an address beyond the weights is ignored.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
            }
        }
        self.done = end;
    }
}

/// Makes a block of each panel ready, at the `at`th place.
///
/// # Safety
/// As [`BTileSource::dequantize_tile`].
#[inline(always)]
unsafe fn dequantize_panels<S: BTileSource, const N: usize>(
    panels: &[u8],
    block: usize,
    b_tiles: *mut u8,
    at: usize,
) {
    let panel_bytes = panels.len() / N;
    for n in 0..N {
        // SAFETY: the caller's promise.
        unsafe {
            let panel = panels.as_ptr().add(n * panel_bytes);
            S::dequantize_tile(
                panel,
                panel_bytes,
                block,
                b_tiles.add((at * N + n) * TILE_BYTES),
            );
        }
    }
}

/// A k_block that is ready.
struct Bf16TilePass<'a> {
    x: &'a Activations,
    now: Range<usize>,
    b_tiles: *const u8,
    /// Whether these are the first columns, so that sums begin.
    is_first_k_block: bool,
}

impl Bf16TilePass<'_> {
    /// Adds the products with `M` tiles of rows from `tile` on to their sums, which follow each other,
    /// and calls `interleaved` with 0, 1, ... between.
    ///
    /// # Safety
    /// As [`gemm_bf16`].
    #[inline(always)]
    unsafe fn multiply_tiles<const M: usize, const N: usize>(
        &self,
        tile: usize,
        sums: *mut f32,
        interleaved: &mut impl FnMut(usize),
    ) {
        let (x, distance) = (
            self.x.bf16_tile(tile, self.now.start),
            self.x.bf16_tile_row_bytes(),
        );
        // SAFETY: the caller's promise.
        unsafe {
            if self.is_first_k_block {
                amx::zero_sums::<M, N>();
            } else {
                amx::load_sums::<M, N>(sums);
            }
            for i in 0..self.now.len() {
                let b_tile = self.b_tiles.add(i * N * TILE_BYTES);
                amx::multiply_bf16::<M, N>(x.add(i * TILE_BYTES), distance, b_tile);
                interleaved(i);
            }
            amx::store_sums::<M, N, _>(sums);
        }
    }
}

/// Bits of a quant_value in an f32 whose last significant digit they are made to be, and the f32 of quant_value zero:
/// 256 plus the quant_value, exactly.
const QUANT_SHIFT: u32 = 15;
const QUANT_MASK: i32 = 0xff << QUANT_SHIFT;
const QUANT_BASE: f32 = 256.0;

impl BTileSource for Q8Source {
    fn blocks(panel_bytes: usize) -> usize {
        let quant = Q8_0::QUANT;
        panel_bytes / quant.tile_bytes() * quant.tile_blocks()
    }

    fn bytes_before(block: usize) -> usize {
        // Whole tiles: chunks begin with one.
        block / Q8_0::QUANT.tile_blocks() * Q8_0::QUANT.tile_bytes()
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn dequantize_tile(panel: *const u8, _: usize, block: usize, to: *mut u8) {
        const { assert!(Q8_0::QUANT.sub_blocks_per_block() == 1 && !Q8_0::QUANT.has_shift()) };
        let quant = Q8_0::QUANT;
        let (index, block) = (block / quant.tile_blocks(), block % quant.tile_blocks());
        // SAFETY: the caller's promise.
        unsafe {
            let tile = panel.add(index * quant.tile_bytes());
            let offset = quant.header_bytes() + block * quant.block_bytes();
            prefetch_ahead(tile.add(offset), quant.block_bytes());
            let block = PackedBlock {
                tile,
                block,
                first: 0,
            };
            let (scale, _) = block.load_scales::<Avx512, Q8_0>(0);
            let middle = -(QUANT_BASE + (1 << ZERO_POINT_LOG2) as f32);
            let offset = _mm512_mul_ps(scale, _mm512_set1_ps(middle));
            for (i, quants) in block.load_quants::<Avx512, Q8_0>().iter().enumerate() {
                let weights = dequantize_four_columns(*quants, scale, offset);
                let to = to.add(2 * i * LINE);
                _mm512_store_si512(to.cast(), pack_bf16_pair(weights[0], weights[1]));
                _mm512_store_si512(to.add(LINE).cast(), pack_bf16_pair(weights[2], weights[3]));
            }
        }
    }
}

/// Four columns of sixteen rows.
#[inline(always)]
unsafe fn dequantize_four_columns(quants: __m512i, scale: __m512, offset: __m512) -> [__m512; 4] {
    // SAFETY: called with AVX-512 only. No closures: they would be compiled without it.
    unsafe {
        [
            dequantize_column(_mm512_slli_epi32::<QUANT_SHIFT>(quants), scale, offset),
            dequantize_column(
                _mm512_slli_epi32::<{ QUANT_SHIFT - 8 }>(quants),
                scale,
                offset,
            ),
            dequantize_column(
                _mm512_srli_epi32::<{ 16 - QUANT_SHIFT }>(quants),
                scale,
                offset,
            ),
            dequantize_column(
                _mm512_srli_epi32::<{ 24 - QUANT_SHIFT }>(quants),
                scale,
                offset,
            ),
        ]
    }
}

/// One column of sixteen rows, from quants in [`QUANT_MASK`].
#[inline(always)]
unsafe fn dequantize_column(bits: __m512i, scale: __m512, offset: __m512) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let mask = _mm512_set1_epi32(QUANT_MASK);
        let base = _mm512_set1_epi32(QUANT_BASE.to_bits() as i32);
        // base | (bits & mask)
        let quant_value = _mm512_ternarylogic_epi32::<0xf8>(base, bits, mask);
        _mm512_fmadd_ps(_mm512_castsi512_ps(quant_value), scale, offset)
    }
}

/// Two columns rounded to bf16 (a tie away from zero), the first in the lower half of each word.
#[inline(always)]
pub(super) unsafe fn pack_bf16_pair(first: __m512, second: __m512) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let half = _mm512_set1_epi32(0x8000);
        let first = _mm512_add_epi32(_mm512_castps_si512(first), half);
        let second = _mm512_add_epi32(_mm512_castps_si512(second), half);
        _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(first), second)
    }
}

impl<const F: u8> BTileSource for FloatSource<F> {
    fn blocks(panel_bytes: usize) -> usize {
        (panel_bytes / LINE).div_ceil(TILE_ROWS)
    }

    fn bytes_before(block: usize) -> usize {
        block * TILE_ROWS * LINE
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn dequantize_tile(panel: *const u8, panel_bytes: usize, block: usize, to: *mut u8) {
        let first = block * TILE_ROWS;
        let pairs = (panel_bytes / LINE - first).min(TILE_ROWS);
        // SAFETY: the caller's promise; a pair of columns is a line.
        unsafe {
            for line in 0..TILE_ROWS {
                let from = panel.add((first + line) * LINE);
                let weights = if line >= pairs {
                    _mm512_setzero_si512()
                } else if F == Format::F16 as u8 {
                    let first = _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()));
                    let second = from.add(LINE / 2).cast();
                    let second = _mm512_cvtph_ps(_mm256_loadu_si256(second));
                    pack_bf16_pair(first, second)
                } else {
                    interleave_columns(_mm512_loadu_si512(from.cast()))
                };
                prefetch_ahead(from, LINE);
                _mm512_store_si512(to.add(line * LINE).cast(), weights);
            }
        }
    }
}

/// The halves of a vector word by word: first of one, first of the other, ...
#[inline(always)]
unsafe fn interleave_columns(columns: __m512i) -> __m512i {
    const ORDER: [u16; 32] = {
        let mut order = [0; 32];
        let mut i = 0;
        while i < 2 * LANES {
            order[i] = (i / 2 + i % 2 * LANES) as u16;
            i += 1;
        }
        order
    };
    // SAFETY: called with AVX-512 only; the order has 32 words.
    unsafe { _mm512_permutexvar_epi16(_mm512_loadu_si512(ORDER.as_ptr().cast()), columns) }
}
