//! Images that a user names on the terminal: files, or standard input.

use crate::failure::Failure;
use generate::error::ApiError;
use generate::images::{ImagePart, MeasuredImages, PreparedImage, measure, prepare};
use generate::model_handle::ModelHandle;
use generate::prompt::PreparedPrompt;
use media::Detail;
use std::fmt::Display;
use std::fs::{File, FileType};
use std::io::{Error, Read};
use std::path::Path;
use wire::clock::thread_time;

/// The path that stands for standard input.
pub(crate) const STANDARD_INPUT: &str = "-";

/// Reads an image from a regular file: opening a FIFO would wait for its writer, and a device has no end. `named`: what the user
/// typed before the path, for errors.
///
/// # Errors
/// The file cannot be read, is no regular file, or is longer than `bytes_max`.
pub(crate) fn read_image(named: &str, path: &Path, bytes_max: u64) -> Result<ImagePart, Failure> {
    let open = || {
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_file() {
            return File::open(path);
        }
        let kind = kind_of(kind);
        let why = format!("is {kind}: an image is read from a regular file");
        Err(Error::other(why))
    };
    read_from(open, &format!("{named} {}", path.display()), bytes_max)
}

/// Reads an image from standard input, as [`read_image`] does from a file.
///
/// # Errors
/// As of [`read_image`].
pub(crate) fn read_piped_image(named: &str, bytes_max: u64) -> Result<ImagePart, Failure> {
    let field = format!("{named} {STANDARD_INPUT}");
    read_from(|| Ok(std::io::stdin().lock()), &field, bytes_max)
}

/// Reads one byte more than there may be, at most.
fn read_from<R: Read>(
    open: impl FnOnce() -> std::io::Result<R>,
    field: &str,
    bytes_max: u64,
) -> Result<ImagePart, Failure> {
    let failure = |why: &dyn Display| Failure::user(format!("{field}: {why}"));
    let mut bytes = Vec::new();
    let from = open().map(|from| from.take(bytes_max.saturating_add(1)));
    let read = from.and_then(|mut from| from.read_to_end(&mut bytes));
    if read.map_err(|why| failure(&why))? as u64 > bytes_max {
        let why = format!("has more than {bytes_max} bytes (vision.image_bytes_max)");
        return Err(failure(&why));
    }
    Ok(ImagePart {
        bytes: bytes.into(),
        detail: Detail::Auto,
        path: field.to_owned(),
        url: None,
    })
}

/// The kind of a file that is not a regular one, for errors.
fn kind_of(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a FIFO";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if kind.is_dir() {
        "a directory"
    } else {
        "no regular file"
    }
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
