//! `tools`, `tool_choice` and `parallel_tool_calls` in OpenAI's format.

use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use generate::error::ApiError;
use generate::tools::{TOOLS_MAX, ToolChoice, Tools, is_tool_name};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Error message for an invalid tool name.
pub(crate) const TOOL_NAME_MESSAGE: &str =
    "must be 1 to 128 letters, digits, underscores, hyphens and dots";
/// Error message for an invalid `tool_choice`.
const TOOL_CHOICE_MESSAGE: &str =
    "must be none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": ..}}";

/// Parses the tools of a JSON object with `tools`, `tool_choice` and `parallel_tool_calls`.
///
/// # Errors
/// All invalid fields.
pub fn parse_object(object: &[u8]) -> Result<Tools, ApiError> {
    let mut fields = Fields::parse(object)?;
    let tools = parse_tools(&mut fields);
    fields.reject_left_out("must be \"function\"");
    fields.finish()?;
    Ok(tools)
}

/// Parses the definitions of tools for a chat template. Errors are recorded in `fields`.
pub(crate) fn parse_definitions(fields: &mut Fields<'_>) -> Vec<Value> {
    parse_tool_list(fields, ".function.name", parse_tool)
}

/// Parses the tools of a request. Errors are recorded in `fields`.
pub(crate) fn parse_tools(fields: &mut Fields<'_>) -> Tools {
    let tools = parse_definitions(fields);
    let single_call = fields.boolean("parallel_tool_calls") == Some(false);
    let choice = parse_tool_choice(fields, TOOL_CHOICE_MESSAGE, |choice| {
        let function = choice.get("function").and_then(fields::as_object)?;
        function.get("name").and_then(fields::as_text)
    });
    Tools::new(tools, &choice, single_call).unwrap_or_else(|| reject_unknown_tool(fields))
}

/// Parses the field `tools`: `parse` gives the functions of one entry at a path, and `name` is the path of the tool's name
/// below that entry. Errors are recorded in `fields`.
pub(crate) fn parse_tool_list<'a, T: IntoIterator<Item = (String, Value)>>(
    fields: &mut Fields<'a>,
    name: &str,
    mut parse: impl FnMut(&mut Fields<'a>, &str, RawJson<'a>) -> T,
) -> Vec<Value> {
    fields.record("tools", tools_schema);
    let raws = fields.array("tools", TOOLS_MAX).unwrap_or_default();
    let (mut tools, mut names) = (Vec::with_capacity(raws.len()), Vec::new());
    for (i, raw) in raws.into_iter().enumerate() {
        let path = format!("tools[{i}]");
        for (called, tool) in parse(fields, &path, raw) {
            if names.contains(&called) {
                fields.reject(format!("{path}{name}"), "must be unique among the tools");
            }
            names.push(called);
            tools.push(tool);
        }
    }
    if tools.len() > TOOLS_MAX {
        let count = tools.len();
        fields.reject(
            "tools",
            format!("must have at most {TOOLS_MAX} functions, not {count}"),
        );
        tools.clear();
    }
    tools
}

/// Leaves out a tool of a type that this server cannot run: the response's header names the type.
pub(crate) fn leave_out_tool(fields: &mut Fields<'_>, path: &str, kind: &str) {
    fields.leave_out(path, format!("tools.{kind}"));
}

/// `None` for a tool of another type, which is left out, and for an invalid type. A tool without a type has this one.
pub(crate) fn expect_type(
    fields: &mut Fields<'_>,
    path: &str,
    tool: &JsonObject<'_>,
    expected: &str,
) -> Option<()> {
    let Some(kind) = tool.get("type") else {
        return Some(());
    };
    let path = format!("{path}.type");
    match fields::as_text(kind) {
        Some(kind) if kind == expected => return Some(()),
        Some(kind) => leave_out_tool(fields, &path, &kind),
        None => fields.reject(path, "must be a string"),
    }
    None
}

/// Parses the field `tool_choice`: a keyword, or an object in which `named` finds a tool's name. `words` is the error
/// message of any other value.
pub(crate) fn parse_tool_choice<'a>(
    fields: &mut Fields<'a>,
    error_message: &str,
    named: impl Fn(&JsonObject<'a>) -> Option<Cow<'a, str>>,
) -> ToolChoice {
    let schema = || {
        json!({"anyOf": [
            {"enum": ["none", "auto", "required"]},
            {"type": "object", "description": "the tool that must be called"},
        ]})
    };
    let Some(raw) = fields.described("tool_choice", schema) else {
        return ToolChoice::Auto;
    };
    let named = fields::as_object(raw).and_then(|choice| named(&choice));
    match (fields::as_text(raw).as_deref(), named) {
        (Some("none"), _) => ToolChoice::None,
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("required"), _) => ToolChoice::Required,
        (_, Some(name)) => ToolChoice::Named(name.into_owned()),
        _ => {
            fields.reject("tool_choice", error_message);
            ToolChoice::Auto
        }
    }
}

/// Rejects a `tool_choice` that names an unknown tool.
pub(crate) fn reject_unknown_tool(fields: &mut Fields<'_>) -> Tools {
    fields.reject("tool_choice", "must name one of the given tools");
    Tools::default()
}

/// Rejects tools beside a plain prompt: tool definitions are rendered by the chat template, and a plain prompt has
/// none.
pub(crate) fn reject_tools(fields: &mut Fields<'_>) {
    fields.record("tools", tools_schema);
    let tools = fields.array("tools", usize::MAX);
    if tools.is_some_and(|tools| !tools.is_empty()) {
        fields.reject(
            "tools",
            "need messages: a prompt is not rendered by the chat template",
        );
    }
}

fn tools_schema() -> Value {
    json!({"items": {"type": "object"}})
}

fn parse_tool(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<(String, Value)> {
    let Some(tool) = fields::as_object(raw) else {
        fields.reject(path, "must be an object with type and function");
        return None;
    };
    expect_type(fields, path, &tool, "function")?;
    let path = format!("{path}.function");
    let Some(function) = tool.get("function").and_then(fields::as_object) else {
        fields.reject(path, "must be an object with a name");
        return None;
    };
    let name = function.get("name").and_then(fields::as_text);
    let name = name.filter(|name| is_tool_name(name));
    if name.is_none() {
        fields.reject(format!("{path}.name"), TOOL_NAME_MESSAGE);
    }
    for (name, kind, error_message) in [
        ("description", JsonType::String, "must be a string"),
        (
            "parameters",
            JsonType::Object,
            "must be a JSON Schema (an object)",
        ),
        ("strict", JsonType::Bool, "must be true or false"),
    ] {
        let given = function.get(name);
        if given.is_some_and(|raw| fields::json_type(raw) != kind) {
            fields.reject(format!("{path}.{name}"), error_message);
        }
    }
    let Some(mut tool) = fields::parse_value::<Value>(raw) else {
        fields.reject(path, "is nested too deeply");
        return None;
    };
    // Chat templates read `type`, and not every client sends the field.
    tool["type"] = Value::from("function");
    Some((name?.into_owned(), tool))
}
