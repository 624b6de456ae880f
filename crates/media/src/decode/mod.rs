//! Decoding: bytes of any kind to upright RGB.

mod bmp;
mod gif;
mod jpeg;
mod jpeg_segments;
pub(crate) mod layout;
mod png;
mod readers;
mod vp8l;
mod vp8l_codes;
mod vp8l_transforms;
mod webp;

use crate::error::{ImageError, ImageFault};
use crate::header::Header;
use crate::limits::{Deadline, Limits};
use crate::pixels::Pixels;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Decodes a file to upright RGB over white.
///
/// `elapsed` is the time since the decode began; it is read at every row or piece of input, so the decode ends at most
/// one row, piece of 4 KiB or scan after `limits.decode_ms`. Only a lossy WebP is decoded in one piece, and then taken.
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
        let rgb = self.layout.decode(bytes, size, limits, deadline)?;
        if rgb.len() != size.rgb_bytes() {
            let reason = "the pixels do not fill the picture";
            return Err(ImageFault::broken(self.kind(), reason));
        }
        Ok(self.orientation.apply(Pixels::new(size, rgb)))
    }
}
