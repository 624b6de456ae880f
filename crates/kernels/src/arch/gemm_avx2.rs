//! AVX2 GEMM: one or two panels of quants times many rows of activations. `matmul::reference` defines the result.
//!
//! As in [`super::gemm`], a K-block is unpacked once into the L1 cache and multiplied with many rows; the accumulators
//! of each row carry over from K-block to K-block. AVX2 adds two products of bytes in 16 bits at most, so short
//! quants are summed there, as many as fit, before an instruction widens the sums to 32 bits.
//!
//! Of quants of 8 bits not even the sums of two products fit if none of the factors has a sign. So these and the
//! activations are widened to 16 bits: two products take one instruction of the two execution units that multiply, where
//! bytes take three for four products (on Zen 4 they move signs there, too).
//!
//! Unpacked panels, in vectors of eight rows of weights:
//!
//! ```text
//! quants: u8 [group][half][8][4], or of 8 bits i16 [group][2][half][8][2]: less 128, columns 0 and 2, then 1 and 3
//! scale f32 [sub_block][half][8], shift f32 [sub_block][half][8] in formats with a shift
//! ```

use crate::Activations;
use crate::arch::int8_dot::{Avx2, Int8Dot, sums_in_i16};
use crate::arch::packed_block::{PackedBlock, each_row};
use crate::layout::activation_block::{ActivationBlock, MAGIC_BITS, ZERO_POINT_LOG2};
use crate::layout::gemm::{GemmWorkspace, UNPACKED_BYTES};
use crate::memory::LINE;
use crate::packing::{GROUPS, LANES, PackedFormat};
use crate::quant::QuantFormat;
use core::arch::asm;
use core::arch::x86_64::*;
use std::ops::Range;

/// Runs `$body` over `$rows` in groups, each as long as the largest of `$counts` that fits.
macro_rules! in_row_groups {
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

/// Rows of activations per load of quants.
const ROWS: usize = 4;
/// Blocks of 32 columns in a K-block of quants of 8 bits.
const WIDE_BLOCKS: usize = 8;
/// Columns of such a K-block, two in each i32.
const WIDE_ROW: usize = WIDE_BLOCKS * 2 * GROUPS;

/// A K-block of a few rows of activations in 16 bits, `(rows, blocks, 2, groups)`: columns 0 and 2 of each group, then 1 and 3.
#[repr(align(64))]
struct WideRows([i32; ROWS * WIDE_ROW]);

impl WideRows {
    /// # Safety
    /// The processor has AVX2; the rows have the blocks, at most [`WIDE_BLOCKS`].
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn load<const M: usize>(&mut self, rows: &[*const ActivationBlock; M], blocks: usize) {
        const { assert!(M <= ROWS) };
        debug_assert!(blocks <= WIDE_BLOCKS, "a K-block");
        let to: *mut __m256i = self.0.as_mut_ptr().cast();
        for (m, row) in rows.iter().enumerate() {
            for block in 0..blocks {
                // SAFETY: guaranteed by the caller; a block begins with its quants, and has two vectors here.
                unsafe {
                    let quants = _mm256_load_si256((*row).add(block).cast());
                    let to = to.add(2 * (m * WIDE_BLOCKS + block));
                    let [even, odd] = widen(quants);
                    _mm256_store_si256(to, even);
                    _mm256_store_si256(to.add(1), odd);
                }
            }
        }
    }
}

/// Even and odd bytes in 16 bits.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn widen(bytes: __m256i) -> [__m256i; 2] {
    [
        _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)),
        _mm256_srai_epi16::<8>(bytes),
    ]
}

