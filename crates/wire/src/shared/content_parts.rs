//! Content parts of messages in every wire protocol: one parser.
//!
//! A protocol has a [`PartTypes`] of the types that it knows; a type has the same meaning in all of them.

use super::images::{self, FILE_IDS, ImageMembers, STORED_MESSAGE, TEXT_MESSAGE};
use crate::base64;
use crate::fields::{self, Fields, JsonObject, JsonType, OrReject, RawJson};
use generate::request::PARTS_MAX;
use serde_json::Value;
use std::borrow::Cow;

/// Error message for a sound, a video or a file.
const FILES_MESSAGE: &str =
    "only text: sound, video, and files without a text are not supported yet by this server";

/// Images of a part that is a text, a sound or a file.
const OF_TEXTS: ImageMembers = ImageMembers(&[], "an image is a part of its own");
/// Images of a part that is a document.
const OF_DOCUMENTS: ImageMembers = ImageMembers(&["source"], OF_TEXTS.1);
/// Images of a part that is an image.
const OF_IMAGES: ImageMembers = ImageMembers(&["image_url", "image", "source"], OF_TEXTS.1);

/// A part of a message.
#[derive(Debug, PartialEq)]
pub(crate) enum ContentPart {
    /// Text for the model.
    Text(String),
    /// The image of this number.
    Image(usize),
}

/// Handling of images in a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageRule {
    /// The model sees them.
    Taken,
    /// The model sees them; for a model that reads text only they are left out.
    InResults,
    /// They are left out: no model gives any.
    LeftOut,
    /// They are rejected.
    Refused,
}

/// The parts of one protocol.
pub(crate) struct PartTypes {
    names: &'static [&'static str],
    /// Whether a string is a part.
    has_strings: bool,
    /// Error message for a part of another type.
    message: &'static str,
    /// Name of the parts of a list.
    noun: &'static str,
    /// Handling of images.
    pub(super) images: ImageRule,
    /// Whether parts of other types are left out instead of rejected.
    leaves_out_unknown: bool,
}

/// Parts of chat completions.
pub(crate) const CHAT: PartTypes = PartTypes {
    names: &[
        "text",
        "input_text",
        "output_text",
        "refusal",
        "image_url",
        "input_image",
        "input_audio",
        "video_url",
        "file",
    ],
    has_strings: true,
    message: "must be \"text\", \"image_url\" or \"refusal\"",
    noun: "parts",
    images: ImageRule::Taken,
    leaves_out_unknown: false,
};

/// Parts of earlier answers in chat completions: clients that speak several protocols send what other models gave.
pub(crate) const CHAT_ANSWERS: PartTypes = PartTypes {
    images: ImageRule::LeftOut,
    leaves_out_unknown: true,
    ..CHAT
};

/// Parts of results of tools in chat completions. Agents send results again with each request, so an image must not end the
/// conversation.
pub(crate) const CHAT_RESULTS: PartTypes = PartTypes {
    images: ImageRule::InResults,
    ..CHAT
};

/// Parts of items of the Responses API.
pub(crate) const RESPONSES: PartTypes = PartTypes {
    names: &[
        "input_text",
        "output_text",
        "text",
        "summary_text",
        "reasoning_text",
        "refusal",
        "input_image",
        "computer_screenshot",
        "input_file",
        "input_audio",
    ],
    has_strings: false,
    message: "must be input_text, input_image, output_text or refusal",
    noun: "parts",
    images: ImageRule::Taken,
    leaves_out_unknown: false,
};

/// Parts of outputs of tools in the Responses API.
pub(crate) const RESPONSES_RESULTS: PartTypes = PartTypes {
    images: ImageRule::InResults,
    ..RESPONSES
};

/// Blocks of Anthropic's system messages and documents.
pub(crate) const TEXT_BLOCKS: PartTypes = PartTypes {
    names: &[
        "text",
        "document",
        "search_result",
        "tool_reference",
        "image",
        "container_upload",
    ],
    has_strings: false,
    message: "must be text, document, search_result or tool_reference",
    noun: "text blocks",
    images: ImageRule::Refused,
    leaves_out_unknown: false,
};

/// Blocks of Anthropic's tool results.
pub(crate) const RESULT_BLOCKS: PartTypes = PartTypes {
    images: ImageRule::InResults,
    ..TEXT_BLOCKS
};

/// Blocks of Anthropic's user messages, but for results of tools.
pub(crate) const USER_BLOCKS: PartTypes = PartTypes {
    images: ImageRule::Taken,
    message: "must be text, image, document, search_result or tool_result",
    ..TEXT_BLOCKS
};

