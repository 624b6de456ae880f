//! BMP without compression: palettes of 1, 4 and 8 bits, and pixels of 16, 24 and 32 bits.

use super::readers::HeaderBytes;
use crate::color;
use crate::error::ImageFault;
use crate::kind::ImageKind;
use crate::limits::Deadline;
use crate::size::Size;

/// How the pixels of a BMP file are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BmpLayout {
    /// Where the pixels begin.
    start: usize,
    /// Bytes from one row to the next.
    stride: usize,
    /// Whether the first stored row is the upper one.
    is_top_down: bool,
    depth: Depth,
}

#[derive(Clone, Copy, Debug)]
enum Depth {
    /// Bits of an index, where the colors begin, their number, and bytes of each.
    Palette {
        bits: u8,
        colors: usize,
        count: usize,
        entry: usize,
    },
    /// Blue, green and red, one byte each.
    Bytes,
    /// Pixels of 16 or 32 bits, with a mask for red, green, blue and alpha.
    Masks { bytes: usize, masks: [u32; 4] },
}

/// Masks of 16 bits without a table of masks.
const MASKS_555: [u32; 4] = [0x7c00, 0x03e0, 0x001f, 0];

/// Masks of 32 bits without a table of masks.
const MASKS_888: [u32; 4] = [0x00ff_0000, 0x0000_ff00, 0x0000_00ff, 0];

impl BmpLayout {
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, Size), ImageFault> {
        Self::parse(bytes).map_err(|reason| ImageFault::broken(ImageKind::Bmp, reason))
    }

    fn parse(bytes: &[u8]) -> Result<(Self, Size), &'static str> {
        const TRUNCATED: &str = "the header is truncated";
        let start = bytes.u32_le(10).ok_or(TRUNCATED)? as usize;
        let header = bytes.u32_le(14).ok_or(TRUNCATED)? as usize;
        let (width, height, at) = match header {
            12 => (
                i32::from(bytes.u16_le(18).ok_or(TRUNCATED)?),
                i32::from(bytes.u16_le(20).ok_or(TRUNCATED)?),
                22,
            ),
            40.. => (
                bytes.u32_le(18).ok_or(TRUNCATED)? as i32,
                bytes.u32_le(22).ok_or(TRUNCATED)? as i32,
                26,
            ),
            _ => return Err("the header is of an unknown version"),
        };
        let bits = bytes.u16_le(at + 2).ok_or(TRUNCATED)?;
        let compression = match header {
            12 => 0,
            _ => bytes.u32_le(30).ok_or(TRUNCATED)?,
        };
        match compression {
            0 | 3 | 6 => {}
            1 | 2 => return Err("its pixels are compressed (RLE): save it without compression"),
            _ => return Err("its pixels are compressed: save it without compression"),
        }
        let size = Size::new(width.unsigned_abs(), height.unsigned_abs());
        let depth = match bits {
            1 | 4 | 8 => palette(bytes, bits as u8, header).ok_or(TRUNCATED)?,
            24 => Depth::Bytes,
            16 | 32 => masks(bytes, bits, header, compression).ok_or(TRUNCATED)?,
            _ => return Err("pixels of this many bits are not read"),
        };
        let stride = (u64::from(size.width) * u64::from(bits)).div_ceil(32) * 4;
        let layout = Self {
            start,
            stride: usize::try_from(stride).map_err(|_| "the rows are too long")?,
            is_top_down: height < 0,
            depth,
        };
        Ok((layout, size))
    }

    pub(crate) fn decode(
        self,
        bytes: &[u8],
        size: Size,
        deadline: &Deadline<'_>,
    ) -> Result<Vec<u8>, ImageFault> {
        let truncated = || ImageFault::broken(ImageKind::Bmp, "the file is truncated");
        let height = size.height as usize;
        // Checked before the pixels are allocated: a short file of large dimensions costs nothing.
        let stored = self.stride.checked_mul(height).ok_or_else(truncated)?;
        let stored = bytes.part(self.start, stored).ok_or_else(truncated)?;
        let palette = self.colors(bytes);
        let mut rgb = Vec::with_capacity(size.rgb_bytes());
        for row in 0..height {
            deadline.check()?;
            let row = if self.is_top_down {
                row
            } else {
                height - 1 - row
            };
            let row = &stored[row * self.stride..][..self.stride];
            self.append_row(row, size.width as usize, &palette, &mut rgb);
        }
        Ok(rgb)
    }

    /// The colors of the palette; what it does not name is black.
    fn colors(&self, bytes: &[u8]) -> [[u8; 3]; 256] {
        let mut table = [[0; 3]; 256];
        let Depth::Palette {
            colors,
            count,
            entry,
            ..
        } = self.depth
        else {
            return table;
        };
        for (index, color) in table.iter_mut().enumerate().take(count) {
            if let Some(&[blue, green, red]) = bytes.part(colors + index * entry, 3) {
                *color = [red, green, blue];
            }
        }
        table
    }

    fn append_row(&self, row: &[u8], width: usize, colors: &[[u8; 3]; 256], rgb: &mut Vec<u8>) {
        match self.depth {
            Depth::Palette { bits, .. } => {
                let bits = usize::from(bits);
                let mask = ((1_u16 << bits) - 1) as u8;
                rgb.extend((0..width).flat_map(|x| {
                    let shift = 8 - bits - (x * bits) % 8;
                    colors[usize::from((row[x * bits / 8] >> shift) & mask)]
                }));
            }
            Depth::Bytes => {
                let (pixels, _) = row[..width * 3].as_chunks::<3>();
                rgb.extend(pixels.iter().flat_map(|&[b, g, r]| [r, g, b]));
            }
            Depth::Masks { bytes, masks } => {
                let pixels = row[..width * bytes].chunks_exact(bytes);
                rgb.extend(pixels.flat_map(|pixel| {
                    let mut word = [0; 4];
                    word[..bytes].copy_from_slice(pixel);
                    masked(u32::from_le_bytes(word), &masks)
                }));
            }
        }
    }
}

fn palette(bytes: &[u8], bits: u8, header: usize) -> Option<Depth> {
    let most = 1 << bits;
    let (count, entry) = match header {
        12 => (most, 3),
        _ => match bytes.u32_le(46)? as usize {
            0 => (most, 4),
            count => (count.min(most), 4),
        },
    };
    Some(Depth::Palette {
        bits,
        colors: header.checked_add(14)?,
        count,
        entry,
    })
}

fn masks(bytes: &[u8], bits: u16, header: usize, compression: u32) -> Option<Depth> {
    let masks = match (compression, bits) {
        (0, 16) => MASKS_555,
        (0, _) => MASKS_888,
        _ => {
            let has_alpha = header >= 56 || compression == 6;
            let alpha = if has_alpha { bytes.u32_le(66)? } else { 0 };
            let color = |at| bytes.u32_le(at);
            [color(54)?, color(58)?, color(62)?, alpha]
        }
    };
    Some(Depth::Masks {
        bytes: usize::from(bits / 8),
        masks,
    })
}

/// RGB over white of a pixel with a mask for each channel.
fn masked(pixel: u32, masks: &[u32; 4]) -> [u8; 3] {
    let channel = |mask: u32, absent: u8| {
        if mask == 0 {
            return absent;
        }
        let shift = mask.trailing_zeros();
        let most = u64::from(mask >> shift);
        let value = u64::from((pixel & mask) >> shift);
        (value * 255 / most) as u8
    };
    let alpha = channel(masks[3], 255);
    [masks[0], masks[1], masks[2]].map(|mask| color::over_white(channel(mask, 0), alpha))
}
