//! Why an image is refused: a sentence about a field of the request.

use crate::kind::ImageKind;
use crate::size::Size;
use std::fmt;
use thiserror::Error;

/// Characters of a decoder's own message that an error repeats.
const REASON_CHARS_MAX: usize = 160;

/// An image that is refused, and the field that it came in.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} {fault}")]
pub struct ImageError {
    /// Path of the field in the request, as the caller named it.
    pub field: String,
    /// The fault.
    pub fault: ImageFault,
}

/// A fault of an image, as the part of a sentence that follows the name of its field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the sentences say what each value is")]
pub enum ImageFault {
    #[error("is empty: send the bytes of an image")]
    Empty,
    #[error("has {bytes} bytes, at most {max}")]
    Bytes { bytes: u64, max: u64 },
    #[error("has {size} pixels: each edge needs at least one")]
    NoPixels { size: Size },
    #[error("has edges of {size} pixels, at most {max}")]
    Edge { size: Size, max: u32 },
    #[error("has {} pixels ({size}), at most {max}", size.pixels())]
    Pixels { size: Size, max: u64 },
    #[error("has edges of {size} pixels: one may be at most {max} times the other")]
    Ratio { size: Size, max: u32 },
    #[error("needs {bytes} bytes of memory to be decoded, at most {max}: send a smaller image")]
    DecodeBytes { bytes: u64, max: u64 },
    #[error(
        "has {scans} scans, at most {max} and at most {pixels_max} pixels in all of them: save it anew"
    )]
    Scans {
        scans: u32,
        max: u32,
        pixels_max: u64,
    },
    #[error("is {name}: JPEG, PNG, WebP, GIF and BMP are read")]
    Unread { name: &'static str },
    #[error("is no image that is known here: JPEG, PNG, WebP, GIF and BMP are read")]
    Unknown,
    #[error("is animated: send one frame")]
    Animated,
    #[error("cannot be decoded as {kind}: {reason}")]
    Broken { kind: ImageKind, reason: String },
    #[error("could not be decoded within {ms} ms of a processor: send a smaller image")]
    Deadline { ms: u32 },
    #[error("is no data URL with a comma after its type")]
    DataUrlWithoutComma,
    #[error("is neither a data URL nor an http or https URL: files and other schemes are not read")]
    Scheme,
    #[error("is not base64: {reason}")]
    Base64 { reason: String },
    #[error("is {size} pixels, from which no rows can be made: {reason}")]
    Plan { size: Size, reason: &'static str },
}

impl ImageFault {
    /// The fault as an error of a field.
    #[must_use]
    pub fn of(self, field: &str) -> ImageError {
        ImageError {
            field: field.to_owned(),
            fault: self,
        }
    }

    /// A file that its decoder cannot read.
    pub(crate) fn broken(kind: ImageKind, reason: impl fmt::Display) -> Self {
        let reason = reason.to_string();
        let reason = match reason.char_indices().nth(REASON_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &reason[..end]),
            None => reason,
        };
        Self::Broken { kind, reason }
    }
}
