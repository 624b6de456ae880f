//! One decoded block: quants and scales.
//!
//! One description of the positions of bits serves reading and writing, so the two cannot disagree.

use super::format::{QuantFormat, ScaleKind, power_scale};
use crate::Format;
use half::f16;

/// Weights in the largest block of any format.
const BLOCK_WEIGHTS_MAX: usize = 256;

/// `$body` with the format as the constant `$constant`: compiled for each format whose quants have
/// [positions](has_positions), once for all others.
macro_rules! with_constant_format {
    ($format:expr, |$constant:ident| $body:expr) => {
        $crate::quant::with_constant_format!(
            $format, |$constant| $body,
            Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4
        )
    };
    ($format:expr, |$constant:ident| $body:expr, $($name:ident)*) => {
        match $format {
            $($crate::Format::$name => {
                const $constant: $crate::Format = $crate::Format::$name;
                $body
            })*
            #[allow(non_snake_case, reason = "the name of a constant")]
            $constant => $body,
        }
    };
}
pub(crate) use with_constant_format;

/// The fields of a block of any format; a field that the format lacks is zero.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantBlock {
    /// Quants, in the order of the weights.
    pub quants: [u8; BLOCK_WEIGHTS_MAX],
    /// Scale of the block; multiplies all integer scales.
    pub d: f16,
    /// Shift of the block; multiplies all mins (with the sign stored in the file, see [`ScaleKind`]).
    pub m: f16,
    /// Integer scales, one per 16 or 32 weights, or the bits of the exponent.
    pub scales: [i8; 16],
    /// Integer mins (shifts), one per 16 or 32 weights.
    pub mins: [u8; 16],
}

impl Default for QuantBlock {
    fn default() -> Self {
        Self {
            quants: [0; BLOCK_WEIGHTS_MAX],
            d: f16::ZERO,
            m: f16::ZERO,
            scales: [0; 16],
            mins: [0; 16],
        }
    }
}

impl QuantBlock {
    /// Reads one block of a quantized format.
    pub fn decode(&mut self, format: Format, bytes: &[u8]) {
        assert!(
            QuantFormat::of(format).is_some(),
            "{format:?} has no blocks"
        );
        with_constant_format!(format, |FORMAT| self.decode_constant(FORMAT, bytes));
    }

    /// [`QuantBlock::decode`], compiled where it is called: bit positions of a constant format are constants.
    #[inline(always)]
    pub(crate) fn decode_constant(&mut self, format: Format, bytes: &[u8]) {
        let bytes = &bytes[..format.block_bytes()];
        let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let quant = QuantFormat::of(format);
        if quant.is_some_and(|quant| quant.scale_kind != ScaleKind::Power) {
            self.d = half(d_offset(format));
        }
        if quant.is_some_and(|quant| quant.has_shift()) {
            self.m = half(m_offset(format));
        }
        self.decode_scales(format, bytes);
        if has_positions(format) {
            self.decode_quants(format, bytes);
        } else {
            self.decode_patterns(format, bytes);
        }
    }

    /// Writes one block of a quantized format; the inverse of [`QuantBlock::decode`].
    ///
    /// # Panics
    /// For a format that is not [written](Format::is_written).
    pub(crate) fn encode(&self, format: Format, bytes: &mut [u8]) {
        assert!(format.is_written(), "{format:?} is only read");
        let quant = QuantFormat::of(format).expect("a quantized format");
        bytes.fill(0);
        if quant.scale_kind != ScaleKind::Power {
            bytes[d_offset(format)..][..2].copy_from_slice(&self.d.to_le_bytes());
        }
        if quant.has_shift() {
            bytes[m_offset(format)..][..2].copy_from_slice(&self.m.to_le_bytes());
        }
        self.encode_scales(format, bytes);
        for (e, &quant_value) in self.quants[..quant.weights].iter().enumerate() {
            let quant_value = usize::from(quant_value ^ sign_bit(format));
            let low = low_bits(format, e);
            bytes[low.byte] |= ((quant_value & low_mask(quant.low)) << low.shift) as u8;
            if quant.high > 0 {
                let high = high_bits(format, e);
                bytes[high.byte] |= (quant_value >> quant.low << high.shift) as u8;
            }
        }
    }

