//! Prompts of llama.cpp with images: `{"prompt_string", "multimodal_data"}`, whose text has a marker for each image, and the
//! older `image_data`, whose images have ids that the text names as `[img-id]`.

use crate::fields::{self, Fields, JsonObject};
use crate::shared::content_parts::required_string;
pub use crate::shared::images::MEDIA_MARKER;
use crate::shared::images::{ImageMembers, add_base64, parse_images};
use generate::request::{PARTS_MAX, Prompt, PromptPiece};
use serde_json::{Value, json};

/// Images of a prompt that is an object.
const IMAGES: ImageMembers =
    ImageMembers(&["multimodal_data"], "images are base64 in multimodal_data");

/// The schema of a prompt with images.
pub(super) fn schema() -> Value {
    json!({"type": "object", "required": ["prompt_string"], "properties": {
        "prompt_string": {"type": "string"},
        "multimodal_data": {
            "type": "array", "items": {"type": "string"}, "maxItems": PARTS_MAX,
            "description": "images in base64, one for each <__media__> in prompt_string",
        },
    }})
}

/// Parses a prompt with images; errors are recorded in `fields`.
pub(super) fn parse(
    fields: &mut Fields<'_>,
    path: &str,
    object: &JsonObject<'_>,
) -> Option<Prompt> {
    IMAGES.reject_others(fields, path, object, false);
    let text = required_string(fields, path, object, "prompt_string")?;
    let data = object.get("multimodal_data");
    let field = format!("{path}.multimodal_data");
    let images = data.map_or_else(Vec::new, |raw| parse_images(fields, &field, raw));
    let markers = text.matches(MEDIA_MARKER).count();
    if markers != images.len() {
        let count = images.len();
        let message = format!("has {count} images; prompt_string has {markers} {MEDIA_MARKER}");
        fields.reject(field, message);
        return None;
    }
    if images.is_empty() {
        return Some(Prompt::Text(text));
    }
    let mut pieces = Vec::with_capacity(images.len() * 2 + 1);
    let mut images = images.into_iter();
    for segment in text.split(MEDIA_MARKER) {
        if !segment.is_empty() {
            pieces.push(PromptPiece::Template(segment.to_owned()));
        }
        pieces.extend(images.next().map(PromptPiece::Image));
    }
    Some(Prompt::Pieces(pieces))
}

/// Parses `image_data`: ids and numbers of images. Errors are recorded in `fields`.
pub(super) fn image_data(fields: &mut Fields<'_>) -> Vec<(u64, usize)> {
    const NAME: &str = "image_data";
    fields.record(NAME, || {
        json!({"items": {"type": "object", "required": ["data", "id"], "properties": {
            "data": {"type": "string", "description": "an image in base64"}, "id": {"type": "integer", "minimum": 0},
        }}})
    });
    let items = fields.array(NAME, PARTS_MAX).unwrap_or_default();
    let mut images = Vec::with_capacity(items.len());
    for (i, raw) in items.into_iter().enumerate() {
        let path = format!("{NAME}[{i}]");
        let item = fields::as_object(raw);
        let data = item.as_ref().and_then(|item| item.get("data"));
        let id = item.as_ref().and_then(|item| item.get("id"));
        let id = id
            .and_then(fields::whole_number)
            .and_then(|id| u64::try_from(id).ok());
        match (data.and_then(fields::as_text), id) {
            (Some(data), Some(id)) => {
                images.extend(add_base64(fields, &path, data).map(|image| (id, image)));
            }
            _ => fields.reject(path, "must be an object with data in base64 and an id"),
        }
    }
    images
}
