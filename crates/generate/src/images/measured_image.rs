//! Images of which only headers were read: their plans, and rows of the prompt.

use super::{ImagePart, Vision};
use crate::error::{ApiError, Problem};
use media::plan::Plan;
use media::{Detail, Header, ImageError, ImageFault, Limits, decode};
use std::time::Duration;

/// Faulty images that one error names.
const PROBLEMS_MAX: usize = 64;

/// An image of known size.
#[derive(Clone, Debug)]
pub struct MeasuredImage {
    /// Resizes and tiles of the image.
    pub(crate) plan: Plan,
    /// Rows of the same image with the lowest detail.
    low_rows: usize,
    decode_bytes: u64,
}

/// The images of a request, of known sizes.
#[derive(Clone, Debug, Default)]
pub struct MeasuredImages(Vec<MeasuredImage>);

/// Reads the headers of images, and plans their rows. Decodes nothing.
///
/// # Errors
/// There are too many images, or one is of a kind that is not read, broken, animated, or beyond a bound; all of them are
/// named, with the paths of their fields.
pub fn measure(vision: &Vision, parts: &[ImagePart]) -> Result<MeasuredImages, ApiError> {
    expect_few(parts.iter(), vision.images_max)?;
    let images = read_all(parts, |part| MeasuredImage::read(vision, part))?;
    Ok(MeasuredImages(images))
}

/// Bounds of the images of a request to a model that sees none itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageBounds {
    /// Images of one request that have to be described, at most.
    pub images_max: usize,
    /// Images of one request that are fetched from other servers, at most.
    pub fetched_max: usize,
    /// Bounds of one image.
    pub limits: Limits,
}

impl ImageBounds {
    /// Checks images, as far as their headers show. Decodes nothing.
    ///
    /// # Errors
    /// An image is of a kind that is not read, broken, animated, or beyond a bound; all of them are named, with the paths of
    /// their fields.
    pub fn check(&self, parts: &[ImagePart]) -> Result<(), ApiError> {
        read_all(parts, |part| {
            Header::read(&part.path, &part.bytes, &self.limits).map(drop)
        })
        .map(drop)
    }

    /// Bytes that decoding an image holds at one time.
    pub fn decode_bytes(&self, part: &ImagePart) -> u64 {
        let header = Header::read(&part.path, &part.bytes, &self.limits);
        header.map_or(0, |header| header.decode_bytes())
    }

    /// Decodes an image, and drops the pixels, before another server has it. `elapsed` is the time since the call.
    ///
    /// # Errors
    /// The image is broken, or its time is over; the error names the field.
    pub fn decode(&self, part: &ImagePart, elapsed: &dyn Fn() -> Duration) -> Result<(), ApiError> {
        let pixels = decode(&part.path, &part.bytes, &self.limits, elapsed).map(drop);
        pixels.map_err(|error| ApiError::fields(vec![problem(error)]))
    }
}

/// Checks the number of images.
///
/// # Errors
/// There are more; the first of these is named.
pub fn expect_few<'a>(
    parts: impl Iterator<Item = &'a ImagePart> + Clone,
    images_max: usize,
) -> Result<(), ApiError> {
    let Some(first) = parts.clone().nth(images_max) else {
        return Ok(());
    };
    let (number, count) = (images_max + 1, parts.count());
    let message = format!(
        "is image {number} of {count}, with those of earlier turns: at most {images_max} images are taken"
    );
    Err(ApiError::fields(vec![Problem::new(&first.path, message)]))
}

/// Results of `read` for each image, or all faults.
fn read_all<T>(
    parts: &[ImagePart],
    read: impl Fn(&ImagePart) -> Result<T, ImageError>,
) -> Result<Vec<T>, ApiError> {
    let (mut images, mut problems) = (Vec::with_capacity(parts.len()), Vec::new());
    for part in parts {
        match read(part) {
            Ok(image) => images.push(image),
            Err(error) => problems.push(problem(error)),
        }
    }
    problems.truncate(PROBLEMS_MAX);
    if problems.is_empty() {
        Ok(images)
    } else {
        Err(ApiError::fields(problems))
    }
}

/// A fault as a problem of the image's field.
pub(super) fn problem(error: ImageError) -> Problem {
    Problem::new(error.field, error.fault.to_string())
}

impl MeasuredImage {
    fn read(vision: &Vision, part: &ImagePart) -> Result<Self, ImageError> {
        let header = Header::read(&part.path, &part.bytes, &vision.limits)?;
        let of_field = |fault: ImageFault| fault.of(&part.path);
        let plan = vision.recipe.plan(header.size(), part.detail);
        let plan = plan.map_err(of_field)?;
        let low = vision.recipe.plan(header.size(), Detail::Low);
        let low_rows = low.map_or(plan.rows, |low| low.rows);
        Ok(Self {
            plan,
            low_rows: low_rows as usize,
            decode_bytes: header.decode_bytes(),
        })
    }

    /// Rows of the prompt.
    pub fn rows(&self) -> usize {
        self.plan.rows as usize
    }

    /// Rows of the prompt with the lowest detail.
    pub fn low_rows(&self) -> usize {
        self.low_rows
    }

    /// Bytes that decoding holds at one time.
    pub fn decode_bytes(&self) -> u64 {
        self.decode_bytes
    }

    /// Bytes of the pictures that the encoder takes.
    pub fn view_bytes(&self) -> u64 {
        let tiles = self.plan.tiles();
        tiles.map(|tile| tile.area.size.pixels() * 3).sum()
    }
}

impl MeasuredImages {
    /// The image with this number.
    pub fn image(&self, number: usize) -> Option<&MeasuredImage> {
        self.0.get(number)
    }

    /// Number of images.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Rows of all images.
    pub fn rows(&self) -> usize {
        self.0.iter().map(MeasuredImage::rows).sum()
    }

    /// Rows of all images with the lowest detail.
    pub fn low_rows(&self) -> usize {
        self.0.iter().map(|image| image.low_rows).sum()
    }

    /// Bytes that decoding the largest image holds at one time.
    pub fn decode_bytes_max(&self) -> u64 {
        let bytes = self.0.iter().map(MeasuredImage::decode_bytes);
        bytes.max().unwrap_or(0)
    }

    /// Bytes of the pictures that the encoder takes of all images.
    pub fn view_bytes(&self) -> u64 {
        self.0.iter().map(MeasuredImage::view_bytes).sum()
    }
}
