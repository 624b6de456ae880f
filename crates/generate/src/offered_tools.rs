//! Tools that the model is offered in another form than the client gave them: those of a namespace, and those whose input is
//! a text. An encoder writes their calls in the client's form.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