/// Multiplies `N` panels of quants with the rows.
///
/// # Safety
/// The processor has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn gemm_quants_avx2<P: PackedFormat, const N: usize>(
    panels: &[u8],
    x: &Activations,
    rows: Range<usize>,
    workspace: &mut GemmWorkspace,
) {
    let quant = P::QUANT;
    let unpacked_bytes = const { k_block_blocks(&P::QUANT) * unpacked_block_bytes(&P::QUANT) };
    const { assert!(N * k_block_blocks(&P::QUANT) * unpacked_block_bytes(&P::QUANT) <= UNPACKED_BYTES) };
    let panel_bytes = panels.len() / N;
    let tiles = panel_bytes / quant.tile_bytes();
    assert!(
        rows.len() <= workspace.sums.len()
            && x.blocks(rows.start).len() >= tiles * quant.tile_blocks()
    );
    workspace.sums[..rows.len()].fill([0.0; 4 * LANES]);
    let tiles_per_k_block = k_block_blocks(&quant) / quant.tile_blocks();
    for first in (0..tiles).step_by(tiles_per_k_block) {
        let count = tiles_per_k_block.min(tiles - first);
        let (column, blocks) = (first * quant.tile_blocks(), count * quant.tile_blocks());
        let mut parts: [UnpackedPart; N] = std::array::from_fn(|panel| {
            let at = panel * panel_bytes + first * quant.tile_bytes();
            let bytes = count * quant.tile_bytes();
            // The next panels follow these.
            let next = if first + count < tiles {
                at + bytes
            } else {
                panels.len() + panel * panel_bytes
            };
            // SAFETY: the tiles are within the panel; `UNPACKED_BYTES` holds a K-block of each panel.
            let unpacked = unsafe {
                let unpacked = workspace.unpacked.as_mut_ptr().add(panel * unpacked_bytes);
                unpack_panel::<P>(panels.as_ptr().add(at), count, unpacked);
                unpacked
            };
            UnpackedPart {
                unpacked,
                blocks,
                next: panels.as_ptr().wrapping_add(next),
                bytes,
            }
        });
        // SAFETY: each row has as many blocks as a panel, and the workspace has sums for each row.
        unsafe {
            let sums = workspace.sums.as_mut_ptr().cast();
            multiply_rows::<P>(&mut parts, x, rows.clone(), column, sums);
        }
    }
}

/// The K-block of a panel, and what is prefetched while the K-block is multiplied.
struct UnpackedPart {
    unpacked: *const u8,
    /// Blocks of 32 columns.
    blocks: usize,
    /// The next packed weights, and how many bytes.
    next: *const u8,
    bytes: usize,
}

/// Adds the products of parts of panels and of the blocks of `rows` from `column` on to the accumulators, which are
/// four lines apart. Compiled once for one panel and for two.
///
/// # Safety
/// The processor has AVX2, FMA and F16C; parts and rows have the blocks, and `sums` has lines for each row.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
unsafe fn multiply_rows<P: PackedFormat>(
    parts: &mut [UnpackedPart],
    x: &Activations,
    rows: Range<usize>,
    column: usize,
    sums: *mut f32,
) {
    let calls = rows.len().div_ceil(ROWS);
    let mut wide = WideRows([0; ROWS * WIDE_ROW]);
    in_row_groups!(0..rows.len(), |row, M| {
        let mut at = [std::ptr::null::<ActivationBlock>(); M];
        for (m, at) in at.iter_mut().enumerate() {
            *at = x.blocks(rows.start + row + m)[column..].as_ptr();
        }
        if P::QUANT.factor_bits() == 8 {
            let blocks = parts.first().map_or(0, |part| part.blocks);
            // SAFETY: guaranteed by the caller.
            unsafe { wide.load(&at, blocks) };
        }
        for (panel, part) in parts.iter_mut().enumerate() {
            let step = part.bytes.div_ceil(calls * part.blocks);
            // SAFETY: guaranteed by the caller.
            unsafe {
                let sums = sums.add(row * 4 * LANES + panel * LANES);
                multiply_panel::<P, M>(part, step, (&at, wide.0.as_ptr()), sums);
            }
        }
    }, 4 2 1);
}

/// Adds the products of an unpacked panel with `M` rows to the accumulators, and prefetches `step` bytes for each block.
///
/// # Safety
/// As [`multiply_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn multiply_panel<P: PackedFormat, const M: usize>(
    part: &mut UnpackedPart,
    step: usize,
    (rows, wide): (&[*const ActivationBlock; M], *const i32),
    sums: *mut f32,
) {
    let quant = P::QUANT;
    let sub_blocks = quant.sub_blocks_per_block();
    let is_wide = quant.factor_bits() == 8;
    let by_rows = sums_in_i16(quant.factor_bits()) == 2 && quant.sub_block_weights() == 16;
    let by_groups = !is_wide && !by_rows;
    let mut next = part.next;
    // SAFETY: guaranteed by the caller; a prefetch reads nothing, so the address may be beyond the weights.
    unsafe {
        let mut acc: [[__m256; HALVES]; M] = [[_mm256_setzero_ps(); HALVES]; M];
        if by_groups {
            each_row!(m in M => { acc[m] = load_sums(sums, m); });
        }
        for block in 0..part.blocks {
            let quants = part.unpacked.add(block * unpacked_block_bytes(&quant));
            for line in (0..step).step_by(LINE) {
                _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(line).cast());
            }
            next = next.wrapping_add(step);
            let mut x = [std::ptr::null(); M];
            each_row!(m in M => { x[m] = rows[m].add(block); });
            each_row!(sub_block in sub_blocks => {
                if is_wide {
                    let wide = wide.add(block * 2 * GROUPS);
                    add_wide::<P, M>(quants, sub_block, (&x, wide), sums);
                } else if by_rows {
                    add_by_rows::<P, M>(quants, sub_block, &x, sums);
                } else {
                    add_by_groups::<P, M>(quants, sub_block, &x, &mut acc);
                }
            });
        }
        if by_groups {
            each_row!(m in M => { store_sums(sums, m, acc[m]); });
        }
    }
    part.next = next;
}

