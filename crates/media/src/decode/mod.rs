//! Decoding: bytes of any kind to upright RGB.

mod bmp;
mod gif;
mod jpeg;
mod jpeg_segments;
mod png;
mod vp8l;
mod vp8l_codes;
mod vp8l_transforms;
mod watched;
mod webp;

use crate::error::{ImageError, ImageFault};
use crate::header::Header;
use crate::kind::ImageKind;
use crate::limits::{Deadline, Limits};
use crate::orientation::Orientation;
use crate::pixels::Pixels;
use crate::size::Size;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Bytes that a decoder may hold in addition to pixels and copies of the file: tables, rows, windows of a decompressor.
pub(crate) const WORKSPACE_BYTES: u64 = 64 << 20;

/// Decodes a file to upright RGB over white.
///
/// `elapsed` is the time since the decode began; it is read at every row or piece of input, so the decode ends at most
/// one row, piece of 4 KiB or scan after `limits.decode_ms`. Only a lossy WebP is decoded in one piece.
///
/// # Errors
///
/// As for [`Header::read`], and where the file is damaged or the time is over. A panic of a decoder is such an error.
pub fn decode(
    field: &str,
    bytes: &[u8],
    limits: &Limits,
    elapsed: &dyn Fn() -> Duration,
) -> Result<Pixels, ImageError> {
    decode_bytes(bytes, limits, elapsed).map_err(|fault| fault.of(field))
}

fn decode_bytes(
    bytes: &[u8],
    limits: &Limits,
    elapsed: &dyn Fn() -> Duration,
) -> Result<Pixels, ImageFault> {
    let header = Header::of(bytes, limits)?;
    let deadline = Deadline::new(elapsed, limits.decode_ms);
    deadline.check()?;
    let decoded = catch_unwind(AssertUnwindSafe(|| header.decode(bytes, limits, &deadline)));
    let failed = |_| Err(ImageFault::broken(header.kind(), "the decoder failed"));
    let decoded = decoded.unwrap_or_else(failed);
    match decoded {
        // A reader that is cut off by the deadline looks like a damaged file.
        Err(ImageFault::Broken { .. }) if deadline.is_over() => Err(ImageFault::Deadline {
            ms: limits.decode_ms,
        }),
        decoded => decoded,
    }
}

impl Header {
    fn decode(
        &self,
        bytes: &[u8],
        limits: &Limits,
        deadline: &Deadline<'_>,
    ) -> Result<Pixels, ImageFault> {
        let size = self.stored;
        let rgb = match &self.layout {
            Layout::Jpeg(layout) => layout.decode(bytes, limits, deadline),
            Layout::Png(layout) => layout.decode(bytes, size, deadline),
            Layout::WebP(layout) => layout.decode(bytes, size, deadline),
            Layout::Gif(layout) => layout.decode(bytes, size, deadline),
            Layout::Bmp(layout) => layout.decode(bytes, size, deadline),
        }?;
        if rgb.len() != size.rgb_bytes() {
            let reason = "the pixels do not fill the picture";
            return Err(ImageFault::broken(self.kind(), reason));
        }
        Ok(self.orientation.apply(Pixels::new(size, rgb)))
    }
}

/// What the header of each kind says beyond the size.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    Jpeg(jpeg::JpegLayout),
    Png(png::PngLayout),
    WebP(webp::WebPLayout),
    Gif(gif::GifLayout),
    Bmp(bmp::BmpLayout),
}

impl Layout {
    /// Reads a header. The size is within the limits.
    pub(crate) fn read(
        kind: ImageKind,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<(Self, Size, Orientation), ImageFault> {
        let upright = Orientation::default();
        let read = match kind {
            ImageKind::Jpeg => {
                let (layout, size, orientation) = jpeg::JpegLayout::read(bytes)?;
                limits.check_size(size)?;
                limits.check_scans(layout.scans(), size.pixels())?;
                return Ok((Self::Jpeg(layout), size, orientation));
            }
            ImageKind::Png => {
                let (layout, size, orientation) = png::PngLayout::read(bytes)?;
                (Self::Png(layout), size, orientation)
            }
            ImageKind::WebP => {
                let (layout, size, orientation) = webp::WebPLayout::read(bytes)?;
                (Self::WebP(layout), size, orientation)
            }
            ImageKind::Gif => {
                let (layout, size) = gif::GifLayout::read(bytes)?;
                (Self::Gif(layout), size, upright)
            }
            ImageKind::Bmp => {
                let (layout, size) = bmp::BmpLayout::read(bytes)?;
                (Self::Bmp(layout), size, upright)
            }
        };
        limits.check_size(read.1)?;
        Ok(read)
    }

    /// The most bytes that decoding holds at one time. `turned_bytes` are those of a second picture, for a turn.
    pub(crate) fn decode_bytes(&self, file: u64, size: Size, turned_bytes: u64) -> u64 {
        let decoding = match self {
            Self::Jpeg(layout) => layout.decode_bytes(size) + 2 * file,
            Self::Png(layout) => layout.bytes_per_pixel() * size.pixels(),
            Self::WebP(layout) => layout.bytes_per_pixel() * size.pixels() + 4 * file,
            Self::Gif(_) => 4 * size.pixels() + 2 * file,
            Self::Bmp(_) => 3 * size.pixels(),
        };
        WORKSPACE_BYTES + decoding.max(3 * size.pixels() + turned_bytes)
    }
}

/// Numbers of either byte order in the bytes of a header. A read past the end is `None`.
pub(crate) trait HeaderBytes {
    /// `count` bytes from `at`.
    fn part(&self, at: usize, count: usize) -> Option<&[u8]>;

    fn u8(&self, at: usize) -> Option<u8>;
    fn u16_be(&self, at: usize) -> Option<u16>;
    fn u16_le(&self, at: usize) -> Option<u16>;
    fn u24_le(&self, at: usize) -> Option<u32>;
    fn u32_be(&self, at: usize) -> Option<u32>;
    fn u32_le(&self, at: usize) -> Option<u32>;
}

impl HeaderBytes for [u8] {
    fn part(&self, at: usize, count: usize) -> Option<&[u8]> {
        self.get(at..at.checked_add(count)?)
    }

    fn u8(&self, at: usize) -> Option<u8> {
        self.get(at).copied()
    }

    fn u16_be(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.get(at..)?.first_chunk()?))
    }

    fn u16_le(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.get(at..)?.first_chunk()?))
    }

    fn u24_le(&self, at: usize) -> Option<u32> {
        let &[low, middle, high] = self.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes([low, middle, high, 0]))
    }

    fn u32_be(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(*self.get(at..)?.first_chunk()?))
    }

    fn u32_le(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.get(at..)?.first_chunk()?))
    }
}
