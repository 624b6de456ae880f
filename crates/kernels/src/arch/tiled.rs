//! The matmul kernels for many rows on AMX, in bf16; `matmul::tiled` says what they compute and how the work
//! is cut.
//!
//! Some columns of one or two panels become bf16 tiles that the innermost cache holds and are
//! multiplied with all rows; while the first rows pass by, the next columns are made ready.

use super::block::{Block, prefetch};
use super::dots::Avx512;
use super::tiles::{self, TILE_BYTES, TILE_LINES};
use crate::layout::activation_block::CENTRE_LOG2;
use crate::layout::amx_gemm::{Desk, Job};
use crate::layout::tile_sizes::CHUNK_BLOCKS;
use crate::memory::LINE;
use crate::packing::{LANES, Packing, Q8_0};
use crate::{Activations, Format};
use core::arch::x86_64::*;
use std::ops::Range;

/// Packed weights that become tiles.
pub(crate) trait Source {
    /// Blocks of 32 columns in a panel.
    fn blocks(panel_bytes: usize) -> usize;

    /// Bytes of a panel before a block.
    fn bytes_before(block: usize) -> usize;

    /// Writes a block of a panel as a tile: in each line a pair of columns, both of a row together.
    ///
    /// # Safety
    /// The processor has AVX-512, the block is within the panel, and `to` has room for a tile.
    unsafe fn make_ready(panel: *const u8, panel_bytes: usize, block: usize, to: *mut u8);
}

/// Q8_0, the one format whose codes are too long for tiles of int8.
pub(crate) struct Bytes;

/// bf16 or f16, by the format's number.
pub(crate) struct Halves<const F: u8>;

/// # Safety
/// The processor has AVX-512, and this thread its tiles; the job's blocks and tiles are among the
/// activations', and the desk has sums for the tiles.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn panels<S: Source, const N: usize>(
    panels: &[u8],
    x: &Activations,
    job: &Job,
    desk: &mut Desk,
) {
    let end = job.blocks.end.min(S::blocks(panels.len() / N));
    let chunk = |first: usize| first..(first + CHUNK_BLOCKS).min(end);
    let mut now = chunk(job.blocks.start);
    let [mut ready, mut spare] = desk.ready();
    // SAFETY: the caller's promise; each half of the desk's room holds a chunk.
    unsafe {
        for (i, block) in now.clone().enumerate() {
            make_ready::<S, N>(panels, block, ready, i);
        }
        while !now.is_empty() {
            let next = chunk(now.end);
            let pass = Pass {
                x,
                now: now.clone(),
                ready,
                fresh: now.start == 0,
            };
            let mut ahead = next.clone();
            let mut start = Start::<N>::of::<S>(panels, job);
            for tile in job.tiles.clone().step_by(2) {
                let sums = desk.sums(job, tile);
                // The first rows see all of it ready: no chunk is longer than the one before.
                let mut meanwhile = |i: usize| {
                    if let Some(block) = ahead.next() {
                        make_ready::<S, N>(panels, block, spare, i);
                    } else if next.is_empty() {
                        start.ask();
                    }
                };
                if tile + 1 < job.tiles.end {
                    pass.multiply::<2, N>(tile, sums, &mut meanwhile);
                } else {
                    pass.multiply::<1, N>(tile, sums, &mut meanwhile);
                }
            }
            (ready, spare) = (spare, ready);
            now = next;
        }
    }
}

/// The first chunk of the panels that follow these, asked for while the last of these is multiplied: it is made ready at
/// once, with nothing to do meanwhile.
struct Start<const N: usize> {
    from: *const u8,
    panel_bytes: usize,
    /// Bytes of each panel that were asked for, and all.
    asked: usize,
    bytes: usize,
}