/// Bytes of a vector.
const VECTOR: usize = 32;
/// Vectors of a panel: eight rows of weights each.
const HALVES: usize = 2;

/// Blocks of 32 columns in a K-block: whole tiles of any format, two panels in the workspace.
const fn k_block_blocks(quant: &QuantFormat) -> usize {
    if quant.factor_bits() == 8 {
        WIDE_BLOCKS
    } else {
        16
    }
}

/// Bytes of the unpacked quants of a block of a panel.
const fn unpacked_quants_bytes(quant: &QuantFormat) -> usize {
    let bytes = if quant.factor_bits() == 8 { 2 } else { 1 };
    GROUPS * HALVES * bytes * VECTOR
}

/// Bytes of an unpacked block of a panel.
const fn unpacked_block_bytes(quant: &QuantFormat) -> usize {
    let scales = if quant.has_shift() { 2 } else { 1 };
    unpacked_quants_bytes(quant) + scales * quant.sub_blocks_per_block() * HALVES * VECTOR
}

/// Integer sums are this many times too large, so that [`ActivationBlock::initial_sums`] removes the zero point;
/// unpacked scales are that much smaller, which is exact.
const fn sum_factor(quant: &QuantFormat) -> i16 {
    match quant.zero_log2 {
        Some(log2) => 1 << (ZERO_POINT_LOG2 - log2),
        None => 1,
    }
}

/// Unpacks `tiles` tiles of one panel.
///
/// # Safety
/// As [`gemm_quants_avx2`]; `from` points to `tiles` tiles of a panel, and `unpacked` holds them.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unpack_panel<P: PackedFormat>(from: *const u8, tiles: usize, unpacked: *mut u8) {
    let quant = P::QUANT;
    let sub_blocks = quant.sub_blocks_per_block();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let unit = _mm256_set1_ps(1.0 / f32::from(sum_factor(&quant)));
        for index in 0..tiles * quant.tile_blocks() {
            let tile = from.add(index / quant.tile_blocks() * quant.tile_bytes());
            let block = index % quant.tile_blocks();
            let unpacked = unpacked.add(index * unpacked_block_bytes(&quant));
            let scales = unpacked.add(unpacked_quants_bytes(&quant));
            for half in 0..HALVES {
                let first = half * Avx2::ROWS;
                let block = PackedBlock { tile, block, first };
                let quants = block.load_quants::<Avx2, P>();
                for (group, quants) in quants.into_iter().enumerate() {
                    let to: *mut __m256i = unpacked.cast();
                    if quant.factor_bits() == 8 {
                        let quants = _mm256_xor_si256(quants, _mm256_set1_epi8(-128));
                        let to = to.add(2 * group * HALVES + half);
                        let [even, odd] = widen(quants);
                        _mm256_store_si256(to, even);
                        _mm256_store_si256(to.add(HALVES), odd);
                    } else {
                        _mm256_store_si256(to.add(group * HALVES + half), quants);
                    }
                }
                for sub_block in 0..sub_blocks {
                    let (scale, shift) = block.load_scales::<Avx2, P>(sub_block);
                    let at = scales.add((sub_block * HALVES + half) * VECTOR);
                    _mm256_store_ps(at.cast(), _mm256_mul_ps(scale, unit));
                    if quant.has_shift() {
                        _mm256_store_ps(at.add(sub_blocks * HALVES * VECTOR).cast(), shift);
                    }
                }
            }
        }
    }
}

/// Four columns of the quants of a panel.
struct Factors([__m256i; HALVES]);

impl Factors {
    /// # Safety
    /// As [`multiply_panel`].
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn load(quants: *const u8, group: usize) -> Self {
        let from: *const __m256i = quants.cast();
        // SAFETY: guaranteed by the caller.
        unsafe {
            let from = from.add(HALVES * group);
            Self([_mm256_load_si256(from), _mm256_load_si256(from.add(1))])
        }
    }

