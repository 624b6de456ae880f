//! Tools of a request: those that the model is given, and how it may call them.
//!
//! Tools that the model is offered in another form than the client gave them: those of a namespace, and those whose input is
//! a text. An encoder writes their calls in the client's form.

use crate::request::ResponseFormat;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use text::{ConstrainedTool, GrammarSource};

/// Tools per request.
pub const TOOLS_MAX: usize = 256;
/// Bytes of a tool's name.
const NAME_BYTES_MAX: usize = 128;

/// Tools of a request.
#[derive(Debug, Default)]
pub struct Tools {
    /// Definitions for the chat template, in OpenAI's shape; empty where the model may not call tools.
    pub definitions: Vec<Value>,
    /// How the answer may call tools.
    pub calling: ToolCalling,
    /// The grammar of an answer that must consist of tool calls.
    pub response_format: Option<ResponseFormat>,
    /// Tools with constrained calls: with required calls, or with any strict tool.
    pub constrained: Vec<ConstrainedTool>,
    /// Tools that the client gave in another form.
    pub offered: Vec<OfferedTool>,
}

/// How an answer may call tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolCalling {
    /// The answer must consist of tool calls; they are JSON, whichever family the model is of.
    pub required: bool,
    /// At most one call.
    pub single_call: bool,
}

/// Whether an answer calls tools (`tool_choice`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// No tool calls: the model is given no tools.
    None,
    /// The model decides.
    Auto,
    /// At least one call, of any tool.
    Required,
    /// A call of the tool with this name.
    Named(String),
}

impl Tools {
    /// Tools with a choice among them. `None`: the chosen tool is not among them.
    pub fn new(definitions: Vec<Value>, choice: &ToolChoice, once: bool) -> Option<Self> {
        let may = |tool: &&Value| match choice {
            ToolChoice::Named(name) => tool["function"]["name"] == name.as_str(),
            ToolChoice::None | ToolChoice::Auto | ToolChoice::Required => true,
        };
        let must = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
        // A named tool is called once.
        let once = once || matches!(choice, ToolChoice::Named(_));
        let called: Vec<&Value> = definitions.iter().filter(may).collect();
        if must && called.is_empty() {
            return None;
        }
        let response_format = must.then(|| ResponseFormat {
            source: GrammarSource::JsonSchema(schema_of_calls(&called, once)),
            field: "tools".to_owned(),
        });
        let strict = *choice == ToolChoice::Auto && definitions.iter().any(is_strict);
        let constrained = definitions.iter().enumerate().filter(|(_, tool)| may(tool));
        let constrained = constrained.map(|(place, tool)| ConstrainedTool {
            name: tool["function"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            arguments: (must || is_strict(tool)).then(|| argument_schema(&tool["function"])),
            strict: is_strict(tool),
            place,
        });
        Some(Self {
            calling: ToolCalling {
                required: must,
                single_call: once,
            },
            response_format,
            constrained: constrained.filter(|_| must || strict).collect(),
            offered: Vec::new(),
            definitions: match choice {
                ToolChoice::None => Vec::new(),
                _ => definitions,
            },
        })
    }
}

/// Whether a tool name is valid: 1 to 128 letters, digits, underscores, hyphens and dots.
pub fn is_tool_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

/// Whether the arguments of each call of a tool must match the schema.
fn is_strict(tool: &Value) -> bool {
    tool["function"]["strict"] == true
}

/// Schema of an answer that calls these tools: an object with name and arguments, or a list of such objects.
fn schema_of_calls(tools: &[&Value], once: bool) -> Value {
    let root = if once { "#" } else { "#/items" };
    let calls = tools.iter().enumerate().map(|(i, &tool)| {
        let function = &tool["function"];
        let mut arguments = argument_schema(function);
        move_to(
            &mut arguments,
            &format!("{root}/anyOf/{i}/properties/arguments"),
        );
        json!({
            "type": "object",
            "properties": {"name": {"const": function["name"]}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        })
    });
    let call = json!({"anyOf": calls.collect::<Vec<_>>()});
    if once {
        call
    } else {
        json!({"type": "array", "items": call, "minItems": 1})
    }
}

/// Allows any object as the arguments of one of the calls of [`schema_of_calls`].
pub(crate) fn allow_any_arguments(calls: &mut Value, tool: usize) {
    for root in ["", "/items"] {
        let place = format!("{root}/anyOf/{tool}/properties/arguments");
        if let Some(arguments) = calls.pointer_mut(&place) {
            *arguments = json!({"type": "object"});
        }
    }
}

/// Schema of a tool's arguments: an object, unless the schema states another type.
fn argument_schema(function: &Value) -> Value {
    let mut schema = match &function["parameters"] {
        schema @ Value::Object(_) => schema.clone(),
        _ => json!({}),
    };
    let says = |keyword| schema.get(keyword).is_some();
    if !["type", "$ref", "anyOf", "oneOf", "allOf"]
        .into_iter()
        .any(says)
    {
        schema["type"] = json!("object");
    }
    schema
}

/// Moves references to parts of a schema, for a schema that becomes the part at `place` of another.
fn move_to(schema: &mut Value, place: &str) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| move_to(item, place)),
        Value::Object(entries) => {
            for (keyword, value) in entries {
                match value {
                    Value::String(to) if keyword == "$ref" => {
                        if let Some(inner) = to.strip_prefix('#') {
                            *to = format!("{place}{inner}");
                        }
                    }
                    value => move_to(value, place),
                }
            }
        }
        _ => {}
    }
}

