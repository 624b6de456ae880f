//! AMX bf16 GEMM with double-buffered dequantization of B tiles. `matmul::amx_gemm` describes arithmetic and
//! blocking.
//!
//! A K-block of one or two panels is dequantized to bf16 B tiles that fit the L1 cache and multiplied with all
//! row tiles of the job. Dequantization of the next K-block into the other buffer is interleaved with the tile
//! products of the first rows, so that vector and tile units work at the same time.

use super::amx::{self, TILE_BYTES, TILE_ROWS};
use super::int8_dot::Avx512;
use super::packed_block::{PackedBlock, prefetch_ahead};
use crate::layout::activation_block::ZERO_POINT_LOG2;
use crate::layout::gemm::{AmxWorkspace, TileJob};
use crate::layout::tiles::BLOCKS_PER_K_BLOCK;
use crate::memory::LINE;
use crate::packing::{GROUPS, LANES, PackedFormat};
use crate::{Activations, Format};
use core::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

/// Packed weights that dequantize to bf16 tiles.
pub(crate) trait BTileSource {
    /// Blocks of 32 columns in a panel.
    fn blocks(panel_bytes: usize) -> usize;

    /// Bytes of a panel before a block.
    fn bytes_before(block: usize) -> usize;

    /// Dequantizes a block of a panel to a B tile: each line has a pair of columns, interleaved by rows.
    ///
    /// # Safety
    /// The processor has AVX-512, the block is within the panel, and `to` is a tile.
    unsafe fn dequantize_tile(panel: *const u8, panel_bytes: usize, block: usize, to: *mut u8);
}

/// A format whose quants, or the levels that they stand for, are too wide for int8 tiles.
pub(crate) struct ByteSource<P>(PhantomData<P>);

/// BF16 or F16, by the number of the format.
pub(crate) struct FloatSource<const F: u8>;

/// Multiplies `N` panels with the job's rows.
///
/// # Safety
/// The processor has AVX-512, and this thread holds AMX tiles; the job's blocks and tiles are in range of the
/// activations, and the workspace has accumulators for the tiles.
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
    // SAFETY: guaranteed by the caller; each B buffer holds a K-block.
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
                // The first row tiles complete the next K-block: no K-block is longer than the one before.
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

/// Prefetches the first K-block of the next panels while the last K-block of these panels is multiplied: the
/// first K-block of a call is dequantized without products to overlap with.
struct NextPanelsPrefetcher<const N: usize> {
    from: *const u8,
    panel_bytes: usize,
    /// Bytes of each panel that were prefetched, and in all.
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

    /// Prefetches the next lines of each panel, if any are left.
    #[inline(always)]
    fn advance(&mut self) {
        /// Lines per product, so that all lines are prefetched during eight row tiles.
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

/// Dequantizes a block of each panel to the tile with index `at`.
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
        // SAFETY: guaranteed by the caller.
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

/// One pass over the row tiles with the current K-block.
struct Bf16TilePass<'a> {
    x: &'a Activations,
    now: Range<usize>,
    b_tiles: *const u8,
    /// Whether the accumulators start at zero.
    is_first_k_block: bool,
}

impl Bf16TilePass<'_> {
    /// Adds the products with `M` row tiles from `tile` on to their accumulators, and calls `interleaved` with
    /// 0, 1, ... after each product.
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
            self.x.bf16_tiles(tile..tile + M, self.now.clone()),
            self.x.bf16_tile_row_bytes(),
        );
        // SAFETY: guaranteed by the caller.
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

/// Bits of a quant within an f32 mantissa whose last bit counts one, and the f32 of quant zero: the float is
/// exactly 256 plus the quant.
const QUANT_SHIFT: u32 = 15;
const QUANT_MASK: i32 = 0xff << QUANT_SHIFT;
const QUANT_BASE: f32 = 256.0;

impl<P: PackedFormat> BTileSource for ByteSource<P> {
    fn blocks(panel_bytes: usize) -> usize {
        panel_bytes / P::QUANT.tile_bytes() * P::QUANT.tile_blocks()
    }

    fn bytes_before(block: usize) -> usize {
        // Whole tiles: a K-block begins with a tile.
        block / P::QUANT.tile_blocks() * P::QUANT.tile_bytes()
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn dequantize_tile(panel: *const u8, _: usize, block: usize, to: *mut u8) {
        const { assert!(P::QUANT.factor_bits() == 8 && !P::QUANT.has_shift()) };
        let quant = P::QUANT;
        let (index, block) = (block / quant.tile_blocks(), block % quant.tile_blocks());
        // SAFETY: guaranteed by the caller.
        unsafe {
            let tile = panel.add(index * quant.tile_bytes());
            let offset = quant.header_bytes() + block * quant.block_bytes();
            prefetch_ahead(tile.add(offset), quant.block_bytes());
            let block = PackedBlock {
                tile,
                block,
                first: 0,
            };
            let middle = -(QUANT_BASE + (1 << ZERO_POINT_LOG2) as f32);
            let sub_blocks = quant.sub_blocks_per_block();
            for (i, quants) in block.load_quants::<Avx512, P>().iter().enumerate() {
                let (scale, _) = block.load_scales::<Avx512, P>(i * sub_blocks / GROUPS);
                let offset = _mm512_mul_ps(scale, _mm512_set1_ps(middle));
                let weights = dequantize_four_columns(*quants, scale, offset);
                let to = to.add(2 * i * LINE);
                _mm512_store_si512(to.cast(), pack_bf16_pair(weights[0], weights[1]));
                _mm512_store_si512(to.add(LINE).cast(), pack_bf16_pair(weights[2], weights[3]));
            }
        }
    }
}

/// Dequantizes four columns of sixteen rows.
#[inline(always)]
unsafe fn dequantize_four_columns(quants: __m512i, scale: __m512, offset: __m512) -> [__m512; 4] {
    // SAFETY: called with AVX-512 only. Closures would be compiled without AVX-512.
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

/// Dequantizes one column of sixteen rows from quants at [`QUANT_MASK`].
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

/// Rounds two columns to bf16 (ties away from zero), the first column in the lower half of each word.
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
        // SAFETY: guaranteed by the caller; a pair of columns is a line.
        unsafe {
            for line in 0..TILE_ROWS {
                // Lines beyond the panel are not read; `wrapping_add` may point there.
                let from = panel.wrapping_add((first + line) * LINE);
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

/// Interleaves the two halves of a vector word by word.
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
