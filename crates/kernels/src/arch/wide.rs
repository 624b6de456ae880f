//! The matmul kernels for many rows, AVX-512 only; `matmul::scalar` says what they compute.
//!
//! Some columns of one or two panels are taken apart once, into a form that the innermost cache
//! holds, and multiplied with many rows of activations, a few at a time. Each row's sums go on where
//! the columns before left them, so that their order is that of the other kernels.
//!
//! ```text
//! ready codes:  for every 32 columns: codes [panel][group][64], scale f32 [panel][sub][16],
//!               shift f32 [panel][sub][16] in formats that have one
//! ready floats: for every column: weight f32 [panel][16]
//! ```

use super::block::{Block, each_row, lift, weight};
use super::dots::{Avx512, Dots};
use crate::layout::activation_block::ActBlock;
use crate::layout::gemm::{Desk, READY_BYTES};
use crate::memory::LINE;
use crate::packing::{GROUPS, LANES, Packing};
use crate::quant::Scheme;
use crate::{Activations, Format};
use core::arch::x86_64::*;
use std::ops::Range;

/// Blocks of 32 columns that are made ready at a time: whole tiles of any format.
const CHUNK_BLOCKS: usize = 16;
/// Columns of floats that are made ready at a time.
const CHUNK_COLS: usize = 192;
/// Rows of activations that share a load of codes.
const CODE_ROWS: usize = 6;
/// Rows of activations that share a load of floats.
const FLOAT_ROWS: usize = 6;

const _: () = assert!(CHUNK_COLS.is_multiple_of(2) && CHUNK_COLS * 2 * LINE <= READY_BYTES);

/// Runs `$body` over `$rows` in runs of as many rows as the longest of `$counts` that fits.
macro_rules! in_runs {
    ($rows:expr, |$row:ident, $count:ident| $body:expr, $($counts:literal)*) => {{
        let Range { start: mut $row, end } = $rows;
        $(
            while end - $row >= $counts {
                const $count: usize = $counts;
                $body;
                $row += $counts;
            }
        )*
    }};
}

/// The weights that are made ready next, asked for bit by bit while rows pass by.
struct Ahead<const N: usize> {
    from: [*const u8; N],
    /// Bytes of each panel that were asked for, and all.
    asked: usize,
    bytes: usize,
    /// Bytes for each row.
    step: usize,
}

impl<const N: usize> Ahead<N> {
    /// `bytes` bytes of each panel from `start` on, or the start of the panels that follow, in
    /// equal parts for each of `rows` rows.
    fn of(panels: &[u8], start: usize, bytes: usize, rows: usize) -> Self {
        let panel_bytes = panels.len() / N;
        let start = if start < panel_bytes {
            start
        } else {
            panels.len()
        };
        Self {
            from: std::array::from_fn(|n| panels.as_ptr().wrapping_add(n * panel_bytes + start)),
            asked: 0,
            bytes,
            step: bytes.div_ceil(rows),
        }
    }

    /// Asks for the part of `rows` rows.
    #[inline(always)]
    fn ask(&mut self, rows: usize) {
        let end = (self.asked + rows * self.step).min(self.bytes);
        for at in (self.asked.next_multiple_of(LINE)..end).step_by(LINE) {
            for from in self.from {
                // SAFETY: a prefetch reads nothing; an address beyond the weights is ignored.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(at).cast()) };
            }
        }
        self.asked = end;
    }
}

/// Bytes of a block of a panel that is ready.
const fn ready_bytes(scheme: &Scheme) -> usize {
    let numbers = if scheme.has_shift() { 2 } else { 1 };
    (GROUPS + numbers * scheme.block_subs()) * LINE
}

