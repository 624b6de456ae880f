//! Images in messages: content parts, and marks in texts while a conversation is fitted.
//!
//! A request's message has its images as parts, each with the number of the image: `{"type": "image", "image": 0}`. Fitting a
//! conversation moves and joins texts, so an image becomes a mark in its message's text before: the place stays, and
//! no image is lost. A template that iterates over content parts gets the parts again when it renders, and writes the
//! model's own placeholder; in the text of any other template the mark itself remains.
//!
//! Marks have characters that are removed from all user input ([`crate::Tokenizer::escape_control_text`]), so no user can
//! write one.

use crate::tokenizer::{MARK_CLOSE, MARK_OPEN};
use serde_json::{Value, json};
use std::ops::Range;

/// Characters after the opening one of a mark.
const IMAGE: &str = "image ";

/// The mark of an image in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageMark {
    /// Bytes of the mark.
    pub place: Range<usize>,
    /// Number of the image.
    pub image: usize,
}

/// A content part that is an image with this number.
#[must_use]
pub fn image_part(image: usize) -> Value {
    json!({"type": "image", "image": image})
}

/// A content part that is a text.
#[must_use]
pub fn text_part(text: impl Into<String>) -> Value {
    json!({"type": "text", "text": text.into()})
}

/// The mark of the image with this number.
#[must_use]
pub fn image_mark(image: usize) -> String {
    format!("{MARK_OPEN}{IMAGE}{image}{MARK_CLOSE}")
}

/// The marks of images in a text, in order.
pub fn image_marks(text: &str) -> impl Iterator<Item = ImageMark> + '_ {
    let opened = text.match_indices(MARK_OPEN);
    opened.filter_map(|(start, open)| {
        let number = text[start + open.len()..].strip_prefix(IMAGE)?;
        let (number, rest) = number.split_once(MARK_CLOSE)?;
        Some(ImageMark {
            place: start..text.len() - rest.len(),
            image: number.parse().ok()?,
        })
    })
}

/// Numbers of the images in a message's content, in order: its parts, or marks in its text.
pub fn images_of(content: &Value) -> Vec<usize> {
    match content {
        Value::String(text) => image_marks(text).map(|mark| mark.image).collect(),
        Value::Array(parts) => parts.iter().filter_map(number_of).collect(),
        _ => Vec::new(),
    }
}

/// The number of the image that a part is.
fn number_of(part: &Value) -> Option<usize> {
    let is_image = part["type"] == "image";
    let number = part["image"].as_u64().filter(|_| is_image)?;
    usize::try_from(number).ok()
}

/// A list of parts with images as a text with marks; neighboring texts are separated by a line end. Other contents stay.
pub(super) fn with_marks(content: &mut Value) {
    let Value::Array(parts) = content else {
        return;
    };
    if parts.iter().all(|part| number_of(part).is_none()) {
        return;
    }
    let (mut marked, mut after_text) = (String::new(), false);
    for part in parts.iter() {
        match (number_of(part), part["text"].as_str()) {
            (Some(image), _) => {
                marked.push_str(&image_mark(image));
                after_text = false;
            }
            (None, Some(text)) => {
                if after_text {
                    marked.push('\n');
                }
                marked.push_str(text);
                after_text = true;
            }
            (None, None) => {}
        }
    }
    *content = Value::String(marked);
}

/// The parts of a text with marks. A text without marks is one part.
pub(super) fn parts_of(text: &str) -> Value {
    let (mut parts, mut done) = (Vec::new(), 0);
    for mark in image_marks(text) {
        if done < mark.place.start {
            parts.push(text_part(&text[done..mark.place.start]));
        }
        parts.push(json!({"type": "image"}));
        done = mark.place.end;
    }
    if done < text.len() || parts.is_empty() {
        parts.push(text_part(&text[done..]));
    }
    Value::Array(parts)
}
