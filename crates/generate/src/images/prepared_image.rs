//! Images that were decoded: the inputs of the encoder, and the keys by which rows are found again.

use super::measured_image::problem;
use super::{ImagePart, MeasuredImage, Vision};
use crate::error::ApiError;
use media::{ImageKey, View, decode, file_digest};
use std::sync::Arc;
use std::time::Duration;

/// An image as the encoder takes it, one picture for each run of rows.
#[derive(Clone, Debug)]
pub struct PreparedImage {
    key: ImageKey,
    views: Vec<Arc<View>>,
}

/// Decodes and resizes an image. Takes 50 to 300 ms for 12 megapixels. `elapsed` is the time since the call.
///
/// # Errors
/// The image is broken, or its time is over; the error names the field.
pub fn prepare(
    vision: &Vision,
    part: &ImagePart,
    measured: &MeasuredImage,
    elapsed: &dyn Fn() -> Duration,
) -> Result<PreparedImage, ApiError> {
    let pixels = decode(&part.path, &part.bytes, &vision.limits, elapsed);
    let pixels = pixels.map_err(|error| ApiError::fields(vec![problem(error)]))?;
    let digest = file_digest(&part.bytes);
    Ok(PreparedImage {
        key: ImageKey::new(&digest, &vision.fingerprint, &measured.plan),
        views: vision.recipe.inputs(&measured.plan, &pixels),
    })
}

impl PreparedImage {
    /// The key and the input of a run of rows; `None`: there are fewer runs.
    pub(crate) fn run(&self, run: usize) -> Option<([u8; 32], Arc<View>)> {
        let view = self.views.get(run)?;
        let number = u32::try_from(run).unwrap_or(u32::MAX);
        Some((*self.key.of_view(number).bytes(), Arc::clone(view)))
    }
}
