//! Lossless WebP (VP8L), also the alpha channel of lossy WebP.
//!
//! Written here because the decoder that reads lossy WebP bounds neither its prefix codes nor its time.
//! Source: the specification of the WebP lossless bitstream (RFC 9649). Pixels are ARGB in 32 bits.

use super::vp8l_codes::{Bits, Code, CodeReader, Vp8lFault};
use super::vp8l_transforms::Transform;
use crate::limits::Deadline;
use crate::size::Size;

/// Symbols of a code that are lengths of references.
const LENGTH_SYMBOLS: usize = 24;

/// Symbols of the code of distances.
const DISTANCE_SYMBOLS: usize = 40;

/// Groups of codes that are read between two looks at the clock.
const GROUPS: usize = 64;

/// The offsets (left, up) of the 120 shortest distances, by their code.
#[rustfmt::skip]
const NEAR: [(i8, i8); 120] = [
    (0, 1), (1, 0), (1, 1), (-1, 1), (0, 2), (2, 0), (1, 2), (-1, 2), (2, 1), (-2, 1), (2, 2), (-2, 2),
    (0, 3), (3, 0), (1, 3), (-1, 3), (3, 1), (-3, 1), (2, 3), (-2, 3), (3, 2), (-3, 2), (0, 4), (4, 0),
    (1, 4), (-1, 4), (4, 1), (-4, 1), (3, 3), (-3, 3), (2, 4), (-2, 4), (4, 2), (-4, 2), (0, 5), (3, 4),
    (-3, 4), (4, 3), (-4, 3), (5, 0), (1, 5), (-1, 5), (5, 1), (-5, 1), (2, 5), (-2, 5), (5, 2), (-5, 2),
    (4, 4), (-4, 4), (3, 5), (-3, 5), (5, 3), (-5, 3), (0, 6), (6, 0), (1, 6), (-1, 6), (6, 1), (-6, 1),
    (2, 6), (-2, 6), (6, 2), (-6, 2), (4, 5), (-4, 5), (5, 4), (-5, 4), (3, 6), (-3, 6), (6, 3), (-6, 3),
    (0, 7), (7, 0), (1, 7), (-1, 7), (5, 5), (-5, 5), (7, 1), (-7, 1), (4, 6), (-4, 6), (6, 4), (-6, 4),
    (2, 7), (-2, 7), (7, 2), (-7, 2), (3, 7), (-3, 7), (7, 3), (-7, 3), (5, 6), (-5, 6), (6, 5), (-6, 5),
    (8, 0), (4, 7), (-4, 7), (7, 4), (-7, 4), (8, 1), (8, 2), (6, 6), (-6, 6), (8, 3), (5, 7), (-5, 7),
    (7, 5), (-7, 5), (8, 4), (6, 7), (-6, 7), (7, 6), (-7, 6), (8, 5), (7, 7), (-7, 7), (8, 6), (8, 7),
];

/// Size and whether alpha counts, of the header that every lossless picture but an alpha channel has.
pub(crate) fn header(data: &[u8]) -> Result<(Size, bool), Vp8lFault> {
    let (size, has_alpha, _) = opened(data)?;
    Ok((size, has_alpha))
}

fn opened(data: &[u8]) -> Result<(Size, bool, Bits<'_>), Vp8lFault> {
    let Some((0x2f, rest)) = data.split_first() else {
        return Err(Vp8lFault::Truncated);
    };
    let mut bits = Bits::new(rest);
    let width = bits.read(14)? + 1;
    let height = bits.read(14)? + 1;
    let has_alpha = bits.flag()?;
    if bits.read(3)? != 0 {
        return Err(Vp8lFault::Dimensions);
    }
    Ok((Size::new(width, height), has_alpha, bits))
}

/// Decodes a picture of `size` to ARGB, (height, width).
pub(crate) fn decode(
    data: &[u8],
    size: Size,
    deadline: &Deadline<'_>,
) -> Result<Vec<u32>, Vp8lFault> {
    let (stated, has_alpha, bits) = opened(data)?;
    if stated != size {
        return Err(Vp8lFault::Dimensions);
    }
    let mut pixels = Decoder::new(bits, deadline).picture(size)?;
    if !has_alpha {
        for pixel in &mut pixels {
            *pixel |= 0xff00_0000;
        }
    }
    Ok(pixels)
}

/// Decodes a picture without a header: an alpha channel, in the green of ARGB.
pub(crate) fn decode_alpha(
    data: &[u8],
    size: Size,
    deadline: &Deadline<'_>,
) -> Result<Vec<u32>, Vp8lFault> {
    Decoder::new(Bits::new(data), deadline).picture(size)
}

/// Five codes: green, lengths and cache; red; blue; alpha; distances.
struct Group {
    green: Code,
    red: Code,
    blue: Code,
    alpha: Code,
    distance: Code,
}

/// Colors seen lately, by a hash.
struct ColorCache {
    colors: Vec<u32>,
    bits: u32,
}

