//! What a request says of tools: which the model is told of, and how it may call them.

use crate::response_format::ResponseFormat;
use serde_json::{Value, json};
use text::{ConstrainedTool, GrammarSource};

/// Tools a request may bring.
pub const TOOLS_MAX: usize = 256;

/// What a request says of tools.
#[derive(Debug, Default)]
pub struct Tools {
    /// What the model is told of, in OpenAI's shape, which is the one that templates take; none where
    /// it may not call any.
    pub definitions: Vec<Value>,
    /// How the answer may call tools.
    pub calling: ToolCalling,
    /// What the answer must look like, where it must be calls.
    pub form: Option<ResponseFormat>,
    /// The tools that calls are bound to, where some must be made or not every one is as good as another.
    pub bound: Vec<ConstrainedTool>,
}

/// How an answer may call tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolCalling {
    /// The answer must consist of tool calls; they are JSON, whichever family the model is of.
    pub must: bool,
    /// Once at most.
    pub once: bool,
}

/// Whether an answer calls tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// No tool calls: the model is given no tools.
    None,
    /// As the model likes.
    Auto,
    /// Any of them.
    Required,
    /// The one of this name.
    Named(String),
}

impl Tools {
    /// These, to be called so. `None`: no tool has that name.
    pub fn new(definitions: Vec<Value>, choice: &ToolChoice, once: bool) -> Option<Self> {
        let may = |tool: &&Value| match choice {
            ToolChoice::Named(name) => tool["function"]["name"] == name.as_str(),
            ToolChoice::None | ToolChoice::Auto | ToolChoice::Required => true,
        };
        let must = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
        // Who names one wants it once.
        let once = once || matches!(choice, ToolChoice::Named(_));
        let called: Vec<&Value> = definitions.iter().filter(may).collect();
        if must && called.is_empty() {
            return None;
        }
        let form = must.then(|| ResponseFormat {
            source: GrammarSource::JsonSchema(schema_of_calls(&called, once)),
            field: "tools".to_owned(),
        });
        let strict = *choice == ToolChoice::Auto && definitions.iter().any(is_strict);
        let bound = definitions.iter().enumerate().filter(|(_, tool)| may(tool));
        let bound = bound.map(|(place, tool)| ConstrainedTool {
            name: tool["function"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            arguments: (must || is_strict(tool)).then(|| arguments(&tool["function"])),
            place,
        });
        Some(Self {
            calling: ToolCalling { must, once },
            form,
            bound: bound.filter(|_| must || strict).collect(),
            definitions: match choice {
                ToolChoice::None => Vec::new(),
                _ => definitions,
            },
        })
    }
}

/// Whether a tool's arguments must be as it says, whatever is called when.
fn is_strict(tool: &Value) -> bool {
    tool["function"]["strict"] == true
}

/// Of an answer that calls these tools: one object with a name and arguments, or a list of them.
fn schema_of_calls(tools: &[&Value], once: bool) -> Value {
    let root = if once { "#" } else { "#/items" };
    let calls = tools.iter().enumerate().map(|(i, &tool)| {
        let function = &tool["function"];
        let mut arguments = arguments(function);
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
    match once {
        true => call,
        false => json!({"type": "array", "items": call, "minItems": 1}),
    }
}

/// What a tool takes: an object, whatever else is said.
fn arguments(function: &Value) -> Value {
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

/// A schema's references to its own parts, when it stands at `place` of another.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<Value> {
        let tool = |name: &str, parameters: Value| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
        let x = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}});
        vec![tool("a", x), tool("b", Value::Null)]
    }

    fn schema(form: Option<ResponseFormat>) -> Value {
        match form {
            Some(ResponseFormat {
                source: GrammarSource::JsonSchema(schema),
                ..
            }) => schema,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_is_one_of_the_tools() {
        let of = |choice, once| Tools::new(tools(), &choice, once);
        let auto = of(ToolChoice::Auto, true).expect("tools");
        assert!(auto.calling.once && !auto.calling.must);
        assert_eq!((auto.form, auto.bound), (None, Vec::new()));
        let none = of(ToolChoice::None, false).expect("none");
        assert!(none.definitions.is_empty());
        assert!(of(ToolChoice::Named("c".to_owned()), false).is_none());
        assert!(Tools::new(Vec::new(), &ToolChoice::Required, false).is_none());
        let all = schema(of(ToolChoice::Required, false).and_then(|tools| tools.form));
        let calls = &all["items"]["anyOf"];
        assert_eq!(calls[0]["properties"]["name"], json!({"const": "a"}));
        let reference = calls[0].pointer("/properties/arguments/properties/x/$ref");
        let place = reference.and_then(Value::as_str).expect("a reference");
        assert_eq!(all.pointer(&place[1..]), Some(&json!({"type": "string"})));
        assert_eq!(
            calls[1]["properties"]["arguments"],
            json!({"type": "object"})
        );
        let one = of(ToolChoice::Named("b".to_owned()), false).and_then(|tools| tools.form);
        let one = schema(one);
        assert_eq!(one["anyOf"].as_array().map(Vec::len), Some(1));
        assert_eq!(one["anyOf"][0]["properties"]["name"], json!({"const": "b"}));
    }

    #[test]
    fn what_is_strict_is_kept() {
        let mut some = tools();
        some[0]["function"]["strict"] = json!(true);
        let tools = Tools::new(some, &ToolChoice::Auto, false).expect("tools");
        let bound = tools.bound.iter();
        let kept = bound.map(|tool| (tool.name.as_str(), tool.arguments.is_some(), tool.place));
        assert_eq!(kept.collect::<Vec<_>>(), [("a", true, 0), ("b", false, 1)]);
        let named = Tools::new(tools.definitions, &ToolChoice::Named("b".to_owned()), false);
        let named = named.expect("tools").bound;
        assert_eq!((named.len(), named[0].place), (1, 1));
        assert_eq!(named[0].arguments, Some(json!({"type": "object"})));
    }
}