    /// Scale and shift of sub-block `sub`. Both products are exact in f32: one factor has 11 significant bits,
    /// the other 8.
    pub fn scale_and_shift(&self, quant: &QuantFormat, sub: usize) -> (f32, Option<f32>) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        match quant.scale_kind {
            ScaleKind::Plain => (d, None),
            ScaleKind::Power => (power_scale(self.scales[0] as u8), None),
            ScaleKind::PlainMin => (d, Some(m)),
            ScaleKind::Super16 | ScaleKind::Super32 => {
                (d * f32::from(self.scales[sub]) * quant.unit(), None)
            }
            ScaleKind::SuperMin16 | ScaleKind::SuperMin32 => (
                d * f32::from(self.scales[sub]),
                Some(-m * f32::from(self.mins[sub])),
            ),
        }
    }

    /// Writes the block's weights.
    pub(crate) fn dequantize(&self, quant: &QuantFormat, out: &mut [f32]) {
        let quants = self.quants.chunks_exact(quant.sub_block_weights());
        let subs = out.chunks_exact_mut(quant.sub_block_weights()).zip(quants);
        for (sub, (out, quants)) in subs.enumerate() {
            let (scale, shift) = self.scale_and_shift(quant, sub);
            for (out, &quant_value) in out.iter_mut().zip(quants) {
                let value = scale * quant.level(quant_value) as f32;
                *out = shift.map_or(value, |shift| value + shift);
            }
        }
    }

    #[inline(always)]
    fn decode_quants(&mut self, format: Format, bytes: &[u8]) {
        let Some(quant) = QuantFormat::of(format) else {
            return;
        };
        let runs = self.quants[..quant.weights].chunks_exact_mut(RUN);
        for (first, quants) in (0..).step_by(RUN).zip(runs) {
            let low = run_bits(bytes, low_bits(format, first), quant.low);
            let low = low ^ every_byte(sign_bit(format));
            if quant.high == 0 {
                quants.copy_from_slice(&low.to_le_bytes());
                continue;
            }
            if high_bits_are_runs(format) {
                let high = high_bits(format, first);
                let high = run_bits(bytes, high, quant.high) << quant.low;
                quants.copy_from_slice(&(low | high).to_le_bytes());
            } else {
                quants.copy_from_slice(&low.to_le_bytes());
                let high_mask = low_mask(quant.high) as u8;
                for (e, quant_value) in (first..).zip(quants) {
                    let high = high_bits(format, e);
                    *quant_value |= (bytes[high.byte] >> high.shift & high_mask) << quant.low;
                }
            }
        }
    }

    #[inline(always)]
    fn decode_scales(&mut self, format: Format, bytes: &[u8]) {
        match format {
            Format::Q2_K => {
                for (i, byte) in bytes[..16].iter().enumerate() {
                    self.scales[i] = (byte & 15) as i8;
                    self.mins[i] = byte >> 4;
                }
            }
            Format::Q3_K => {
                let packed = &bytes[96..108];
                for (i, s) in self.scales.iter_mut().enumerate() {
                    let low = packed[i % 8] >> (i / 8 * 4) & 15;
                    let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
                    *s = (low | high << 4) as i8 - 32;
                }
            }
            Format::Q4_K | Format::Q5_K => {
                let packed = &bytes[4..16];
                for i in 0..4 {
                    self.scales[i] = (packed[i] & 63) as i8;
                    self.mins[i] = packed[4 + i] & 63;
                    self.scales[4 + i] = (packed[8 + i] & 15 | packed[i] >> 6 << 4) as i8;
                    self.mins[4 + i] = packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4;
                }
            }
            Format::IQ4_XS => {
                let high = u16::from_le_bytes([bytes[2], bytes[3]]);
                for (i, s) in self.scales[..8].iter_mut().enumerate() {
                    let low = bytes[4 + i / 2] >> (i % 2 * 4) & 15;
                    *s = (low | ((high >> (2 * i) & 3) as u8 * 16)) as i8 - 32;
                }
            }
            Format::Q6_K => {
                for (s, &byte) in self.scales.iter_mut().zip(&bytes[192..208]) {
                    *s = byte as i8;
                }
            }
            Format::MXFP4 => self.scales[0] = bytes[0] as i8,
            _ => {}
        }
    }

    fn encode_scales(&self, format: Format, bytes: &mut [u8]) {
        match format {
            Format::Q2_K => {
                for (i, byte) in bytes[..16].iter_mut().enumerate() {
                    *byte = self.scales[i] as u8 & 15 | self.mins[i] << 4;
                }
            }
            Format::Q3_K => {
                for (i, &s) in self.scales.iter().enumerate() {
                    let s = (s + 32) as u8;
                    bytes[96 + i % 8] |= (s & 15) << (i / 8 * 4);
                    bytes[104 + i % 4] |= (s >> 4) << (i / 4 * 2);
                }
            }
            Format::Q4_K | Format::Q5_K => {
                for i in 0..4 {
                    let (s, t) = (self.scales[4 + i] as u8, self.mins[4 + i]);
                    bytes[4 + i] = self.scales[i] as u8 & 63 | s >> 4 << 6;
                    bytes[8 + i] = self.mins[i] & 63 | t >> 4 << 6;
                    bytes[12 + i] = s & 15 | t << 4;
                }
            }
            Format::IQ4_XS => {
                for (i, &s) in self.scales[..8].iter().enumerate() {
                    let s = (s + 32) as u8;
                    bytes[2 + i / 4] |= (s >> 4) << (i % 4 * 2);
                    bytes[4 + i / 2] |= (s & 15) << (i % 2 * 4);
                }
            }
            Format::Q6_K => {
                for (byte, &s) in bytes[192..208].iter_mut().zip(&self.scales) {
                    *byte = s as u8;
                }
            }
            Format::MXFP4 => bytes[0] = self.scales[0] as u8,
            _ => {}
        }
    }
}

/// The lowest `bits` bits, from a position on, of the bytes of a run, each in its own byte.
#[inline(always)]
fn run_bits(bytes: &[u8], at: BitPosition, bits: usize) -> u128 {
    let mut run = [0; RUN];
    run.copy_from_slice(&bytes[at.byte..][..RUN]);
    u128::from_le_bytes(run) >> at.shift & every_byte(low_mask(bits) as u8)
}

/// The byte, sixteen times.
const fn every_byte(byte: u8) -> u128 {
    u128::from_le_bytes([byte; RUN])
}

/// Q8_0 stores signed quants; flipping the top bit makes them unsigned.
const fn sign_bit(format: Format) -> u8 {
    match format {
        Format::Q8_0 => 0x80,
        _ => 0,
    }
}

const fn low_mask(bits: usize) -> usize {
    (1 << bits) - 1
}

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
