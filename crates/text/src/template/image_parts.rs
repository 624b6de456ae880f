//! Images in messages: content parts, marks in texts while a conversation is fitted, and the parts that a template takes.
//!
//! A request's message has its images as parts, each with the number of the image: `{"type": "image", "image": 0}`. Fitting a
//! conversation moves and joins texts, so an image becomes a mark in its message's text before: the place stays, and
//! no image is lost. A template that iterates over content parts gets the parts again when it renders, and writes the
//! model's own placeholder; in the text of any other template the mark itself remains.
//!
//! Marks have characters that are removed from all user input ([`crate::Tokenizer::escape_control_text`]), so no user can
//! write one.

use super::capabilities::{FIRST, PROBE, SECOND, THIRD, message, probe_call, probe_tools};
use super::chat_template::{ChatTemplate, RenderInput};
use super::message::Message;
use crate::tokenizer::{MARK_CLOSE, MARK_OPEN};
use serde_json::{Value, json};
use std::ops::Range;

/// What follows the opening character of a mark.
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
fn parts_of(text: &str) -> Value {
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

/// The contents that a template takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ContentForm {
    /// Whether texts, too, have to be lists of parts.
    lists_only: bool,
    /// Whether images are parts in messages of the user, in instructions, and in results of tools.
    images: [bool; 3],
}

impl ContentForm {
    /// Tries a template.
    pub(super) fn of(template: &ChatTemplate) -> Self {
        let shows = |content: Value| {
            let user = Message {
                content,
                ..message("user", "")
            };
            let shown = rendered(template, &[user], &[]);
            shown.is_some_and(|text| text.contains(PROBE))
        };
        let lists_only = !shows(json!(PROBE)) && shows(json!([text_part(PROBE)]));
        let form = |message: Message| match lists_only {
            true => with_list(message),
            false => message,
        };
        let takes = |before: &[Message], turn: Message, after: &[Message], tools: &[Value]| {
            writes_images(|content| {
                let turn = Message {
                    content,
                    ..turn.clone()
                };
                let turns = [before, &[turn], after].concat();
                rendered(template, &turns, tools)
            })
        };
        let user = form(message("user", SECOND));
        let mut call = probe_call(SECOND, "");
        let result = call.pop().unwrap_or_else(|| message("tool", ""));
        let called: Vec<Message> =
            [vec![user.clone()], call.into_iter().map(form).collect()].concat();
        Self {
            lists_only,
            images: [
                takes(&[], user.clone(), &[], &[]),
                takes(&[], message("system", ""), &[user], &[]),
                takes(&called, result, &[], &probe_tools()),
            ],
        }
    }

    /// Whether images are parts in messages of this role.
    fn takes_images(self, role: &str) -> bool {
        let [user, system, tool] = self.images;
        match role {
            "user" => user,
            "system" | "developer" => system,
            "tool" => tool,
            _ => false,
        }
    }

    /// The messages in this form; `None`: they are already. Without `as_parts` the marks of images stay.
    pub(super) fn fit(self, messages: &[Message], as_parts: bool) -> Option<Vec<Message>> {
        let has_marks = |message: &Message| match &message.content {
            Value::String(text) => image_marks(text).next().is_some(),
            _ => false,
        };
        let becomes_list = |message: &Message| {
            self.lists_only && message.content.is_string()
                || as_parts && self.takes_images(&message.role) && has_marks(message)
        };
        if !messages.iter().any(becomes_list) {
            return None;
        }
        let fitted = messages.iter().map(|message| {
            let mut message = message.clone();
            if becomes_list(&message) {
                let as_parts = as_parts && self.takes_images(&message.role);
                message.content = match (&message.content, as_parts) {
                    (Value::String(text), true) => parts_of(text),
                    (Value::String(text), false) => json!([text_part(text.as_str())]),
                    (other, _) => other.clone(),
                };
            }
            message
        });
        Some(fitted.collect())
    }
}

/// Whether a template writes something for an image between two texts, both texts once, and no list as such.
fn writes_images(with: impl Fn(Value) -> Option<String>) -> bool {
    let (first, second) = (text_part(FIRST), text_part(THIRD));
    let seen = with(json!([first, {"type": "image"}, second]));
    let unseen = with(json!([first, second]));
    let (Some(seen), Some(unseen)) = (seen, unseen) else {
        return false;
    };
    let once = |part: &str| seen.matches(part).count() == 1;
    // A list that is written as such has the names of its members.
    let names = |text: &str| ["'type'", "\"type\""].map(|name| text.matches(name).count());
    let is_named_as_in = |other: &String| names(&seen) == names(other);
    let plain = with(json!(FIRST));
    once(FIRST) && once(THIRD) && seen != unseen && plain.as_ref().is_none_or(is_named_as_in)
}

fn rendered(template: &ChatTemplate, messages: &[Message], tools: &[Value]) -> Option<String> {
    let input = RenderInput {
        messages,
        tools,
        add_generation_prompt: true,
        ..RenderInput::default()
    };
    template.render_as_given(&input).ok()
}

/// The message with its text as a list of one part.
fn with_list(message: Message) -> Message {
    let content = match &message.content {
        Value::String(text) => json!([text_part(text.as_str())]),
        other => other.clone(),
    };
    Message { content, ..message }
}
