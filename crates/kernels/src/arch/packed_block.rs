//! Unpacking packed weights into vectors, 32 columns or one column at a time.

use super::int8_dot::Int8Dot;
use super::prefetch::{prefetch_nearest, prefetch_second};
use crate::Format;
use crate::layout::activation_block::ZERO_POINT_LOG2;
use crate::memory::LINE;
use crate::packing::{GROUPS, LANES, PackedFormat, SUPER_SCALES_BYTES};
use crate::quant::{QuantFormat, ScaleKind};

/// Prefetch distance of weights in bytes: far enough to cross 4 KiB pages, where the hardware prefetcher stops,
/// and to cover the memory latency while eight rows are multiplied. On Zen 5, 6 KiB instead of 2 KiB made eight
/// rows 1.5 times as fast and one row of Q6_K 1.3 times.
const AHEAD_BYTES: usize = 6144;
/// Rows from which weights are prefetched into both caches. On its way from memory a line holds one of the few miss buffers
/// of the first cache (24 on Zen 4), which the activations of many rows need as well: they come from the second cache.
/// On Zen 4 eight rows of Q8_0 became 1.5 times as fast and of F16 1.1 times, four of F16 1.5 times; one row became slower.
const BOTH_CACHES_ROWS: usize = 4;
/// Prefetch distance into the first cache where lines come from the second.
const NEAR_BYTES: usize = 2048;
/// Prefetch distance into the second cache.
const FAR_BYTES: usize = 12 << 10;

/// Repeats a block for each of `M` rows, unrolled so that sums stay in registers.
macro_rules! each_row {
    ($m:ident in $rows:tt => $body:block) => {
        each_row!(@ $m $rows $body 0 1 2 3 4 5 6 7)
    };
    (@ $m:ident $rows:tt $body:block $($i:literal)*) => {
        $(if $i < $rows { let $m = $i; $body })*
    };
}

pub(super) use each_row;

/// 32 columns of the rows of a tile from `first` on, as many rows as a vector has.
#[derive(Clone, Copy)]
pub(super) struct PackedBlock {
    pub(super) tile: *const u8,
    pub(super) block: usize,
    pub(super) first: usize,
}

impl PackedBlock {
    /// Loads all quants of the block, or the levels that they stand for.
    ///
    /// # Safety
    /// The processor has the level of `D`, and the block is within its panel.
    #[inline(always)]
    pub(super) unsafe fn load_quants<D: Int8Dot, P: PackedFormat>(self) -> [D::Ints; GROUPS] {
        // SAFETY: guaranteed by the caller. The groups are unrolled, so that shifts are constants.
        unsafe {
            [
                self.load_group::<D, P>(0),
                self.load_group::<D, P>(1),
                self.load_group::<D, P>(2),
                self.load_group::<D, P>(3),
                self.load_group::<D, P>(4),
                self.load_group::<D, P>(5),
                self.load_group::<D, P>(6),
                self.load_group::<D, P>(7),
            ]
        }
    }

    /// Loads the quants of four columns.
    ///
    /// # Safety
    /// The processor has the level of `D`, and the block is within its panel.
    #[inline(always)]
    pub(super) unsafe fn load_group<D: Int8Dot, P: PackedFormat>(self, group: usize) -> D::Ints {
        let quant = P::QUANT;
        let at = quant.header_bytes() + self.block * quant.block_bytes() + 4 * self.first;
        let (low, high, shift) = (quant.low, quant.high, zero_point_shift::<D>(&quant));
        // SAFETY: guaranteed by the caller: a plane of w bits has w lines.
        unsafe {
            let line = D::load(self.tile.add(at + group / (8 / low) * LINE));
            if low == 8 {
                return line;
            }
            let mut quants = extract_bits::<D>(line, group % (8 / low) * low, low, shift);
            if let Some(per_line) = 8_usize.checked_div(high) {
                let line = D::load(self.tile.add(at + (low + group / per_line) * LINE));
                let from = group % per_line * high;
                quants = D::or(quants, extract_bits::<D>(line, from, high, low + shift));
            }
            match &const { P::QUANT.levels } {
                Some(levels) => D::look_up(levels, quants),
                None => quants,
            }
        }
    }

