//! Content parts of messages in every wire protocol: one parser, and the one place where images are refused.
//!
//! A protocol has a [`PartTypes`] of the types that it knows; a type has the same meaning in all of them.

use crate::base64;
use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use generate::request::PARTS_MAX;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Media types of images that an error may name.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Error message for a sound, a video or a file.
const FILES_MESSAGE: &str =
    "only text: sound, video, and files without a text are not supported yet by this server";

/// A part of a message.
pub(crate) enum ContentPart<'a> {
    /// Text for the model.
    Text(String),
    /// An image; `None`: the part names no source.
    Image(Option<ImageSource<'a>>),
}

/// Where the data of an image is.
pub(crate) enum ImageSource<'a> {
    /// In the request.
    Base64 {
        /// One of the [`IMAGE_TYPES`]; `None`: another one, or the protocol names none.
        media_type: Option<&'static str>,
        data: Cow<'a, str>,
    },
    /// On another server.
    Url(Cow<'a, str>),
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
    /// Whether an image is left out instead of refused.
    leaves_out_images: bool,
    /// Whether parts of other types are left out instead of rejected.
    leaves_out_unknown: bool,
}

/// Text in place of an image that is left out.
const LEFT_OUT_IMAGE: &str = "(an image, which this model cannot read)";

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
    message: "must be \"text\" or \"refusal\"",
    noun: "parts",
    leaves_out_images: false,
    leaves_out_unknown: false,
};

/// Parts of earlier answers in chat completions: clients that speak several protocols send what other models gave.
pub(crate) const CHAT_ANSWERS: PartTypes = PartTypes {
    leaves_out_unknown: true,
    ..CHAT
};

/// Parts of results of tools in chat completions. Agents send results again with each request, so an image must not end the
/// conversation.
pub(crate) const CHAT_RESULTS: PartTypes = PartTypes {
    leaves_out_images: true,
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
        "input_file",
        "input_audio",
    ],
    has_strings: false,
    message: "must be input_text, output_text or refusal",
    noun: "parts",
    leaves_out_images: false,
    leaves_out_unknown: false,
};

/// Parts of outputs of tools in the Responses API.
pub(crate) const RESPONSES_RESULTS: PartTypes = PartTypes {
    leaves_out_images: true,
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
    leaves_out_images: false,
    leaves_out_unknown: false,
};

/// Blocks of Anthropic's tool results.
pub(crate) const RESULT_BLOCKS: PartTypes = PartTypes {
    leaves_out_images: true,
    ..TEXT_BLOCKS
};

/// Blocks of Anthropic's user messages, but for results of tools.
pub(crate) const USER_BLOCKS: PartTypes = PartTypes {
    message: "must be text, document, search_result or tool_result",
    ..TEXT_BLOCKS
};

/// Blocks of Anthropic's assistant messages, but for calls and reasoning.
pub(crate) const ASSISTANT_BLOCKS: PartTypes = PartTypes {
    message: "must be text, tool_use, thinking or redacted_thinking",
    ..TEXT_BLOCKS
};

/// Parts of a `UIMessage` of the AI SDK with a text, and files.
pub(crate) const UI_PARTS: PartTypes = PartTypes {
    names: &["text", "reasoning", "file", "reasoning-file"],
    has_strings: false,
    message: "is not a part of a UIMessage",
    noun: "parts",
    leaves_out_images: false,
    leaves_out_unknown: false,
};

impl PartTypes {
    /// Whether the protocol has parts of this type.
    pub(crate) fn has_type(&self, kind: &str) -> bool {
        self.names.contains(&kind)
    }
}

/// Parses a string, or a list of parts, whose texts are joined by line ends. Errors are recorded in `fields`.
pub(crate) fn content_text(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    types: &PartTypes,
) -> Option<String> {
    if let Some(text) = fields::as_text(raw) {
        return Some(text.into_owned());
    }
    if fields::json_type(raw) == JsonType::String {
        fields.reject(path, "has an invalid Unicode escape");
        return None;
    }
    parts_text(fields, path, raw, types)
}

/// The schema of a content of chat completions.
pub(crate) fn chat_schema() -> Value {
    let part = json!({"anyOf": [
        {"type": "object", "required": ["type", "text"], "properties": {
            "type": {"enum": ["text", "input_text", "output_text"]}, "text": {"type": "string"},
        }},
        {"type": "object", "required": ["type", "refusal"], "properties": {
            "type": {"const": "refusal"}, "refusal": {"type": "string"},
        }},
    ]});
    json!({"anyOf": [
        {"type": "string"}, {"type": "null"}, {"type": "array", "items": part, "maxItems": PARTS_MAX},
    ]})
}

