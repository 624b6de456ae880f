//! The matmul kernels for many rows on AMX, in int8; `matmul::tiled` says what they compute and how the
//! work is cut.
//!
//! A chunk of one or two panels becomes int8 tiles that the innermost cache holds and are multiplied with
//! all rows; while the first rows pass by, the next chunk is made ready. Whole sums go from the tiles
//! through memory, and are scaled while the next rows' are computed.

use super::block::{Block, lift, prefetch};
use super::dots::{Avx512, Dots};
use super::tiles::{self, TILE_BYTES, TILE_LINES};
use crate::Activations;
use crate::layout::activation_block::CENTRE_LOG2;
use crate::layout::amx_gemm::{Desk, Job, READY_BYTES};
use crate::layout::int8_tile::TILE_BLOCKS;
use crate::layout::tile_sizes::CHUNK_BLOCKS;
use crate::memory::LINE;
use crate::packing::{GROUPS, LANES, Packing};
use core::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Tiles of a panel's chunk.
const CHUNK_TILES: usize = CHUNK_BLOCKS / TILE_BLOCKS;
/// What a code of 127 is worth of the largest weight: less than one, so that rounding fits.
const CODE_MOST: f32 = 126.0;
/// Bits below the point while weights are whole numbers of 16 bits.
const POINT: u32 = 8;
/// A chunk whose weights are all below this counts as zero: what they are divided by overflows.
const SMALLEST: f32 = 1e-30;
/// Where in a chunk's room its weights' scales are, and whole sums.
const SCALES_AT: usize = 2 * CHUNK_TILES * TILE_BYTES;
const WHOLE_AT: usize = READY_BYTES - 4 * TILE_BYTES;
const _: () = assert!(SCALES_AT + 2 * LINE <= WHOLE_AT);

/// Room for one chunk: its tiles `(tiles, panels)`, what a code of each row stands for, whole sums.
#[derive(Clone, Copy)]
struct Room(*mut u8);

impl Room {
    fn tile(self, at: usize) -> *mut u8 {
        self.0.wrapping_add(at * TILE_BYTES)
    }

    fn scales(self, panel: usize) -> *mut f32 {
        self.0.wrapping_add(SCALES_AT + panel * LINE).cast()
    }

    fn whole(self) -> *mut i32 {
        self.0.wrapping_add(WHOLE_AT).cast()
    }
}

/// # Safety
/// The processor has AVX-512, and this thread its tiles; the job's blocks and tiles are among the
/// activations', and the desk has sums for the tiles.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn panels<P: Packing, const N: usize>(
    panels: &[u8],
    x: &Activations,
    job: &Job,
    desk: &mut Desk,
) {
    let scheme = P::SCHEME;
    let in_panel = panels.len() / N / scheme.tile_bytes() * scheme.tile_blocks();
    let end = job.blocks.end.min(in_panel);
    let chunk = |first: usize| first..(first + CHUNK_BLOCKS).min(end);
    let [mut ready, mut spare] = desk.ready().map(Room);
    // Never cleared nor moved: that took a seventh of the time of 32 rows.
    let mut affines = [const { MaybeUninit::<[Affine; N]>::uninit() }; 2];
    let [mut of_now, mut of_next] = affines.each_mut().map(MaybeUninit::as_mut_ptr);
    let mut now = Making::<P, N>::of(panels, chunk(job.blocks.start), ready, of_now);
    // SAFETY: the caller's promise; each half of the desk's room holds a chunk.
    unsafe {
        now.all();
        while !now.blocks.is_empty() {
            let mut next = Making::<P, N>::of(panels, chunk(now.blocks.end), spare, of_next);
            let pass = Pass {
                x,
                blocks: now.blocks.clone(),
                ready,
            };
            let mut before: Option<Sums> = None;
            for (i, tile) in job.tiles.clone().step_by(2).enumerate() {
                let sums = Sums {
                    whole: if i % 2 == 0 { ready } else { spare }.whole(),
                    to: desk.sums(job, tile),
                    tile,
                };
                // The first rows see all of it ready: no chunk is longer than the one before.
                if tile + 1 < job.tiles.end {
                    pass.multiply::<2, N>(&sums, &mut || next.step());
                } else {
                    pass.multiply::<1, N>(&sums, &mut || next.step());
                }
                // Whole sums that were written just now cannot be read at once: those before can.
                if let Some(sums) = before.replace(sums) {
                    pass.scale::<2, N>(&sums);
                }
            }
            match before {
                Some(sums) if sums.tile + 1 < job.tiles.end => pass.scale::<2, N>(&sums),
                Some(sums) => pass.scale::<1, N>(&sums),
                None => {}
            }
            (ready, spare) = (spare, ready);
            (of_now, of_next) = (of_next, of_now);
            now = next;
        }
    }
}

/// The sums of one or two tiles of rows: whole ones of a chunk, and where all are gathered.
struct Sums {
    whole: *mut i32,
    to: *mut f32,
    tile: usize,
}

