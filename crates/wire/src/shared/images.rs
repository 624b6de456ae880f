//! Images in parts, blocks and fields of every wire protocol: one parser of their sources, and of the places that a text gives
//! them. The bytes decide what kind of file an image is, never the label.

use super::content_parts::{ContentPart, ImageRule, PartTypes};
use crate::fields::{self, Fields, JsonObject, OrReject, RawJson};
use generate::images::{ImagePart, detail_of_name};
use generate::request::{PARTS_MAX, PromptPiece};
use media::{Detail, ImageSource, Limits, decode_base64};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use text::{image_part, text_part};

/// The mark of an image in llama.cpp's `prompt_string`, as `/props` says.
pub const MEDIA_MARKER: &str = "<__media__>";
/// Text in place of an image that is left out.
pub(crate) const LEFT_OUT_IMAGE: &str = "(an image, which this model cannot read)";
/// Error message for an image that another server has.
const REMOTE_MESSAGE: &str =
    "is a URL, and remote images are off (vision.remote): send a data URL with the image in base64";
/// Error message for an image that the API's own server has.
pub(super) const STORED_MESSAGE: &str =
    "names a file: files are not stored by this server: send image_url with a data URL";
/// Members with the name of a file that the API's own server has.
pub(super) const FILE_IDS: [&str; 3] = ["file_id", "fileId", "providerReference"];
/// Members that hold images in one API or another, next to a text or in its place.
const MEMBERS: [&str; 9] = [
    "images",
    "image",
    "image_url",
    "image_data",
    "multimodal_data",
    "attachments",
    "experimental_attachments",
    "files",
    "source",
];
/// Types of `source`, which other objects may have, too.
const SOURCE_TYPES: [&str; 3] = ["base64", "url", "file"];
/// Error message for a `source` of another type.
const SOURCE_TYPE_MESSAGE: &str = "must be base64, url or file";
/// Error message for a part without an image.
const SOURCE_MESSAGE: &str = "is an image without a source: send a data URL, or base64";
/// Error message where only text is read.
pub(crate) const TEXT_MESSAGE: &str = "is an image: only text is read here";

/// The body bounds the bytes; the model's own bounds are checked with the header.
const LIMITS: fn() -> Limits = || Limits {
    bytes_max: u64::MAX,
    ..Limits::default()
};

/// The members of an object in which images are read, and the way to send images, for the error message about another member.
/// Each parser of messages, parts and items with a text asks for others, so that no image is left out without a word.
pub(crate) struct ImageMembers(pub(crate) &'static [&'static str], pub(crate) &'static str);

/// The members of a text that has no place for images.
pub(crate) const TEXT_ALONE: ImageMembers = ImageMembers(&[], "only text is");

impl ImageMembers {
    /// Rejects images in members that are not read. Those of an earlier answer, which other servers give there, are left out
    /// and named.
    pub(crate) fn reject_others(
        &self,
        fields: &mut Fields<'_>,
        path: &str,
        object: &JsonObject<'_>,
        is_answer: bool,
    ) {
        for name in self.others(object) {
            if is_answer {
                let field = path.split('[').next().unwrap_or(path);
                fields.leave_out(path, format!("{field}.{name}"));
            } else {
                let why = format_args!("is not read here: {}", self.1);
                fields.reject(format_args!("{path}.{name}"), why);
            }
        }
    }

    /// Members with images that are not read.
    pub(super) fn others<'o>(&self, object: &'o JsonObject<'_>) -> impl Iterator<Item = &'o str> {
        let is_other = |(name, raw): &(&str, RawJson<'_>)| {
            MEMBERS.contains(name) && !self.0.contains(name) && holds_image(name, *raw)
        };
        object.entries().filter(is_other).map(|(name, _)| name)
    }
}

/// Whether the value of such a member can be an image: a text, a list or an object, with something in it.
fn holds_image(name: &str, raw: RawJson<'_>) -> bool {
    let kind = || fields::as_object(raw).and_then(|source| source.text("type"));
    let is_source = || kind().is_some_and(|kind| SOURCE_TYPES.contains(&&*kind));
    let inside = raw.get().strip_prefix(['"', '[', '{']).unwrap_or_default();
    let is_empty = inside
        .trim_matches(|c| " \t\r\n\"[]{}".contains(c))
        .is_empty();
    !is_empty && (name != "source" || is_source())
}

