//! Images that a user names on the terminal: files, or standard input.

use crate::failure::Failure;
use generate::error::ApiError;
use generate::images::{ImagePart, MeasuredImages, PreparedImage, measure, prepare};
use generate::model_handle::ModelHandle;
use generate::prompt::PreparedPrompt;
use media::Detail;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use wire::clock::thread_time;

/// The path that stands for standard input.
pub(crate) const STANDARD_INPUT: &str = "-";

/// Reads an image. `named`: what the user typed before the path, for errors.
///
/// # Errors
/// The file cannot be read, or is longer than `bytes_max`.
pub(crate) fn read_image(named: &str, path: &Path, bytes_max: u64) -> Result<ImagePart, Failure> {
    let field = format!("{named} {}", path.display());
    let failure = |why: &dyn std::fmt::Display| Failure::user(format!("{field}: {why}"));
    let mut bytes = Vec::new();
    let read = if path == Path::new(STANDARD_INPUT) {
        read_up_to(&mut std::io::stdin().lock(), bytes_max, &mut bytes)
    } else {
        File::open(path).and_then(|mut file| read_up_to(&mut file, bytes_max, &mut bytes))
    };
    read.map_err(|why| failure(&why))?;
    if bytes.len() as u64 > bytes_max {
        let why = format!("has more than {bytes_max} bytes (vision.image_bytes_max)");
        return Err(failure(&why));
    }
    Ok(ImagePart {
        bytes: bytes.into(),
        detail: Detail::Auto,
        path: field,
        url: None,
    })
}

/// Reads one byte more than there may be, at most.
fn read_up_to(from: &mut dyn Read, bytes_max: u64, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    from.take(bytes_max.saturating_add(1)).read_to_end(bytes)?;
    Ok(())
}

/// The sizes of images for this model.
///
/// # Errors
/// The model reads text only, or an image breaks a bound.
pub(super) fn measure_images(
    (name, model): (&str, &ModelHandle),
    parts: &[ImagePart],
) -> Result<MeasuredImages, ApiError> {
    match (&model.vision, parts.first()) {
        (_, None) => Ok(MeasuredImages::default()),
        (Some(vision), Some(_)) => measure(vision, parts),
        (None, Some(first)) => {
            let message = format!(
                "{}: model {name} reads text only, and no model describes images for it (vision.proxy.model)",
                first.path
            );
            Err(ApiError::field(&first.path, "unsupported_value", message))
        }
    }
}

/// Decodes the images that are in the prompts, and gives them to the prompts.
///
/// # Errors
/// An image is broken.
pub(super) fn attach_images(
    model: &ModelHandle,
    (parts, measured): (&[ImagePart], &MeasuredImages),
    prompts: &mut [PreparedPrompt],
) -> Result<(), ApiError> {
    let Some(vision) = &model.vision else {
        return Ok(());
    };
    let mut images: Vec<Option<PreparedImage>> = Vec::new();
    images.resize_with(parts.len(), || None);
    for prompt in prompts {
        for number in prompt.images() {
            let begun = thread_time();
            let sizes = parts.get(number).zip(measured.image(number));
            if let Some((part, measured)) = sizes.filter(|_| images[number].is_none()) {
                let image = prepare(vision, part, measured, &|| {
                    thread_time().saturating_sub(begun)
                })?;
                images[number] = Some(image);
            }
        }
        prompt.attach(&images)?;
    }
    Ok(())
}
