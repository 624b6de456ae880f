//! Orientation: how a camera was held, as Exif tells it, and the turn that makes the picture upright.

use crate::pixels::Pixels;
use crate::size::Size;

/// Tag of the orientation in the first directory of Exif.
const TAG: u16 = 0x0112;

/// Type of a 16-bit number in Exif.
const SHORT: u16 = 3;

/// Entries of a directory that are looked at.
const ENTRIES_MAX: usize = 512;

/// Where the first stored row and column belong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orientation {
    /// The picture is mirrored, left for right, before the turn.
    mirrored: bool,
    /// Quarter turns clockwise that make it upright.
    quarters: u8,
}

impl Orientation {
    /// The orientation of Exif's number 1 to 8; upright for any other.
    #[must_use]
    pub fn of_exif_number(number: u16) -> Self {
        let (mirrored, quarters) = match number {
            2 => (true, 0),
            3 => (false, 2),
            4 => (true, 2),
            5 => (true, 3),
            6 => (false, 1),
            7 => (true, 1),
            8 => (false, 3),
            _ => (false, 0),
        };
        Self { mirrored, quarters }
    }

    /// The orientation in a block of Exif, which begins with the header of TIFF, or with `Exif\0\0` before it.
    /// Upright where there is none, or where the block is damaged.
    #[must_use]
    pub fn of_exif(block: &[u8]) -> Self {
        let block = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
        Self::of_exif_number(number(block).unwrap_or(1))
    }

    /// Whether width and height change places.
    #[must_use]
    pub fn turns(self) -> bool {
        self.quarters % 2 == 1
    }

    /// The upright size of a picture that is stored with `size`.
    #[must_use]
    pub fn upright(self, size: Size) -> Size {
        if self.turns() { size.turned() } else { size }
    }

    /// The upright picture. A quarter turn needs a second picture of the size for a moment.
    pub(crate) fn apply(self, mut pixels: Pixels) -> Pixels {
        if self.mirrored {
            pixels.mirror();
        }
        match self.quarters {
            0 => pixels,
            2 => {
                pixels.turn_half();
                pixels
            }
            quarters => pixels.turned_quarter(quarters == 1),
        }
    }
}

fn number(block: &[u8]) -> Option<u16> {
    let reader = TiffReader {
        block,
        is_big_endian: match block.first_chunk::<4>()? {
            b"II*\0" => false,
            b"MM\0*" => true,
            _ => return None,
        },
    };
    let directory = usize::try_from(reader.u32(4)?).ok()?;
    let entries = usize::from(reader.u16(directory)?).min(ENTRIES_MAX);
    let starts = (0..entries).map(|entry| directory.saturating_add(2 + 12 * entry));
    for start in starts {
        if reader.u16(start)? == TAG {
            let is_one_short = reader.u16(start.checked_add(2)?)? == SHORT
                && reader.u32(start.checked_add(4)?)? == 1;
            return is_one_short
                .then(|| reader.u16(start.checked_add(8)?))
                .flatten();
        }
    }
    None
}

/// Numbers in a block in the byte order that its header states.
struct TiffReader<'a> {
    block: &'a [u8],
    is_big_endian: bool,
}

impl TiffReader<'_> {
    fn u16(&self, at: usize) -> Option<u16> {
        let bytes = *self.block.get(at..)?.first_chunk()?;
        Some(if self.is_big_endian {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let bytes = *self.block.get(at..)?.first_chunk()?;
        Some(if self.is_big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exif with one entry.
    fn exif(order: &[u8; 4], entry: [u16; 2], count: u32, value: u16) -> Vec<u8> {
        let big = order[0] == b'M';
        let short = |n: u16| {
            if big {
                n.to_be_bytes()
            } else {
                n.to_le_bytes()
            }
        };
        let long = |n: u32| {
            if big {
                n.to_be_bytes()
            } else {
                n.to_le_bytes()
            }
        };
        let mut block = order.to_vec();
        block.extend(long(8));
        block.extend(short(1));
        block.extend(short(entry[0]));
        block.extend(short(entry[1]));
        block.extend(long(count));
        block.extend(short(value));
        block.extend([0; 6]);
        block
    }

    #[test]
    fn orientation_is_read_in_both_byte_orders_and_absent_where_damaged() {
        let six = Orientation::of_exif_number(6);
        let upright = Orientation::default();
        let little = exif(b"II*\0", [TAG, SHORT], 1, 6);
        let prefixed = [b"Exif\0\0", &little[..]].concat();
        let cases = [
            ("little endian", little.clone(), six),
            ("big endian", exif(b"MM\0*", [TAG, SHORT], 1, 6), six),
            ("prefix of JPEG", prefixed, six),
            ("another tag", exif(b"II*\0", [1, SHORT], 1, 6), upright),
            ("a long", exif(b"II*\0", [TAG, 4], 1, 6), upright),
            ("two values", exif(b"II*\0", [TAG, SHORT], 2, 6), upright),
            ("out of range", exif(b"II*\0", [TAG, SHORT], 1, 9), upright),
            ("no TIFF", b"JUNKJUNK".to_vec(), upright),
        ];
        for (label, block, expected) in cases {
            assert_eq!(Orientation::of_exif(&block), expected, "{label}");
        }
        for end in 0..little.len() - 6 {
            let cut = Orientation::of_exif(&little[..end]);
            assert!(cut == upright || end >= 20, "{end}");
        }
    }

    /// Where Exif puts the pixels "abc" over "def".
    #[test]
    fn pixels_are_turned_as_the_eight_numbers_say() {
        let cases = [
            (1, "abc def"),
            (2, "cba fed"),
            (3, "fed cba"),
            (4, "def abc"),
            (5, "ad be cf"),
            (6, "da eb fc"),
            (7, "fc eb da"),
            (8, "cf be ad"),
        ];
        for (number, expected) in cases {
            let bytes = b"abcdef".iter().flat_map(|&b| [b; 3]).collect();
            let stored = Pixels::new(Size::new(3, 2), bytes);
            let turned = Orientation::of_exif_number(number).apply(stored);
            let width = turned.size().width as usize * 3;
            let rows: Vec<String> = turned
                .bytes()
                .chunks(width)
                .map(|row| row.iter().step_by(3).map(|&b| char::from(b)).collect())
                .collect();
            assert_eq!(rows.join(" "), expected, "{number}");
        }
    }
}
