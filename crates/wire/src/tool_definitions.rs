//! `tools`, `tool_choice` and `parallel_tool_calls` in OpenAI's format.

use crate::fields::{self, Fields, JsonObject, JsonType, OrReject, RawJson};
use generate::error::ApiError;
use generate::tools::{OfferedTool, TOOLS_MAX, ToolChoice, Tools, input_schema, is_tool_name};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Error message for an invalid tool name.
pub(crate) const TOOL_NAME_MESSAGE: &str =
    "must be 1 to 128 letters, digits, underscores, hyphens and dots";
/// Error message for an invalid `tool_choice`.
const TOOL_CHOICE_MESSAGE: &str = "must be none, auto, required, {\"type\": \"function\", \"function\": {\"name\": ..}}, or \
    the same with custom or allowed_tools";
/// Error message for a value that is no text.
pub(crate) const STRING_MESSAGE: &str = "must be a string";

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
    parse_offered(fields).0
}

/// Parses the definitions, and which tools are offered to the model in another form.
fn parse_offered(fields: &mut Fields<'_>) -> (Vec<Value>, Vec<OfferedTool>) {
    let mut changed = Vec::new();
    let tools = parse_tool_list(fields, ".function.name", |fields, path, raw| {
        parse_tool(fields, path, raw, &mut changed)
    });
    (tools, changed)
}

