//! Images that were decoded: the inputs of the encoder, and the keys by which rows are found again. For an encoder of
//! another process an image is only examined, and named.

use super::measured_image::problem;
use super::{ImagePart, ImageRecord, MeasuredImage, Vision};
use crate::error::ApiError;
use media::{ImageKey, View, decode};
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
    let known = |_: &[u8; 32]| None;
    prepare_unless(known, (vision, part, measured), elapsed)
}

/// As [`prepare`], unless the image is known by its key.
///
/// # Errors
/// As of [`prepare`].
pub fn prepare_unless(
    known: impl Fn(&[u8; 32]) -> Option<PreparedImage>,
    (vision, part, measured): (&Vision, &ImagePart, &MeasuredImage),
    elapsed: &dyn Fn() -> Duration,
) -> Result<PreparedImage, ApiError> {
    let key = ImageKey::new(&part.digest(), &vision.fingerprint, &measured.plan);
    if let Some(image) = known(key.bytes()) {
        return Ok(image);
    }
    let pixels = decode(&part.path, &part.bytes, &vision.limits, elapsed);
    let pixels = pixels.map_err(|error| ApiError::fields(vec![problem(error)]))?;
    Ok(PreparedImage {
        key,
        views: vision.recipe.inputs(&measured.plan, &pixels),
    })
}

/// An image that was examined for an encoder of another process, which decodes the file again.
#[derive(Clone, Debug)]
pub struct ExaminedImage {
    pub(crate) part: ImagePart,
    pub(crate) record: ImageRecord,
    pub(crate) digest: [u8; 32],
    key: ImageKey,
    runs: usize,
}

/// Decodes an image, unless it is known by its key, and drops the pixels: a broken one is an error of the client's request,
/// before another process has it. `elapsed` is the time since the call.
///
/// # Errors
/// As of [`prepare`].
pub fn examine(
    known: impl Fn(&[u8; 32]) -> bool,
    (vision, part, measured): (&Vision, &ImagePart, &MeasuredImage),
    elapsed: &dyn Fn() -> Duration,
) -> Result<ExaminedImage, ApiError> {
    let digest = part.digest();
    let key = ImageKey::new(&digest, &vision.fingerprint, &measured.plan);
    if !known(key.bytes()) {
        let pixels = decode(&part.path, &part.bytes, &vision.limits, elapsed);
        drop(pixels.map_err(|error| ApiError::fields(vec![problem(error)]))?);
    }
    Ok(ExaminedImage {
        record: part.record_of(&digest),
        key,
        runs: measured.plan.tiles().count(),
        part: part.clone(),
        digest,
    })
}

impl ExaminedImage {
    /// The name of the image with its tower and plan.
    pub fn key(&self) -> &[u8; 32] {
        self.key.bytes()
    }

    /// The key of a run of rows; `None`: there are fewer runs.
    pub(crate) fn run_key(&self, run: usize) -> Option<[u8; 32]> {
        let number = u32::try_from(run).ok().filter(|_| run < self.runs)?;
        Some(*self.key.of_view(number).bytes())
    }
}

impl PreparedImage {
    /// The name of the image with its tower and plan.
    pub fn key(&self) -> &[u8; 32] {
        self.key.bytes()
    }

    /// The key and the input of a run of rows; `None`: there are fewer runs.
    pub(crate) fn run(&self, run: usize) -> Option<([u8; 32], Arc<View>)> {
        let view = self.views.get(run)?;
        let number = u32::try_from(run).unwrap_or(u32::MAX);
        Some((*self.key.of_view(number).bytes(), Arc::clone(view)))
    }
}
