//! Bit positions of quants and f16 numbers in a block.
//!
//! One description serves reading and writing, so the two cannot disagree.

use crate::Format;

/// The bits from `shift` upwards of byte `byte` of a block.
#[derive(Clone, Copy)]
pub(super) struct BitPosition {
    pub(super) byte: usize,
    pub(super) shift: usize,
}

const fn at(byte: usize, shift: usize) -> BitPosition {
    BitPosition { byte, shift }
}

/// Length of runs of weights whose low bits lie in consecutive bytes at the same shift.
pub(super) const RUN: usize = 16;

/// Whether each quant has bits of its own; other quants are parts of patterns.
pub(super) const fn has_positions(format: Format) -> bool {
    !matches!(
        format,
        Format::IQ2_XXS | Format::IQ2_XS | Format::IQ2_S | Format::IQ3_XXS | Format::IQ3_S
    )
}

/// Whether the high bits of a run lie in consecutive bytes at the same shift, too.
pub(super) const fn high_bits_are_runs(format: Format) -> bool {
    !matches!(format, Format::Q5_0 | Format::Q5_1)
}

/// Position of the low bits of quant `e`.
pub(super) const fn low_bits(format: Format, e: usize) -> BitPosition {
    match format {
        Format::Q4_0 | Format::IQ4_NL => at(2 + e % 16, e / 16 * 4),
        Format::MXFP4 => at(1 + e % 16, e / 16 * 4),
        Format::IQ4_XS => at(8 + e / 32 * 16 + e % 16, e / 16 % 2 * 4),
        Format::Q4_1 => at(4 + e % 16, e / 16 * 4),
        Format::Q5_0 => at(6 + e % 16, e / 16 * 4),
        Format::Q5_1 => at(8 + e % 16, e / 16 * 4),
        Format::Q8_0 => at(2 + e, 0),
        Format::Q2_K => at(16 + e / 128 * 32 + e % 32, e / 32 % 4 * 2),
        Format::Q3_K => at(32 + e / 128 * 32 + e % 32, e / 32 % 4 * 2),
        Format::Q4_K => at(16 + e / 64 * 32 + e % 32, e / 32 % 2 * 4),
        Format::Q5_K => at(48 + e / 64 * 32 + e % 32, e / 32 % 2 * 4),
        Format::Q6_K => at(e / 128 * 64 + e % 64, e / 64 % 2 * 4),
        // Floats, and quants that are parts of patterns.
        _ => at(0, 0),
    }
}

/// Position of the high bits of quant `e`, in formats that store high bits separately.
pub(super) const fn high_bits(format: Format, e: usize) -> BitPosition {
    match format {
        Format::Q5_0 => at(2 + e / 8, e % 8),
        Format::Q5_1 => at(4 + e / 8, e % 8),
        Format::Q3_K => at(e % 32, e / 32),
        Format::Q5_K => at(16 + e % 32, e / 32),
        Format::Q6_K => at(128 + e / 128 * 32 + e % 32, e / 32 % 4 * 2),
        _ => at(0, 0),
    }
}

/// First byte of the f16 `d`.
pub(super) const fn d_offset(format: Format) -> usize {
    match format {
        Format::Q2_K => 80,
        Format::Q3_K => 108,
        Format::Q6_K => 208,
        _ => 0,
    }
}

/// First byte of the f16 `m` (ggml: `m` or `dmin`), in formats with a shift.
pub(super) const fn m_offset(format: Format) -> usize {
    match format {
        Format::Q2_K => 82,
        _ => 2,
    }
}