/// A chunk that is ready.
struct Pass<'a> {
    x: &'a Activations,
    blocks: Range<usize>,
    ready: Room,
}

impl Pass<'_> {
    /// Multiplies with `M` tiles of rows, and calls `meanwhile` between.
    ///
    /// # Safety
    /// As [`panels`].
    #[inline(always)]
    unsafe fn multiply<const M: usize, const N: usize>(
        &self,
        sums: &Sums,
        meanwhile: &mut impl FnMut(),
    ) {
        let x = self.x.code_tile(sums.tile, self.blocks.start);
        let apart = self.x.code_row_bytes();
        // SAFETY: the caller's promise.
        unsafe {
            tiles::zero::<M, N>();
            for i in 0..self.blocks.len() / TILE_BLOCKS {
                let x = x.add(i * TILE_BYTES);
                tiles::multiply_codes::<M, N>(x, apart, self.ready.tile(i * N));
                meanwhile();
            }
            tiles::store::<M, N, _>(sums.whole);
        }
    }

    /// Adds whole sums, scaled, to what is gathered.
    ///
    /// # Safety
    /// As [`panels`], and they are written.
    #[inline(always)]
    unsafe fn scale<const M: usize, const N: usize>(&self, sums: &Sums) {
        let fresh = self.blocks.start == 0;
        // SAFETY: the caller's promise.
        unsafe {
            let mut weights = [_mm512_setzero_ps(); N];
            for (n, weights) in weights.iter_mut().enumerate() {
                *weights = _mm512_load_ps(self.ready.scales(n));
            }
            for m in 0..M {
                let rows = self.x.code_tile_scales(sums.tile + m, self.blocks.start);
                for (row, scale) in rows.iter().enumerate() {
                    let scale = _mm512_set1_ps(*scale);
                    for (n, weights) in weights.iter().enumerate() {
                        let at = ((m * N + n) * TILE_LINES + row) * LANES;
                        let whole = _mm512_load_si512(sums.whole.add(at).cast());
                        let to = sums.to.add(at);
                        let so_far = if fresh {
                            _mm512_setzero_ps()
                        } else {
                            _mm512_load_ps(to)
                        };
                        let scale = _mm512_mul_ps(scale, *weights);
                        let sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, so_far);
                        _mm512_store_ps(to, sum);
                    }
                }
            }
        }
    }
}

/// A chunk on its way to being ready, tile after tile.
struct Making<P, const N: usize> {
    /// The first of `N` panels.
    panel: *const u8,
    panel_bytes: usize,
    blocks: Range<usize>,
    room: Room,
    /// Tiles of each panel that are made.
    made: usize,
    /// Each panel's, written by [`Making::find_scales`].
    affine: *mut [Affine; N],
    packing: std::marker::PhantomData<P>,
}

/// How codes of a panel's chunk become int8: for each 16 or 32 of them, a factor and an offset for each row,
/// in 16 bits, [`POINT`] of them below the point, twice in each word.
struct Affine {
    of_subs: [[__m512i; 2]; 2 * CHUNK_BLOCKS],
}

impl<P: Packing, const N: usize> Making<P, N> {
    fn of(panels: &[u8], blocks: Range<usize>, room: Room, affine: *mut [Affine; N]) -> Self {
        Self {
            panel: panels.as_ptr(),
            panel_bytes: panels.len() / N,
            blocks,
            room,
            made: 0,
            affine,
            packing: std::marker::PhantomData,
        }
    }

    /// Makes all of it.
    ///
    /// # Safety
    /// The processor has AVX-512, the blocks are within the panels, and there is room.
    #[inline(always)]
    unsafe fn all(&mut self) {
        for _ in 0..CHUNK_TILES {
            // SAFETY: the caller's promise.
            unsafe { self.step() };
        }
    }

    /// Makes the next tile of each panel, if any is left.
    ///
    /// # Safety
    /// As [`Making::all`].
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn step(&mut self) {
        if self.made * TILE_BLOCKS >= self.blocks.len() {
            return;
        }
        for n in 0..N {
            // SAFETY: the caller's promise.
            unsafe {
                if self.made == 0 {
                    self.find_scales(n);
                }
                for half in 0..TILE_BLOCKS {
                    self.make(n, self.made * TILE_BLOCKS + half);
                }
            }
        }
        self.made += 1;
    }

    /// The factors and offsets of a panel.
    ///
    /// # Safety
    /// `n` is below `N`.
    #[inline(always)]
    unsafe fn affine(&self, n: usize) -> *mut [__m512i; 2] {
        // SAFETY: the caller's promise; nothing is read, and the room outlives this.
        unsafe { (&raw mut (*self.affine)[n].of_subs).cast() }
    }

    /// The chunk's `i`th block.
    ///
    /// # Safety
    /// As [`Making::all`].
    #[inline(always)]
    unsafe fn block(&self, n: usize, i: usize) -> Block {
        let at = self.blocks.start + i;
        let blocks = P::SCHEME.tile_blocks();
        Block {
            tile: self
                .panel
                .wrapping_add(n * self.panel_bytes + at / blocks * P::SCHEME.tile_bytes()),
            block: at % blocks,
            first: 0,
        }
    }

