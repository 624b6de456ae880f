//! Bodies that are longer than those of requests without images may be.

use super::byte_budget::ByteReservation;
use generate::error::{ApiError, ErrorKind};
use generate::images::ImagePart;

/// Characters of base64 for three bytes.
const BASE64_CHARS: usize = 4;
/// Code of the error of a body that is too long.
const CODE: &str = "body_too_large";

/// A body that is long because of its images, with its share in the bytes of all such bodies.
#[derive(Debug)]
pub struct LongBody {
    bytes: usize,
    /// Bytes of a body without images.
    text_bytes_max: usize,
    _share: ByteReservation,
}

impl LongBody {
    /// A body of `bytes` bytes, which may have `text_bytes_max` without its images.
    pub fn new(bytes: usize, text_bytes_max: usize, share: ByteReservation) -> Self {
        Self {
            bytes,
            text_bytes_max,
            _share: share,
        }
    }

    /// Checks that these images make the body long.
    ///
    /// # Errors
    /// The rest of the body is longer than a body may be.
    pub fn expect_images(&self, images: &[ImagePart]) -> Result<(), ApiError> {
        let text_bytes = self.bytes.saturating_sub(base64_bytes(images));
        if text_bytes > self.text_bytes_max {
            let max = self.text_bytes_max;
            let message = format!(
                "the body without its images has {text_bytes} bytes, at most {max}: only images make a body longer"
            );
            return Err(ApiError::caller(ErrorKind::TooLarge, CODE, message));
        }
        Ok(())
    }
}

/// Bytes of images in the text of a body; of those on other servers there are none.
pub(crate) fn base64_bytes(images: &[ImagePart]) -> usize {
    let sent = images.iter().filter(|part| part.url.is_none());
    let blocks = sent.map(|part| part.bytes.len().div_ceil(3));
    blocks.sum::<usize>() * BASE64_CHARS
}

/// The error of a body that is too long.
pub fn too_large(max: usize) -> ApiError {
    let message = format!("the body may have at most {max} bytes");
    ApiError::caller(ErrorKind::TooLarge, CODE, message)
}

#[cfg(test)]
mod tests {
    use super::super::ByteBudget;
    use super::*;
    use std::sync::Arc;

    #[test]
    fn text_of_a_long_body_is_as_short_as_other_bodies() {
        let budget = Arc::new(ByteBudget::default());
        let body = |bytes| {
            let share = budget.reserve(1, 10).expect("there is room");
            LongBody::new(bytes, 1000, share)
        };
        let image = ImagePart {
            bytes: vec![0; 3000].into(),
            detail: generate::images::detail_of_name("auto").expect("a detail"),
            path: "images[0]".to_owned(),
            url: None,
        };
        assert!(
            body(5000)
                .expect_images(std::slice::from_ref(&image))
                .is_ok()
        );
        for (bytes, images, text) in [(5001, vec![image], 1001), (5000, Vec::new(), 5000)] {
            let error = body(bytes).expect_images(&images).expect_err("too long");
            assert_eq!(error.code, "body_too_large");
            let why = format!("the body without its images has {text} bytes, at most 1000");
            assert!(error.message.starts_with(&why), "{}", error.message);
        }
    }
}