/// # Safety
/// The processor has AVX-512 with VNNI.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn codes<P: Packing, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    desk: &mut Desk,
) {
    let scheme = P::SCHEME;
    const { assert!(CHUNK_BLOCKS * N * ready_bytes(&P::SCHEME) <= READY_BYTES) };
    let panel_bytes = panels.len() / N;
    let tiles = panel_bytes / scheme.tile_bytes();
    assert!(
        rows.len() <= desk.sums.len() && x.blocks(rows.start).len() >= tiles * scheme.tile_blocks()
    );
    desk.sums[..rows.len()].fill([0.0; 4 * LANES]);
    let per_chunk = CHUNK_BLOCKS / scheme.tile_blocks();
    for first in (0..tiles).step_by(per_chunk) {
        let some = per_chunk.min(tiles - first);
        let column = first * scheme.tile_blocks();
        let blocks = some * scheme.tile_blocks();
        // SAFETY: the tiles are within each panel; `READY_BYTES` holds a chunk; each row has as many
        // blocks as a panel, and the desk has sums for each row.
        unsafe {
            for panel in 0..N {
                let from = panels
                    .as_ptr()
                    .add(panel * panel_bytes + first * scheme.tile_bytes());
                make_codes_ready::<P, N>(from, some, panel, desk.ready.as_mut_ptr());
            }
            let mut next = Ahead::<N>::of(
                panels,
                (first + some) * scheme.tile_bytes(),
                some * scheme.tile_bytes(),
                rows.len(),
            );
            in_runs!(0..rows.len(), |row, M| {
                next.ask(M);
                let mut at = [std::ptr::null::<ActBlock>(); M];
                for (m, at) in at.iter_mut().enumerate() {
                    *at = x.blocks(rows.start + row + m).as_ptr().add(column);
                }
                let sums = desk.sums.as_mut_ptr().add(row).cast();
                multiply_codes::<P, N, M>(desk.ready.as_ptr(), blocks, &at, sums);
            }, 6 4 2 1);
        }
    }
    if lift::<Avx512>(&scheme) > 0 {
        let down = 1.0 / (1 << lift::<Avx512>(&scheme)) as f32;
        for sum in desk.sums[..rows.len()].as_flattened_mut() {
            *sum *= down;
        }
    }
}

/// # Safety
/// As [`codes`]; `tiles` tiles from `from` are one panel's, and `ready` has room for them in `N` panels.
#[inline(always)]
unsafe fn make_codes_ready<P: Packing, const N: usize>(
    from: *const u8,
    tiles: usize,
    panel: usize,
    ready: *mut u8,
) {
    let scheme = P::SCHEME;
    let (subs, size) = (scheme.block_subs(), ready_bytes(&scheme));
    // SAFETY: the caller's promise.
    unsafe {
        for tile in 0..tiles {
            let at = from.add(tile * scheme.tile_bytes());
            for block in 0..scheme.tile_blocks() {
                let ready = ready.add((tile * scheme.tile_blocks() + block) * N * size);
                let block = Block {
                    tile: at,
                    block,
                    first: 0,
                };
                let codes = block.codes::<Avx512, P>();
                for (group, codes) in codes.into_iter().enumerate() {
                    _mm512_store_si512(ready.add((panel * GROUPS + group) * LINE).cast(), codes);
                }
                let numbers = ready.add(N * GROUPS * LINE);
                for sub in 0..subs {
                    let (scale, shift) = block.affine::<Avx512, P>(sub);
                    let at = panel * subs + sub;
                    _mm512_store_ps(numbers.add(at * LINE).cast(), scale);
                    if scheme.has_shift() {
                        _mm512_store_ps(numbers.add((N * subs + at) * LINE).cast(), shift);
                    }
                }
            }
        }
    }
}

/// Adds the products of ready codes with `M` rows to their sums, which are four lines apart.
///
/// # Safety
/// As [`codes`]; `ready` and each of `rows` have `blocks` blocks.
#[inline(always)]
unsafe fn multiply_codes<P: Packing, const N: usize, const M: usize>(
    ready: *const u8,
    blocks: usize,
    rows: &[*const ActBlock; M],
    sums: *mut f32,
) {
    const { assert!(M <= CODE_ROWS) };
    let scheme = P::SCHEME;
    let (subs, per_sub) = (scheme.block_subs(), scheme.sub_weights() / 4);
    let bits = scheme.low + scheme.high;
    // SAFETY: the caller's promise.
    unsafe {
        let mut held = [[_mm512_setzero_ps(); N]; M];
        each_row!(m in M => {
            each_row!(p in N => { held[m][p] = _mm512_loadu_ps(sums.add(m * 4 * LANES + p * LANES)); });
        });
        for block in 0..blocks {
            let codes = ready.add(block * N * ready_bytes(&scheme));
            let numbers = codes.add(N * GROUPS * LINE);
            for sub in 0..subs {
                let which = if subs == 1 { 0 } else { 1 + sub };
                let mut dots = [[_mm512_setzero_si512(); N]; M];
                each_row!(m in M => {
                    let start = Avx512::start(&*rows[m].add(block), which, scheme.zero_log2, bits);
                    dots[m] = [start; N];
                });
                for group in sub * per_sub..(sub + 1) * per_sub {
                    let mut w = [_mm512_setzero_si512(); N];
                    each_row!(p in N => {
                        w[p] = _mm512_load_si512(codes.add((p * GROUPS + group) * LINE).cast());
                    });
                    each_row!(m in M => {
                        let x = (&raw const (*rows[m].add(block)).codes).cast::<i32>().add(group);
                        let x = _mm512_set1_epi32(*x);
                        each_row!(p in N => { dots[m][p] = _mm512_dpbusd_epi32(dots[m][p], w[p], x); });
                    });
                }
                each_row!(m in M => {
                    let x = &*rows[m].add(block);
                    each_row!(p in N => {
                        let at = numbers.add((p * subs + sub) * LINE);
                        let scale = _mm512_load_ps(at.cast());
                        held[m][p] = _mm512_fmadd_ps(Avx512::value(dots[m][p], x), scale, held[m][p]);
                        if scheme.has_shift() {
                            let shift = _mm512_load_ps(at.add(N * subs * LINE).cast());
                            let moment = _mm512_set1_ps(x.moments[which]);
                            held[m][p] = _mm512_fmadd_ps(moment, shift, held[m][p]);
                        }
                    });
                });
            }
        }
        each_row!(m in M => {
            each_row!(p in N => { _mm512_storeu_ps(sums.add(m * 4 * LANES + p * LANES), held[m][p]); });
        });
    }
}

