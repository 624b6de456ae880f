//! Requantization of a K-block of packed weights to int8 B tiles.
//!
//! For each row of weights and K-block, one scale covers all quants; factor and offset of each sub-block are
//! 16-bit fixed-point numbers, so that a byte takes one multiplication and one addition.

use super::amx::TILE_BYTES;
use super::int8_dot::{Avx512, Int8Dot};
use super::packed_block::{PackedBlock, prefetch_ahead, zero_point_shift};
use crate::layout::activation_block::ZERO_POINT_LOG2;
use crate::layout::gemm::B_BUFFER_BYTES;
use crate::layout::tiles::{BLOCKS_PER_K_BLOCK, TILE_BLOCKS};
use crate::memory::LINE;
use crate::packing::{GROUPS, PackedFormat};
use core::arch::x86_64::*;
use std::ops::Range;

/// B tiles per panel in a K-block.
const K_BLOCK_TILES: usize = BLOCKS_PER_K_BLOCK / TILE_BLOCKS;
/// Magnitude of the largest weight in quantization steps: less than 127, so that rounding cannot overflow.
const QUANT_MAX: f32 = 126.0;
/// Fraction bits of the 16-bit fixed-point weights.
const FRACTION_BITS: u32 = 8;
/// K-blocks whose weights are all below this bound count as zero: the inverse scale overflows.
const MAX_ABS_MIN: f32 = 1e-30;
/// Byte offsets of the weights' scales and of the integer sums in a B buffer.
const SCALES_OFFSET: usize = 2 * K_BLOCK_TILES * TILE_BYTES;
const INT_SUMS_OFFSET: usize = B_BUFFER_BYTES - 4 * TILE_BYTES;
const _: () = assert!(SCALES_OFFSET + 2 * LINE <= INT_SUMS_OFFSET);

/// A B buffer: tiles `(tiles, panels)`, the scale of each row of weights, integer sums of products.
#[derive(Clone, Copy)]
pub(super) struct KBlockBuffer(pub(super) *mut u8);

impl KBlockBuffer {
    pub(super) fn tile_ptr(self, at: usize) -> *mut u8 {
        self.0.wrapping_add(at * TILE_BYTES)
    }

    pub(super) fn scales_ptr(self, panel: usize) -> *mut f32 {
        self.0.wrapping_add(SCALES_OFFSET + panel * LINE).cast()
    }

    pub(super) fn int_sums_ptr(self) -> *mut i32 {
        self.0.wrapping_add(INT_SUMS_OFFSET).cast()
    }
}

/// State of the requantization of a K-block, which proceeds tile by tile.
pub(super) struct KBlockDequantizer<P, const N: usize> {
    /// Start of the first of `N` panels.
    panel: *const u8,
    panel_bytes: usize,
    pub(super) blocks: Range<usize>,
    buffer: KBlockBuffer,
    /// Finished tiles of each panel.
    tiles_done: usize,
    /// Fixed-point factors of each panel, written by [`KBlockDequantizer::compute_scales`].
    affine: *mut [Int8Affine; N],
    packing: std::marker::PhantomData<P>,
}

/// Fixed-point factor and offset of each sub-block, for each row of a panel: 16 bits with [`FRACTION_BITS`]
/// fraction bits, duplicated in both halves of each word.
pub(super) struct Int8Affine {
    sub_blocks: [[__m512i; 2]; 2 * BLOCKS_PER_K_BLOCK],
}

impl<P: PackedFormat, const N: usize> KBlockDequantizer<P, N> {
    pub(super) fn new(
        panels: &[u8],
        blocks: Range<usize>,
        buffer: KBlockBuffer,
        affine: *mut [Int8Affine; N],
    ) -> Self {
        Self {
            panel: panels.as_ptr(),
            panel_bytes: panels.len() / N,
            blocks,
            buffer,
            tiles_done: 0,
            affine,
            packing: std::marker::PhantomData,
        }
    }

    /// Requantizes the whole K-block.
    ///
    /// # Safety
    /// The processor has AVX-512, the blocks are within the panels, and the buffer holds the tiles.
    #[inline(always)]
    pub(super) unsafe fn dequantize_all(&mut self) {
        for _ in 0..K_BLOCK_TILES {
            // SAFETY: guaranteed by the caller.
            unsafe { self.dequantize_step() };
        }
    }

    /// Requantizes the next tile of each panel, if any is left.
    ///
    /// # Safety
    /// As [`KBlockDequantizer::dequantize_all`].
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn dequantize_step(&mut self) {
        if self.tiles_done * TILE_BLOCKS >= self.blocks.len() {
            return;
        }
        for n in 0..N {
            // SAFETY: guaranteed by the caller.
            unsafe {
                if self.tiles_done == 0 {
                    self.compute_scales(n);
                }
                for half in 0..TILE_BLOCKS {
                    self.dequantize_half_tile(n, self.tiles_done * TILE_BLOCKS + half);
                }
            }
        }
        self.tiles_done += 1;
    }

    /// Factors and offsets of panel `n`.
    ///
    /// # Safety
    /// `n` is below `N`.
    #[inline(always)]
    unsafe fn affine_ptr(&self, n: usize) -> *mut [__m512i; 2] {
        // SAFETY: guaranteed by the caller; nothing is read, and the referenced array outlives `self`.
        unsafe { (&raw mut (*self.affine)[n].sub_blocks).cast() }
    }

