//! `tools` and `tool_choice`: what the model is told that it may call.

use crate::fields::{self, Fields, Kind, Object, Raw};
use crate::tools::{NAME_BYTES_MAX, TOOLS_MAX, is_name};
use serde_json::{Map, Value, json};

/// What is asked for and this server cannot do yet.
const NOT_SUPPORTED: &str = "is not supported yet by this server";

/// The tools that the model is to know of, in the shape that templates take. Wrong parts are noted. (`strict`
/// is taken and not kept to: whoever runs a call looks at its arguments first.)
pub(super) fn read(fields: &mut Fields<'_>) -> Vec<Value> {
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
    let tool: Option<Object<'_>> = match fields::kind(raw) {
        Kind::Object => fields::read(raw),
        _ => None,
    };
    let Some(tool) = tool else {
        fields.wrong(path, "must be an object with a type and a name");
        return None;
    };
    if tool.get("type").and_then(fields::text).as_deref() != Some("function") {
        let words = format!("other than \"function\" {NOT_SUPPORTED}");
        fields.wrong(format!("{path}.type"), words);
        return None;
    }
    let name = tool.get("name").and_then(fields::text);
    let Some(name) = name.filter(|name| is_name(name)) else {
        let words =
            format!("must be 1 to {NAME_BYTES_MAX} letters, digits, underscores, hyphens and dots");
        fields.wrong(format!("{path}.name"), words);
        return None;
    };
    let mut function = Map::new();
    function.insert("name".to_owned(), Value::String(name.clone().into_owned()));
    if let Some(raw) = tool.get("description") {
        let Some(text) = fields::text(raw) else {
            fields.wrong(format!("{path}.description"), "must be a string");
            return None;
        };
        function.insert("description".to_owned(), Value::String(text.into_owned()));
    }
    if let Some(raw) = tool.get("parameters") {
        let schema = Some(raw).filter(|raw| fields::kind(raw) == Kind::Object);
        let Some(schema) = schema.and_then(fields::read::<Value>) else {
            let words = "must be a JSON Schema (an object)";
            fields.wrong(format!("{path}.parameters"), words);
            return None;
        };
        function.insert("parameters".to_owned(), schema);
    }
    let tool = json!({"type": "function", "function": function});
    Some((name.into_owned(), tool))
}

/// Whether the model may call any: with `none` it is not told of them.
fn may_call(fields: &mut Fields<'_>, has_tools: bool) -> bool {
    if fields.boolean("parallel_tool_calls") == Some(false) && has_tools {
        let words = format!("other than true {NOT_SUPPORTED}");
        fields.wrong("parallel_tool_calls", words);
    }
    let Some(raw) = fields.raw("tool_choice") else {
        return true;
    };
    match fields::text(raw).as_deref() {
        Some("none") => false,
        Some("auto") => true,
        _ => {
            let words = format!("other than \"none\" and \"auto\" {NOT_SUPPORTED}");
            fields.wrong("tool_choice", words);
            true
        }
    }
}
