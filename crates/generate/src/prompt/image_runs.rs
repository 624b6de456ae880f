//! Rows of images in a prompt: found in the rendered text, encoded between the texts of the model's family, and given to the
//! engine with the images' pictures.

use super::{EncodedPrompt, PreparedPrompt, PromptEncoder, tokenizer_failed};
use crate::error::{ApiError, Blame, ErrorKind};
use crate::images::{
    ExaminedImage, ImageMarks, ImageRecord, MarkPiece, MeasuredImage, MeasuredImages,
    PreparedImage, Vision, hex,
};
use crate::prompt_limit::Truncation;
use crate::request_record::ImageRunRecord;
use engine::MediaInput;
use engine::remote::{RemoteFile, RemoteFiles};
use std::ops::Range;
use std::sync::Arc;
use text::{IdRun, Tokenizer, TokenizerError, image_marks};

/// Code of the error of a recorded prompt whose image has other rows now: another encoder, or another preparation.
pub const IMAGE_CHANGED: &str = "image_changed";

/// A run of rows of an image in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRun {
    /// Number of the image among those of the request.
    pub image: usize,
    /// Number of the run among those of the image.
    pub run: usize,
    /// Rows of the prompt.
    pub rows: Range<usize>,
    /// Rows and columns of the grid that the run is; none of rows with the positions of tokens.
    pub grid: (u32, u32),
    /// The recorded key of a restored prompt: the image has to have it again.
    pub key: Option<String>,
}

/// The images of a prompt for an engine of another process, which gets the files and decodes them itself.
#[derive(Clone, Debug)]
pub struct PromptFiles {
    /// Numbers of the images among those of the request, in the order of [`Self::records`].
    numbers: Vec<usize>,
    pub(crate) records: Vec<ImageRecord>,
    pub(crate) files: Arc<RemoteFiles>,
}

impl PromptFiles {
    /// The place of an image of the request among those of the prompt.
    pub(crate) fn place(&self, image: usize) -> Option<usize> {
        self.numbers.iter().position(|number| *number == image)
    }
}

/// Where an image stands in a rendered text.
struct ImagePlace {
    bytes: Range<usize>,
    image: usize,
    /// Whether this is a mark, around which no template wrote anything.
    is_alone: bool,
}

/// Texts between runs.
#[derive(Default)]
struct Segments {
    texts: Vec<String>,
    open: String,
    runs: Vec<ImageRun>,
    ids: Vec<IdRun>,
    /// Each image with its marks: from a byte of the text of this number to a byte of a later one.
    images: Vec<Range<(usize, usize)>>,
}

