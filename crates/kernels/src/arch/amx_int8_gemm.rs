//! AMX int8 GEMM with double-buffered dequantization of B tiles. `matmul::amx_gemm` describes arithmetic and
//! blocking.
//!
//! A K-block of one or two panels is requantized to int8 B tiles that fit the L1 cache and multiplied with all
//! row tiles of the job. Requantization of the next K-block into the other buffer is interleaved with the tile
//! products of the first rows. Integer sums go from the tile registers through memory and are scaled while the
//! products of the next row tiles are computed.

use super::amx::{self, TILE_BYTES, TILE_ROWS};
use super::amx_int8_dequantize::{Int8Affine, KBlockBuffer, KBlockDequantizer};
use crate::Activations;
use crate::layout::gemm::{AmxWorkspace, TileJob};
use crate::layout::tiles::{BLOCKS_PER_K_BLOCK, TILE_BLOCKS};
use crate::packing::{LANES, PackedFormat};
use core::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Multiplies `N` panels with the job's rows.
///
/// # Safety
/// The processor has AVX-512, and this thread holds AMX tiles; the job's blocks and tiles are in range of the
/// activations, and the workspace has accumulators for the tiles.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn gemm_int8<P: PackedFormat, const N: usize>(
    panels: &[u8],
    x: &Activations,
    job: &TileJob,
    workspace: &mut AmxWorkspace,
) {
    let quant = P::QUANT;
    let in_panel = panels.len() / N / quant.tile_bytes() * quant.tile_blocks();
    let end = job.blocks.end.min(in_panel);
    let k_block = |first: usize| first..(first + BLOCKS_PER_K_BLOCK).min(end);
    let [mut b_current, mut b_next] = workspace.b_buffers().map(KBlockBuffer);
    // Never cleared nor moved: clearing took a seventh of the time of 32 rows.
    let mut affines = [const { MaybeUninit::<[Int8Affine; N]>::uninit() }; 2];
    let [mut affine_current, mut affine_next] = affines.each_mut().map(MaybeUninit::as_mut_ptr);
    let mut current = KBlockDequantizer::<P, N>::new(
        panels,
        k_block(job.blocks.start),
        b_current,
        affine_current,
    );
    // SAFETY: guaranteed by the caller; each B buffer holds a K-block.
    unsafe {
        current.dequantize_all();
        while !current.blocks.is_empty() {
            let mut next = KBlockDequantizer::<P, N>::new(
                panels,
                k_block(current.blocks.end),
                b_next,
                affine_next,
            );
            let pass = Int8TilePass {
                x,
                blocks: current.blocks.clone(),
                b_buffer: b_current,
            };
            let mut previous: Option<RowTileSums> = None;
            for (i, tile) in job.tiles.clone().step_by(2).enumerate() {
                let sums = RowTileSums {
                    int_sums: if i % 2 == 0 { b_current } else { b_next }.int_sums_ptr(),
                    accumulators: workspace.accumulators(job, tile),
                    tile,
                };
                // The first row tiles complete the next K-block: no K-block is longer than the one before.
                if tile + 1 < job.tiles.end {
                    pass.multiply_tiles::<2, N>(&sums, &mut || next.dequantize_step());
                } else {
                    pass.multiply_tiles::<1, N>(&sums, &mut || next.dequantize_step());
                }
                // Reading integer sums right after the tile store would stall; the sums of the previous row
                // tiles are complete.
                if let Some(sums) = previous.replace(sums) {
                    pass.add_scaled_sums::<2, N>(&sums);
                }
            }
            match previous {
                Some(sums) if sums.tile + 1 < job.tiles.end => pass.add_scaled_sums::<2, N>(&sums),
                Some(sums) => pass.add_scaled_sums::<1, N>(&sums),
                None => {}
            }
            (b_current, b_next) = (b_next, b_current);
            (affine_current, affine_next) = (affine_next, affine_current);
            current = next;
        }
    }
}

/// Sums of one or two row tiles: integer sums of a K-block, and f32 accumulators.
struct RowTileSums {
    int_sums: *mut i32,
    accumulators: *mut f32,
    tile: usize,
}

/// One pass over the row tiles with the current K-block.
struct Int8TilePass<'a> {
    x: &'a Activations,
    blocks: Range<usize>,
    b_buffer: KBlockBuffer,
}

impl Int8TilePass<'_> {
    /// Multiplies `M` row tiles with the B tiles, and calls `interleaved` after each product.
    ///
    /// # Safety
    /// As [`gemm_int8`].
    #[inline(always)]
    unsafe fn multiply_tiles<const M: usize, const N: usize>(
        &self,
        sums: &RowTileSums,
        interleaved: &mut impl FnMut(),
    ) {
        let x = self
            .x
            .int8_tiles(sums.tile..sums.tile + M, self.blocks.clone());
        let distance = self.x.int8_tile_row_bytes();
        // SAFETY: guaranteed by the caller.
        unsafe {
            amx::zero_sums::<M, N>();
            for i in 0..self.blocks.len() / TILE_BLOCKS {
                let x = x.add(i * TILE_BYTES);
                amx::multiply_int8::<M, N>(x, distance, self.b_buffer.tile_ptr(i * N));
                interleaved();
            }
            amx::store_sums::<M, N, _>(sums.int_sums);
        }
    }

    /// Adds scaled integer sums to the accumulators.
    ///
    /// # Safety
    /// As [`gemm_int8`], and the integer sums were stored.
    #[inline(always)]
    unsafe fn add_scaled_sums<const M: usize, const N: usize>(&self, sums: &RowTileSums) {
        let is_first_k_block = self.blocks.start == 0;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut weights = [_mm512_setzero_ps(); N];
            for (n, weights) in weights.iter_mut().enumerate() {
                *weights = _mm512_load_ps(self.b_buffer.scales_ptr(n));
            }
            for m in 0..M {
                let rows = self.x.int8_tile_scales(sums.tile + m, self.blocks.start);
                for (row, scale) in rows.iter().enumerate() {
                    let scale = _mm512_set1_ps(*scale);
                    for (n, weights) in weights.iter().enumerate() {
                        let at = ((m * N + n) * TILE_ROWS + row) * LANES;
                        let int_sums = _mm512_load_si512(sums.int_sums.add(at).cast());
                        let to = sums.accumulators.add(at);
                        let accumulated = if is_first_k_block {
                            _mm512_setzero_ps()
                        } else {
                            _mm512_load_ps(to)
                        };
                        let scale = _mm512_mul_ps(scale, *weights);
                        let sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(int_sums), scale, accumulated);
                        _mm512_store_ps(to, sum);
                    }
                }
            }
        }
    }
}
