//! Quantization formats: the arithmetic from quants to weights.

use crate::Format;

/// `weight = scale * (quant - zero) + shift`, and the number of bits of a quant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantFormat {
    /// Weights of a block: 32 or 256.
    pub weights: usize,
    /// Bits of a quant in the low plane: 2, 4 or 8.
    pub low: usize,
    /// Bits of a quant in the high plane: 0, 1 or 2.
    pub high: usize,
    /// The binary logarithm of `zero`; `None` where quants count from zero.
    pub zero_log2: Option<u32>,
    /// What quants stand for, plus `zero`, in formats whose levels are not evenly spread.
    pub levels: Option<[u8; 16]>,
    /// Scales count in units of `2^-unit_log2`.
    pub unit_log2: u32,
    /// Where scale and shift come from.
    pub scale_kind: ScaleKind,
}

/// Source of scale and shift. `d` and `m` are f16, one of each per block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleKind {
    /// `scale = d` for the 32 weights of a block.
    Plain,
    /// `scale = 2^(e - 128)` with a byte `e`, the only scale of the 32 weights of a block: half of an E8M0 number, since
    /// levels are twice the FP4 numbers.
    Power,
    /// `scale = d`, `shift = m`.
    PlainMin,
    /// `scale = d * scales[i]` with a signed scale for each 32 weights.
    Super32,
    /// `scale = d * scales[i]` with a signed scale for each 16 weights.
    Super16,
    /// `scale = d * scales[i]`, `shift = -(m * mins[i])` with 4 bits each for each 16 weights.
    SuperMin16,
    /// `scale = d * scales[i]`, `shift = -(m * mins[i])` with 6 bits each for each 32 weights.
    SuperMin32,
}

impl QuantFormat {
    /// The quantization format of a tensor format; `None` for floats.
    pub const fn of(format: Format) -> Option<Self> {
        use ScaleKind::{Plain, PlainMin, Power, Super16, Super32, SuperMin16, SuperMin32};
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
            Format::IQ4_NL => (4, 0, Some(7), Plain),
            Format::IQ4_XS => (4, 0, Some(7), Super32),
            Format::MXFP4 => (4, 0, Some(7), Power),
            Format::IQ3_S | Format::IQ3_XXS => (4, 0, Some(7), Super16),
            Format::IQ2_S | Format::IQ2_XS | Format::IQ2_XXS => (2, 1, Some(7), Super16),
        };
        let (levels, unit_log2) = match format {
            Format::IQ4_NL | Format::IQ4_XS => (Some(IQ4), 0),
            Format::MXFP4 => (Some(MXFP4), 0),
            Format::IQ3_S => (Some(IQ3_S), 0),
            Format::IQ3_XXS => (Some(IQ3_XXS), 2),
            Format::IQ2_S | Format::IQ2_XS | Format::IQ2_XXS => (Some(IQ2), 3),
            _ => (None, 0),
        };
        let weights = format.block_weights();
        Some(Self {
            weights,
            low,
            high,
            zero_log2,
            levels,
            unit_log2,
            scale_kind,
        })
    }

    /// Weights of a sub-block, which share a scale: 16 or 32.
    pub const fn sub_block_weights(&self) -> usize {
        match self.scale_kind {
            ScaleKind::Super16 | ScaleKind::SuperMin16 => 16,
            _ => 32,
        }
    }

    /// Whether weights have a shift.
    pub const fn has_shift(&self) -> bool {
        matches!(
            self.scale_kind,
            ScaleKind::PlainMin | ScaleKind::SuperMin16 | ScaleKind::SuperMin32
        )
    }

    /// The quant of weight zero in formats without a shift.
    pub const fn zero(&self) -> i32 {
        match self.zero_log2 {
            Some(log2) => 1 << log2,
            None => 0,
        }
    }

    /// Bits of what kernels multiply: quants, or the levels that they stand for.
    pub(crate) const fn factor_bits(&self) -> usize {
        match self.levels {
            Some(_) => 8,
            None => self.low + self.high,
        }
    }

    /// What a quant stands for, in units of the scale.
    pub const fn level(&self, quant: u8) -> i32 {
        let above = match self.levels {
            Some(levels) => levels[quant as usize & 15],
            None => quant,
        };
        above as i32 - self.zero()
    }

    /// The unit of scales.
    pub const fn unit(&self) -> f32 {
        1.0 / (1u32 << self.unit_log2) as f32
    }

    /// The largest quant.
    pub(crate) const fn quant_max(&self) -> u8 {
        ((1u32 << (self.low + self.high)) - 1) as u8
    }
}

/// `2^(e - 128)`; the two smallest are subnormal.
pub const fn power_scale(e: u8) -> f32 {
    const SUBNORMAL: u32 = 0x0020_0000;
    f32::from_bits(match e {
        0 | 1 => SUBNORMAL << e,
        _ => (e as u32 - 1) << (f32::MANTISSA_DIGITS - 1),
    })
}

/// Added to levels, so that they are unsigned.
const ZERO: i32 = 128;

/// Magnitudes of the IQ2 formats. A quant has the number of a magnitude in its low two bits, and the sign above.
const IQ2_MAGNITUDES: [i32; 4] = [8, 25, 43, 0];
/// Magnitudes of IQ3_XXS. A quant has the number of a magnitude in its low three bits, and the sign above.
const IQ3_XXS_MAGNITUDES: [i32; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
/// Magnitudes of IQ3_S.
const IQ3_S_MAGNITUDES: [i32; 8] = [1, 3, 5, 7, 9, 11, 13, 15];

/// Levels of IQ4_NL and IQ4_XS.
const IQ4: [u8; 16] = biased([
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
]);
/// Levels of MXFP4: twice the FP4 (E2M1) numbers, the positive ones first.
const MXFP4: [u8; 16] = biased([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);
/// Levels of the IQ2 formats; the upper half is not used.
const IQ2: [u8; 16] = signed(IQ2_MAGNITUDES);
/// Levels of IQ3_XXS.
const IQ3_XXS: [u8; 16] = signed(IQ3_XXS_MAGNITUDES);
/// Levels of IQ3_S.
const IQ3_S: [u8; 16] = signed(IQ3_S_MAGNITUDES);

/// The magnitudes, then their negatives.
const fn signed<const N: usize>(magnitudes: [i32; N]) -> [u8; 16] {
    let mut levels = [0; 16];
    let mut i = 0;
    while i < N {
        levels[i] = magnitudes[i];
        levels[N + i] = -magnitudes[i];
        i += 1;
    }
    biased(levels)
}

const fn biased(levels: [i32; 16]) -> [u8; 16] {
    let mut bytes = [0; 16];
    let mut i = 0;
    while i < 16 {
        bytes[i] = (levels[i] + ZERO) as u8;
        i += 1;
    }
    bytes
}