    /// The `i`th block of the K-block.
    ///
    /// # Safety
    /// As [`KBlockDequantizer::dequantize_all`].
    #[inline(always)]
    unsafe fn block_at(&self, n: usize, i: usize) -> PackedBlock {
        let at = self.blocks.start + i;
        let blocks = P::QUANT.tile_blocks();
        PackedBlock {
            tile: self
                .panel
                .wrapping_add(n * self.panel_bytes + at / blocks * P::QUANT.tile_bytes()),
            block: at % blocks,
            first: 0,
        }
    }

    /// Computes the scale of each row for this K-block, and the fixed-point factors and offsets.
    ///
    /// # Safety
    /// As [`KBlockDequantizer::dequantize_all`].
    #[inline(always)]
    unsafe fn compute_scales(&mut self, n: usize) {
        let quant = P::QUANT;
        let sub_blocks_per_block = quant.sub_blocks_per_block();
        let zero_point_shift = zero_point_shift::<Avx512>(&quant);
        let highest = (u32::from(quant.quant_max()) << zero_point_shift) as f32;
        let zero = match quant.zero_log2 {
            Some(_) => (1u32 << ZERO_POINT_LOG2) as f32,
            None => 0.0,
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            let affine = self.affine_ptr(n);
            let mut max_abs = _mm512_setzero_ps();
            for i in 0..self.blocks.len() * sub_blocks_per_block {
                let (scale, shift) = self
                    .block_at(n, i / sub_blocks_per_block)
                    .load_scales::<Avx512, P>(i % sub_blocks_per_block);
                let scale =
                    _mm512_mul_ps(scale, _mm512_set1_ps(1.0 / (1 << zero_point_shift) as f32));
                let shift = if quant.has_shift() {
                    shift
                } else {
                    _mm512_setzero_ps()
                };
                let lowest = _mm512_fmadd_ps(scale, _mm512_set1_ps(-zero), shift);
                let highest = _mm512_fmadd_ps(scale, _mm512_set1_ps(highest), lowest);
                max_abs = _mm512_max_ps(_mm512_abs_ps(lowest), max_abs);
                max_abs = _mm512_max_ps(_mm512_abs_ps(highest), max_abs);
                // Kept as f32 until the scale of the row is known.
                *affine.add(i) = [_mm512_castps_si512(scale), _mm512_castps_si512(lowest)];
            }
            let is_nonzero =
                _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(max_abs, _mm512_set1_ps(MAX_ABS_MIN));
            let quant_step = _mm512_mul_ps(max_abs, _mm512_set1_ps(1.0 / QUANT_MAX));
            Avx512::store(
                _mm512_maskz_mov_ps(is_nonzero, quant_step),
                self.buffer.scales_ptr(n),
            );
            let unit = _mm512_set1_ps(QUANT_MAX * (1u32 << FRACTION_BITS) as f32);
            let inverse = _mm512_maskz_div_ps(is_nonzero, unit, max_abs);
            // Plus one half, so that truncation rounds. Closures would be compiled without AVX-512.
            let half = _mm512_set1_epi32(1 << (FRACTION_BITS - 1));
            for i in 0..self.blocks.len() * sub_blocks_per_block {
                let [scale, lowest] = *affine.add(i);
                let factor = round_scaled(_mm512_castsi512_ps(scale), inverse);
                let offset = round_scaled(_mm512_castsi512_ps(lowest), inverse);
                let offset = _mm512_add_epi32(offset, half);
                *affine.add(i) = [duplicate_words(factor), duplicate_words(offset)];
            }
        }
    }

    /// Requantizes one block, half a tile.
    ///
    /// # Safety
    /// As [`KBlockDequantizer::dequantize_all`].
    #[inline(always)]
    unsafe fn dequantize_half_tile(&self, n: usize, i: usize) {
        let quant = P::QUANT;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let block = self.block_at(n, i);
            let at = quant.header_bytes() + block.block * quant.block_bytes();
            prefetch_ahead(block.tile.add(at), quant.block_bytes());
            let quants = block.load_quants::<Avx512, P>();
            let sub_blocks_per_block = quant.sub_blocks_per_block();
            let tile = self.buffer.tile_ptr(i / TILE_BLOCKS * N + n);
            let to = tile.add(i % TILE_BLOCKS * GROUPS * LINE);
            for (group, quants) in quants.into_iter().enumerate() {
                let affine = &*self
                    .affine_ptr(n)
                    .add(i * sub_blocks_per_block + group * sub_blocks_per_block / GROUPS);
                _mm512_store_si512(
                    to.add(group * LINE).cast(),
                    requantize_bytes(quants, affine),
                );
            }
        }
    }
}

/// `x * by`, rounded to the nearest integer.
#[inline(always)]
unsafe fn round_scaled(x: __m512, by: __m512) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe { _mm512_cvtps_epi32(_mm512_mul_ps(x, by)) }
}

/// Copies the lower half of each word to the upper half.
#[inline(always)]
unsafe fn duplicate_words(words: __m512i) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe { _mm512_mask_blend_epi16(0xaaaa_aaaa, words, _mm512_slli_epi32::<16>(words)) }
}

/// `quant * factor + offset` of each byte, without the fraction bits.
#[inline(always)]
unsafe fn requantize_bytes(quants: __m512i, [factor, offset]: &[__m512i; 2]) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let even = _mm512_and_si512(quants, _mm512_set1_epi16(0xff));
        let odd = _mm512_srli_epi16::<8>(quants);
        let even = _mm512_add_epi16(_mm512_mullo_epi16(even, *factor), *offset);
        let odd = _mm512_add_epi16(_mm512_mullo_epi16(odd, *factor), *offset);
        let even = _mm512_srli_epi16::<FRACTION_BITS>(even);
        _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, even, odd)
    }
}