/// Where the data of an image is.
enum Source<'a> {
    /// A data URL, or the URL of another server.
    Url(Cow<'a, str>),
    /// Base64 alone.
    Base64(Cow<'a, str>),
    /// A file of the API's own server.
    File,
}

/// Parses a part that is an image, under the rule of its place. Errors are recorded in `fields`.
pub(super) fn parse_image<'a>(
    fields: &mut Fields<'_>,
    path: &str,
    part: &JsonObject<'a>,
    types: &PartTypes,
) -> Option<ContentPart> {
    let leaves_out = match types.images {
        ImageRule::Taken => false,
        ImageRule::InResults => fields.is_text_only(),
        ImageRule::LeftOut => true,
        ImageRule::Refused => {
            fields.reject(path, TEXT_MESSAGE);
            return None;
        }
    };
    if leaves_out {
        let field = path.split('[').next().unwrap_or(path);
        fields.leave_out(path, format!("{field}.image"));
        return Some(ContentPart::Text(LEFT_OUT_IMAGE.to_owned()));
    }
    let detail = parse_detail(fields, path, part)?;
    let source = Source::of_part(fields, path, part)?;
    add_image(fields, path, &source, detail).map(ContentPart::Image)
}

impl<'a> Source<'a> {
    /// The `image_url` of OpenAI's parts, the `source` of Anthropic's blocks, or the `url`, `image` or `data` of the AI SDK's
    /// parts. Errors are recorded in `fields`.
    fn of_part(fields: &mut Fields<'_>, path: &str, part: &JsonObject<'a>) -> Option<Self> {
        let source = match part.object("source") {
            Some(source) => match source.text("type").as_deref() {
                Some("base64") => source.text("data").map(Self::Base64),
                Some("url") => source.text("url").map(Self::Url),
                Some("file") => Some(Self::File),
                Some(_) => {
                    let path = format_args!("{path}.source.type");
                    return fields.no_value(path, SOURCE_TYPE_MESSAGE);
                }
                None => None,
            },
            None => Self::of_member(part),
        };
        source.or_reject(fields, path, SOURCE_MESSAGE)
    }

    fn of_member(part: &JsonObject<'a>) -> Option<Self> {
        let url = part.get("image_url").or_else(|| part.get("url"));
        let data = part.get("image").or_else(|| part.get("data"));
        let Some(value) = url.or(data) else {
            let is_file = FILE_IDS.iter().any(|name| part.get(name).is_some());
            return is_file.then_some(Self::File);
        };
        match fields::as_object(value) {
            Some(object) => {
                let data = || object.text("data").map(Self::of_data);
                object.text("url").map(Self::Url).or_else(data)
            }
            None if url.is_some() => fields::as_text(value).map(Self::Url),
            None => fields::as_text(value).map(Self::of_data),
        }
    }

    /// Base64, or the URL of an image.
    fn of_data(data: Cow<'a, str>) -> Self {
        if data.starts_with("http://") || data.starts_with("https://") {
            Self::Url(data)
        } else {
            Self::Base64(data)
        }
    }
}

/// Parses `detail`, of the part or of its `image_url`. Errors are recorded in `fields`.
fn parse_detail(fields: &mut Fields<'_>, path: &str, part: &JsonObject<'_>) -> Option<Detail> {
    let inner = part.object("image_url");
    let given = inner.as_ref().and_then(|inner| inner.get("detail"));
    let (name, given) = match given {
        Some(given) => ("image_url.detail", Some(given)),
        None => ("detail", part.get("detail")),
    };
    let Some(given) = given else {
        return Some(Detail::Auto);
    };
    let detail = match fields::as_text(given).as_deref() {
        // As many pixels as the image has.
        Some("original") => Some(Detail::High),
        Some(name) => detail_of_name(name),
        None => None,
    };
    detail.or_reject(
        fields,
        format_args!("{path}.{name}"),
        "must be low, auto, high or original",
    )
}

/// Adds the image of a source. Returns its number; errors are recorded in `fields`.
fn add_image(
    fields: &mut Fields<'_>,
    path: &str,
    source: &Source<'_>,
    detail: Detail,
) -> Option<usize> {
    let read = if fields.is_text_only() {
        Ok((Vec::new(), None))
    } else {
        read_source(path, source, fields.fetches_images())
    };
    match read {
        Ok((bytes, url)) => fields.add_image(ImagePart {
            bytes: Arc::from(bytes),
            detail,
            path: path.to_owned(),
            url,
        }),
        Err(message) => fields.no_value(path, message),
    }
}

/// The bytes of an image, or the address of one that is fetched later.
fn read_source(
    path: &str,
    source: &Source<'_>,
    fetches: bool,
) -> Result<(Vec<u8>, Option<Arc<str>>), String> {
    let limits = LIMITS();
    let decoded = match source {
        Source::Base64(data) => decode_base64(path, data, &limits),
        Source::Url(url) => match ImageSource::of_url(path, url, &limits) {
            Ok(ImageSource::Bytes(bytes)) => Ok(bytes),
            Ok(ImageSource::Remote(url)) if fetches => return Ok((Vec::new(), Some(url.into()))),
            Ok(ImageSource::Remote(_)) => return Err(REMOTE_MESSAGE.to_owned()),
            Err(error) => Err(error),
        },
        Source::File => return Err(STORED_MESSAGE.to_owned()),
    };
    let bytes = decoded.map_err(|error| error.fault.to_string())?;
    Ok((bytes, None))
}

