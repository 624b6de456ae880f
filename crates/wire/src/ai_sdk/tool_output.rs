//! The output of a tool in a `UIMessage`: a text, any JSON, or parts with images, as the AI SDK and MCP have them.

use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use crate::shared::content_parts::{
    UI_RESULTS, append_content, content, has_image_type, parse_part,
};
use generate::request::PARTS_MAX;
use serde_json::Value;

/// The content of a tool's output: a string is taken as text, parts with images as such, any other value as JSON. `None` on
/// errors, which are recorded in `fields`.
///
/// The AI SDK's `{"type": "content", "value": [..]}` has parts of known types. A list, and the `content` of MCP's results, is
/// also what an application's own tools return: images in it are found by their data.
pub(super) fn output_content(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
) -> Option<Value> {
    if let Some(text) = fields::as_text(raw) {
        return Some(Value::String(text.into_owned()));
    }
    let object = fields::as_object(raw);
    let member = |name: &str| object.as_ref().and_then(|object| object.get(name));
    let kind = member("type").and_then(fields::as_text);
    let value = member("value").filter(|value| fields::json_type(*value) == JsonType::Array);
    if let (Some("content"), Some(value)) = (kind.as_deref(), value) {
        return content(fields, &format!("{path}.value"), value, &UI_RESULTS);
    }
    let (path, list) = match member("content") {
        Some(list) => (format!("{path}.content"), list),
        None => (path.to_owned(), raw),
    };
    let parts = fields::as_list(list, PARTS_MAX).unwrap_or_default();
    if parts.iter().any(|part| is_image(*part)) {
        return image_parts(fields, &path, &parts);
    }
    let json = fields::parse_value::<Value>(raw)?;
    Some(Value::String(json.to_string()))
}

/// The content of parts of which some are images; what is neither an image nor a text is JSON.
fn image_parts(fields: &mut Fields<'_>, path: &str, parts: &[RawJson<'_>]) -> Option<Value> {
    let mut all = Value::String(String::new());
    for (i, part) in parts.iter().enumerate() {
        let text = fields::as_object(*part).and_then(|part| part.text("text").map(Value::from));
        let content = match text {
            _ if is_image(*part) => {
                let path = format!("{path}[{i}]");
                parse_part(fields, &path, *part, &UI_RESULTS)?.into_content()
            }
            Some(text) => text,
            None => Value::String(part.get().to_owned()),
        };
        append_content(&mut all, content);
    }
    Some(all)
}

/// Whether a value is a part with the data of an image, not only with an address.
fn is_image(part: RawJson<'_>) -> bool {
    let Some(part) = fields::as_object(part) else {
        return false;
    };
    let is_image = match part.text("type").as_deref() {
        Some("image" | "image-data") => true,
        Some("media" | "file" | "file-data") => has_image_type(&part),
        _ => false,
    };
    is_image && has_data(&part)
}

fn has_data(part: &JsonObject<'_>) -> bool {
    let has_url = |name: &str| part.text(name).is_some_and(|url| url.starts_with("data:"));
    part.text("data").is_some() || ["url", "image"].into_iter().any(has_url)
}
