//! An image as a parser read it, and its description in records.

use media::{Detail, ImageKind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// An image of a request. Its number among the images of the request is that of the content part
/// ([`text::image_part`]) or of the piece of a prompt.
#[derive(Clone, PartialEq, Eq)]
pub struct ImagePart {
    /// The file, of any kind that the client says or does not say.
    pub bytes: Arc<[u8]>,
    /// How much of the image is wanted.
    pub detail: Detail,
    /// Path of the field, for error messages.
    pub path: String,
    /// Address of the image on another server, where the client sent one; the bytes are empty until they are fetched.
    pub url: Option<Arc<str>>,
}

/// The bytes may be megabytes, and are the user's.
impl fmt::Debug for ImagePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImagePart")
            .field("bytes", &self.bytes.len())
            .field("detail", &self.detail)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// An image in the record of a request: the name of its file, never the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// SHA-256 of the bytes, in hexadecimal digits.
    pub sha256: String,
    /// Number of bytes.
    pub bytes: u64,
    /// Kind of the file, by its bytes; empty for one that is not known.
    #[serde(rename = "type")]
    pub kind: String,
    /// How much of the image is wanted: `low`, `auto` or `high`.
    pub detail: String,
    /// Path of the field.
    #[serde(default)]
    pub path: String,
}

/// Why a recorded image is not the one that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageRecordError {
    /// The stored bytes are others.
    #[error("{path}: the stored bytes of the image are not those that were sent")]
    OtherBytes {
        /// Path of the field.
        path: String,
    },
    /// The record has no known detail.
    #[error("{path}: is recorded with an unknown detail")]
    Detail {
        /// Path of the field.
        path: String,
    },
}

impl ImagePart {
    /// SHA-256 of the bytes.
    pub fn digest(&self) -> [u8; 32] {
        media::file_digest(&self.bytes)
    }

    /// Media type, by the bytes; `application/octet-stream` of a kind that is not read.
    pub fn media_type(&self) -> &'static str {
        match ImageKind::of(&self.bytes) {
            Ok(ImageKind::Jpeg) => "image/jpeg",
            Ok(ImageKind::Png) => "image/png",
            Ok(ImageKind::WebP) => "image/webp",
            Ok(ImageKind::Gif) => "image/gif",
            Ok(ImageKind::Bmp) => "image/bmp",
            Err(_) => "application/octet-stream",
        }
    }

    /// The image as a record has it. Takes time with the bytes.
    pub fn to_record(&self) -> ImageRecord {
        let digest = media::file_digest(&self.bytes);
        let kind = ImageKind::of(&self.bytes).map(|kind| kind.to_string());
        ImageRecord {
            sha256: hex(&digest),
            bytes: self.bytes.len() as u64,
            kind: kind.unwrap_or_default(),
            detail: detail_name(self.detail).to_owned(),
            path: self.path.clone(),
        }
    }

    /// The image of a record with its stored bytes. Takes time with the bytes.
    ///
    /// # Errors
    /// The bytes are not those of the record.
    pub fn of_record(record: &ImageRecord, bytes: Arc<[u8]>) -> Result<Self, ImageRecordError> {
        let path = record.path.clone();
        if hex(&media::file_digest(&bytes)) != record.sha256 || bytes.len() as u64 != record.bytes {
            return Err(ImageRecordError::OtherBytes { path });
        }
        match detail_of_name(&record.detail) {
            Some(detail) => Ok(Self {
                bytes,
                detail,
                path,
                url: None,
            }),
            None => Err(ImageRecordError::Detail { path }),
        }
    }
}

impl ImageRecord {
    /// SHA-256 of the bytes; `None`: the text is no hash.
    pub fn digest(&self) -> Option<[u8; 32]> {
        let (pairs, rest) = self.sha256.as_bytes().as_chunks::<2>();
        let pairs: &[[u8; 2]; 32] = pairs.try_into().ok()?;
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(pairs) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        rest.is_empty().then_some(digest)
    }
}

/// Hexadecimal digits of a hash.
pub(crate) fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Name of a detail in requests.
pub fn detail_name(detail: Detail) -> &'static str {
    match detail {
        Detail::Low => "low",
        Detail::Auto => "auto",
        Detail::High => "high",
    }
}

/// The detail with this name.
pub fn detail_of_name(name: &str) -> Option<Detail> {
    let all = [Detail::Low, Detail::Auto, Detail::High];
    all.into_iter().find(|detail| detail_name(*detail) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_names_bytes_and_has_none() {
        let part = ImagePart {
            bytes: Arc::from(&b"abc"[..]),
            detail: Detail::Low,
            path: "messages[0].content[1]".to_owned(),
            url: None,
        };
        let record = serde_json::to_value(part.to_record()).expect("JSON");
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let want = serde_json::json!({
            "sha256": digest, "bytes": 3, "type": "", "detail": "low", "path": "messages[0].content[1]",
        });
        assert_eq!(record, want);
        let record = serde_json::from_value(record).expect("a record");
        let again = ImagePart::of_record(&record, Arc::clone(&part.bytes));
        assert_eq!(again, Ok(part.clone()));
        let other = ImagePart::of_record(&record, Arc::from(&b"abd"[..]));
        let error = other.expect_err("other bytes").to_string();
        assert!(
            error.starts_with("messages[0].content[1]: the stored bytes"),
            "{error}"
        );
        let shown = format!("{part:?}");
        assert!(shown.contains("bytes: 3"), "{shown}");
    }

    #[test]
    fn details_have_names() {
        for name in ["low", "auto", "high"] {
            assert_eq!(detail_of_name(name).map(detail_name), Some(name));
        }
        assert_eq!(detail_of_name("original"), None);
    }
}