impl<const N: usize> Start<N> {
    fn of<S: Source>(panels: &[u8], job: &Job) -> Self {
        let first = S::bytes_before(job.blocks.start);
        let end = (job.blocks.start + CHUNK_BLOCKS).min(job.blocks.end);
        Self {
            from: panels.as_ptr().wrapping_add(panels.len() + first),
            panel_bytes: panels.len() / N,
            asked: 0,
            bytes: S::bytes_before(end) - first,
        }
    }

    /// Asks for the next lines of each panel, if there are any left.
    #[inline(always)]
    fn ask(&mut self) {
        /// So many that all are asked for in the course of eight tiles of rows.
        const LINES: usize = 4;
        let end = (self.asked + LINES * LINE).min(self.bytes);
        for at in (self.asked..end).step_by(LINE) {
            for n in 0..N {
                let line = self.from.wrapping_add(n * self.panel_bytes + at);
                // SAFETY: a prefetch reads nothing; an address beyond the weights is ignored.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
            }
        }
        self.asked = end;
    }
}

/// Makes a block of each panel ready, at the `at`th place.
///
/// # Safety
/// As [`Source::make_ready`].
#[inline(always)]
unsafe fn make_ready<S: Source, const N: usize>(
    panels: &[u8],
    block: usize,
    ready: *mut u8,
    at: usize,
) {
    let panel_bytes = panels.len() / N;
    for n in 0..N {
        // SAFETY: the caller's promise.
        unsafe {
            let panel = panels.as_ptr().add(n * panel_bytes);
            S::make_ready(
                panel,
                panel_bytes,
                block,
                ready.add((at * N + n) * TILE_BYTES),
            );
        }
    }
}

/// A chunk that is ready.
struct Pass<'a> {
    x: &'a Activations,
    now: Range<usize>,
    ready: *const u8,
    /// Whether these are the first columns, so that sums begin.
    fresh: bool,
}

impl Pass<'_> {
    /// Adds the products with `M` tiles of rows from `tile` on to their sums, which follow each other,
    /// and calls `meanwhile` with 0, 1, ... between.
    ///
    /// # Safety
    /// As [`panels`].
    #[inline(always)]
    unsafe fn multiply<const M: usize, const N: usize>(
        &self,
        tile: usize,
        sums: *mut f32,
        meanwhile: &mut impl FnMut(usize),
    ) {
        let (x, apart) = (self.x.tile(tile, self.now.start), self.x.tile_row_bytes());
        // SAFETY: the caller's promise.
        unsafe {
            if self.fresh {
                tiles::zero::<M, N>();
            } else {
                tiles::load::<M, N>(sums);
            }
            for i in 0..self.now.len() {
                let ready = self.ready.add(i * N * TILE_BYTES);
                tiles::multiply_halves::<M, N>(x.add(i * TILE_BYTES), apart, ready);
                meanwhile(i);
            }
            tiles::store::<M, N, _>(sums);
        }
    }
}

/// Bits of a code in an f32 whose last significant digit they are made to be, and the f32 of code zero:
/// 256 plus the code, exactly.
const CODE_SHIFT: u32 = 15;
const CODE_MASK: i32 = 0xff << CODE_SHIFT;
const CODE_BASE: f32 = 256.0;

impl Source for Bytes {
    fn blocks(panel_bytes: usize) -> usize {
        let scheme = Q8_0::SCHEME;
        panel_bytes / scheme.tile_bytes() * scheme.tile_blocks()
    }