impl PromptEncoder<'_> {
    /// A rendered text with these images, in order. `None`: the template wrote fewer or more placeholders than it was given
    /// images.
    ///
    /// # Errors
    /// The model takes no images, or the tokenizer failed.
    pub(super) fn encode_around_images(
        self,
        text: &str,
        images: &[usize],
    ) -> Result<Option<EncodedPrompt>, ApiError> {
        let (vision, measured) = self.vision()?;
        let Some(places) = places(text, images, vision.marks) else {
            return Ok(None);
        };
        let tokenizer = &self.model.tokenizer;
        let pad = vision.marks.pad(tokenizer);
        let (mut segments, mut done) = (Segments::default(), 0);
        for (number, place) in places.into_iter().enumerate() {
            segments.open.push_str(&text[done..place.bytes.start]);
            done = place.bytes.end;
            let (before, after) = vision.marks.around();
            let mut begin = segments.end();
            if !place.is_alone && segments.open.ends_with(before) {
                begin.1 -= before.len();
            }
            segments.add_image((number, &place), (vision.marks, measured), pad)?;
            let mut end = segments.end();
            if !place.is_alone && text[done..].starts_with(after) {
                end.1 += after.len();
            }
            segments.images.push(begin..end);
        }
        segments.open.push_str(&text[done..]);
        segments.texts.push(std::mem::take(&mut segments.open));
        let texts: Vec<&str> = segments.texts.iter().map(String::as_str).collect();
        let encoded = tokenizer.encode_rendered_around(&texts, &segments.ids);
        let (ids, rows) = encoded.map_err(|error| tokenizer_failed(&error))?;
        let spans = match self.truncation.truncation {
            Truncation::LastTokens(_) => segments.spans(tokenizer, &ids, &rows),
            Truncation::Disabled | Truncation::Turns => Ok(Vec::new()),
        };
        let spans = spans.map_err(|error| tokenizer_failed(&error))?;
        let runs = segments.runs.into_iter().zip(rows);
        let runs = runs.map(|(run, rows)| ImageRun { rows, ..run });
        Ok(Some(EncodedPrompt {
            runs: runs.collect(),
            spans,
            ..EncodedPrompt::plain(Ok(ids), None)?
        }))
    }

    fn vision(&self) -> Result<(&Vision, &MeasuredImages), ApiError> {
        let Some(vision) = self.model.vision.as_deref() else {
            let message = "is an image, and the model reads text only";
            return Err(ApiError::field("messages", "unsupported_value", message));
        };
        let unmeasured =
            || ApiError::ours("internal_error", "images of a prompt were not measured");
        Ok((vision, self.images.ok_or_else(unmeasured)?))
    }

    /// The error of a prompt of `tokens` tokens, which leaves no room for an answer. Where images are in it, the message says
    /// what they take.
    pub(super) fn full_context(self, field: &str, tokens: usize, runs: &[ImageRun]) -> ApiError {
        let context_max = self.model.context_max;
        let mut error = ApiError::full_context(field, tokens, context_max);
        let rows: usize = runs.iter().map(|run| run.rows.len()).sum();
        if rows == 0 {
            return error;
        }
        let low = self.images.map_or(rows, |images| {
            let numbers = image_numbers(runs).into_iter();
            let images = numbers.filter_map(|number| images.image(number));
            images.map(MeasuredImage::low_rows).sum()
        });
        let fewer = if low < rows {
            format!("; detail low takes {low}")
        } else {
            String::new()
        };
        let more = format!(" The images take {rows} of {context_max} tokens{fewer}.");
        error.message.push_str(&more);
        for problem in &mut error.problems {
            problem.constraint.push_str(&more);
        }
        error
    }
}

impl Segments {
    /// The number of the open text, and its length.
    fn end(&self) -> (usize, usize) {
        (self.texts.len(), self.open.len())
    }

    /// Places of the images with their marks among the ids of all texts, in order. A token of a mark and of the text next to it
    /// belongs to the image, one of the marks of two images to the later one.
    fn spans(
        &self,
        tokenizer: &Tokenizer,
        ids: &[u32],
        rows: &[Range<usize>],
    ) -> Result<Vec<Range<usize>>, TokenizerError> {
        // Only the first text is behind the tokens that begin a prompt, and only the last is before those that end it.
        let encode = |number: usize, part: &str| {
            if number == 0 || number == rows.len() {
                tokenizer.encode_rendered(part)
            } else {
                tokenizer.encode_rendered_continuation(part)
            }
        };
        let mut spans: Vec<Range<usize>> = Vec::with_capacity(self.images.len());
        for image in &self.images {
            let ((first, begin), (last, end)) = (image.start, image.end);
            let start = first.checked_sub(1).map_or(0, |run| rows[run].end);
            let before = encode(first, &self.texts[first][..begin])?;
            let start = start + common_length(&ids[start..rows[first].start], &before);
            let stop = rows.get(last).map_or(ids.len(), |rows| rows.start);
            let after = encode(last, &self.texts[last][end..])?;
            let behind = ids[rows[last - 1].end..stop].iter().rev();
            let end = stop - common_length(behind, after.iter().rev());
            if let Some(earlier) = spans.last_mut() {
                earlier.end = earlier.end.min(start);
            }
            spans.push(start..end);
        }
        Ok(spans)
    }

