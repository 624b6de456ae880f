//! Parameter types of the request's tools, as far as parsing needs the types.

use serde_json::Value;
use std::collections::HashMap;

/// Depth to which `$ref`, `anyOf` and similar keywords are followed.
const FOLLOWED_MAX: usize = 4;

/// Tools of a request by name, with parameter types.
#[derive(Clone, Debug, Default)]
pub struct ToolSchemas {
    tools: HashMap<String, HashMap<String, ParameterKind>>,
}

/// How the plain text of a parameter is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterKind {
    /// Always a string.
    String,
    /// A string, except that `null` is null.
    NullableString,
    /// A number or one of the JSON words.
    Scalar,
    /// An object or a list.
    Nested,
    /// Unknown type: classified by content.
    Unknown,
}

impl ToolSchemas {
    /// From tools in OpenAI's shape (`{"type": "function", "function": {"name", "parameters"}}`), or with
    /// name and schema at the top level.
    pub fn new(tools: &[Value]) -> Self {
        let tools = tools.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            let schema = function
                .get("parameters")
                .or_else(|| function.get("input_schema"));
            Some((name, schema.map(parameters).unwrap_or_default()))
        });
        Self {
            tools: tools.collect(),
        }
    }

    /// Whether the request has no tools.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether the request has a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// The type of a tool's parameter.
    pub(super) fn kind(&self, tool: &str, parameter: &str) -> ParameterKind {
        let parameters = self.tools.get(tool);
        parameters
            .and_then(|parameters| parameters.get(parameter).copied())
            .unwrap_or(ParameterKind::Unknown)
    }
}

/// The type of a parameter in the schema `root`; whether the type is known; whether a string is allowed.
pub(super) fn kind_of(property: &Value, root: &Value) -> (ParameterKind, bool, bool) {
    let mut types = AllowedTypes::default();
    types.add(property, root, 0);
    let is_known = types.string || types.null || types.scalar || types.nested;
    (types.kind(), is_known, types.string)
}

fn parameters(schema: &Value) -> HashMap<String, ParameterKind> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(name, property)| (name.clone(), kind_of(property, schema).0))
        .collect()
}

/// Types that a schema allows.
#[derive(Default)]
struct AllowedTypes {
    string: bool,
    null: bool,
    scalar: bool,
    nested: bool,
}

impl AllowedTypes {
    fn add(&mut self, schema: &Value, root: &Value, depth: usize) {
        if depth == FOLLOWED_MAX {
            return;
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.name(name),
            Some(Value::Array(names)) => names
                .iter()
                .filter_map(Value::as_str)
                .for_each(|name| self.name(name)),
            _ => {}
        }
        let constants = schema.get("enum").and_then(Value::as_array);
        let constants = constants.into_iter().flatten().chain(schema.get("const"));
        if schema.get("type").is_none() {
            constants.for_each(|constant| self.constant(constant));
        }
        for name in ["anyOf", "oneOf", "allOf"] {
            let options = schema.get(name).and_then(Value::as_array);
            for option in options.into_iter().flatten() {
                self.add(option, root, depth + 1);
            }
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|path| root.pointer(path.strip_prefix('#')?));
        if let Some(target) = target {
            self.add(target, root, depth + 1);
        }
    }

    fn name(&mut self, name: &str) {
        match name {
            "string" => self.string = true,
            "null" => self.null = true,
            "integer" | "number" | "boolean" => self.scalar = true,
            "object" | "array" => self.nested = true,
            _ => {}
        }
    }

    fn constant(&mut self, constant: &Value) {
        match constant {
            Value::String(_) => self.string = true,
            Value::Null => self.null = true,
            Value::Bool(_) | Value::Number(_) => self.scalar = true,
            Value::Array(_) | Value::Object(_) => self.nested = true,
        }
    }

    fn kind(&self) -> ParameterKind {
        match (self.string, self.null, self.scalar, self.nested) {
            (true, false, false, false) => ParameterKind::String,
            (true, true, false, false) => ParameterKind::NullableString,
            (false, _, _, true) if !self.null && !self.scalar => ParameterKind::Nested,
            (false, _, true, false) | (false, true, false, false) => ParameterKind::Scalar,
            _ => ParameterKind::Unknown,
        }
    }
}