    fn bytes_before(block: usize) -> usize {
        // Whole tiles: chunks begin with one.
        block / Q8_0::SCHEME.tile_blocks() * Q8_0::SCHEME.tile_bytes()
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn make_ready(panel: *const u8, _: usize, block: usize, to: *mut u8) {
        const { assert!(Q8_0::SCHEME.block_subs() == 1 && !Q8_0::SCHEME.has_shift()) };
        let scheme = Q8_0::SCHEME;
        let (index, block) = (block / scheme.tile_blocks(), block % scheme.tile_blocks());
        // SAFETY: the caller's promise.
        unsafe {
            let tile = panel.add(index * scheme.tile_bytes());
            let codes = scheme.header_bytes() + block * scheme.block_bytes();
            prefetch(tile.add(codes), scheme.block_bytes());
            let block = Block {
                tile,
                block,
                first: 0,
            };
            let (scale, _) = block.affine::<Avx512, Q8_0>(0);
            let middle = -(CODE_BASE + (1 << CENTRE_LOG2) as f32);
            let offset = _mm512_mul_ps(scale, _mm512_set1_ps(middle));
            for (i, codes) in block.codes::<Avx512, Q8_0>().iter().enumerate() {
                let weights = weights(*codes, scale, offset);
                let to = to.add(2 * i * LINE);
                _mm512_store_si512(to.cast(), pair(weights[0], weights[1]));
                _mm512_store_si512(to.add(LINE).cast(), pair(weights[2], weights[3]));
            }
        }
    }
}

/// Four columns of sixteen rows.
#[inline(always)]
unsafe fn weights(codes: __m512i, scale: __m512, offset: __m512) -> [__m512; 4] {
    // SAFETY: called with AVX-512 only. No closures: they would be compiled without it.
    unsafe {
        [
            column(_mm512_slli_epi32::<CODE_SHIFT>(codes), scale, offset),
            column(
                _mm512_slli_epi32::<{ CODE_SHIFT - 8 }>(codes),
                scale,
                offset,
            ),
            column(
                _mm512_srli_epi32::<{ 16 - CODE_SHIFT }>(codes),
                scale,
                offset,
            ),
            column(
                _mm512_srli_epi32::<{ 24 - CODE_SHIFT }>(codes),
                scale,
                offset,
            ),
        ]
    }
}

/// One column of sixteen rows, from codes in [`CODE_MASK`].
#[inline(always)]
unsafe fn column(bits: __m512i, scale: __m512, offset: __m512) -> __m512 {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let mask = _mm512_set1_epi32(CODE_MASK);
        let base = _mm512_set1_epi32(CODE_BASE.to_bits() as i32);
        // base | (bits & mask)
        let code = _mm512_ternarylogic_epi32::<0xf8>(base, bits, mask);
        _mm512_fmadd_ps(_mm512_castsi512_ps(code), scale, offset)
    }
}

/// Two columns rounded to bf16 (a tie away from zero), the first in the lower half of each word.
#[inline(always)]
pub(super) unsafe fn pair(first: __m512, second: __m512) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let half = _mm512_set1_epi32(0x8000);
        let first = _mm512_add_epi32(_mm512_castps_si512(first), half);
        let second = _mm512_add_epi32(_mm512_castps_si512(second), half);
        _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(first), second)
    }
}

impl<const F: u8> Source for Halves<F> {
    fn blocks(panel_bytes: usize) -> usize {
        (panel_bytes / LINE).div_ceil(TILE_LINES)
    }

    fn bytes_before(block: usize) -> usize {
        block * TILE_LINES * LINE
    }

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn make_ready(panel: *const u8, panel_bytes: usize, block: usize, to: *mut u8) {
        let first = block * TILE_LINES;
        let pairs = (panel_bytes / LINE - first).min(TILE_LINES);
        // SAFETY: the caller's promise; a pair of columns is a line.
        unsafe {
            for line in 0..TILE_LINES {
                let from = panel.add((first + line) * LINE);
                let weights = if line >= pairs {
                    _mm512_setzero_si512()
                } else if F == Format::F16 as u8 {
                    let first = _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()));
                    let second = from.add(LINE / 2).cast();
                    let second = _mm512_cvtph_ps(_mm256_loadu_si256(second));
                    pair(first, second)
                } else {
                    interleaved(_mm512_loadu_si512(from.cast()))
                };
                prefetch(from, LINE);
                _mm512_store_si512(to.add(line * LINE).cast(), weights);
            }
        }
    }
}

/// The halves of a vector word by word: first of one, first of the other, ...
#[inline(always)]
unsafe fn interleaved(columns: __m512i) -> __m512i {
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