/// Blocks of Anthropic's assistant messages, but for calls and reasoning.
pub(crate) const ASSISTANT_BLOCKS: PartTypes = PartTypes {
    images: ImageRule::LeftOut,
    message: "must be text, tool_use, thinking or redacted_thinking",
    ..TEXT_BLOCKS
};

/// Parts of items of the Responses API that are the model's, and of the summaries of reasoning.
pub(crate) const RESPONSES_ANSWERS: PartTypes = PartTypes {
    images: ImageRule::LeftOut,
    ..RESPONSES
};

/// Parts of an assistant's `UIMessage`.
pub(crate) const UI_ANSWERS: PartTypes = PartTypes {
    images: ImageRule::LeftOut,
    ..UI_PARTS
};

/// Parts of a `UIMessage` of the AI SDK with a text, and files.
pub(crate) const UI_PARTS: PartTypes = PartTypes {
    names: &["text", "reasoning", "file", "reasoning-file", "image"],
    has_strings: false,
    message: "is not a part of a UIMessage",
    noun: "parts",
    images: ImageRule::Taken,
    leaves_out_unknown: false,
};

/// Parts of a tool's output in the AI SDK, and of a result of MCP.
pub(crate) const UI_RESULTS: PartTypes = PartTypes {
    names: &[
        "text",
        "image",
        "image-data",
        "image-url",
        "image-file-id",
        "image-file-reference",
        "media",
        "file",
        "file-data",
        "file-url",
        "file-id",
        "file-reference",
    ],
    images: ImageRule::InResults,
    leaves_out_unknown: true,
    ..UI_PARTS
};

impl PartTypes {
    /// Whether the protocol has parts of this type.
    pub(crate) fn has_type(&self, kind: &str) -> bool {
        self.names.contains(&kind)
    }
}

/// Parses a string, or a list of parts, whose texts are joined by line ends, and which has no images. Errors are recorded in
/// `fields`.
pub(crate) fn content_text(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    types: &PartTypes,
) -> Option<String> {
    match content(fields, path, raw, types)? {
        Value::String(text) => Some(text),
        _ => fields.no_value(path, TEXT_MESSAGE),
    }
}

/// Parses a string, or a list of parts: a text, or where there are images, the list of texts and images. Errors are recorded in
/// `fields`.
pub(crate) fn content(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    types: &PartTypes,
) -> Option<Value> {
    if let Some(text) = fields::as_text(raw) {
        return Some(Value::String(text.into_owned()));
    }
    if fields::json_type(raw) == JsonType::String {
        fields.reject(path, "has an invalid Unicode escape");
        return None;
    }
    let parts = parse_parts(fields, path, raw, types)?;
    let mut all = Value::String(String::new());
    let mut is_first = true;
    for part in parts {
        match (&mut all, part) {
            (all, part) if std::mem::take(&mut is_first) => *all = part.into_content(),
            (Value::String(all), ContentPart::Text(text)) => {
                all.push('\n');
                all.push_str(&text);
            }
            (all, part) => append_content(all, part.into_content()),
        }
    }
    Some(all)
}

impl ContentPart {
    /// A content of this part alone.
    pub(crate) fn into_content(self) -> Value {
        match self {
            Self::Text(text) => Value::String(text),
            Self::Image(image) => Value::Array(vec![text::image_part(image)]),
        }
    }
}

/// Appends a content to another, on a new line where both are texts.
pub(crate) fn append_content(to: &mut Value, more: Value) {
    match (&mut *to, more) {
        (Value::String(text), more) if text.is_empty() => *to = more,
        (Value::Null, more) => *to = more,
        (Value::String(text), Value::String(more)) => {
            text.push('\n');
            text.push_str(&more);
        }
        (before, more) => {
            let parts = [before.take(), more].into_iter().flat_map(into_parts);
            *to = Value::Array(parts.collect());
        }
    }
}

fn into_parts(content: Value) -> Vec<Value> {
    match content {
        Value::Array(parts) => parts,
        Value::String(text) => vec![text::text_part(text)],
        _ => Vec::new(),
    }
}

/// Parses a list of parts. Errors are recorded in `fields`.
fn parse_parts(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    types: &PartTypes,
) -> Option<Vec<ContentPart>> {
    let Some(parts) = fields::as_list(raw, PARTS_MAX) else {
        let noun = types.noun;
        fields.reject(
            path,
            format!("must be a string or a list of at most {PARTS_MAX} {noun}"),
        );
        return None;
    };
    let mut parsed: Vec<Option<ContentPart>> = Vec::with_capacity(parts.len());
    for (i, part) in parts.into_iter().enumerate() {
        let path = format!("{path}[{i}]");
        if !(types.leaves_out_unknown && leave_out_unknown(fields, &path, part, types)) {
            parsed.push(parse_part(fields, &path, part, types));
        }
    }
    parsed.into_iter().collect()
}