impl ColorCache {
    fn insert(&mut self, color: u32) {
        let place = color.wrapping_mul(0x1e35_a7bd) >> (32 - self.bits);
        self.colors[place as usize] = color;
    }
}

/// Which group of codes a pixel belongs to.
struct GroupMap {
    /// Group of each block; empty where there is one group.
    groups: Vec<u16>,
    block_bits: u32,
    blocks_across: usize,
}

impl GroupMap {
    fn at(&self, x: usize, y: usize) -> usize {
        let block = (y >> self.block_bits) * self.blocks_across + (x >> self.block_bits);
        self.groups.get(block).map_or(0, |&group| group.into())
    }
}

struct Decoder<'a> {
    bits: Bits<'a>,
    codes: CodeReader,
    deadline: &'a Deadline<'a>,
}

impl<'a> Decoder<'a> {
    fn new(bits: Bits<'a>, deadline: &'a Deadline<'a>) -> Self {
        Self {
            bits,
            codes: CodeReader::default(),
            deadline,
        }
    }

    fn check_time(&self) -> Result<(), Vp8lFault> {
        if self.deadline.is_over() {
            return Err(Vp8lFault::Deadline);
        }
        Ok(())
    }

    /// The whole picture: transforms, coded pixels, transforms undone.
    fn picture(mut self, size: Size) -> Result<Vec<u32>, Vp8lFault> {
        let (width, height) = (size.width as usize, size.height as usize);
        let mut transforms = Vec::new();
        let mut coded_width = width;
        while self.bits.flag()? {
            let transform = self.transform(coded_width, height)?;
            let is_repeated = transforms
                .iter()
                .any(|(known, _): &(Transform, usize)| known.kind() == transform.kind());
            if is_repeated {
                return Err(Vp8lFault::Transforms);
            }
            let before = coded_width;
            coded_width = transform.coded_width(coded_width);
            transforms.push((transform, before));
        }
        let mut pixels = self.coded(coded_width, height, width * height, true)?;
        for (transform, width) in transforms.iter().rev() {
            self.check_time()?;
            transform.undo(&mut pixels, *width, height);
        }
        Ok(pixels)
    }

    fn transform(&mut self, width: usize, height: usize) -> Result<Transform, Vp8lFault> {
        let kind = self.bits.read(2)?;
        match kind {
            0 | 1 => {
                let block_bits = self.bits.read(3)? + 2;
                let across = width.div_ceil(1 << block_bits);
                let down = height.div_ceil(1 << block_bits);
                let blocks = self.coded(across, down, across * down, false)?;
                Ok(Transform::of_blocks(kind == 0, blocks, block_bits, across))
            }
            2 => Ok(Transform::SubtractGreen),
            _ => {
                let count = self.bits.read(8)? as usize + 1;
                let differences = self.coded(count, 1, count, false)?;
                Ok(Transform::of_differences(differences))
            }
        }
    }

    /// Coded pixels, (height, width), in a buffer with room for `capacity`.
    fn coded(
        &mut self,
        width: usize,
        height: usize,
        capacity: usize,
        is_picture: bool,
    ) -> Result<Vec<u32>, Vp8lFault> {
        let mut cache = None;
        if self.bits.flag()? {
            let bits = self.bits.read(4)?;
            if !(1..=11).contains(&bits) {
                return Err(Vp8lFault::Codes);
            }
            let colors = vec![0; 1 << bits];
            cache = Some(ColorCache { colors, bits });
        }
        let map = if is_picture && self.bits.flag()? {
            self.group_map(width, height)?
        } else {
            GroupMap {
                groups: Vec::new(),
                block_bits: 0,
                blocks_across: 0,
            }
        };
        let count = map
            .groups
            .iter()
            .max()
            .map_or(1, |&last| usize::from(last) + 1);
        let cached = cache.as_ref().map_or(0, |cache| cache.colors.len());
        let groups = self.groups(count, cached)?;
        let mut pixels = Vec::with_capacity(capacity.max(width * height));
        while pixels.len() < width * height {
            self.pixels(&mut pixels, (width, height), &groups, &map, &mut cache)?;
            self.check_time()?;
        }
        Ok(pixels)
    }

    fn group_map(&mut self, width: usize, height: usize) -> Result<GroupMap, Vp8lFault> {
        let block_bits = self.bits.read(3)? + 2;
        let across = width.div_ceil(1 << block_bits);
        let down = height.div_ceil(1 << block_bits);
        let blocks = self.coded(across, down, across * down, false)?;
        Ok(GroupMap {
            groups: blocks.iter().map(|block| (block >> 8) as u16).collect(),
            block_bits,
            blocks_across: across,
        })
    }

    fn groups(&mut self, count: usize, cached: usize) -> Result<Vec<Group>, Vp8lFault> {
        let mut groups = Vec::new();
        for index in 0..count {
            if index % GROUPS == 0 {
                self.check_time()?;
            }
            let mut code = |symbols| self.codes.read(&mut self.bits, symbols);
            groups.push(Group {
                green: code(256 + LENGTH_SYMBOLS + cached)?,
                red: code(256)?,
                blue: code(256)?,
                alpha: code(256)?,
                distance: code(DISTANCE_SYMBOLS)?,
            });
        }
        Ok(groups)
    }

