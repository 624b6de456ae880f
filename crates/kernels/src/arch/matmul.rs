//! The matmul kernels, written once for AVX2 and AVX-512; `matmul::scalar` says what they compute.

use super::dots::{Avx2, Avx512, Dots};
use crate::activations::ActBlock;
use crate::isa::Level;
use crate::matmul::Kernel;
use crate::memory::LINE;
use crate::packing::{GROUPS, LANES, Packing, SUPER_HALVES};
use crate::quant::Scales;
use crate::{Activations, Format, Isa};
use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// How far ahead of the loads weights are asked for: across the small pages where the processor's
/// own look-ahead stops, and soon enough for memory while eight rows take their time. On Zen 5, 6 KiB
/// against 2 KiB gave eight rows 1.5 times the speed and one row of Q6_K 1.3 times.
const AHEAD_BYTES: usize = 6144;

/// The kernel of a packing for `rows` rows, if the level has one.
pub(crate) fn code_kernel<P: Packing>(isa: Isa, rows: usize) -> Option<Kernel> {
    Some(match (isa.level(), rows) {
        (Level::Scalar, _) => return None,
        (Level::Avx2, 1) => codes_avx2::<P, 1>,
        (Level::Avx2, 2) => codes_avx2::<P, 2>,
        (Level::Avx2, 3..=4) => codes_avx2::<P, 4>,
        (Level::Avx2, _) => codes_avx2::<P, 8>,
        (Level::Avx512, 1) => codes_avx512::<P, 1>,
        (Level::Avx512, 2) => codes_avx512::<P, 2>,
        (Level::Avx512, 3..=4) => codes_avx512::<P, 4>,
        (Level::Avx512, _) => codes_avx512::<P, 8>,
    })
}

/// The kernel of the float format whose number is `F`, for `rows` rows, if the level has one.
pub(crate) fn float_kernel<const F: u8>(isa: Isa, rows: usize) -> Option<Kernel> {
    Some(match (isa.level(), rows) {
        (Level::Scalar, _) => return None,
        (Level::Avx2, 1) => floats_avx2::<F, 1>,
        (Level::Avx2, 2) => floats_avx2::<F, 2>,
        (Level::Avx2, _) => floats_avx2::<F, 4>,
        (Level::Avx512, 1) => floats_avx512::<F, 1>,
        (Level::Avx512, 2) => floats_avx512::<F, 2>,
        (Level::Avx512, 3..=4) => floats_avx512::<F, 4>,
        (Level::Avx512, _) => floats_avx512::<F, 8>,
    })
}

/// Writes a kernel's entry, compiled for a level.
macro_rules! entry {
    ($name:ident[$($generics:tt)*], $features:literal, $body:ident[$($arguments:tt)*]) => {
        /// # Safety
        /// The processor has the level.
        #[target_feature(enable = $features)]
        unsafe fn $name<$($generics)*, const M: usize>(
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

/// Repeats a block for each of `M` rows, written out so that sums stay in registers.
macro_rules! each_row {
    ($m:ident in $rows:ident => $body:block) => {
        each_row!(@ $m $rows $body 0 1 2 3 4 5 6 7)
    };
    (@ $m:ident $rows:ident $body:block $($i:literal)*) => {
        $(if $i < $rows { let $m = $i; $body })*
    };
}

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
                    block.add_products::<D, P, M>(&rows, column, sums);
                }
                column += 1;
            }
        }
        store::<D, M>(&sums, out);
    }
}

/// 32 columns of a tile's rows from `first` on, as many as a vector holds.
#[derive(Clone, Copy)]
struct Block {
    tile: *const u8,
    block: usize,
    first: usize,
}

impl Block {
    /// # Safety
    /// As [`codes`]; the block is within its panel, and each of `rows` has a block at `column`.
    #[inline(always)]
    unsafe fn add_products<D: Dots, P: Packing, const M: usize>(
        self,
        rows: &[*const ActBlock; M],
        column: usize,
        sums: &mut [D::F; M],
    ) {
        let scheme = P::SCHEME;
        let bits = scheme.low + scheme.high;
        let per_sub = scheme.sub_weights() / 4;
        // SAFETY: the caller's promise.
        unsafe {
            let codes = self.codes::<D, P>();
            for sub in 0..scheme.block_subs() {
                let (scale, shift) = self.affine::<D, P>(sub);
                // Sums of the whole are first, then those of the halves.
                let which = if scheme.block_subs() == 1 { 0 } else { 1 + sub };
                each_row!(m in M => {
                    let x = &*rows[m].add(column);
                    let start = match scheme.zero_log2 {
                        Some(log2) if !(bits == 8 && D::CENTRES_BYTES) => {
                            D::splat_shifted(x.minus_sums[which], log2)
                        }
                        _ => D::zero(),
                    };
                    let groups = (sub * per_sub, (sub + 1) * per_sub);
                    let dot = D::dot(start, &codes, groups, x.codes.as_ptr(), bits);
                    let dot = D::mul(D::to_f32(dot), D::splat(x.scale));
                    sums[m] = D::mul_add(dot, scale, sums[m]);
                    if scheme.has_shift() {
                        sums[m] = D::mul_add(D::splat(x.moments[which]), shift, sums[m]);
                    }
                });
            }
        }
    }

