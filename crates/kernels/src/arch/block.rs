//! Taking packed weights apart, 32 columns or one at a time.

use super::dots::Dots;
use crate::Format;
use crate::layout::activation_block::CENTRE_LOG2;
use crate::memory::LINE;
use crate::packing::{GROUPS, LANES, Packing, SUPER_HALVES};
use crate::quant::{Scales, Scheme};
use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// How far ahead of the loads weights are asked for: across the small pages where the processor's
/// own look-ahead stops, and soon enough for memory while eight rows take their time. On Zen 5, 6 KiB
/// against 2 KiB gave eight rows 1.5 times the speed and one row of Q6_K 1.3 times.
const AHEAD_BYTES: usize = 6144;

/// Repeats a block for each of `M` rows, written out so that sums stay in registers.
macro_rules! each_row {
    ($m:ident in $rows:tt => $body:block) => {
        each_row!(@ $m $rows $body 0 1 2 3 4 5 6 7)
    };
    (@ $m:ident $rows:tt $body:block $($i:literal)*) => {
        $(if $i < $rows { let $m = $i; $body })*
    };
}

pub(super) use each_row;

/// 32 columns of a tile's rows from `first` on, as many as a vector holds.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) tile: *const u8,
    pub(super) block: usize,
    pub(super) first: usize,
}

impl Block {
    /// # Safety
    /// The processor has the level of `D`, and the block is within its panel.
    #[inline(always)]
    pub(super) unsafe fn codes<D: Dots, P: Packing>(self) -> [D::Codes; GROUPS] {
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
    /// The processor has the level of `D`, and the block is within its panel.
    #[inline(always)]
    unsafe fn group<D: Dots, P: Packing>(self, group: usize) -> D::Codes {
        let scheme = P::SCHEME;
        let at = scheme.header_bytes() + self.block * scheme.block_bytes() + 4 * self.first;
        let (low, high, lift) = (scheme.low, scheme.high, lift::<D>(&scheme));
        // SAFETY: the caller's promise: a plane of w bits has w lines.
        unsafe {
            let line = D::load(self.tile.add(at + group / (8 / low) * LINE));
            if low == 8 {
                return line;
            }
            let codes = bits::<D>(line, group % (8 / low) * low, low, lift);
            if high == 0 {
                return codes;
            }
            let line = D::load(self.tile.add(at + (low + group / (8 / high)) * LINE));
            let above = bits::<D>(line, group % (8 / high) * high, high, low + lift);
            D::or(codes, above)
        }
    }

    /// Scales and shifts of the rows (the shift is meaningless where the format has none).
    ///
    /// # Safety
    /// The processor has the level of `D`, and the block is within its panel.
    #[inline(always)]
    pub(super) unsafe fn affine<D: Dots, P: Packing>(self, sub: usize) -> (D::F, D::F) {
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

/// Bits by which codes are lifted, so that all that count from a middle count from the same: products
/// are `2^lift` times what they should be.
pub(super) const fn lift<D: Dots>(scheme: &Scheme) -> usize {
    match scheme.zero_log2 {
        Some(log2) if D::LIFTS => (CENTRE_LOG2 - log2) as usize,
        _ => 0,
    }
}

/// `count` bits of each byte, moved from bit `from` to bit `to`.
///
/// # Safety
/// The processor has the level of `D`.
#[inline(always)]
unsafe fn bits<D: Dots>(line: D::Codes, from: usize, count: usize, to: usize) -> D::Codes {
    let mask = ((1u32 << count) - 1) << to;
    // SAFETY: the caller's promise.
    unsafe {
        if from >= to {
            D::field(line, from - to, mask as u8)
        } else {
            D::field_left(line, to - from, mask as u8)
        }
    }
}

/// One column's weights.
///
/// # Safety
/// The processor has the level of `D`; `from` points at as many weights as a vector has rows.
#[inline(always)]
pub(super) unsafe fn weight<D: Dots, const F: u8>(from: *const u8) -> D::F {
    // SAFETY: the caller's promise.
    unsafe {
        match F {
            f if f == Format::F32 as u8 => D::f32(from),
            f if f == Format::F16 as u8 => D::f16(from),
            _ => D::bf16(from),
        }
    }
}

/// Asks for the lines that lie [`AHEAD_BYTES`] beyond `bytes` bytes at `at`.
#[inline(always)]
pub(super) fn prefetch(at: *const u8, bytes: usize) {
    let mut ahead = AHEAD_BYTES;
    while ahead < AHEAD_BYTES + bytes {
        // SAFETY: a prefetch reads nothing; an address beyond the weights is ignored.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(ahead).cast()) };
        ahead += LINE;
    }
}