    /// Decodes to the end of the row, or of the reference that leaves it.
    fn pixels(
        &mut self,
        pixels: &mut Vec<u32>,
        (width, height): (usize, usize),
        groups: &[Group],
        map: &GroupMap,
        cache: &mut Option<ColorCache>,
    ) -> Result<(), Vp8lFault> {
        let row = pixels.len() / width;
        let end = (row + 1) * width;
        while pixels.len() < end {
            let group = groups
                .get(map.at(pixels.len() % width, row))
                .ok_or(Vp8lFault::Codes)?;
            let symbol = usize::from(group.green.read(&mut self.bits)?);
            let start = pixels.len();
            if symbol < 256 {
                let red = u32::from(group.red.read(&mut self.bits)?);
                let blue = u32::from(group.blue.read(&mut self.bits)?);
                let alpha = u32::from(group.alpha.read(&mut self.bits)?);
                pixels.push(alpha << 24 | red << 16 | (symbol as u32) << 8 | blue);
            } else if symbol < 256 + LENGTH_SYMBOLS {
                let length = self.number(symbol - 256)?;
                let code = usize::from(group.distance.read(&mut self.bits)?);
                let distance = distance(self.number(code)?, width);
                if distance > start || start + length > width * height {
                    return Err(Vp8lFault::Reference);
                }
                for from in start - distance..start - distance + length {
                    pixels.push(pixels[from]);
                }
            } else {
                let place = symbol - 256 - LENGTH_SYMBOLS;
                let color = cache.as_ref().and_then(|cache| cache.colors.get(place));
                pixels.push(*color.ok_or(Vp8lFault::Codes)?);
            }
            if let Some(cache) = cache {
                pixels[start..]
                    .iter()
                    .for_each(|&color| cache.insert(color));
            }
        }
        Ok(())
    }

    /// A length or a distance: a symbol and the bits that follow it.
    fn number(&mut self, symbol: usize) -> Result<usize, Vp8lFault> {
        if symbol < 4 {
            return Ok(symbol + 1);
        }
        let extra = ((symbol - 2) >> 1) as u32;
        let offset = (2 + (symbol & 1)) << extra;
        let low = extra.min(12);
        let value = self.bits.read(low)? | self.bits.read(extra - low)? << low;
        Ok(offset + value as usize + 1)
    }
}

/// The distance in pixels of a code: near ones are places around the pixel.
fn distance(code: usize, width: usize) -> usize {
    match NEAR.get(code - 1) {
        Some(&(left, up)) => {
            let offset = isize::from(up) * width as isize + isize::from(left);
            offset.max(1) as usize
        }
        None => code - NEAR.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Writes bits from the lowest of each byte on.
    #[derive(Default)]
    struct BitWriter {
        bytes: Vec<u8>,
        count: usize,
    }

    impl BitWriter {
        fn put(&mut self, value: u32, count: usize) {
            for bit in 0..count {
                if self.count.is_multiple_of(8) {
                    self.bytes.push(0);
                }
                let last = self.bytes.len() - 1;
                self.bytes[last] |= ((value >> bit & 1) as u8) << (self.count % 8);
                self.count += 1;
            }
        }

        /// A code with one symbol, which then needs no bits.
        fn put_single(&mut self, symbol: u32) {
            self.put(0b101, 3);
            self.put(symbol, 8);
        }

        /// A code of 256 symbols of 8 bits, in 42 bits.
        fn put_full(&mut self) {
            self.put(0, 1);
            self.put(8, 4);
            (0..11).for_each(|_| self.put(0, 3));
            self.put(1, 3);
            self.put(0, 1);
        }
    }

    /// A picture of one pixel that states `groups` groups of codes.
    fn picture_of(groups: u32) -> Vec<u8> {
        let mut writer = BitWriter::default();
        writer.put(0x2f, 8);
        writer.put(0, 14 + 14 + 1 + 3);
        // No transform, no cache, but a map of groups with one block.
        writer.put(0b100, 3);
        writer.put(0, 3);
        writer.put(0, 1);
        let last = groups - 1;
        writer.put_single(last & 0xff);
        writer.put_single(last >> 8);
        (0..3).for_each(|_| writer.put_single(0));
        for _ in 0..groups {
            writer.put_single(7);
            (0..3).for_each(|_| writer.put_full());
            writer.put_single(0);
        }
        writer.put(0x00ff_00ff, 32);
        writer.bytes
    }

    #[test]
    fn codes_have_a_bound_of_memory() {
        let clock = || Duration::ZERO;
        let deadline = Deadline::new(&clock, 1);
        let decoded = |groups| decode(&picture_of(groups), Size::square(1), &deadline);
        assert_eq!(decoded(1), Ok(vec![0xffff_0700]));
        assert_eq!(decoded(65_536), Err(Vp8lFault::CodesMemory));
    }
}
