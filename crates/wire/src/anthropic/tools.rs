//! Parsers of `tools` and `tool_choice`.

use crate::fields::{self, Fields, JsonType, RawJson};
use crate::tool_definitions::{expect_type, parse_tool_list};
use generate::tools::{ToolChoice, Tools};
use serde_json::{Map, Value, json};

/// Limit of a tool name in bytes.
const NAME_BYTES_MAX: usize = 128;

/// Parses the tools into OpenAI's format, which chat templates expect. Errors are recorded in `fields`.
pub(crate) fn parse_tools(fields: &mut Fields<'_>) -> Tools {
    let tools = parse_tool_list(fields, ".name", parse_tool);
    let has_left_out = fields.left_out_names().next().is_some();
    let (choice, single_call) = parse_tool_choice(fields, !tools.is_empty() || has_left_out);
    Tools::new(tools, &choice, single_call).unwrap_or_else(|| {
        fields.reject("tool_choice.name", "must be one of the given tools");
        Tools::default()
    })
}

fn parse_tool(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<(String, Value)> {
    let Some(tool) = fields::as_object(raw) else {
        fields.reject(path, "must be an object with a name and an input_schema");
        return None;
    };
    expect_type(fields, path, &tool, "custom")?;
    let strict = tool.get("strict").map(fields::parse_value::<bool>);
    if strict == Some(None) {
        fields.reject(format!("{path}.strict"), "must be true or false");
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let name = tool.get("name").and_then(fields::as_text);
    let name =
        name.filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain));
    if name.is_none() {
        let error_message =
            format!("must be 1 to {NAME_BYTES_MAX} letters, digits, underscores and hyphens");
        fields.reject(format!("{path}.name"), error_message);
    }
    let schema = tool
        .get("input_schema")
        .filter(|raw| fields::json_type(*raw) == JsonType::Object)
        .and_then(fields::parse_value::<Value>);
    if schema.is_none() {
        fields.reject(format!("{path}.input_schema"), fields::SCHEMA_MESSAGE);
    }
    let mut function = Map::new();
    if let Some(raw) = tool.get("description") {
        match fields::as_text(raw) {
            Some(text) => {
                function.insert("description".to_owned(), Value::String(text.into_owned()));
            }
            None => fields.reject(format!("{path}.description"), "must be a string"),
        }
    }
    let name = name?.into_owned();
    function.insert("name".to_owned(), Value::String(name.clone()));
    function.insert("parameters".to_owned(), schema?);
    if let Some(strict) = strict.flatten() {
        function.insert("strict".to_owned(), Value::Bool(strict));
    }
    let tool = json!({"type": "function", "function": function});
    Some((name, tool))
}

/// Parses `tool_choice`, and whether at most one call is allowed.
fn parse_tool_choice(fields: &mut Fields<'_>, has_tools: bool) -> (ToolChoice, bool) {
    fields.record("tool_choice", || {
        json!({"required": ["type"], "properties": {"type": {"enum": ["auto", "any", "tool", "none"]}}})
    });
    if fields.object("tool_choice").is_none() {
        return (ToolChoice::Auto, false);
    }
    let (choice, single_call) = fields.within("tool_choice", |fields| {
        let single_call = fields.boolean("disable_parallel_tool_use") == Some(true);
        (choice_by_type(fields), single_call)
    });
    if !has_tools && choice != ToolChoice::None {
        fields.reject("tool_choice", "needs tools");
        return (ToolChoice::Auto, single_call);
    }
    (choice, single_call)
}

fn choice_by_type(fields: &mut Fields<'_>) -> ToolChoice {
    let name = fields.string("name");
    match (fields.string("type").as_deref(), name) {
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("none"), _) => ToolChoice::None,
        (Some("any"), _) => ToolChoice::Required,
        (Some("tool"), Some(name)) => ToolChoice::Named(name.into_owned()),
        (Some("tool"), None) => {
            fields.reject("name", "is required: the tool to call");
            ToolChoice::Auto
        }
        _ => {
            fields.reject("type", "must be auto, any, tool or none");
            ToolChoice::Auto
        }
    }
}
