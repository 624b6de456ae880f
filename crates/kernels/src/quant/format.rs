//! Quantization formats: the arithmetic from quants to weights.

use crate::Format;

/// `weight = scale * (quant - zero) + shift`, and the number of bits of a quant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuantFormat {
    /// Weights of a block: 32 or 256.
    pub(crate) weights: usize,
    /// Bits of a quant in the low plane: 2, 4 or 8.
    pub(crate) low: usize,
    /// Bits of a quant in the high plane: 0, 1 or 2.
    pub(crate) high: usize,
    /// The binary logarithm of `zero`; `None` where quants count from zero.
    pub(crate) zero_log2: Option<u32>,
    pub(crate) scale_kind: ScaleKind,
}

/// Source of scale and shift. `d` and `m` are f16, one of each per block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaleKind {
    /// `scale = d` for the 32 weights of a block.
    Plain,
    /// `scale = d`, `shift = m`.
    PlainMin,
    /// `scale = d * scales[i]` with a signed scale for each 16 weights.
    Super16,
    /// `scale = d * scales[i]`, `shift = -(m * mins[i])` with 4 bits each for each 16 weights.
    SuperMin16,
    /// `scale = d * scales[i]`, `shift = -(m * mins[i])` with 6 bits each for each 32 weights.
    SuperMin32,
}

impl QuantFormat {
    /// The quantization format of a tensor format; `None` for floats.
    pub(crate) const fn of(format: Format) -> Option<Self> {
        use ScaleKind::{Plain, PlainMin, Super16, SuperMin16, SuperMin32};
        let (low, high, zero_log2, scale_kind) = match format {
            Format::F32 | Format::F16 | Format::BF16 => return None,
            Format::Q4_0 => (4, 0, Some(3), Plain),
            Format::Q4_1 => (4, 0, None, PlainMin),
            Format::Q5_0 => (4, 1, Some(4), Plain),
            Format::Q5_1 => (4, 1, None, PlainMin),
            Format::Q8_0 => (8, 0, Some(7), Plain),
            Format::Q2_K => (2, 0, None, SuperMin16),
            Format::Q3_K => (2, 1, Some(2), Super16),
            Format::Q4_K => (4, 0, None, SuperMin32),
            Format::Q5_K => (4, 1, None, SuperMin32),
            Format::Q6_K => (4, 2, Some(5), Super16),
        };
        let weights = format.block_weights();
        Some(Self {
            weights,
            low,
            high,
            zero_log2,
            scale_kind,
        })
    }

    /// Weights of a sub-block, which share a scale: 16 or 32.
    pub(crate) const fn sub_block_weights(&self) -> usize {
        match self.scale_kind {
            ScaleKind::Super16 | ScaleKind::SuperMin16 => 16,
            _ => 32,
        }
    }

    /// Whether weights have a shift.
    pub(crate) const fn has_shift(&self) -> bool {
        !matches!(self.scale_kind, ScaleKind::Plain | ScaleKind::Super16)
    }

    /// The quant of weight zero in formats without a shift.
    pub(crate) const fn zero(&self) -> i32 {
        match self.zero_log2 {
            Some(log2) => 1 << log2,
            None => 0,
        }
    }

    /// The largest quant.
    pub(crate) const fn quant_max(&self) -> u8 {
        ((1u32 << (self.low + self.high)) - 1) as u8
    }
}