    /// Sums of two products with four columns of a row of activations.
    ///
    /// # Safety
    /// `x` points to a block.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn products(&self, x: *const ActivationBlock, group: usize) -> [__m256i; HALVES] {
        // SAFETY: a block has eight groups of four columns.
        let x = unsafe { (&raw const (*x).quants).cast::<i32>().add(group).read() };
        let x = _mm256_set1_epi32(x);
        [
            _mm256_maddubs_epi16(self.0[0], x),
            _mm256_maddubs_epi16(self.0[1], x),
        ]
    }
}

/// Keeps the compiler from reordering what computes two vectors: it would load more quants early than there are
/// registers, and store and load sums instead.
macro_rules! keep_order {
    ($vectors:expr) => {
        // No instruction: the vectors are in registers here, and loads stay on their side.
        asm!("/* {0} {1} */", inout(ymm_reg) $vectors[0], inout(ymm_reg) $vectors[1], options(nostack, preserves_flags));
    };
}

/// The accumulators of a row.
///
/// # Safety
/// As [`multiply_panel`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn load_sums(sums: *const f32, row: usize) -> [__m256; HALVES] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let at = sums.add(row * 4 * LANES);
        [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(Avx2::ROWS))]
    }
}

/// # Safety
/// As [`multiply_panel`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn store_sums(sums: *mut f32, row: usize, acc: [__m256; HALVES]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let at = sums.add(row * 4 * LANES);
        _mm256_storeu_ps(at, acc[0]);
        _mm256_storeu_ps(at.add(Avx2::ROWS), acc[1]);
    }
}

/// Adds the products of a sub-block to the accumulators, group after group: the sums of all rows are in registers.
///
/// # Safety
/// As [`multiply_panel`]; `block` is an unpacked block.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn add_by_groups<P: PackedFormat, const M: usize>(
    block: *const u8,
    sub_block: usize,
    x: &[*const ActivationBlock; M],
    acc: &mut [[__m256; HALVES]; M],
) {
    let quant = P::QUANT;
    let groups = quant.sub_block_weights() / 4;
    let some = sums_in_i16(quant.factor_bits()).min(groups);
    debug_assert!(
        some > 1 && groups.is_multiple_of(some),
        "whole runs of groups"
    );
    // SAFETY: guaranteed by the caller.
    unsafe {
        let factor = _mm256_set1_epi16(sum_factor(&quant));
        let mut dots = [[_mm256_setzero_si256(); HALVES]; M];
        let start = sub_block * groups;
        for first in (start..start + groups).step_by(some) {
            let mut pairs = [[_mm256_setzero_si256(); HALVES]; M];
            for group in first..first + some {
                let w = Factors::load(block, group);
                each_row!(m in M => {
                    let products = w.products(x[m], group);
                    pairs[m] = if group == first { products } else { add_i16(pairs[m], products) };
                    keep_order!(pairs[m]);
                });
            }
            each_row!(m in M => {
                // Not before the products: registers are few.
                if first == start {
                    dots[m] = initial_sums::<P>(x[m], sub_block);
                }
                dots[m] = add_i32(dots[m], pairs[m], factor);
            });
        }
        each_row!(m in M => { scale_and_add::<P>(block, sub_block, &*x[m], dots[m], &mut acc[m]); });
    }
}

/// Adds the products of a sub-block of quants of 8 bits to the accumulators; `wide` has the rows' columns in 16 bits.
///
/// # Safety
/// As [`multiply_panel`]; `block` is an unpacked block.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn add_wide<P: PackedFormat, const M: usize>(
    block: *const u8,
    sub_block: usize,
    (x, wide): (&[*const ActivationBlock; M], *const i32),
    sums: *mut f32,
) {
    debug_assert_eq!(sum_factor(&P::QUANT), 1, "quants less 128");
    let groups = P::QUANT.sub_block_weights() / 4;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut dots = [[_mm256_set1_epi32(MAGIC_BITS); HALVES]; M];
        for group in sub_block * groups..(sub_block + 1) * groups {
            each_row!(odd in 2 => {
                let from = block.cast::<__m256i>().add((2 * group + odd) * HALVES);
                let w = [_mm256_load_si256(from), _mm256_load_si256(from.add(1))];
                each_row!(m in M => {
                    let x = _mm256_set1_epi32(*wide.add(m * WIDE_ROW + odd * GROUPS + group));
                    dots[m] = add_i32(dots[m], w, x);
                });
            });
        }
        each_row!(m in M => {
            let mut acc = load_sums(sums, m);
            scale_and_add::<P>(block, sub_block, &*x[m], dots[m], &mut acc);
            store_sums(sums, m, acc);
        });
    }
}

