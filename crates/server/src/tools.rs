//! `tools` and `tool_choice` in OpenAI's shape: what the model is told that it may call.

use crate::fields::{self, Fields, Kind, Object, Raw};
use serde_json::Value;

/// Tools a request may bring.
pub(crate) const TOOLS_MAX: usize = 256;
/// Bytes of a tool's name.
pub(crate) const NAME_BYTES_MAX: usize = 128;
/// What a tool's name must be.
const NAME_WORDS: &str = "must be 1 to 128 letters, digits, underscores, hyphens and dots";
/// What is asked for and this server cannot do yet.
const NOT_SUPPORTED: &str = "is not supported yet by this server";

/// The tools that the model is to know of, as templates take them. Wrong parts are noted.
pub(crate) fn read(fields: &mut Fields<'_>) -> Vec<Value> {
    let raws = fields.array("tools", TOOLS_MAX).unwrap_or_default();
    let (mut tools, mut names) = (Vec::with_capacity(raws.len()), Vec::new());
    for (i, raw) in raws.into_iter().enumerate() {
        let path = format!("tools[{i}]");
        let Some((name, tool)) = tool(fields, &path, raw) else {
            continue;
        };
        if names.contains(&name) {
            let words = "must be another than those before";
            fields.wrong(format!("{path}.function.name"), words);
        }
        names.push(name);
        tools.push(tool);
    }
    if !may_call(fields, !tools.is_empty()) {
        tools.clear();
    }
    tools
}

/// Tools go with a conversation: who brings a prompt as it is has told the model already.
pub(crate) fn refuse(fields: &mut Fields<'_>) {
    let tools = fields.array("tools", usize::MAX);
    if tools.is_some_and(|tools| !tools.is_empty()) {
        fields.wrong("tools", "need messages: a prompt is taken as it is");
    }
}

/// Whether this may be a tool's name.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

fn tool(fields: &mut Fields<'_>, path: &str, raw: Raw<'_>) -> Option<(String, Value)> {
    let Some(tool) = object(raw) else {
        fields.wrong(path, "must be an object with type and function");
        return None;
    };
    let kind = tool.get("type").map(fields::text);
    if !matches!(
        kind.as_ref().map(Option::as_deref),
        None | Some(Some("function"))
    ) {
        fields.wrong(format!("{path}.type"), "must be \"function\"");
        return None;
    }
    let path = format!("{path}.function");
    let Some(function) = tool.get("function").and_then(object) else {
        fields.wrong(path, "must be an object with a name");
        return None;
    };
    let name = function.get("name").and_then(fields::text);
    let name = name.filter(|name| is_name(name));
    if name.is_none() {
        fields.wrong(format!("{path}.name"), NAME_WORDS);
    }
    let description = function.get("description");
    if description.is_some_and(|raw| fields::text(raw).is_none()) {
        fields.wrong(format!("{path}.description"), "must be a string");
    }
    let parameters = function.get("parameters");
    if parameters.is_some_and(|raw| fields::kind(raw) != Kind::Object) {
        fields.wrong(
            format!("{path}.parameters"),
            "must be a JSON Schema (an object)",
        );
    }
    if function
        .get("strict")
        .is_some_and(|raw| raw.get() != "false")
    {
        let words = format!("other than false {NOT_SUPPORTED}");
        fields.wrong(format!("{path}.strict"), words);
    }
    let Some(mut tool) = fields::read::<Value>(raw) else {
        fields.wrong(path, "is nested too deeply");
        return None;
    };
    // Templates look at it, and not every client says it.
    tool["type"] = Value::from("function");
    Some((name?.into_owned(), tool))
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
    match (fields::kind(raw), fields::text(raw).as_deref()) {
        (_, Some("none")) => false,
        (_, Some("auto")) => true,
        (Kind::Object, _) | (_, Some("required")) => {
            let words = format!("other than \"none\" and \"auto\" {NOT_SUPPORTED}");
            fields.wrong("tool_choice", words);
            true
        }
        _ => {
            let words = "must be none, auto, required, or an object that names a function";
            fields.wrong("tool_choice", words);
            true
        }
    }
}

/// A value as an object.
fn object(raw: Raw<'_>) -> Option<Object<'_>> {
    match fields::kind(raw) {
        Kind::Object => fields::read(raw),
        _ => None,
    }
}
