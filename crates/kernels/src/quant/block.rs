//! One block taken apart: its codes and what scales them.

use super::place;
use super::scheme::{Scales, Scheme};
use crate::Format;
use half::f16;

/// Weights in the largest block of any format.
const BLOCK_WEIGHTS_MAX: usize = 256;

/// A block's fields, the same for every format; what a format lacks is zero.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Block {
    /// Unsigned codes.
    pub(crate) codes: [u8; BLOCK_WEIGHTS_MAX],
    /// Multiplies all scales.
    pub(crate) d: f16,
    /// Multiplies all shifts (with its sign as in the file: [`Scales`] says what it means).
    pub(crate) m: f16,
    /// Integer scales, one per 16 or 32 weights.
    pub(crate) s: [i8; 16],
    /// Integer shifts, one per 16 or 32 weights.
    pub(crate) t: [u8; 16],
}

impl Default for Block {
    fn default() -> Self {
        Self {
            codes: [0; BLOCK_WEIGHTS_MAX],
            d: f16::ZERO,
            m: f16::ZERO,
            s: [0; 16],
            t: [0; 16],
        }
    }
}

impl Block {
    /// Reads one block of a quantized format.
    pub(crate) fn decode(&mut self, format: Format, bytes: &[u8]) {
        let bytes = &bytes[..format.block_bytes()];
        let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]);
        self.d = half(place::d(format));
        if matches!(Scheme::of(format), Some(scheme) if scheme.has_shift()) {
            self.m = half(place::m(format));
        }
        self.decode_scales(format, bytes);
        // Each arm is compiled for its own format, so that places become constants.
        match format {
            Format::F32 | Format::F16 | Format::BF16 => unreachable!("{format:?} has no blocks"),
            Format::Q4_0 => self.decode_codes(Format::Q4_0, bytes),
            Format::Q4_1 => self.decode_codes(Format::Q4_1, bytes),
            Format::Q5_0 => self.decode_codes(Format::Q5_0, bytes),
            Format::Q5_1 => self.decode_codes(Format::Q5_1, bytes),
            Format::Q8_0 => self.decode_codes(Format::Q8_0, bytes),
            Format::Q2_K => self.decode_codes(Format::Q2_K, bytes),
            Format::Q3_K => self.decode_codes(Format::Q3_K, bytes),
            Format::Q4_K => self.decode_codes(Format::Q4_K, bytes),
            Format::Q5_K => self.decode_codes(Format::Q5_K, bytes),
            Format::Q6_K => self.decode_codes(Format::Q6_K, bytes),
        }
    }

    /// Writes one block of a quantized format; the inverse of [`Block::decode`].
    pub(crate) fn encode(&self, format: Format, bytes: &mut [u8]) {
        let scheme = Scheme::of(format).expect("a quantized format");
        bytes.fill(0);
        bytes[place::d(format)..][..2].copy_from_slice(&self.d.to_le_bytes());
        if scheme.has_shift() {
            bytes[place::m(format)..][..2].copy_from_slice(&self.m.to_le_bytes());
        }
        self.encode_scales(format, bytes);
        for (e, &code) in self.codes[..scheme.weights].iter().enumerate() {
            let code = usize::from(code ^ sign_bit(format));
            let low = place::low(format, e);
            bytes[low.byte] |= ((code & mask(scheme.low)) << low.shift) as u8;
            if scheme.high > 0 {
                let high = place::high(format, e);
                bytes[high.byte] |= (code >> scheme.low << high.shift) as u8;
            }
        }
    }

    /// Scale and shift of the `sub`th 16 or 32 weights. Both products are exact in f32: a factor
    /// has 11 bits and the other 8.
    pub(crate) fn affine(&self, scales: Scales, sub: usize) -> (f32, Option<f32>) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        match scales {
            Scales::Plain => (d, None),
            Scales::PlainMin => (d, Some(m)),
            Scales::Super16 => (d * f32::from(self.s[sub]), None),
            Scales::SuperMin16 | Scales::SuperMin32 => (
                d * f32::from(self.s[sub]),
                Some(-m * f32::from(self.t[sub])),
            ),
        }
    }

    /// The block's weights.
    pub(crate) fn values(&self, scheme: &Scheme, out: &mut [f32]) {
        let codes = self.codes.chunks_exact(scheme.sub_weights());
        let subs = out.chunks_exact_mut(scheme.sub_weights()).zip(codes);
        for (sub, (out, codes)) in subs.enumerate() {
            let (scale, shift) = self.affine(scheme.scales, sub);
            for (out, &code) in out.iter_mut().zip(codes) {
                let value = scale * (i32::from(code) - scheme.zero()) as f32;
                *out = shift.map_or(value, |shift| value + shift);
            }
        }
    }

    #[inline(always)]
    fn decode_codes(&mut self, format: Format, bytes: &[u8]) {
        let Some(scheme) = Scheme::of(format) else {
            return;
        };
        let (low_mask, high_mask) = (mask(scheme.low) as u8, mask(scheme.high) as u8);
        let runs = self.codes[..scheme.weights].chunks_exact_mut(place::RUN);
        for (first, codes) in (0..).step_by(place::RUN).zip(runs) {
            let low = place::low(format, first);
            for (code, byte) in codes.iter_mut().zip(&bytes[low.byte..][..place::RUN]) {
                *code = (byte >> low.shift & low_mask) ^ sign_bit(format);
            }
            if scheme.high == 0 {
                continue;
            }
            if place::high_runs(format) {
                let high = place::high(format, first);
                for (code, byte) in codes.iter_mut().zip(&bytes[high.byte..][..place::RUN]) {
                    *code |= (byte >> high.shift & high_mask) << scheme.low;
                }
            } else {
                for (e, code) in (first..).zip(codes) {
                    let high = place::high(format, e);
                    *code |= (bytes[high.byte] >> high.shift & high_mask) << scheme.low;
                }
            }
        }
    }

    fn decode_scales(&mut self, format: Format, bytes: &[u8]) {
        match format {
            Format::Q2_K => {
                for (i, byte) in bytes[..16].iter().enumerate() {
                    self.s[i] = (byte & 15) as i8;
                    self.t[i] = byte >> 4;
                }
            }
            Format::Q3_K => {
                let packed = &bytes[96..108];
                for (i, s) in self.s.iter_mut().enumerate() {
                    let low = packed[i % 8] >> (i / 8 * 4) & 15;
                    let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
                    *s = (low | high << 4) as i8 - 32;
                }
            }
            Format::Q4_K | Format::Q5_K => {
                let packed = &bytes[4..16];
                for i in 0..4 {
                    self.s[i] = (packed[i] & 63) as i8;
                    self.t[i] = packed[4 + i] & 63;
                    self.s[4 + i] = (packed[8 + i] & 15 | packed[i] >> 6 << 4) as i8;
                    self.t[4 + i] = packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4;
                }
            }
            Format::Q6_K => {
                for (s, &byte) in self.s.iter_mut().zip(&bytes[192..208]) {
                    *s = byte as i8;
                }
            }
            _ => {}
        }
    }

    fn encode_scales(&self, format: Format, bytes: &mut [u8]) {
        match format {
            Format::Q2_K => {
                for (i, byte) in bytes[..16].iter_mut().enumerate() {
                    *byte = self.s[i] as u8 & 15 | self.t[i] << 4;
                }
            }
            Format::Q3_K => {
                for (i, &s) in self.s.iter().enumerate() {
                    let s = (s + 32) as u8;
                    bytes[96 + i % 8] |= (s & 15) << (i / 8 * 4);
                    bytes[104 + i % 4] |= (s >> 4) << (i / 4 * 2);
                }
            }
            Format::Q4_K | Format::Q5_K => {
                for i in 0..4 {
                    let (s, t) = (self.s[4 + i] as u8, self.t[4 + i]);
                    bytes[4 + i] = self.s[i] as u8 & 63 | s >> 4 << 6;
                    bytes[8 + i] = self.t[i] & 63 | t >> 4 << 6;
                    bytes[12 + i] = s & 15 | t << 4;
                }
            }
            Format::Q6_K => {
                for (byte, &s) in bytes[192..208].iter_mut().zip(&self.s) {
                    *byte = s as u8;
                }
            }
            _ => {}
        }
    }
}

/// Q8_0 stores signed codes; flipping the top bit counts them from zero.
const fn sign_bit(format: Format) -> u8 {
    match format {
        Format::Q8_0 => 0x80,
        _ => 0,
    }
}

const fn mask(bits: usize) -> usize {
    (1 << bits) - 1
}
