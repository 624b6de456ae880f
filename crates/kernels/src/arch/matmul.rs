//! The matmul kernels, written once for AVX2, AVX-VNNI and AVX-512; `matmul::scalar` says what they compute.

use super::block::{Block, each_row, lift, prefetch, weight};
use super::dots::{Avx2, Avx512, AvxVnni, Dots};
use crate::layout::activation_block::ActBlock;
use crate::packing::{LANES, Packing};
use crate::{Activations, Format};

/// Writes a kernel's entry, compiled for a level.
macro_rules! entry {
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

entry!(codes_avx2[P: Packing], "avx2,fma,f16c", codes[Avx2, P]);
entry!(
    codes_avx_vnni[P: Packing],
    "avx2,fma,f16c,avxvnni",
    codes[AvxVnni, P]
);
entry!(
    codes_avx512[P: Packing],
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    codes[Avx512, P]
);
entry!(floats_avx2[const F: u8], "avx2,fma,f16c", floats[Avx2, F]);
entry!(
    floats_avx512[const F: u8],
    "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl",
    floats[Avx512, F]
);

/// # Safety
/// Compiled for the level of `D`.
#[inline(always)]
unsafe fn codes<D: Dots, P: Packing, const M: usize>(
    panel: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [[f32; LANES]],
) {
    let scheme = P::SCHEME;
    let blocks = panel.len() / scheme.tile_bytes() * scheme.tile_blocks();
    let mut rows = [std::ptr::null::<ActBlock>(); M];
    for (m, at) in rows.iter_mut().enumerate() {
        // Rows beyond the last are computed from the last, and not stored.
        let row = x.blocks(row + m.min(out.len() - 1));
        assert!(row.len() >= blocks);
        *at = row.as_ptr();
    }
    // SAFETY: blocks are within the panel and within the rows, as just checked.
    unsafe {
        let mut sums = [[D::splat(0.0); M]; 2];
        let mut column = 0;
        for tile in panel.chunks_exact(scheme.tile_bytes()) {
            let tile = tile.as_ptr();
            prefetch(tile, scheme.header_bytes());
            for block in 0..scheme.tile_blocks() {
                let codes = scheme.header_bytes() + block * scheme.block_bytes();
                prefetch(tile.add(codes), scheme.block_bytes());
                for (part, sums) in sums[..LANES / D::ROWS].iter_mut().enumerate() {
                    let first = part * D::ROWS;
                    let block = Block { tile, block, first };
                    add_products::<D, P, M>(block, &rows, column, sums);
                }
                column += 1;
            }
        }
        if lift::<D>(&scheme) > 0 {
            let down = D::splat(1.0 / (1 << lift::<D>(&scheme)) as f32);
            for sum in sums.as_flattened_mut() {
                *sum = D::mul(*sum, down);
            }
        }
        store::<D, M>(&sums, out);
    }
}

/// # Safety
/// As [`codes`]; the block is within its panel, and each of `rows` has a block at `column`.
#[inline(always)]
unsafe fn add_products<D: Dots, P: Packing, const M: usize>(
    at: Block,
    rows: &[*const ActBlock; M],
    column: usize,
    sums: &mut [D::F; M],
) {
    let scheme = P::SCHEME;
    let bits = scheme.low + scheme.high;
    let per_sub = scheme.sub_weights() / 4;
    // SAFETY: the caller's promise.
    unsafe {
        let codes = at.codes::<D, P>();
        for sub in 0..scheme.block_subs() {
            let (scale, shift) = at.affine::<D, P>(sub);
            // Sums of the whole are first, then those of the halves.
            let which = if scheme.block_subs() == 1 { 0 } else { 1 + sub };
            each_row!(m in M => {
                let x = &*rows[m].add(column);
                let start = D::start(x, which, scheme.zero_log2, bits);
                let groups = (sub * per_sub, (sub + 1) * per_sub);
                let dot = D::dot(start, &codes, groups, x.codes.as_ptr(), bits);
                let dot = D::value(dot, x);
                sums[m] = D::mul_add(dot, scale, sums[m]);
                if scheme.has_shift() {
                    sums[m] = D::mul_add(D::splat(x.moments[which]), shift, sums[m]);
                }
            });
        }
    }
}

/// # Safety
/// Compiled for the level of `D`.
#[inline(always)]
unsafe fn floats<D: Dots, const F: u8, const M: usize>(
    panel: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [[f32; LANES]],
) {
    let width = if F == Format::F32 as u8 { 4 } else { 2 };
    let pairs = panel.len() / (2 * LANES * width);
    let mut rows = [std::ptr::null::<f32>(); M];
    for (m, at) in rows.iter_mut().enumerate() {
        // Rows beyond the last are computed from the last, and not stored.
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
                prefetch(at, 2 * LANES * width);
                let (a, b) = (weight::<D, F>(at), weight::<D, F>(at.add(LANES * width)));
                each_row!(m in M => {
                    let x = rows[m].add(2 * pair);
                    even[m] = D::mul_add(a, D::splat(*x), even[m]);
                    odd[m] = D::mul_add(b, D::splat(*x.add(1)), odd[m]);
                });
                at = at.add(2 * LANES * width);
            }
            each_row!(m in M => { results[m] = D::add(even[m], odd[m]); });
        }
        store::<D, M>(&results, out);
    }
}

/// Stores as many rows as `out` has.
///
/// # Safety
/// Compiled for the level of `D`.
#[inline(always)]
unsafe fn store<D: Dots, const M: usize>(sums: &[[D::F; M]; 2], out: &mut [[f32; LANES]]) {
    for (part, sums) in sums[..LANES / D::ROWS].iter().enumerate() {
        for (sum, out) in sums.iter().zip(&mut *out) {
            let out = &mut out[part * D::ROWS..][..D::ROWS];
            // SAFETY: the slice has a vector's length.
            unsafe { D::store(*sum, out.as_mut_ptr()) };
        }
    }
}
