//! `tools` and `tool_choice`: what the model is told that it may call.

use super::conversation::object;
use crate::fields::{self, Fields, Kind, Raw};
use serde_json::{Map, Value};

/// Tools a request may bring.
pub(crate) const TOOLS_MAX: usize = 256;
/// Bytes of a tool's name.
const NAME_BYTES_MAX: usize = 128;
/// What is asked for and this server cannot do yet.
const NOT_SUPPORTED: &str = "is not supported yet by this server";

/// The tools that the model is to know of, in OpenAI's shape, which is the one that templates take.
/// Wrong parts are noted.
pub(crate) fn read(fields: &mut Fields<'_>) -> Vec<Value> {
    let raws = fields.array("tools", TOOLS_MAX).unwrap_or_default();
    let (mut tools, mut names) = (Vec::with_capacity(raws.len()), Vec::new());
    for (i, raw) in raws.into_iter().enumerate() {
        let path = format!("tools[{i}]");
        let Some((name, tool)) = tool(fields, &path, raw) else {
            continue;
        };
        if names.contains(&name) {
            fields.wrong(format!("{path}.name"), "must be another than those before");
        }
        names.push(name);
        tools.push(tool);
    }
    if !may_call(fields, !tools.is_empty()) {
        tools.clear();
    }
    tools
}

fn tool(fields: &mut Fields<'_>, path: &str, raw: Raw<'_>) -> Option<(String, Value)> {
    let Some(tool) = object(raw) else {
        fields.wrong(path, "must be an object with a name and an input_schema");
        return None;
    };
    let kind = tool.get("type").map(fields::text);
    if !matches!(
        kind.as_ref().map(|kind| kind.as_deref()),
        None | Some(Some("custom"))
    ) {
        let words = format!("other than \"custom\" {NOT_SUPPORTED}");
        fields.wrong(format!("{path}.type"), words);
        return None;
    }
    if tool.get("strict").is_some_and(|raw| raw.get() != "false") {
        let words = format!("other than false {NOT_SUPPORTED}");
        fields.wrong(format!("{path}.strict"), words);
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let name = tool.get("name").and_then(fields::text);
    let name =
        name.filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain));
    if name.is_none() {
        let words =
            format!("must be 1 to {NAME_BYTES_MAX} letters, digits, underscores and hyphens");
        fields.wrong(format!("{path}.name"), words);
    }
    let schema = tool
        .get("input_schema")
        .filter(|raw| fields::kind(raw) == Kind::Object)
        .and_then(fields::read::<Value>);
    if schema.is_none() {
        let words = "must be an object, nested at most 127 deep";
        fields.wrong(format!("{path}.input_schema"), words);
    }
    let mut function = Map::new();
    if let Some(raw) = tool.get("description") {
        match fields::text(raw) {
            Some(text) => {
                function.insert("description".to_owned(), Value::String(text.into_owned()));
            }
            None => fields.wrong(format!("{path}.description"), "must be a string"),
        }
    }
    let name = name?.into_owned();
    function.insert("name".to_owned(), Value::String(name.clone()));
    function.insert("parameters".to_owned(), schema?);
    let tool = serde_json::json!({"type": "function", "function": function});
    Some((name, tool))
}

/// Whether the model may call any: with `none` it is not told of them.
fn may_call(fields: &mut Fields<'_>, has_tools: bool) -> bool {
    let Some(choice) = fields.object("tool_choice") else {
        return true;
    };
    if choice
        .get("disable_parallel_tool_use")
        .is_some_and(|raw| raw.get() != "false")
    {
        let words = format!("other than false {NOT_SUPPORTED}");
        fields.wrong("tool_choice.disable_parallel_tool_use", words);
    }
    match choice.get("type").and_then(fields::text).as_deref() {
        Some("auto") if has_tools => true,
        Some("none") => false,
        Some("auto" | "any" | "tool") if !has_tools => {
            fields.wrong("tool_choice", "needs tools");
            false
        }
        Some("any" | "tool") => {
            let words = format!("other than auto and none {NOT_SUPPORTED}");
            fields.wrong("tool_choice.type", words);
            true
        }
        _ => {
            fields.wrong("tool_choice.type", "must be auto, any, tool or none");
            true
        }
    }
}