    /// # Safety
    /// As [`Block::add_products`].
    #[inline(always)]
    unsafe fn codes<D: Dots, P: Packing>(self) -> [D::Codes; GROUPS] {
        // SAFETY: the caller's promise. Groups are written out, so that shifts are constants.
        unsafe {
            [
                self.group::<D, P>(0),
                self.group::<D, P>(1),
                self.group::<D, P>(2),
                self.group::<D, P>(3),
                self.group::<D, P>(4),
                self.group::<D, P>(5),
                self.group::<D, P>(6),
                self.group::<D, P>(7),
            ]
        }
    }

    /// Four columns' codes.
    ///
    /// # Safety
    /// As [`Block::add_products`].
    #[inline(always)]
    unsafe fn group<D: Dots, P: Packing>(self, group: usize) -> D::Codes {
        let scheme = P::SCHEME;
        let at = scheme.header_bytes() + self.block * scheme.block_bytes() + 4 * self.first;
        let (low, high) = (scheme.low, scheme.high);
        // SAFETY: the caller's promise: a plane of w bits has w lines.
        unsafe {
            let line = D::load(self.tile.add(at + group / (8 / low) * LINE));
            if low == 8 {
                return line;
            }
            let codes = D::field(line, group % (8 / low) * low, (1 << low) - 1);
            if high == 0 {
                return codes;
            }
            let line = D::load(self.tile.add(at + (low + group / (8 / high)) * LINE));
            let (from, mask) = (group % (8 / high) * high, ((1 << high) - 1) << low);
            let above = if from > low {
                D::field(line, from - low, mask)
            } else {
                D::field_left(line, low - from, mask)
            };
            D::or(codes, above)
        }
    }

    /// Scales and shifts of the rows (the shift is meaningless where the format has none).
    ///
    /// # Safety
    /// As [`Block::add_products`].
    #[inline(always)]
    unsafe fn affine<D: Dots, P: Packing>(self, sub: usize) -> (D::F, D::F) {
        // SAFETY: the caller's promise; offsets are those of `packing`'s header.
        unsafe {
            let half = |at: usize| D::f16(self.tile.add(2 * at + 2 * self.first));
            let d = half(0);
            let number = self.tile.add(SUPER_HALVES + self.first);
            let i = self.block * P::SCHEME.block_subs() + sub;
            match P::SCHEME.scales {
                Scales::Plain => (half(LANES * self.block), d),
                Scales::PlainMin => (half(LANES * self.block), half(LANES * (2 + self.block))),
                Scales::Super16 => (D::mul(d, D::signed(number.add(LANES * i))), d),
                Scales::SuperMin16 => {
                    let (s, t) = D::nibbles(number.add(LANES * i));
                    (D::mul(d, s), D::mul(half(LANES), t))
                }
                Scales::SuperMin32 => {
                    let s = D::unsigned(number.add(2 * LANES * i));
                    let t = D::unsigned(number.add(2 * LANES * i + LANES));
                    (D::mul(d, s), D::mul(half(LANES), t))
                }
            }
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

/// One column's weights.
///
/// # Safety
/// As [`floats`]; `from` points at as many weights as a vector has rows.
#[inline(always)]
unsafe fn weight<D: Dots, const F: u8>(from: *const u8) -> D::F {
    // SAFETY: the caller's promise.
    unsafe {
        match F {
            f if f == Format::F32 as u8 => D::f32(from),
            f if f == Format::F16 as u8 => D::f16(from),
            _ => D::bf16(from),
        }
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

/// Asks for the lines that lie [`AHEAD_BYTES`] beyond `bytes` bytes at `at`.
#[inline(always)]
fn prefetch(at: *const u8, bytes: usize) {
    let mut ahead = AHEAD_BYTES;
    while ahead < AHEAD_BYTES + bytes {
        // SAFETY: a prefetch reads nothing; an address beyond the weights is ignored.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(ahead).cast()) };
        ahead += LINE;
    }
}