/// # Safety
/// The processor has AVX-512.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) unsafe fn floats<const F: u8, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    desk: &mut Desk,
) {
    let width = if F == Format::F32 as u8 { 4 } else { 2 };
    let panel_bytes = panels.len() / N;
    let cols = panel_bytes / (LANES * width);
    assert!(rows.len() <= desk.sums.len() && x.floats(rows.start).len() >= cols);
    desk.sums[..rows.len()].fill([0.0; 4 * LANES]);
    for first in (0..cols).step_by(CHUNK_COLS) {
        let some = CHUNK_COLS.min(cols - first);
        // SAFETY: columns are within each panel; `READY_BYTES` holds a chunk; each row has as many
        // columns as a panel, and the desk has sums for each row.
        unsafe {
            for panel in 0..N {
                let from = panels
                    .as_ptr()
                    .add(panel * panel_bytes + first * LANES * width);
                for col in 0..some {
                    let from = from.add(col * LANES * width);
                    let to = desk.ready.as_mut_ptr().add((col * N + panel) * LINE);
                    _mm512_store_ps(to.cast(), weight::<Avx512, F>(from));
                }
            }
            let mut next = Ahead::<N>::of(
                panels,
                (first + some) * LANES * width,
                some * LANES * width,
                rows.len(),
            );
            in_runs!(0..rows.len(), |row, M| {
                next.ask(M);
                let mut at = [std::ptr::null::<f32>(); M];
                for (m, at) in at.iter_mut().enumerate() {
                    *at = x.floats(rows.start + row + m).as_ptr().add(first);
                }
                let sums = desk.sums.as_mut_ptr().add(row).cast();
                multiply_floats::<N, M>(desk.ready.as_ptr().cast(), some / 2, &at, sums);
            }, 6 3 1);
        }
    }
    for sums in &mut desk.sums[..rows.len()] {
        for panel in 0..N {
            for lane in 0..LANES {
                let even = 2 * panel * LANES + lane;
                sums[panel * LANES + lane] = sums[even] + sums[even + LANES];
            }
        }
    }
}

/// Adds the products of ready floats with `M` rows to their sums of even and odd columns, which are
/// four lines apart.
///
/// # Safety
/// As [`floats`]; `ready` and each of `rows` have `pairs` pairs of columns.
#[inline(always)]
unsafe fn multiply_floats<const N: usize, const M: usize>(
    ready: *const f32,
    pairs: usize,
    rows: &[*const f32; M],
    sums: *mut f32,
) {
    const { assert!(M <= FLOAT_ROWS) };
    // SAFETY: the caller's promise.
    unsafe {
        let mut held = [[[_mm512_setzero_ps(); 2]; N]; M];
        each_row!(m in M => {
            each_row!(p in N => {
                let at = sums.add(m * 4 * LANES + 2 * p * LANES);
                held[m][p] = [_mm512_loadu_ps(at), _mm512_loadu_ps(at.add(LANES))];
            });
        });
        for pair in 0..pairs {
            each_row!(parity in 2 => {
                let col = 2 * pair + parity;
                let mut w = [_mm512_setzero_ps(); N];
                each_row!(p in N => { w[p] = _mm512_load_ps(ready.add((col * N + p) * LANES)); });
                each_row!(m in M => {
                    let x = _mm512_set1_ps(*rows[m].add(col));
                    each_row!(p in N => {
                        held[m][p][parity] = _mm512_fmadd_ps(w[p], x, held[m][p][parity]);
                    });
                });
            });
        }
        each_row!(m in M => {
            each_row!(p in N => {
                let at = sums.add(m * 4 * LANES + 2 * p * LANES);
                _mm512_storeu_ps(at, held[m][p][0]);
                _mm512_storeu_ps(at.add(LANES), held[m][p][1]);
            });
        });
    }
}
