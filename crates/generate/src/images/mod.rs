//! Images of a request: from the bytes that a client sent to rows of the prompt and inputs of the model's encoder.
//!
//! ```text
//! image_part       an image as a parser read it           image_marks   texts around the rows of an image, by family
//! measured_image   header and plan: rows, before decoding prepared_image pictures and keys for the encoder
//! descriptions     texts in place of images, for a model that reads text only
//! ```
//!
//! The number of rows follows from an image's header, so a prompt is built, counted and truncated before anything is
//! decoded; only images that are still in the prompt are decoded at all.

mod descriptions;
mod image_marks;
mod image_part;
mod measured_image;
mod prepared_image;

pub use descriptions::{
    DescriptionState, DescriptionUsage, QUESTION_BYTES_MAX, put_descriptions, question_about,
};
pub use image_marks::{ImageMarks, MarkPiece};
pub(crate) use image_part::hex;
pub use image_part::{
    ImagePart, ImageRecord, ImageRecordError, detail_name, detail_of_name, digest_of_hex,
};
pub use measured_image::{ImageBounds, MeasuredImage, MeasuredImages, expect_few, measure};
pub use media::file_digest;
pub use prepared_image::{ExaminedImage, PreparedImage, examine, prepare, prepare_unless};

use media::{Limits, Recipe};

/// Rules of a model with an encoder of images for a prompt.
#[derive(Clone, Debug)]
pub struct Vision {
    /// From the size of an image to resizes, tiles and rows.
    pub recipe: Recipe,
    /// Texts around rows.
    pub marks: ImageMarks,
    /// Images of one request, at most.
    pub images_max: usize,
    /// Bounds of one image.
    pub limits: Limits,
    /// Names the encoder: its weights, and what turns pixels into its input.
    pub fingerprint: [u8; 32],
}

impl Vision {
    /// The fingerprint in hexadecimal digits.
    pub fn fingerprint_text(&self) -> String {
        hex(&self.fingerprint)
    }
}