    /// Adds the image with this number among those of the prompt.
    fn add_image(
        &mut self,
        (number, place): (usize, &ImagePlace),
        (marks, measured): (ImageMarks, &MeasuredImages),
        pad: u32,
    ) -> Result<(), ApiError> {
        let unknown = || ApiError::ours("internal_error", "a prompt names an unknown image");
        let image = measured.image(place.image).ok_or_else(unknown)?;
        let rows = marks.run_rows(&image.plan);
        for piece in marks.pieces(&image.plan, number, place.is_alone) {
            match piece {
                MarkPiece::Text(text) => self.open.push_str(&text),
                MarkPiece::Run(run) => {
                    let &(length, grid) = rows.get(run).ok_or_else(unknown)?;
                    self.texts.push(std::mem::take(&mut self.open));
                    self.ids.push(IdRun { id: pad, length });
                    self.runs.push(ImageRun {
                        image: place.image,
                        run,
                        rows: 0..0,
                        grid,
                        key: None,
                    });
                }
            }
        }
        Ok(())
    }
}

/// The places of these images in a rendered text, in the order of the text: their marks, and the template's placeholders for
/// those that have none. `None`: there are not as many placeholders as images without a mark.
fn places(text: &str, images: &[usize], marks: ImageMarks) -> Option<Vec<ImagePlace>> {
    let marked = image_marks(text).map(|mark| ImagePlace {
        bytes: mark.place,
        image: mark.image,
        is_alone: true,
    });
    let mut places: Vec<ImagePlace> = marked.collect();
    let is_marked = |image: &usize| places.iter().any(|place| place.image == *image);
    let others: Vec<usize> = images
        .iter()
        .copied()
        .filter(|image| !is_marked(image))
        .collect();
    if places.len() + others.len() != images.len() {
        return None;
    }
    if !others.is_empty() {
        let placeholder = marks.placeholder();
        let written: Vec<usize> = text::template_texts(text, placeholder).collect();
        if written.len() != others.len() {
            return None;
        }
        places.extend(
            written
                .into_iter()
                .zip(others)
                .map(|(start, image)| ImagePlace {
                    bytes: start..start + placeholder.len(),
                    image,
                    is_alone: false,
                }),
        );
        places.sort_by_key(|place| place.bytes.start);
    }
    Some(places)
}

/// The images of these runs, in order.
pub(super) fn image_numbers(runs: &[ImageRun]) -> Vec<usize> {
    let mut numbers: Vec<usize> = runs.iter().map(|run| run.image).collect();
    numbers.dedup();
    numbers
}

/// Number of ids with which both begin.
fn common_length<'i>(
    one: impl IntoIterator<Item = &'i u32>,
    other: impl IntoIterator<Item = &'i u32>,
) -> usize {
    let both = one.into_iter().zip(other);
    both.take_while(|(one, other)| one == other).count()
}

/// The error of a recorded image whose rows are others now.
fn changed(image: usize) -> ApiError {
    let message = format!(
        "image {image} of the recorded prompt has other rows now: the encoder or the preparation of images has changed"
    );
    ApiError::new(ErrorKind::Gone, Blame::Capacity, IMAGE_CHANGED, message)
}

/// The runs of a record among `ids` ids; `None`: they are no runs of such a prompt.
pub(super) fn restored_runs(records: Vec<ImageRunRecord>, ids: usize) -> Option<Vec<ImageRun>> {
    let mut free = 0..ids;
    let runs = records.into_iter().map(|record| {
        let ImageRunRecord {
            image,
            run,
            rows,
            grid,
            key,
        } = record;
        if rows.is_empty() || rows.start < free.start || rows.end > free.end {
            return None;
        }
        free.start = rows.end;
        let key = Some(key);
        Some(ImageRun {
            image,
            run,
            rows,
            grid,
            key,
        })
    });
    runs.collect()
}

