//! A number that stands for how this program packs.

use super::{pack_panel, panel_bytes, row_bytes};
use crate::packing::LANES;
use crate::{Format, quantize_with_search};

/// Columns of the packed matrices: two super-blocks.
const COLS: usize = 512;
/// Rows of the packed matrices: a panel, and one that is not full.
const ROWS: usize = LANES + 3;
/// Formats that weights are quantized to at load.
const QUANTIZED: [Format; 3] = [Format::Q8_0, Format::Q4_K, Format::Q6_K];

/// A hash of packed matrices of every [`Format`], and of quantized weights, from fixed numbers: two programs with one hash
/// pack alike, and a change of a layout changes the hash. Takes about a millisecond.
pub fn packing_fingerprint() -> u64 {
    let mut hash = Fnv::new();
    let mut random = XorShift(0x9E37_79B9_7F4A_7C15);
    for format in Format::ALL {
        let row_bytes = row_bytes(format, COLS);
        let raw: Vec<u8> = (0..ROWS * row_bytes).map(|_| random.next_byte()).collect();
        for rows in raw.chunks(LANES * row_bytes) {
            let mut panel = vec![0; panel_bytes(format, COLS)];
            pack_panel(format, rows, row_bytes, &mut panel);
            hash.add(&panel);
        }
    }
    let weights: Vec<f32> = (0..COLS)
        .map(|_| f32::from(i16::from(random.next_byte()) - 128) / 64.0)
        .collect();
    for format in QUANTIZED {
        hash.add(&quantize_with_search(format, &weights));
    }
    hash.0
}

/// FNV-1a of 64 bits.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

struct XorShift(u64);

impl XorShift {
    fn next_byte(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn fingerprint_is_one_number() {
        assert_eq!(packing_fingerprint(), packing_fingerprint());
    }

    #[test]
    fn one_changed_byte_changes_the_hash() {
        let hash = |bytes: &[u8]| {
            let mut hash = Fnv::new();
            hash.add(bytes);
            hash.0
        };
        let mut hashes = HashSet::from([hash(&[0; 64])]);
        for at in 0..64 {
            let mut bytes = [0; 64];
            bytes[at] = 1;
            assert!(hashes.insert(hash(&bytes)), "byte {at}");
        }
        // The value of the reference implementation for the text `a`.
        assert_eq!(hash(b"a"), 0xAF63_DC4C_8601_EC8C);
    }
}