/// Parses a list of parts, whose texts are joined by line ends, and which has no images. Errors are recorded in `fields`.
pub(crate) fn parts_text(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    types: &PartTypes,
) -> Option<String> {
    match fields::json_type(raw) {
        JsonType::String => {
            // A string is no list of parts.
            parse_parts(fields, path, raw, types)?;
            None
        }
        _ => content_text(fields, path, raw, types),
    }
}

/// Leaves out a part of a type that the protocol does not have. Whether the part is of such a type.
fn leave_out_unknown(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    types: &PartTypes,
) -> bool {
    let part = fields::as_object(raw);
    let kind = part.as_ref().and_then(|part| part.text("type"));
    let unknown = kind.filter(|kind| !types.has_type(kind));
    if let Some(kind) = &unknown {
        let field = path.split('[').next().unwrap_or(path);
        fields.leave_out(path, format!("{field}.{kind}"));
    }
    unknown.is_some()
}

/// Parses a part. Errors are recorded in `fields`.
pub(crate) fn parse_part(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    types: &PartTypes,
) -> Option<ContentPart> {
    if let Some(text) = fields::as_text(raw).filter(|_| types.has_strings) {
        return Some(ContentPart::Text(text.into_owned()));
    }
    let part = fields::as_object(raw);
    let kind = part.as_ref().and_then(|part| part.text("type"));
    match (part, kind) {
        (Some(part), Some(kind)) if types.has_type(&kind) => {
            part_of_type(fields, path, (&part, &kind), types)
        }
        _ => fields.no_value(format_args!("{path}.type"), types.message),
    }
}

fn part_of_type(
    fields: &mut Fields<'_>,
    path: &str,
    (part, kind): (&JsonObject<'_>, &str),
    types: &PartTypes,
) -> Option<ContentPart> {
    image_members(part, kind).reject_others(fields, path, part, types.images == ImageRule::LeftOut);
    let text = match kind {
        "refusal" => required_string(fields, path, part, "refusal"),
        "tool_reference" => required_string(fields, path, part, "tool_name"),
        "search_result" => search_result_text(fields, path, part),
        "document" => document_text(fields, path, part),
        kind if IMAGES.contains(&kind) => return images::parse_image(fields, path, part, types),
        kind if FILES.contains(&kind) => return file_part(fields, path, part, types),
        "input_audio" | "video_url" | "container_upload" => fields.no_value(path, FILES_MESSAGE),
        _ => required_string(fields, path, part, "text"),
    };
    text.map(ContentPart::Text)
}

/// The members with images of a part.
fn image_members(part: &JsonObject<'_>, kind: &str) -> &'static ImageMembers {
    let is_image = IMAGES.contains(&kind) || FILES.contains(&kind) && has_image_type(part);
    match kind {
        _ if is_image => &OF_IMAGES,
        "document" => &OF_DOCUMENTS,
        _ => &OF_TEXTS,
    }
}

/// Whether an object is a part of one of these types, or another part with an image.
pub(crate) fn is_part(object: &JsonObject<'_>, kind: &str, types: &PartTypes) -> bool {
    let has_image = || has_image_type(object) || OF_TEXTS.others(object).next().is_some();
    types.has_type(kind) || has_image()
}

/// Types of parts that are images.
const IMAGES: [&str; 8] = [
    "image",
    "image_url",
    "input_image",
    "computer_screenshot",
    "image-data",
    "image-url",
    "image-file-id",
    "image-file-reference",
];

/// Types of parts that are files.
const FILES: [&str; 8] = [
    "file",
    "reasoning-file",
    "input_file",
    "media",
    "file-data",
    "file-url",
    "file-id",
    "file-reference",
];

/// Parses a file: an image, or a text. Errors are recorded in `fields`.
pub(crate) fn file_part(
    fields: &mut Fields<'_>,
    path: &str,
    part: &JsonObject<'_>,
    types: &PartTypes,
) -> Option<ContentPart> {
    if has_image_type(part) {
        return images::parse_image(fields, path, part, types);
    }
    let inner = part.object("file");
    let file = inner.as_ref().unwrap_or(part);
    let names_file = FILE_IDS.iter().any(|name| file.get(name).is_some());
    let message = if names_file {
        STORED_MESSAGE
    } else {
        FILES_MESSAGE
    };
    let text = text_of_part(part).or_reject(fields, path, message);
    text.map(ContentPart::Text)
}

/// Members of a file of the AI SDK with its media type: the one of today, and those of earlier versions and of MCP.
const MEDIA_TYPES: [&str; 3] = ["mediaType", "mimeType", "contentType"];

/// The media type of a file of the AI SDK.
fn media_type<'a>(part: &JsonObject<'a>) -> Option<Cow<'a, str>> {
    MEDIA_TYPES.into_iter().find_map(|name| part.text(name))
}

