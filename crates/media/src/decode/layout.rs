//! What the header of each kind says: dispatch to the decoders.

use super::{bmp, gif, jpeg, png, webp};
use crate::error::ImageFault;
use crate::kind::ImageKind;
use crate::limits::{Deadline, Limits};
use crate::orientation::Orientation;
use crate::size::Size;

/// Bytes that a decoder may hold in addition to pixels and copies of the file: tables, rows, windows of a decompressor.
const WORKSPACE_BYTES: u64 = 64 << 20;

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

    /// Decodes to RGB over white, as stored.
    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        size: Size,
        limits: &Limits,
        deadline: &Deadline<'_>,
    ) -> Result<Vec<u8>, ImageFault> {
        match self {
            Self::Jpeg(layout) => layout.decode(bytes, limits, deadline),
            Self::Png(layout) => layout.decode(bytes, size, deadline),
            Self::WebP(layout) => layout.decode(bytes, size, deadline),
            Self::Gif(layout) => layout.decode(bytes, size, deadline),
            Self::Bmp(layout) => layout.decode(bytes, size, deadline),
        }
    }
}
