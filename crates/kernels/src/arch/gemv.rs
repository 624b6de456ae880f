//! GEMV kernels: one panel times one to eight rows, written once for AVX2, AVX-VNNI, AVX-512 and NEON.
//! `matmul::reference` defines the result.

use super::int8_dot::Int8Dot;
#[cfg(target_arch = "aarch64")]
use super::int8_dot::neon::{BASELINE, DOTPROD, I8MM, NeonRows};
#[cfg(target_arch = "x86_64")]
use super::int8_dot::{Avx2, Avx512, AvxVnni};
use super::packed_block::{
    PackedBlock, each_row, load_weights, prefetch_for_rows, zero_point_shift,
};
use crate::layout::activation_block::ActivationBlock;
use crate::packing::{LANES, PackedFormat};
use crate::{Activations, Format};

/// Writes the entry point of a kernel, compiled for a level.
macro_rules! level_entry {
    ($name:ident[$($generics:tt)*], $features:literal, $body:ident[$($arguments:tt)*]) => {
        /// # Safety
        /// The processor has the level.
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $name<$($generics)*, const M: usize>(
            panel: &[u8],
            x: &Activations,
            row: usize,
            out: &mut [[f32; LANES]],
        ) {
            for (row, out) in (row..).step_by(M).zip(out.chunks_mut(M)) {
                // SAFETY: compiled for the level.
                unsafe { $body::<$($arguments)*, M>(panel, x, row, out) };
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
level_entry!(quants_avx2[P: PackedFormat], "avx2,fma,f16c", multiply_quants[Avx2, P]);
#[cfg(target_arch = "x86_64")]
level_entry!(
    quants_avx_vnni[P: PackedFormat],
    "avx2,fma,f16c,avxvnni",
multiply_quants[AvxVnni, P]
);
#[cfg(target_arch = "x86_64")]
level_entry!(
    quants_avx512[P: PackedFormat],
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
multiply_quants[Avx512, P]
);
#[cfg(target_arch = "x86_64")]
level_entry!(floats_avx2[const F: u8], "avx2,fma,f16c", multiply_floats[Avx2, F]);
#[cfg(target_arch = "x86_64")]
level_entry!(
    floats_avx512[const F: u8],
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl",
multiply_floats[Avx512, F]
);
#[cfg(target_arch = "aarch64")]
level_entry!(quants_neon[P: PackedFormat], "neon", multiply_quants[NeonRows<BASELINE>, P]);
#[cfg(target_arch = "aarch64")]
level_entry!(
    quants_neon_dotprod[P: PackedFormat],
    "neon,dotprod",
multiply_quants[NeonRows<DOTPROD>, P]
);
#[cfg(target_arch = "aarch64")]
level_entry!(
    quants_neon_i8mm[P: PackedFormat],
    "neon,dotprod,i8mm",
multiply_quants[NeonRows<I8MM>, P]
);
#[cfg(target_arch = "aarch64")]
level_entry!(floats_neon[const F: u8], "neon", multiply_floats[NeonRows<BASELINE>, F]);

/// Multiplies a panel of quants with `M` rows.
///
/// # Safety
/// Compiled for the level of `D`.
#[inline(always)]
unsafe fn multiply_quants<D: Int8Dot, P: PackedFormat, const M: usize>(
    panel: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [[f32; LANES]],
) {
    let quant = P::QUANT;
    let blocks = panel.len() / quant.tile_bytes() * quant.tile_blocks();
    let mut rows = [std::ptr::null::<ActivationBlock>(); M];
    for (m, at) in rows.iter_mut().enumerate() {
        // Rows beyond the last are duplicates of the last and are not stored.
        let row = x.blocks(row + m.min(out.len() - 1));
        assert!(row.len() >= blocks);
        *at = row.as_ptr();
    }
    // SAFETY: blocks are within the panel and within the rows, as just checked.
    unsafe {
        let mut sums = [[D::splat(0.0); M]; 2];
        let mut column = 0;
        for tile in panel.chunks_exact(quant.tile_bytes()) {
            let tile = tile.as_ptr();
            prefetch_for_rows(tile, quant.header_bytes(), M);
            for block in 0..quant.tile_blocks() {
                let offset = quant.header_bytes() + block * quant.block_bytes();
                prefetch_for_rows(tile.add(offset), quant.block_bytes(), M);
                for (part, sums) in sums[..LANES / D::ROWS].iter_mut().enumerate() {
                    let first = part * D::ROWS;
                    let block = PackedBlock { tile, block, first };
                    accumulate_block::<D, P, M>(block, &rows, column, sums);
                }
                column += 1;
            }
        }
        if zero_point_shift::<D>(&quant) > 0 {
            let unshift = D::splat(1.0 / (1 << zero_point_shift::<D>(&quant)) as f32);
            for sum in sums.as_flattened_mut() {
                *sum = D::mul(*sum, unshift);
            }
        }
        store_rows::<D, M>(&sums, out);
    }
}

/// Adds the products of one block to the sums.
///
/// # Safety
/// As [`multiply_quants`]; the block is within its panel, and each of `rows` has a block at `column`.
#[inline(always)]
unsafe fn accumulate_block<D: Int8Dot, P: PackedFormat, const M: usize>(
    at: PackedBlock,
    rows: &[*const ActivationBlock; M],
    column: usize,
    sums: &mut [D::F; M],
) {
    let quant = P::QUANT;
    let bits = quant.factor_bits();
    let groups_per_sub_block = quant.sub_block_weights() / 4;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let quants = at.load_quants::<D, P>();
        for sub_block in 0..quant.sub_blocks_per_block() {
            let (scale, shift) = at.load_scales::<D, P>(sub_block);
            // Index 0 is the sum of the block, 1 and 2 are the sums of its halves.
            let sum_index = if quant.sub_blocks_per_block() == 1 {
                0
            } else {
                1 + sub_block
            };
            each_row!(m in M => {
                let x = &*rows[m].add(column);
                let start = D::initial_sum(x, sum_index, quant.zero_log2, bits);
                let groups = (sub_block * groups_per_sub_block, (sub_block + 1) * groups_per_sub_block);
                let dot = D::dot_groups(start, &quants, groups, x.quants.as_ptr(), bits);
                let dot = D::scaled_sum(dot, x);
                sums[m] = D::mul_add(dot, scale, sums[m]);
                if quant.has_shift() {
                    sums[m] = D::mul_add(D::splat(x.scaled_sums[sum_index]), shift, sums[m]);
                }
            });
        }
    }
}

/// Multiplies a panel of floats with `M` rows.
///
/// # Safety
/// Compiled for the level of `D`.
#[inline(always)]
unsafe fn multiply_floats<D: Int8Dot, const F: u8, const M: usize>(
    panel: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [[f32; LANES]],
) {
    let width = if F == Format::F32 as u8 { 4 } else { 2 };
    let pairs = panel.len() / (2 * LANES * width);
    let mut rows = [std::ptr::null::<f32>(); M];
    for (m, at) in rows.iter_mut().enumerate() {
        // Rows beyond the last are duplicates of the last and are not stored.
        let row = x.floats(row + m.min(out.len() - 1));
        assert!(row.len() >= 2 * pairs);
        *at = row.as_ptr();
    }
    // SAFETY: columns are within the panel and within the rows, as just checked.
    unsafe {
        let mut results = [[D::splat(0.0); M]; 2];
        for (part, results) in results[..LANES / D::ROWS].iter_mut().enumerate() {
            let mut at = panel.as_ptr().add(part * D::ROWS * width);
            let (mut even, mut odd) = ([D::splat(0.0); M], [D::splat(0.0); M]);
            for pair in 0..pairs {
                // A line of f32 has half the columns of other formats, which are multiplied in half the time.
                prefetch_for_rows(at, 2 * LANES * width, 2 * M / width);
                let (a, b) = (
                    load_weights::<D, F>(at),
                    load_weights::<D, F>(at.add(LANES * width)),
                );
                each_row!(m in M => {
                    let x = rows[m].add(2 * pair);
                    even[m] = D::mul_add(a, D::splat(*x), even[m]);
                    odd[m] = D::mul_add(b, D::splat(*x.add(1)), odd[m]);
                });
                // After the last pair, `at` is beyond the panel and not read.
                at = at.wrapping_add(2 * LANES * width);
            }
            each_row!(m in M => { results[m] = D::add(even[m], odd[m]); });
        }
        store_rows::<D, M>(&results, out);
    }
}

/// Stores the sums of the first `out.len()` rows.
///
/// # Safety
/// Compiled for the level of `D`.
#[inline(always)]
unsafe fn store_rows<D: Int8Dot, const M: usize>(sums: &[[D::F; M]; 2], out: &mut [[f32; LANES]]) {
    for (part, sums) in sums[..LANES / D::ROWS].iter().enumerate() {
        for (sum, out) in sums.iter().zip(&mut *out) {
            let out = &mut out[part * D::ROWS..][..D::ROWS];
            // SAFETY: the slice has a vector's length.
            unsafe { D::store(*sum, out.as_mut_ptr()) };
        }
    }
}