/// The schema of a list of images in base64.
pub(crate) fn images_schema() -> Value {
    json!({
        "type": "array", "items": {"type": "string", "minLength": 2}, "maxItems": PARTS_MAX,
        "description": "images in base64, or as data URLs",
    })
}

/// Parses a list of images in base64, or of data URLs, and returns their numbers. Errors are recorded in `fields`.
pub(crate) fn parse_images(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Vec<usize> {
    let images = fields::as_list(raw, PARTS_MAX);
    let images: Option<Vec<_>> =
        images.and_then(|all| all.into_iter().map(fields::as_text).collect());
    let Some(images) = images else {
        let error_message = format!("must be a list of at most {PARTS_MAX} images in base64");
        fields.reject(path, error_message);
        return Vec::new();
    };
    let numbers = images
        .into_iter()
        .enumerate()
        .filter_map(|(i, data)| add_base64(fields, &format!("{path}[{i}]"), data));
    numbers.collect()
}

/// Adds an image in base64, or as a data URL. Returns its number; errors are recorded in `fields`.
pub(crate) fn add_base64(fields: &mut Fields<'_>, path: &str, data: Cow<'_, str>) -> Option<usize> {
    add_image(fields, path, &Source::of_data(data), Detail::Auto)
}

/// A content as a text with a marker in the place of each image; neighboring texts are separated by a line end.
pub(crate) fn write_markers(content: &mut Value) {
    let Value::Array(parts) = content else {
        return;
    };
    let (mut marked, mut after_text) = (String::new(), false);
    for part in parts {
        let text = part["text"].as_str();
        if after_text && text.is_some() {
            marked.push('\n');
        }
        marked.push_str(text.unwrap_or(MEDIA_MARKER));
        after_text = text.is_some();
    }
    *content = Value::String(marked);
}

/// A piece of a text with images in it.
pub(crate) enum Placed<'t> {
    Text(&'t str),
    Image(usize),
}

/// A text with images: each where the text says `[img-n]` for its id `n`, the others before the text.
pub(crate) fn place_images<'t>(text: &'t str, images: &[(u64, usize)]) -> Vec<Placed<'t>> {
    const TAG: &str = "[img-";
    let mut waiting: Vec<(u64, usize)> = images.to_vec();
    let (mut pieces, mut done) = (Vec::new(), 0);
    for (start, _) in text.match_indices(TAG) {
        let id = text[start + TAG.len()..].split_once(']');
        let id = id.and_then(|(id, _)| Some((id.len(), id.parse::<u64>().ok()?)));
        let at = id.and_then(|(_, id)| waiting.iter().position(|(known, _)| *known == id));
        if let (Some((digits, _)), Some(at)) = (id, at) {
            let (_, image) = waiting.remove(at);
            pieces.push(Placed::Text(&text[done..start]));
            pieces.push(Placed::Image(image));
            done = start + TAG.len() + digits + 1;
        }
    }
    pieces.push(Placed::Text(&text[done..]));
    let before = waiting.into_iter().map(|(_, image)| Placed::Image(image));
    let pieces = before.chain(pieces);
    let has_text = |piece: &Placed<'_>| !matches!(piece, Placed::Text(""));
    pieces.filter(has_text).collect()
}

/// Numbers of images with their places in the list as ids.
pub(crate) fn in_order(images: &[usize]) -> Vec<(u64, usize)> {
    let ids = images.iter().enumerate();
    ids.map(|(id, &image)| (id as u64, image)).collect()
}

/// A message's content: a text, with images where there are any.
pub(crate) fn content_with(text: String, images: &[usize]) -> Value {
    if images.is_empty() {
        return Value::String(text);
    }
    let parts = place_images(&text, &in_order(images)).into_iter();
    let parts = parts.map(|piece| match piece {
        Placed::Text(text) => text_part(text),
        Placed::Image(image) => image_part(image),
    });
    Value::Array(parts.collect())
}

/// Template text with images in it, as pieces of a prompt.
pub(crate) fn pieces_with(text: &str, images: &[(u64, usize)]) -> Vec<PromptPiece> {
    let pieces = place_images(text, images).into_iter();
    let pieces = pieces.map(|piece| match piece {
        Placed::Text(text) => PromptPiece::Template(text.to_owned()),
        Placed::Image(image) => PromptPiece::Image(image),
    });
    pieces.collect()
}