/// Parses a list of parts, whose texts are joined by line ends. Errors are recorded in `fields`.
pub(crate) fn parts_text(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    types: &PartTypes,
) -> Option<String> {
    let Some(parts) = fields::as_list(raw, PARTS_MAX) else {
        let noun = types.noun;
        fields.reject(
            path,
            format!("must be a string or a list of at most {PARTS_MAX} {noun}"),
        );
        return None;
    };
    let mut texts: Vec<Option<String>> = Vec::with_capacity(parts.len());
    for (i, part) in parts.into_iter().enumerate() {
        let path = format!("{path}[{i}]");
        if !(types.leaves_out_unknown && leave_out_unknown(fields, &path, part, types)) {
            texts.push(part_text(fields, &path, part, types));
        }
    }
    let texts: Option<Vec<String>> = texts.into_iter().collect();
    texts.map(|texts| texts.join("\n"))
}

/// Leaves out a part of a type that the protocol does not have. Whether the part is of such a type.
fn leave_out_unknown(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    types: &PartTypes,
) -> bool {
    let part = fields::as_object(raw);
    let kind = part.as_ref().and_then(|part| part.get("type"));
    let kind = kind.and_then(fields::as_text);
    let unknown = kind.filter(|kind| !types.has_type(kind));
    if let Some(kind) = &unknown {
        let field = path.split('[').next().unwrap_or(path);
        fields.leave_out(path, format!("{field}.{kind}"));
    }
    unknown.is_some()
}

/// Parses the text of a part. Errors are recorded in `fields`.
pub(crate) fn part_text(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    types: &PartTypes,
) -> Option<String> {
    match parse_part(fields, path, raw, types)? {
        ContentPart::Text(text) => Some(text),
        ContentPart::Image(_) if types.leaves_out_images => {
            let field = path.split('[').next().unwrap_or(path);
            fields.leave_out(path, format!("{field}.image"));
            Some(LEFT_OUT_IMAGE.to_owned())
        }
        ContentPart::Image(source) => {
            refuse_image(fields, path, source.as_ref());
            None
        }
    }
}

/// Refuses an image: no model takes any yet.
fn refuse_image(fields: &mut Fields<'_>, path: &str, source: Option<&ImageSource<'_>>) {
    let of = source.map_or_else(|| "without a source".to_owned(), ImageSource::description);
    let error_message = format!("is an image ({of}), and this model takes no images: send text");
    fields.reject(path, error_message);
}

/// Parses a list of images in base64, a field or member without text. Errors are recorded in `fields`.
pub(crate) fn parse_images(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) {
    let images = fields::as_list(raw, PARTS_MAX);
    let images: Option<Vec<_>> =
        images.and_then(|all| all.into_iter().map(fields::as_text).collect());
    match images.map(|images| images.into_iter().next()) {
        Some(None) => {}
        Some(Some(data)) => {
            let media_type = None;
            refuse_image(
                fields,
                path,
                Some(&ImageSource::Base64 { media_type, data }),
            );
        }
        None => {
            let error_message = format!("must be a list of at most {PARTS_MAX} images in base64");
            fields.reject(path, error_message);
        }
    }
}

fn parse_part<'a>(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'a>,
    types: &PartTypes,
) -> Option<ContentPart<'a>> {
    if let Some(text) = fields::as_text(raw).filter(|_| types.has_strings) {
        return Some(ContentPart::Text(text.into_owned()));
    }
    let part = fields::as_object(raw);
    let kind = part.as_ref().and_then(|part| part.get("type"));
    let kind = kind.and_then(fields::as_text);
    match (part, kind) {
        (Some(part), Some(kind)) if types.has_type(&kind) => {
            part_of_type(fields, path, &part, &kind)
        }
        _ => {
            fields.reject(format!("{path}.type"), types.message);
            None
        }
    }
}