/// Whether a file of the AI SDK is an image.
pub(crate) fn has_image_type(part: &JsonObject<'_>) -> bool {
    let begins = |text: &str, with: &str| {
        let start = text.as_bytes().get(..with.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
    };
    match media_type(part) {
        Some(media_type) => begins(&media_type, "image"),
        None => {
            let url = part.text("url").or_else(|| part.text("data"));
            url.is_some_and(|url| begins(&url, "data:image/"))
        }
    }
}

/// Title, source and text of a result of a search.
fn search_result_text(
    fields: &mut Fields<'_>,
    path: &str,
    block: &JsonObject<'_>,
) -> Option<String> {
    let text = match block.get("content") {
        Some(raw) => content_text(fields, &format!("{path}.content"), raw, &TEXT_BLOCKS)?,
        None => String::new(),
    };
    Some(lines(block, ["title", "source"], text))
}

/// Title, context and text of a document whose source is a text, a list of text blocks, or a text file in base64.
fn document_text(fields: &mut Fields<'_>, path: &str, block: &JsonObject<'_>) -> Option<String> {
    let source = block.object("source");
    let kind = source.as_ref().and_then(|source| source.text("type"));
    let file = source
        .as_ref()
        .filter(|_| kind.as_deref() == Some("base64"));
    let of_file = |source: &JsonObject<'_>| {
        let member = |name: &str| source.text(name);
        text_of(&member("media_type").unwrap_or_default(), &member("data")?)
    };
    if let Some(text) = file.and_then(of_file) {
        return Some(lines(block, ["title", "context"], text));
    }
    let text = match (&source, kind.as_deref()) {
        (Some(source), Some("text")) => {
            required_string(fields, &format!("{path}.source"), source, "data")?
        }
        (Some(source), Some("content")) => {
            let path = format!("{path}.source.content");
            let raw = source
                .get("content")
                .or_reject(fields, &path, "is required")?;
            content_text(fields, &path, raw, &TEXT_BLOCKS)?
        }
        _ => {
            fields.reject(path, FILES_MESSAGE);
            return None;
        }
    };
    Some(lines(block, ["title", "context"], text))
}

/// Members that are not empty, and a text, a line each.
fn lines(block: &JsonObject<'_>, before: [&str; 2], text: String) -> String {
    let before = before.map(|name| block.text(name));
    let before = before.into_iter().flatten().map(Cow::into_owned);
    let before = before.filter(|line| !line.is_empty());
    before.chain([text]).collect::<Vec<_>>().join("\n")
}

/// Parses a required string member of an object at `path`; an error is recorded in `fields`.
pub(crate) fn required_string(
    fields: &mut Fields<'_>,
    path: &str,
    object: &JsonObject<'_>,
    name: &str,
) -> Option<String> {
    let text =
        object
            .text(name)
            .or_reject(fields, format_args!("{path}.{name}"), "must be a string");
    text.map(Cow::into_owned)
}

/// Media types of files whose bytes are no text for the model, also where they are valid UTF-8.
const OTHER_TYPES: [&str; 4] = ["image/", "audio/", "video/", "application/pdf"];
/// First bytes of a PDF.
const PDF: &str = "%PDF-";

/// The text of a file part: OpenAI's `file_data`, directly or in the object `file`, or the AI SDK's `url`. `None`: the file is
/// elsewhere, or no text.
fn text_of_part(part: &JsonObject<'_>) -> Option<String> {
    let inner = part.object("file");
    let file = inner.as_ref().unwrap_or(part);
    let member = |name: &str| file.text(name);
    let data = ["file_data", "url", "data"].into_iter().find_map(member)?;
    let media_type = media_type(file).unwrap_or_default();
    let text = match data.strip_prefix("data:") {
        Some(url) => {
            let (media_type, data) = url.split_once(";base64,")?;
            text_of(media_type, data)
        }
        None => text_of(&media_type, &data),
    }?;
    let name = member("filename").filter(|name| !name.is_empty());
    Some(match name {
        Some(name) => format!("{name}\n{text}"),
        None => text,
    })
}

/// The text in base64 of a file of this media type, which may be empty. `None`: the file is no text.
pub(crate) fn text_of(media_type: &str, base64: &str) -> Option<String> {
    let media_type = media_type.to_ascii_lowercase();
    if OTHER_TYPES.iter().any(|kind| media_type.starts_with(kind)) {
        return None;
    }
    let text = String::from_utf8(base64::decode(base64)?).ok()?;
    let is_text = !text.contains('\0') && !text.starts_with(PDF);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    is_text.then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