/// Parses the tools of a request. Errors are recorded in `fields`.
pub(crate) fn parse_tools(fields: &mut Fields<'_>) -> Tools {
    let (tools, offered) = parse_offered(fields);
    let choice = parse_tool_choice(fields, TOOL_CHOICE_MESSAGE, |choice| {
        let tool = choice.get("function").or_else(|| choice.get("custom"));
        let tool = tool.and_then(fields::as_object)?;
        tool.text("name")
    });
    let tools = choice.of_tools(fields, tools);
    Tools { offered, ..tools }
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

/// The field `tool_choice`.
pub(crate) struct ParsedChoice {
    pub(crate) choice: ToolChoice,
    /// Names of the tools that may be called (`allowed_tools`); `None`: each tool may.
    pub(crate) allowed: Option<Vec<String>>,
}

impl ParsedChoice {
    /// The tools of a request with this choice among them. Tools that must not be called are not offered to the model. Errors are
    /// recorded in `fields`.
    pub(crate) fn of_tools(self, fields: &mut Fields<'_>, mut definitions: Vec<Value>) -> Tools {
        let single_call = fields.boolean("parallel_tool_calls") == Some(false);
        let is_tool = |tool: &Value, name: &str| tool["function"]["name"] == name;
        if let Some(allowed) = &self.allowed {
            let is_given = |name: &String| definitions.iter().any(|tool| is_tool(tool, name));
            if !allowed.iter().all(is_given) {
                return reject_unknown_tool(fields);
            }
            definitions.retain(|tool| allowed.iter().any(|name| is_tool(tool, name)));
        }
        let tools = Tools::new(definitions, &self.choice, single_call);
        tools.unwrap_or_else(|| reject_unknown_tool(fields))
    }
}

impl From<ToolChoice> for ParsedChoice {
    fn from(choice: ToolChoice) -> Self {
        let allowed = None;
        Self { choice, allowed }
    }
}

/// Parses the field `tool_choice`: a keyword, an object in which `named` finds a tool's name, or the tools that may be called.
/// `error_message` is the error message of any other value.
pub(crate) fn parse_tool_choice<'a>(
    fields: &mut Fields<'a>,
    error_message: &str,
    named: impl Fn(&JsonObject<'a>) -> Option<Cow<'a, str>>,
) -> ParsedChoice {
    let schema = || {
        json!({"anyOf": [
            {"enum": ["none", "auto", "required"]},
            {"type": "object", "description": "the tool that must be called, or the tools that may be (allowed_tools)"},
        ]})
    };
    let Some(raw) = fields.described("tool_choice", schema) else {
        return ToolChoice::Auto.into();
    };
    let object = fields::as_object(raw);
    if let Some(object) = &object
        && object.text("type").as_deref() == Some("allowed_tools")
    {
        return parse_allowed_tools(fields, object, named);
    }
    let kind = object.as_ref().and_then(|choice| choice.get("type"));
    let keyword = fields::as_text(kind.unwrap_or(raw));
    let named = object.as_ref().and_then(named);
    let choice = match (keyword.as_deref(), named) {
        (Some("none"), None) => ToolChoice::None,
        (Some("auto"), None) => ToolChoice::Auto,
        // Mistral's word is `any`.
        (Some("required" | "any"), None) => ToolChoice::Required,
        (_, Some(name)) => ToolChoice::Named(name.into_owned()),
        _ => {
            fields.reject("tool_choice", error_message);
            ToolChoice::Auto
        }
    };
    choice.into()
}

/// Parses the tools that may be called: members of the choice, or of its object `allowed_tools`. Tools of types that this server
/// cannot run are left out.
fn parse_allowed_tools<'a>(
    fields: &mut Fields<'a>,
    choice: &JsonObject<'a>,
    named: impl Fn(&JsonObject<'a>) -> Option<Cow<'a, str>>,
) -> ParsedChoice {
    let inner = choice.object("allowed_tools");
    let members = inner.as_ref().unwrap_or(choice);
    let choice = match members.get("mode").map(fields::as_text) {
        None => ToolChoice::Auto,
        Some(Some(mode)) if mode == "auto" => ToolChoice::Auto,
        Some(Some(mode)) if mode == "required" => ToolChoice::Required,
        Some(_) => {
            fields.reject("tool_choice.mode", "must be auto or required");
            ToolChoice::Auto
        }
    };
    let tools = members.get("tools");
    let Some(tools) = tools.and_then(|raw| fields::as_list(raw, TOOLS_MAX)) else {
        let error_message = format!("must be a list of at most {TOOLS_MAX} tools");
        fields.reject("tool_choice.tools", error_message);
        return choice.into();
    };
    let mut allowed = Vec::with_capacity(tools.len());
    for (i, tool) in tools.into_iter().enumerate() {
        let tool = fields::as_object(tool);
        let kind = tool.as_ref().and_then(|tool| tool.get("type"));
        match (
            tool.as_ref().and_then(&named),
            kind.and_then(fields::as_text),
        ) {
            (Some(name), _) => allowed.push(name.into_owned()),
            (None, Some(kind)) if !matches!(&*kind, "function" | "custom") => {
                leave_out_tool(fields, "tool_choice.tools", &kind);
            }
            (None, _) => fields.reject(format!("tool_choice.tools[{i}]"), "must name a tool"),
        }
    }
    let allowed = Some(allowed);
    ParsedChoice { choice, allowed }
}

/// Rejects a `tool_choice` that names an unknown tool.
fn reject_unknown_tool(fields: &mut Fields<'_>) -> Tools {
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

fn parse_tool(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
    changed: &mut Vec<OfferedTool>,
) -> Option<(String, Value)> {
    let Some(tool) = fields::as_object(raw) else {
        fields.reject(path, "must be an object with type and function");
        return None;
    };
    if tool.text("type").as_deref() == Some("custom") {
        return parse_custom(fields, path, &tool, changed);
    }
    expect_type(fields, path, &tool, "function")?;
    let path = format!("{path}.function");
    let function =
        tool.object("function")
            .or_reject(fields, &path, "must be an object with a name")?;
    let name = tool_name(fields, &path, &function);
    for (name, kind, error_message) in [
        ("description", JsonType::String, STRING_MESSAGE),
        ("parameters", JsonType::Object, fields::SCHEMA_MESSAGE),
        ("strict", JsonType::Bool, "must be true or false"),
    ] {
        let given = function.get(name);
        if given.is_some_and(|raw| fields::json_type(raw) != kind) {
            fields.reject(format!("{path}.{name}"), error_message);
        }
    }
    let mut tool =
        fields::parse_value::<Value>(raw).or_reject(fields, path, fields::VALUE_MESSAGE)?;
    // Chat templates read `type`, and not every client sends the field.
    tool["type"] = Value::from("function");
    Some((name?.into_owned(), tool))
}

/// A custom tool, whose input is a text, as a function.
fn parse_custom(
    fields: &mut Fields<'_>,
    path: &str,
    tool: &JsonObject<'_>,
    changed: &mut Vec<OfferedTool>,
) -> Option<(String, Value)> {
    let path = format!("{path}.custom");
    let custom = tool
        .object("custom")
        .or_reject(fields, &path, "must be an object with a name")?;
    let name = tool_name(fields, &path, &custom)?.into_owned();
    let mut function = custom_function(fields, &path, &custom)?;
    function.insert("name".to_owned(), Value::from(&*name));
    changed.push(OfferedTool::new(None, &name, true));
    Some((name, json!({"type": "function", "function": function})))
}

/// The function by which the model gives the text for a custom tool, without its name. The text's grammar is described, not
/// enforced.
pub(crate) fn custom_function(
    fields: &mut Fields<'_>,
    path: &str,
    tool: &JsonObject<'_>,
) -> Option<Map<String, Value>> {
    let mut text = description(fields, path, tool)?
        .unwrap_or_default()
        .into_owned();
    let format = tool.object("format");
    // Chat completions have one object more than the Responses API.
    let inner = format.as_ref().and_then(|format| format.get("grammar"));
    let format = inner.and_then(fields::as_object).or(format);
    let member = |name: &str| {
        let format = format.as_ref()?;
        format.text(name)
    };
    if let Some(grammar) = member("definition") {
        let syntax = member("syntax").unwrap_or(Cow::Borrowed("given"));
        text = format!("{text}\n\nThe input must match this grammar ({syntax}):\n{grammar}");
        fields.leave_out(&format!("{path}.format"), "tools.format".to_owned());
    }
    let mut function = Map::new();
    function.insert("description".to_owned(), Value::from(text.trim_start()));
    function.insert("parameters".to_owned(), input_schema());
    Some(function)
}

/// The name of a tool; errors are recorded in `fields`.
pub(crate) fn tool_name<'a>(
    fields: &mut Fields<'_>,
    path: &str,
    tool: &JsonObject<'a>,
) -> Option<Cow<'a, str>> {
    let name = tool.text("name");
    let name = name.filter(|name| is_tool_name(name));
    name.or_reject(fields, format_args!("{path}.name"), TOOL_NAME_MESSAGE)
}

/// The description of a tool, if there is one; the outer `None` on errors.
pub(crate) fn description<'a>(
    fields: &mut Fields<'_>,
    path: &str,
    tool: &JsonObject<'a>,
) -> Option<Option<Cow<'a, str>>> {
    let Some(raw) = tool.get("description") else {
        return Some(None);
    };
    let text =
        fields::as_text(raw).or_reject(fields, format_args!("{path}.description"), STRING_MESSAGE);
    text.map(Some)
}