    /// Loads scales and shifts of the rows (the shift is meaningless where the format has none).
    ///
    /// # Safety
    /// The processor has the level of `D`, and the block is within its panel.
    #[inline(always)]
    pub(super) unsafe fn load_scales<D: Int8Dot, P: PackedFormat>(
        self,
        sub: usize,
    ) -> (D::F, D::F) {
        // SAFETY: guaranteed by the caller; offsets are those of `packing`'s header.
        unsafe {
            let half = |at: usize| D::load_f16(self.tile.add(2 * at + 2 * self.first));
            let d = half(0);
            let number = self.tile.add(SUPER_SCALES_BYTES + self.first);
            let i = self.block * P::QUANT.sub_blocks_per_block() + sub;
            match P::QUANT.scale_kind {
                ScaleKind::Plain => (half(LANES * self.block), d),
                ScaleKind::Power => {
                    let at = 2 * LANES * self.block + 2 * self.first;
                    (D::load_bf16(self.tile.add(at)), d)
                }
                ScaleKind::PlainMin => (half(LANES * self.block), half(LANES * (2 + self.block))),
                ScaleKind::Super16 | ScaleKind::Super32 => {
                    let scale = D::mul(d, D::load_i8(number.add(LANES * i)));
                    match P::QUANT.unit_log2 {
                        0 => (scale, d),
                        _ => (D::mul(scale, D::splat(P::QUANT.unit())), d),
                    }
                }
                ScaleKind::SuperMin16 => {
                    let (s, t) = D::load_nibbles(number.add(LANES * i));
                    (D::mul(d, s), D::mul(half(LANES), t))
                }
                ScaleKind::SuperMin32 => {
                    let s = D::load_u8(number.add(2 * LANES * i));
                    let t = D::load_u8(number.add(2 * LANES * i + LANES));
                    (D::mul(d, s), D::mul(half(LANES), t))
                }
            }
        }
    }
}

/// Left shift of quants that aligns the zero points of all formats; products are `2^shift` times too large.
pub(super) const fn zero_point_shift<D: Int8Dot>(quant: &QuantFormat) -> usize {
    match quant.zero_log2 {
        Some(log2) if D::ALIGNS_ZERO_POINT => (ZERO_POINT_LOG2 - log2) as usize,
        _ => 0,
    }
}

/// Moves `count` bits of each byte from bit `from` to bit `to`.
///
/// # Safety
/// The processor has the level of `D`.
#[inline(always)]
unsafe fn extract_bits<D: Int8Dot>(line: D::Ints, from: usize, count: usize, to: usize) -> D::Ints {
    let mask = ((1u32 << count) - 1) << to;
    // SAFETY: guaranteed by the caller.
    unsafe {
        if from >= to {
            D::shift_right_mask(line, from - to, mask as u8)
        } else {
            D::shift_left_mask(line, to - from, mask as u8)
        }
    }
}

/// Loads the float weights of one column.
///
/// # Safety
/// The processor has the level of `D`; `from` points to as many weights as a vector has rows.
#[inline(always)]
pub(super) unsafe fn load_weights<D: Int8Dot, const F: u8>(from: *const u8) -> D::F {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match F {
            f if f == Format::F32 as u8 => D::load_f32(from),
            f if f == Format::F16 as u8 => D::load_f16(from),
            _ => D::load_bf16(from),
        }
    }
}

/// Prefetches the lines [`AHEAD_BYTES`] beyond `bytes` bytes at `at`.
#[inline(always)]
pub(super) fn prefetch_ahead(at: *const u8, bytes: usize) {
    each_line(at.wrapping_add(AHEAD_BYTES), bytes, prefetch_nearest);
}

/// As [`prefetch_ahead`], into the second cache, for weights whose use lasts long enough.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn prefetch_ahead_second(at: *const u8, bytes: usize) {
    each_line(at.wrapping_add(AHEAD_BYTES), bytes, prefetch_second);
}

/// As [`prefetch_ahead`], for weights that are multiplied with `rows` rows. Other processors than x86-64 were not measured.
#[inline(always)]
pub(super) fn prefetch_for_rows(at: *const u8, bytes: usize, rows: usize) {
    if rows < BOTH_CACHES_ROWS || cfg!(not(target_arch = "x86_64")) {
        return prefetch_ahead(at, bytes);
    }
    each_line(at.wrapping_add(NEAR_BYTES), bytes, prefetch_nearest);
    each_line(at.wrapping_add(FAR_BYTES), bytes, prefetch_second);
}

/// Calls `prefetch` with the address of each line of `bytes` bytes at `at`.
#[inline(always)]
fn each_line(at: *const u8, bytes: usize, prefetch: impl Fn(*const u8)) {
    let mut line = 0;
    while line < bytes {
        prefetch(at.wrapping_add(line));
        line += LINE;
    }
}

/// Calls a shift intrinsic, which takes the distance as a constant.
macro_rules! by_distance {
    ($shift:ident, $v:expr, $distance:expr) => {
        match $distance {
            0 => $v,
            1 => $shift::<1>($v),
            2 => $shift::<2>($v),
            3 => $shift::<3>($v),
            4 => $shift::<4>($v),
            5 => $shift::<5>($v),
            6 => $shift::<6>($v),
            _ => $shift::<7>($v),
        }
    };
}

pub(super) use by_distance;
