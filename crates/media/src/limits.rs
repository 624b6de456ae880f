//! Bounds of an image, which hold before anything is allocated for it.

use crate::error::ImageFault;
use crate::size::Size;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// What one image may have and what decoding it may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file.
    pub bytes_max: u64,
    /// Pixels, width times height.
    pub pixels_max: u64,
    /// Pixels of the longer edge.
    pub edge_max: u32,
    /// Longer edge over shorter edge.
    pub ratio_max: u32,
    /// Bytes that decoding may hold at one time, the decoded pixels included ([`crate::Header::decode_bytes`]).
    pub decode_bytes_max: u64,
    /// Scans of a JPEG file. Each one passes over all of its pixels.
    pub scans_max: u32,
    /// Pixels that the scans of a JPEG file pass over, in total.
    pub scanned_pixels_max: u64,
    /// Milliseconds of a decode, by the caller's clock, until it is given up.
    pub decode_ms: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: 20 * MIB,
            pixels_max: 50_000_000,
            edge_max: 32_768,
            ratio_max: 200,
            decode_bytes_max: 384 * MIB,
            scans_max: 100,
            scanned_pixels_max: 500_000_000,
            decode_ms: 5_000,
        }
    }
}

impl Limits {
    /// Checks the length of a file.
    ///
    /// # Errors
    ///
    /// The file is empty, or longer than `bytes_max`.
    pub fn check_bytes(&self, bytes: u64) -> Result<(), ImageFault> {
        match bytes {
            0 => Err(ImageFault::Empty),
            bytes if bytes > self.bytes_max => Err(ImageFault::Bytes {
                bytes,
                max: self.bytes_max,
            }),
            _ => Ok(()),
        }
    }

    /// Checks the dimensions that a header states.
    ///
    /// # Errors
    ///
    /// An edge is zero or too long, the edges differ too much, or there are too many pixels.
    pub fn check_size(&self, size: Size) -> Result<(), ImageFault> {
        let (long, short) = (size.longer(), size.shorter());
        if short == 0 {
            return Err(ImageFault::NoPixels { size });
        }
        if long > self.edge_max {
            let max = self.edge_max;
            return Err(ImageFault::Edge { size, max });
        }
        if size.pixels() > self.pixels_max {
            let max = self.pixels_max;
            return Err(ImageFault::Pixels { size, max });
        }
        if u64::from(long) > u64::from(short) * u64::from(self.ratio_max) {
            let max = self.ratio_max;
            return Err(ImageFault::Ratio { size, max });
        }
        Ok(())
    }

    /// Checks the memory that decoding needs.
    pub(crate) fn check_decode_bytes(&self, bytes: u64) -> Result<(), ImageFault> {
        if bytes > self.decode_bytes_max {
            let max = self.decode_bytes_max;
            return Err(ImageFault::DecodeBytes { bytes, max });
        }
        Ok(())
    }

    /// Checks the work that the scans of a JPEG file ask for.
    pub(crate) fn check_scans(&self, scans: u32, pixels: u64) -> Result<(), ImageFault> {
        if scans > self.scans_max || u64::from(scans) * pixels > self.scanned_pixels_max {
            return Err(ImageFault::Scans {
                scans,
                max: self.scans_max,
                pixels_max: self.scanned_pixels_max,
            });
        }
        Ok(())
    }
}

/// The end of a decode's time. The clock belongs to the caller.
pub(crate) struct Deadline<'a> {
    elapsed: &'a dyn Fn() -> Duration,
    limit_ms: u32,
}

impl<'a> Deadline<'a> {
    /// A deadline `limit_ms` after the time at which `elapsed` is zero.
    pub(crate) fn new(elapsed: &'a dyn Fn() -> Duration, limit_ms: u32) -> Self {
        Self { elapsed, limit_ms }
    }

    pub(crate) fn is_over(&self) -> bool {
        (self.elapsed)() > Duration::from_millis(self.limit_ms.into())
    }

    /// An error once the time is over.
    pub(crate) fn check(&self) -> Result<(), ImageFault> {
        if self.is_over() {
            return Err(ImageFault::Deadline { ms: self.limit_ms });
        }
        Ok(())
    }
}