fn part_of_type<'a>(
    fields: &mut Fields<'_>,
    path: &str,
    part: &JsonObject<'a>,
    kind: &str,
) -> Option<ContentPart<'a>> {
    let text = match kind {
        "refusal" => required_string(fields, path, part, "refusal"),
        "tool_reference" => required_string(fields, path, part, "tool_name"),
        "search_result" => search_result_text(fields, path, part),
        "document" => document_text(fields, path, part),
        "image" | "image_url" | "input_image" => {
            return Some(ContentPart::Image(ImageSource::of_part(part)));
        }
        "file" if has_image_type(part) => {
            return Some(ContentPart::Image(ImageSource::of_part(part)));
        }
        "file" | "reasoning-file" | "input_file" => {
            let text = text_of_part(part);
            if text.is_none() {
                fields.reject(path, FILES_MESSAGE);
            }
            text
        }
        "input_audio" | "video_url" | "container_upload" => {
            fields.reject(path, FILES_MESSAGE);
            None
        }
        _ => required_string(fields, path, part, "text"),
    };
    text.map(ContentPart::Text)
}

/// Whether a file of the AI SDK is an image.
fn has_image_type(part: &JsonObject<'_>) -> bool {
    let media_type = part.get("mediaType").and_then(fields::as_text);
    media_type.is_some_and(|name| name.starts_with("image/"))
}

impl<'a> ImageSource<'a> {
    /// The `image_url` of OpenAI's parts, the `source` of Anthropic's blocks, or the `url` of the AI SDK's files.
    fn of_part(part: &JsonObject<'a>) -> Option<Self> {
        let text = |object: &JsonObject<'a>, name| object.get(name).and_then(fields::as_text);
        if let Some(source) = part.get("source").and_then(fields::as_object) {
            return match &*text(&source, "type")? {
                "base64" => Some(Self::Base64 {
                    media_type: text(&source, "media_type").and_then(|name| image_type(&name)),
                    data: text(&source, "data")?,
                }),
                _ => text(&source, "url").map(Self::Url),
            };
        }
        let url = part.get("image_url").or_else(|| part.get("url"))?;
        let url = match fields::as_object(url) {
            Some(object) => text(&object, "url"),
            None => fields::as_text(url),
        };
        url.map(Self::of_url)
    }

    /// A URL, or the data of a `data:` URL.
    fn of_url(url: Cow<'a, str>) -> Self {
        const BASE64: &str = ";base64,";
        let end = url.find(BASE64).filter(|_| url.starts_with("data:"));
        let Some(end) = end else {
            return Self::Url(url);
        };
        let media_type = image_type(&url["data:".len()..end]);
        let data = match url {
            Cow::Borrowed(url) => Cow::Borrowed(&url[end + BASE64.len()..]),
            Cow::Owned(url) => Cow::Owned(url[end + BASE64.len()..].to_owned()),
        };
        Self::Base64 { media_type, data }
    }

    /// Type and size, for an error message: nothing of the client's text.
    fn description(&self) -> String {
        match self {
            Self::Base64 { media_type, data } => {
                let media_type = media_type.unwrap_or("data");
                format!("{media_type}, {} bytes in base64", data.len())
            }
            Self::Url(url) => format!("a URL of {} bytes", url.len()),
        }
    }
}

fn image_type(name: &str) -> Option<&'static str> {
    IMAGE_TYPES.into_iter().find(|known| *known == name)
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
    let source = block.get("source").and_then(fields::as_object);
    let kind = source.as_ref().and_then(|source| source.get("type"));
    let kind = kind.and_then(fields::as_text);
    let file = source
        .as_ref()
        .filter(|_| kind.as_deref() == Some("base64"));
    let of_file = |source: &JsonObject<'_>| {
        let member = |name: &str| source.get(name).and_then(fields::as_text);
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
            let Some(raw) = source.get("content") else {
                fields.reject(path, "is required");
                return None;
            };
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
    let before = before.map(|name| block.get(name).and_then(fields::as_text));
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
    let text = object.get(name).and_then(fields::as_text);
    if text.is_none() {
        fields.reject(format!("{path}.{name}"), "must be a string");
    }
    text.map(Cow::into_owned)
}

/// Media types of files whose bytes are no text for the model, also where they are valid UTF-8.
const OTHER_TYPES: [&str; 4] = ["image/", "audio/", "video/", "application/pdf"];
/// First bytes of a PDF.
const PDF: &str = "%PDF-";

/// The text of a file part: OpenAI's `file_data`, directly or in the object `file`, or the AI SDK's `url`. `None`: the file is
/// elsewhere, or no text.
fn text_of_part(part: &JsonObject<'_>) -> Option<String> {
    let inner = part.get("file").and_then(fields::as_object);
    let file = inner.as_ref().unwrap_or(part);
    let member = |name: &str| file.get(name).and_then(fields::as_text);
    let data = member("file_data").or_else(|| member("url"))?;
    let media_type = member("mediaType").unwrap_or_default();
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
