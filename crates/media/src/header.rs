//! What the header of a file says, checked against the limits.

use crate::decode::layout::Layout;
use crate::error::{ImageError, ImageFault};
use crate::kind::ImageKind;
use crate::limits::Limits;
use crate::orientation::Orientation;
use crate::size::Size;

/// An image that may be decoded: kind, dimensions and what decoding costs. Reading a header allocates no pixels.
#[derive(Clone, Debug)]
pub struct Header {
    pub(crate) layout: Layout,
    pub(crate) stored: Size,
    pub(crate) orientation: Orientation,
    kind: ImageKind,
    decode_bytes: u64,
}

impl Header {
    /// Reads the header of a file.
    ///
    /// # Errors
    ///
    /// The file is of no kind that is read, is animated, is damaged, or breaks a limit. The error names `field`.
    pub fn read(field: &str, bytes: &[u8], limits: &Limits) -> Result<Self, ImageError> {
        Self::of(bytes, limits).map_err(|fault| fault.of(field))
    }

    pub(crate) fn of(bytes: &[u8], limits: &Limits) -> Result<Self, ImageFault> {
        limits.check_bytes(bytes.len() as u64)?;
        let kind = ImageKind::of(bytes)?;
        let (layout, stored, orientation) = Layout::read(kind, bytes, limits)?;
        let turned_bytes = if orientation.turns() {
            stored.pixels() * 3
        } else {
            0
        };
        let decode_bytes = layout.decode_bytes(bytes.len() as u64, stored, turned_bytes);
        limits.check_decode_bytes(decode_bytes)?;
        Ok(Self {
            layout,
            stored,
            orientation,
            kind,
            decode_bytes,
        })
    }

    /// The kind, by the bytes.
    #[must_use]
    pub fn kind(&self) -> ImageKind {
        self.kind
    }

    /// Width and height of the upright picture.
    #[must_use]
    pub fn size(&self) -> Size {
        self.orientation.upright(self.stored)
    }

    /// The most bytes that decoding holds at one time, the file itself not counted.
    #[must_use]
    pub fn decode_bytes(&self) -> u64 {
        self.decode_bytes
    }
}