/// Between a namespace and the name of a tool in it, in the name that the model is offered.
const NAMESPACE_SEPARATOR: &str = "__";
/// The argument that holds the input of a custom tool.
pub(crate) const INPUT: &str = "input";

/// A tool as the client knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// Name of the function that the model is offered.
    pub function: Box<str>,
    /// Name of the tool, without the namespace.
    pub name: Box<str>,
    /// Namespace of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Box<str>>,
    /// Whether calls have a text (`input`) instead of arguments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_custom: bool,
}

impl OfferedTool {
    /// A tool with this name.
    pub fn new(namespace: Option<&str>, name: &str, is_custom: bool) -> Self {
        Self {
            function: function_name(namespace, name).into(),
            name: name.into(),
            namespace: namespace.map(Box::from),
            is_custom,
        }
    }

    /// Whether the model is offered something else than the client gave.
    pub fn is_changed(&self) -> bool {
        self.namespace.is_some() || self.is_custom
    }
}

/// Name of the function that the model is offered for a tool.
pub fn function_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}{NAMESPACE_SEPARATOR}{name}"),
        None => name.to_owned(),
    }
}

/// The tool that the model calls by this name, unless the client gave it in the same form.
pub fn find_offered<'a>(tools: &'a [OfferedTool], function: &str) -> Option<&'a OfferedTool> {
    tools.iter().find(|tool| *tool.function == *function)
}

/// Schema of the arguments by which the model gives the input of a custom tool.
pub fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {INPUT: {"type": "string"}},
        "required": [INPUT],
        "additionalProperties": false,
    })
}

/// Arguments of an earlier call of a custom tool.
pub fn input_arguments(input: &str) -> Value {
    json!({ INPUT: input })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<Value> {
        let tool = |name: &str, parameters: Value| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
        let x = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}});
        vec![tool("a", x), tool("b", Value::Null)]
    }

    fn schema(format: Option<ResponseFormat>) -> Value {
        match format {
            Some(ResponseFormat {
                source: GrammarSource::JsonSchema(schema),
                ..
            }) => schema,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn required_call_is_one_of_the_tools() {
        let of = |choice, once| Tools::new(tools(), &choice, once);
        let auto = of(ToolChoice::Auto, true).expect("tools");
        assert!(auto.calling.single_call && !auto.calling.required);
        assert_eq!((auto.response_format, auto.constrained), (None, Vec::new()));
        let none = of(ToolChoice::None, false).expect("none");
        assert!(none.definitions.is_empty());
        assert!(of(ToolChoice::Named("c".to_owned()), false).is_none());
        assert!(Tools::new(Vec::new(), &ToolChoice::Required, false).is_none());
        let all = schema(of(ToolChoice::Required, false).and_then(|tools| tools.response_format));
        let calls = &all["items"]["anyOf"];
        assert_eq!(calls[0]["properties"]["name"], json!({"const": "a"}));
        let mut relaxed = all.clone();
        allow_any_arguments(&mut relaxed, 0);
        let arguments = relaxed.pointer("/items/anyOf/0/properties/arguments");
        assert_eq!(arguments, Some(&json!({"type": "object"})));
        let reference = calls[0].pointer("/properties/arguments/properties/x/$ref");
        let place = reference.and_then(Value::as_str).expect("a reference");
        assert_eq!(all.pointer(&place[1..]), Some(&json!({"type": "string"})));
        assert_eq!(
            calls[1]["properties"]["arguments"],
            json!({"type": "object"})
        );
        let one =
            of(ToolChoice::Named("b".to_owned()), false).and_then(|tools| tools.response_format);
        let one = schema(one);
        assert_eq!(one["anyOf"].as_array().map(Vec::len), Some(1));
        assert_eq!(one["anyOf"][0]["properties"]["name"], json!({"const": "b"}));
    }

    #[test]
    fn strict_tools_are_constrained() {
        let mut some = tools();
        some[0]["function"]["strict"] = json!(true);
        let tools = Tools::new(some, &ToolChoice::Auto, false).expect("tools");
        let constrained = tools.constrained.iter();
        let kept =
            constrained.map(|tool| (tool.name.as_str(), tool.arguments.is_some(), tool.place));
        assert_eq!(kept.collect::<Vec<_>>(), [("a", true, 0), ("b", false, 1)]);
        let named = Tools::new(tools.definitions, &ToolChoice::Named("b".to_owned()), false);
        let named = named.expect("tools").constrained;
        assert_eq!((named.len(), named[0].place), (1, 1));
        assert_eq!(named[0].arguments, Some(json!({"type": "object"})));
    }
}
