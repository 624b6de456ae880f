//! The kind of an image, by its first bytes. The label that a client sent is not asked.

use crate::error::ImageFault;
use std::fmt;

/// Bytes at the start of a file in which an SVG or a PDF has to name itself.
const TEXT_SEARCH_BYTES: usize = 1024;

/// Kinds of images that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// JPEG, baseline and progressive.
    Jpeg,
    /// PNG.
    Png,
    /// WebP, lossy and lossless.
    WebP,
    /// GIF.
    Gif,
    /// BMP.
    Bmp,
}

impl ImageKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Jpeg, Self::Png, Self::WebP, Self::Gif, Self::Bmp];

    /// The kind of a file.
    ///
    /// # Errors
    ///
    /// A kind that is known but not read has its name in the error.
    pub fn of(bytes: &[u8]) -> Result<Self, ImageFault> {
        match bytes {
            [] => Err(ImageFault::Empty),
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Self::Png),
            [
                b'R',
                b'I',
                b'F',
                b'F',
                _,
                _,
                _,
                _,
                b'W',
                b'E',
                b'B',
                b'P',
                ..,
            ] => Ok(Self::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Ok(Self::Gif),
            [b'B', b'M', ..] => Ok(Self::Bmp),
            bytes => Err(unread(bytes)),
        }
    }

    /// The media type, as in `Content-Type`.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
            Self::WebP => "image/webp",
            Self::Gif => "image/gif",
            Self::Bmp => "image/bmp",
        }
    }
}

impl fmt::Display for ImageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
        })
    }
}

/// The error for a file of another kind, by name where the kind is common.
fn unread(bytes: &[u8]) -> ImageFault {
    let name = match bytes {
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Some("TIFF"),
        [_, _, _, _, b'f', b't', b'y', b'p', brand @ ..] => of_brand(brand),
        [0xff, 0x0a, ..] | [0, 0, 0, 0x0c, b'J', b'X', b'L', b' ', ..] => Some("JPEG XL"),
        [0, 0, 0, 0x0c, b'j', b'P', b' ', b' ', ..] => Some("JPEG 2000"),
        [0, 0, 1, 0, ..] => Some("ICO"),
        bytes => of_text(&bytes[..bytes.len().min(TEXT_SEARCH_BYTES)]),
    };
    name.map_or(ImageFault::Unknown, |name| ImageFault::Unread { name })
}

/// The name of a file in the ISO base media format, by its major brand.
fn of_brand(brand: &[u8]) -> Option<&'static str> {
    match brand.first_chunk::<4>()? {
        b"avif" | b"avis" => Some("AVIF"),
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" => {
            Some("HEIC")
        }
        _ => Some("a video"),
    }
}

/// The name of a document that begins as text.
fn of_text(start: &[u8]) -> Option<&'static str> {
    let holds = |word: &[u8]| start.windows(word.len()).any(|window| window == word);
    if holds(b"%PDF-") {
        return Some("PDF");
    }
    if holds(b"<svg") {
        return Some("SVG");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_first_bytes() {
        let cases: [(&[u8], Result<ImageKind, &str>); 17] = [
            (b"\xff\xd8\xff\xe0", Ok(ImageKind::Jpeg)),
            (b"\x89PNG\r\n\x1a\n", Ok(ImageKind::Png)),
            (b"RIFF....WEBPVP8L", Ok(ImageKind::WebP)),
            (b"GIF89a", Ok(ImageKind::Gif)),
            (b"GIF87a", Ok(ImageKind::Gif)),
            (b"BM....", Ok(ImageKind::Bmp)),
            (b"", Err("is empty: send the bytes of an image")),
            (
                b"II*\0",
                Err("is TIFF: JPEG, PNG, WebP, GIF and BMP are read"),
            ),
            (
                b"MM\0*",
                Err("is TIFF: JPEG, PNG, WebP, GIF and BMP are read"),
            ),
            (
                b"\0\0\0\x18ftypheic",
                Err("is HEIC: JPEG, PNG, WebP, GIF and BMP are read"),
            ),
            (
                b"\0\0\0\x18ftypmif1",
                Err("is HEIC: JPEG, PNG, WebP, GIF and BMP are read"),
            ),
            (
                b"\0\0\0\x18ftypavif",
                Err("is AVIF: JPEG, PNG, WebP, GIF and BMP are read"),
            ),
            (
                b"\0\0\0\x18ftypisom",
                Err("is a video: JPEG, PNG, WebP, GIF and BMP are read"),
            ),
            (
                b"<?xml version='1.0'?><svg/>",
                Err("is SVG: JPEG, PNG, WebP, GIF and BMP are read"),
            ),
            (
                b"%PDF-1.7",
                Err("is PDF: JPEG, PNG, WebP, GIF and BMP are read"),
            ),
            (
                b"RIFF....WAVE",
                Err("is no image that is known here: JPEG, PNG, WebP, GIF and BMP are read"),
            ),
            (
                b"\xff\xd8",
                Err("is no image that is known here: JPEG, PNG, WebP, GIF and BMP are read"),
            ),
        ];
        for (bytes, expected) in cases {
            let found = ImageKind::of(bytes).map_err(|fault| fault.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{bytes:?}");
        }
    }
}
