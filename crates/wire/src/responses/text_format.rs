//! Parser of the Responses API's `text`: the response format.

use crate::fields::{self, Fields, JsonObject, JsonType};
use crate::response_format;
use generate::response_format::{ResponseFormat, any_object};

/// Parses the response format, if there is one.
pub(crate) fn parse_text_format(fields: &mut Fields<'_>) -> Option<ResponseFormat> {
    const NAME: &str = "text.format";
    let text = fields.object("text")?;
    let verbosity = text.get("verbosity");
    if verbosity.is_some_and(|raw| fields::as_text(raw).is_none()) {
        fields.reject("text.verbosity", "must be a string");
    }
    let raw = text.get("format")?;
    let format: Option<JsonObject<'_>> = match fields::json_type(raw) {
        JsonType::Object => fields::parse_value(raw),
        _ => None,
    };
    let kind = format.as_ref().and_then(|format| format.get("type"));
    match (kind.and_then(fields::as_text).as_deref(), &format) {
        (Some("text"), _) => None,
        (Some("json_object"), _) => Some(any_object(NAME)),
        (Some("json_schema"), Some(format)) => match format.get("schema") {
            Some(schema) => {
                let parsed =
                    response_format::json_schema_format(fields, &format!("{NAME}.schema"), schema);
                response_format::check_strict(fields, parsed, format.get("strict"))
            }
            None => {
                let error_message = "is required: a JSON Schema (an object)";
                fields.reject(format!("{NAME}.schema"), error_message);
                None
            }
        },
        _ => {
            let error_message = "must be one of text, json_object, json_schema";
            fields.reject(format!("{NAME}.type"), error_message);
            None
        }
    }
}
