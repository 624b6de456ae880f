//! Parsers of the Responses API's `tools`, `tool_choice` and `parallel_tool_calls`.

use crate::fields::{self, Fields, JsonType, RawJson};
use crate::tool_definitions::{
    TOOL_NAME_MESSAGE, parse_tool_choice, parse_tool_list, reject_unknown_tool,
};
use generate::tools::{Tools, is_tool_name};
use serde_json::{Map, Value, json};

/// Error message for unsupported features.
const NOT_SUPPORTED: &str = "is not supported yet by this server";
/// Error message for an invalid `tool_choice`.
const TOOL_CHOICE_MESSAGE: &str =
    "must be none, auto, required, or {\"type\": \"function\", \"name\": ..}";

/// Parses the tools into OpenAI's chat format, which chat templates expect. Errors are recorded in `fields`.
pub(crate) fn parse_tools(fields: &mut Fields<'_>) -> Tools {
    let tools = parse_tool_list(fields, ".name", parse_tool);
    let single_call = fields.boolean("parallel_tool_calls") == Some(false);
    let choice = parse_tool_choice(fields, TOOL_CHOICE_MESSAGE, |choice| {
        let kind = choice.get("type").and_then(fields::as_text)?;
        let name = choice.get("name").and_then(fields::as_text);
        name.filter(|_| kind == "function")
    });
    Tools::new(tools, &choice, single_call).unwrap_or_else(|| reject_unknown_tool(fields))
}

fn parse_tool(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<(String, Value)> {
    let Some(tool) = fields::as_object(raw) else {
        fields.reject(path, "must be an object with a type and a name");
        return None;
    };
    if tool.get("type").and_then(fields::as_text).as_deref() != Some("function") {
        let error_message = format!("other than \"function\" {NOT_SUPPORTED}");
        fields.reject(format!("{path}.type"), error_message);
        return None;
    }
    let name = tool.get("name").and_then(fields::as_text);
    let Some(name) = name.filter(|name| is_tool_name(name)) else {
        fields.reject(format!("{path}.name"), TOOL_NAME_MESSAGE);
        return None;
    };
    let mut function = Map::new();
    function.insert("name".to_owned(), Value::String(name.clone().into_owned()));
    if let Some(raw) = tool.get("description") {
        let Some(text) = fields::as_text(raw) else {
            fields.reject(format!("{path}.description"), "must be a string");
            return None;
        };
        function.insert("description".to_owned(), Value::String(text.into_owned()));
    }
    if let Some(raw) = tool.get("parameters") {
        let schema = Some(raw).filter(|raw| fields::json_type(*raw) == JsonType::Object);
        let Some(schema) = schema.and_then(fields::parse_value::<Value>) else {
            let error_message = "must be a JSON Schema (an object)";
            fields.reject(format!("{path}.parameters"), error_message);
            return None;
        };
        function.insert("parameters".to_owned(), schema);
    }
    if let Some(raw) = tool.get("strict") {
        let Some(strict) = fields::parse_value::<Option<bool>>(raw) else {
            fields.reject(format!("{path}.strict"), "must be true or false");
            return None;
        };
        function.insert("strict".to_owned(), Value::Bool(strict == Some(true)));
    }
    let tool = json!({"type": "function", "function": function});
    Some((name.into_owned(), tool))
}