impl PreparedPrompt {
    /// The runs of the prompt's images for a record, with the keys of images that are attached.
    pub(super) fn run_records(&self) -> Vec<ImageRunRecord> {
        let keys = self.media.iter().map(|input| hex(&input.key)).map(Some);
        let keys = keys.chain(std::iter::repeat(None));
        let runs = self.image_runs.iter().zip(keys);
        let record = |(run, key): (&ImageRun, Option<String>)| ImageRunRecord {
            image: run.image,
            run: run.run,
            rows: run.rows.clone(),
            grid: run.grid,
            key: key.or_else(|| run.key.clone()).unwrap_or_default(),
        };
        runs.map(record).collect()
    }

    /// Numbers of the images in the prompt, in order: truncation may have dropped others of the request.
    pub fn images(&self) -> Vec<usize> {
        image_numbers(&self.image_runs)
    }

    /// Rows of images in the prompt.
    pub fn image_rows(&self) -> usize {
        self.image_runs.iter().map(|run| run.rows.len()).sum()
    }

    /// Gives the prompt the pictures of its images, by number among those of the request.
    ///
    /// # Errors
    /// An image of the prompt is missing, or is another one than was recorded.
    pub fn attach(&mut self, images: &[Option<PreparedImage>]) -> Result<(), ApiError> {
        let missing = || ApiError::ours("internal_error", "an image of a prompt was not decoded");
        let inputs = self.image_runs.iter().map(|run| {
            let image = images.get(run.image).and_then(Option::as_ref);
            let (key, input) = image
                .and_then(|image| image.run(run.run))
                .ok_or_else(missing)?;
            run.expect_key(&key)?;
            Ok(MediaInput {
                key,
                rows: run.rows.clone(),
                grid: run.grid,
                input,
            })
        });
        self.media = inputs.collect::<Result<_, ApiError>>()?;
        Ok(())
    }

    /// Gives the prompt the files of its images, by number among those of the request, for an engine of another process.
    /// `held` is kept as long as a file may be sent.
    ///
    /// # Errors
    /// As of [`PreparedPrompt::attach`].
    pub fn attach_files(
        &mut self,
        images: &[Option<ExaminedImage>],
        held: &Arc<dyn Send + Sync>,
    ) -> Result<(), ApiError> {
        let missing = || ApiError::ours("internal_error", "an image of a prompt was not examined");
        let image = |number: usize| images.get(number).and_then(Option::as_ref);
        let mut rows = Vec::with_capacity(self.image_runs.len());
        for run in &mut self.image_runs {
            let key = image(run.image).and_then(|image| image.run_key(run.run));
            let key = key.ok_or_else(missing)?;
            run.expect_key(&key)?;
            run.key = Some(hex(&key));
            let [a, b, c, d, ..] = key;
            rows.push((run.rows.clone(), u32::from_le_bytes([a, b, c, d])));
        }
        let numbers = self.images();
        let (mut records, mut files) = (Vec::new(), Vec::<RemoteFile>::new());
        for &number in &numbers {
            let image = image(number).ok_or_else(missing)?;
            records.push(image.record.clone());
            if !files.iter().any(|file| file.digest == image.digest) {
                files.push(RemoteFile {
                    digest: image.digest,
                    bytes: Arc::clone(&image.part.bytes),
                });
            }
        }
        let held = Arc::clone(held);
        self.files = (!numbers.is_empty()).then(|| PromptFiles {
            numbers,
            records,
            files: Arc::new(RemoteFiles { files, rows, held }),
        });
        Ok(())
    }
}

impl ImageRun {
    /// Compares the key of the rows with the recorded one.
    ///
    /// # Errors
    /// The rows are others.
    fn expect_key(&self, key: &[u8; 32]) -> Result<(), ApiError> {
        match &self.key {
            Some(recorded) if *recorded != hex(key) => Err(changed(self.image)),
            _ => Ok(()),
        }
    }
}