    /// What a code of each row stands for in this chunk, and how codes come there.
    ///
    /// # Safety
    /// As [`Making::all`].
    #[inline(always)]
    unsafe fn find_scales(&mut self, n: usize) {
        let scheme = P::SCHEME;
        let subs = scheme.block_subs();
        let lift = lift::<Avx512>(&scheme);
        let highest = (u32::from(scheme.code_max()) << lift) as f32;
        let zero = match scheme.zero_log2 {
            Some(_) => (1u32 << CENTRE_LOG2) as f32,
            None => 0.0,
        };
        // SAFETY: the caller's promise.
        unsafe {
            let affine = self.affine(n);
            let mut most = _mm512_setzero_ps();
            for i in 0..self.blocks.len() * subs {
                let (scale, shift) = self.block(n, i / subs).affine::<Avx512, P>(i % subs);
                let scale = _mm512_mul_ps(scale, _mm512_set1_ps(1.0 / (1 << lift) as f32));
                let shift = if scheme.has_shift() {
                    shift
                } else {
                    _mm512_setzero_ps()
                };
                let lowest = _mm512_fmadd_ps(scale, _mm512_set1_ps(-zero), shift);
                let highest = _mm512_fmadd_ps(scale, _mm512_set1_ps(highest), lowest);
                most = _mm512_max_ps(_mm512_abs_ps(lowest), most);
                most = _mm512_max_ps(_mm512_abs_ps(highest), most);
                // As they are, until it is known what they are divided by.
                *affine.add(i) = [_mm512_castps_si512(scale), _mm512_castps_si512(lowest)];
            }
            let some = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(most, _mm512_set1_ps(SMALLEST));
            let code = _mm512_mul_ps(most, _mm512_set1_ps(1.0 / CODE_MOST));
            Avx512::store(_mm512_maskz_mov_ps(some, code), self.room.scales(n));
            let unit = _mm512_set1_ps(CODE_MOST * (1u32 << POINT) as f32);
            let inverse = _mm512_maskz_div_ps(some, unit, most);
            // Half a code more, so that cutting off is rounding. No closures: they would be compiled
            // without AVX-512.
            let half = _mm512_set1_epi32(1 << (POINT - 1));
            for i in 0..self.blocks.len() * subs {
                let [scale, lowest] = *affine.add(i);
                let factor = nearest(_mm512_castsi512_ps(scale), inverse);
                let offset = nearest(_mm512_castsi512_ps(lowest), inverse);
                let offset = _mm512_add_epi32(offset, half);
                *affine.add(i) = [twice(factor), twice(offset)];
            }
        }
    }

    /// Makes half a tile.
    ///
    /// # Safety
    /// As [`Making::all`].
    #[inline(always)]
    unsafe fn make(&self, n: usize, i: usize) {
        let scheme = P::SCHEME;
        // SAFETY: the caller's promise.
        unsafe {
            let block = self.block(n, i);
            let at = scheme.header_bytes() + block.block * scheme.block_bytes();
            prefetch(block.tile.add(at), scheme.block_bytes());
            let codes = block.codes::<Avx512, P>();
            let subs = scheme.block_subs();
            let tile = self.room.tile(i / TILE_BLOCKS * N + n);
            let to = tile.add(i % TILE_BLOCKS * GROUPS * LINE);
            for (group, codes) in codes.into_iter().enumerate() {
                let affine = &*self.affine(n).add(i * subs + group * subs / GROUPS);
                _mm512_store_si512(to.add(group * LINE).cast(), narrowed(codes, affine));
            }
        }
    }
}

/// The nearest whole number to `x * by`.
#[inline(always)]
unsafe fn nearest(x: __m512, by: __m512) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe { _mm512_cvtps_epi32(_mm512_mul_ps(x, by)) }
}

/// The lower half of each word in both of its halves.
#[inline(always)]
unsafe fn twice(words: __m512i) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe { _mm512_mask_blend_epi16(0xaaaa_aaaa, words, _mm512_slli_epi32::<16>(words)) }
}

/// `code * factor + offset` of each byte, without what is below the point.
#[inline(always)]
unsafe fn narrowed(codes: __m512i, [factor, offset]: &[__m512i; 2]) -> __m512i {
    // SAFETY: called with AVX-512 only.
    unsafe {
        let even = _mm512_and_si512(codes, _mm512_set1_epi16(0xff));
        let odd = _mm512_srli_epi16::<8>(codes);
        let even = _mm512_add_epi16(_mm512_mullo_epi16(even, *factor), *offset);
        let odd = _mm512_add_epi16(_mm512_mullo_epi16(odd, *factor), *offset);
        let even = _mm512_srli_epi16::<POINT>(even);
        _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, even, odd)
    }
}
