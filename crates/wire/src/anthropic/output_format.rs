//! Response formats: `output_config.format`, and its former name `output_format`.

use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use crate::response_format;
use generate::response_format::ResponseFormat;

/// Parses the response format, if there is one; `other` is the one from this server's own fields. A second response
/// format is an error.
pub(crate) fn parse_output_format(
    fields: &mut Fields<'_>,
    other: Option<ResponseFormat>,
) -> Option<ResponseFormat> {
    const NAME: &str = "output_config.format";
    const BEFORE: &str = "output_format";
    let config = fields.object("output_config");
    let new = config.as_ref().and_then(|config| config.get("format"));
    let new = new.and_then(|raw| parse_format(fields, NAME, raw));
    let old = fields.raw(BEFORE);
    let old = old.and_then(|raw| parse_format(fields, BEFORE, raw));
    let mut response_formats = [new, old, other].into_iter().flatten();
    let first = response_formats.next()?;
    if let Some(second) = response_formats.next() {
        let error_message = format!("must not be given together with {}", first.field);
        fields.reject(second.field, error_message);
    }
    Some(first)
}

/// Parses `{"type":"json_schema","schema":{..}}` or null.
fn parse_format(fields: &mut Fields<'_>, name: &str, raw: RawJson<'_>) -> Option<ResponseFormat> {
    if raw.get() == "null" {
        return None;
    }
    let format: Option<JsonObject<'_>> = match fields::json_type(raw) {
        JsonType::Object => fields::parse_value(raw),
        _ => None,
    };
    let Some(format) = format else {
        fields.reject(name, "must be an object");
        return None;
    };
    let kind = format.get("type").and_then(fields::as_text);
    if kind.as_deref() != Some("json_schema") {
        fields.reject(format!("{name}.type"), "must be json_schema");
        return None;
    }
    match format.get("schema") {
        Some(schema) => {
            response_format::json_schema_format(fields, &format!("{name}.schema"), schema)
        }
        None => {
            let error_message = "is required: a JSON Schema (an object)";
            fields.reject(format!("{name}.schema"), error_message);
            None
        }
    }
}
