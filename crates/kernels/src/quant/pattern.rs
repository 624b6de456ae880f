//! Blocks of the IQ2 and IQ3 formats, whose quants are numbers of patterns and signs.
//!
//! A pattern stands for the magnitudes of eight neighboring weights (IQ2) or of four (IQ3). Decoding replaces the
//! number of a pattern by the quants of its weights: two or three bits of magnitude, and the sign above. So the
//! weights keep their values, at 3 or 4 bits each instead of the 2 to 3.5 of the file.

use super::block::QuantBlock;
use super::grids;
use crate::Format;

/// Sub-blocks of 32 weights in a block.
const SUB_BLOCKS: usize = 8;

impl QuantBlock {
    /// Reads scales and quants of a block of patterns.
    pub(super) fn decode_patterns(&mut self, format: Format, bytes: &[u8]) {
        for sub in 0..SUB_BLOCKS {
            match format {
                Format::IQ2_XXS => self.decode_iq2_xxs(sub, &bytes[2 + 8 * sub..][..8]),
                Format::IQ2_XS => self.decode_iq2_xs(sub, bytes),
                Format::IQ2_S => self.decode_iq2_s(sub, bytes),
                Format::IQ3_XXS => self.decode_iq3_xxs(sub, bytes),
                _ => self.decode_iq3_s(sub, bytes),
            }
        }
    }

    /// Four numbers of patterns, then 7 bits of signs for each, then a scale of 4 bits.
    fn decode_iq2_xxs(&mut self, sub: usize, bytes: &[u8]) {
        let word = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        self.put_scales(sub, [(word >> 28) as u8; 2]);
        for (i, &pattern) in bytes[..4].iter().enumerate() {
            let signs = all_signs((word >> (7 * i)) as u8);
            self.put_eight(sub, i, grids::IQ2_XXS[usize::from(pattern)], signs);
        }
    }

    /// Words of 9 bits of pattern and 7 of signs; after all of them the scales, 4 bits for each 16 weights.
    fn decode_iq2_xs(&mut self, sub: usize, bytes: &[u8]) {
        self.put_scales(sub, nibbles(bytes[66 + sub]));
        for i in 0..4 {
            let at = 2 + 8 * sub + 2 * i;
            let word = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let pattern = grids::IQ2_XS[usize::from(word & 511)];
            self.put_eight(sub, i, pattern, all_signs((word >> 9) as u8));
        }
    }

    /// The low 8 bits of patterns, the signs, the high 2 bits of patterns, the scales.
    fn decode_iq2_s(&mut self, sub: usize, bytes: &[u8]) {
        self.put_scales(sub, nibbles(bytes[74 + sub]));
        let high = usize::from(bytes[66 + sub]);
        for i in 0..4 {
            let number = usize::from(bytes[2 + 4 * sub + i]) | (high >> (2 * i) & 3) << 8;
            let signs = bytes[34 + 4 * sub + i];
            self.put_eight(sub, i, grids::IQ2_S[number], signs);
        }
    }

    /// The numbers of patterns; after all of them signs and scales as in IQ2_XXS.
    fn decode_iq3_xxs(&mut self, sub: usize, bytes: &[u8]) {
        let at = 66 + 4 * sub;
        let word = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        self.put_scales(sub, [(word >> 28) as u8; 2]);
        for i in 0..4 {
            let pair = &bytes[2 + 8 * sub + 2 * i..][..2];
            let pair = [pair[0], pair[1]].map(|number| grids::IQ3_XXS[usize::from(number)]);
            self.put_pair(sub, i, pair, all_signs((word >> (7 * i)) as u8));
        }
    }

    /// The low 8 bits of patterns, the ninth bits, the signs, the scales with 4 bits for each 32 weights.
    fn decode_iq3_s(&mut self, sub: usize, bytes: &[u8]) {
        self.put_scales(sub, [nibbles(bytes[106 + sub / 2])[sub % 2]; 2]);
        let high = usize::from(bytes[66 + sub]);
        for i in 0..4 {
            let pair = [0, 1].map(|k| {
                let low = usize::from(bytes[2 + 8 * sub + 2 * i + k]);
                grids::IQ3_S[low | (high >> (2 * i + k) & 1) << 8]
            });
            self.put_pair(sub, i, pair, bytes[74 + 4 * sub + i]);
        }
    }

    /// Scales of both halves of a sub-block: odd numbers, of which the format's unit is a fraction.
    fn put_scales(&mut self, sub: usize, [first, second]: [u8; 2]) {
        let odd = |scale: u8| 1 + 2 * scale as i8;
        self.scales[2 * sub] = odd(first);
        self.scales[2 * sub + 1] = odd(second);
    }

    /// The `i`th eight weights of a sub-block, as one pattern.
    fn put_eight(&mut self, sub: usize, i: usize, pattern: u16, signs: u8) {
        let quants = &mut self.quants[32 * sub + 8 * i..][..8];
        for (k, quant) in quants.iter_mut().enumerate() {
            *quant = (pattern >> (2 * k)) as u8 & 3 | (signs >> k & 1) << 2;
        }
    }

    /// The `i`th eight weights of a sub-block, as two patterns.
    fn put_pair(&mut self, sub: usize, i: usize, pair: [u16; 2], signs: u8) {
        let quants = &mut self.quants[32 * sub + 8 * i..][..8];
        for (k, quant) in quants.iter_mut().enumerate() {
            *quant = (pair[k / 4] >> (3 * (k % 4))) as u8 & 7 | (signs >> k & 1) << 3;
        }
    }
}

/// Eight signs of seven: their number is even.
fn all_signs(seven: u8) -> u8 {
    let seven = seven & 127;
    seven | (seven.count_ones() as u8 & 1) << 7
}

fn nibbles(byte: u8) -> [u8; 2] {
    [byte & 15, byte >> 4]
}