/// Adds the products of a sub-block of 16 columns to the accumulators, row after row: the quants are in registers.
/// Two sums of two products fit 16 bits.
///
/// # Safety
/// As [`multiply_panel`]; `block` is an unpacked block.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn add_by_rows<P: PackedFormat, const M: usize>(
    block: *const u8,
    sub_block: usize,
    x: &[*const ActivationBlock; M],
    sums: *mut f32,
) {
    let first = sub_block * 4;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let factor = _mm256_set1_epi16(sum_factor(&P::QUANT));
        let w: [Factors; 4] = [
            Factors::load(block, first),
            Factors::load(block, first + 1),
            Factors::load(block, first + 2),
            Factors::load(block, first + 3),
        ];
        each_row!(m in M => {
            let [a, b, c, d] = [
                w[0].products(x[m], first),
                w[1].products(x[m], first + 1),
                w[2].products(x[m], first + 2),
                w[3].products(x[m], first + 3),
            ];
            let dots = initial_sums::<P>(x[m], sub_block);
            let dots = add_i32(dots, add_i16(a, b), factor);
            let dots = add_i32(dots, add_i16(c, d), factor);
            let mut acc = load_sums(sums, m);
            scale_and_add::<P>(block, sub_block, &*x[m], dots, &mut acc);
            keep_order!(acc);
            store_sums(sums, m, acc);
        });
    }
}

/// [`MAGIC_BITS`], less the zero point times the activations, times [`sum_factor`].
///
/// # Safety
/// `x` points to a block.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn initial_sums<P: PackedFormat>(
    x: *const ActivationBlock,
    sub_block: usize,
) -> [__m256i; HALVES] {
    let quant = P::QUANT;
    let start = match quant.zero_log2 {
        // SAFETY: guaranteed by the caller.
        Some(_) => unsafe { (*x).initial_sums[sum_index(&quant, sub_block)] },
        None => MAGIC_BITS,
    };
    [_mm256_set1_epi32(start); HALVES]
}

/// Index of a sub-block in the sums of an activation block.
const fn sum_index(quant: &QuantFormat, sub_block: usize) -> usize {
    if quant.sub_blocks_per_block() == 1 {
        0
    } else {
        1 + sub_block
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn add_i16(a: [__m256i; HALVES], b: [__m256i; HALVES]) -> [__m256i; HALVES] {
    [_mm256_add_epi16(a[0], b[0]), _mm256_add_epi16(a[1], b[1])]
}

/// Adds numbers of 16 bits, times `factor`, to sums in 32 bits.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn add_i32(
    sums: [__m256i; HALVES],
    pairs: [__m256i; HALVES],
    factor: __m256i,
) -> [__m256i; HALVES] {
    [
        _mm256_add_epi32(sums[0], _mm256_madd_epi16(pairs[0], factor)),
        _mm256_add_epi32(sums[1], _mm256_madd_epi16(pairs[1], factor)),
    ]
}

/// Adds the sums of a sub-block, times both scales, and the shift to the accumulators of a row.
///
/// # Safety
/// As [`multiply_panel`]; `block` is an unpacked block.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn scale_and_add<P: PackedFormat>(
    block: *const u8,
    sub_block: usize,
    x: &ActivationBlock,
    dots: [__m256i; HALVES],
    acc: &mut [__m256; HALVES],
) {
    let quant = P::QUANT;
    let (step, minus_magic) = (_mm256_set1_ps(x.scale), _mm256_set1_ps(x.minus_magic));
    let moment = _mm256_set1_ps(x.scaled_sums[sum_index(&quant, sub_block)]);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let scales = block.add(unpacked_quants_bytes(&quant));
        each_row!(p in HALVES => {
            let at = scales.add((sub_block * HALVES + p) * VECTOR);
            let dot = _mm256_fmadd_ps(_mm256_castsi256_ps(dots[p]), step, minus_magic);
            acc[p] = _mm256_fmadd_ps(dot, _mm256_load_ps(at.cast()), acc[p]);
            if quant.has_shift() {
                let shift = at.add(quant.sub_blocks_per_block() * HALVES * VECTOR);
                acc[p] = _mm256_fmadd_ps(moment, _mm256_load_ps(shift.cast()), acc[p]);
            }
        });
    }
}
