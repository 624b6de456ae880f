//! Files in requests that are texts: UTF-8 in base64, or in a `data:` URL. Their texts are at most as long as the body.

use crate::base64;
use crate::fields::{self, JsonObject};

/// Media types of files whose bytes are no text for the model, also where they are valid UTF-8.
const OTHER_TYPES: [&str; 4] = ["image/", "audio/", "video/", "application/pdf"];
/// First bytes of a PDF.
const PDF: &str = "%PDF-";

/// The text of a file part: OpenAI's `file_data`, directly or in the object `file`, or the AI SDK's `url`. `None`: the file is
/// elsewhere, or no text.
pub(crate) fn text_of_part(part: &JsonObject<'_>) -> Option<String> {
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
